"""Claims of the moDNN paper about every network (Chen et al., TPDS 2019), case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import mean

from papers.claims.judge import ALWAYS, Case, Finding, Outcome, Verdict, judge
from papers.claims.modnn_claims import FITTED, point
from papers.claims.modnn_rows import GB, DeviceRow, ModnnRows, TimeRow

# §7.4: with so many GB its whole batch is kept; with less it is not.
_POWER_NETWORK, _POWER_BATCH, _KEPT = "resnet34", 256, (6, 5)
# Networks of one kind, the smaller ones first (§7.1).
_KINDS = (("vgg16", "vgg19", "vgg101"), ("resnet34", "resnet152"))
_VDNN_FACTOR = 10


@dataclass(frozen=True)
class CaseClaim:
    """A statement about every network, or every network in every memory; as for `Claim`.

    Attributes
    ----------
    certified : str
        The evidence of the cases, in a word.
    fitted : bool
        Whether the reading was chosen so that all cases hold: then they confirm nothing.
    """

    key: str
    place: str
    statement: str
    test: str
    cases: Callable[[ModnnRows], Iterator[Case]]
    why: str = ""
    certified: str = "–"
    fitted: bool = False

    def judge(self, rows: ModnnRows) -> Finding:
        """Return the finding of rows about the claim."""
        return judge(list(self.cases(rows)), ALWAYS)

    def verdict(self, rows: ModnnRows) -> str:
        """Return the verdict in a word."""
        found = self.judge(rows).verdict
        return FITTED if self.fitted and found is Verdict.CONFIRMED else str(found)


def _decided(label: str, holds: bool, fails: bool, text: str) -> Case:
    outcome = Outcome.HOLDS if holds else Outcome.FAILS if fails else Outcome.OPEN
    return Case(label, outcome, None, text)


def too_large(rows: ModnnRows) -> Iterator[Case]:
    """Networks that are said not to run in a memory as they are: whose ideal case is larger."""
    for size, name in ((12, "kept_12"), (24, "kept_24")):
        for row in rows.memory:
            if row.ideal > size * GB:
                text = f"at most {row.live / GB:.1f} GB are there at a time"
                kept = getattr(row, name)
                yield _decided(f"{row.network} in {size} GB", row.live > size * GB, kept, text)


def any_budget(rows: ModnnRows) -> Iterator[Case]:
    """Algorithm 1 with exactly the bytes of Eq. 7, weights resident or not."""
    for row in rows.memory:
        for suffix, what in (("", ""), ("_weights", ", weights leave")):
            time = getattr(row, f"least_modnn{suffix}")
            best = getattr(row, f"least_time{suffix}")
            text = f"{getattr(row, f'least{suffix}') / 2**20:.0f} MB"
            if time is not None and best is not None:
                text += f", {time / row.ideal_time:.2f} times the ideal time (certified: "
                text += f"{best / row.ideal_time:.2f})"
            yield _decided(row.network + what, time is not None, time is None, text)


def less_than_vdnn(rows: ModnnRows) -> Iterator[Case]:
    """The least memory of vDNN, and of any schedule of the whole batch, by that of moDNN."""
    found = [Fraction(row.vdnn_least, row.least) for row in rows.memory]
    any_schedule = [Fraction(row.whole_least, row.least) for row in rows.memory]
    parts = zip(rows.memory, found, strict=True)
    text = ", ".join(f"{row.network} {float(ratio):.1f}" for row, ratio in parts)
    text = f"{float(mean(found)):.1f} times less: {text}; than any schedule of the whole batch "
    text += f"needs, {float(mean(any_schedule)):.1f} times"
    more = mean(found) > _VDNN_FACTOR
    yield _decided("mean over the networks", more, not more, text)


def grows_with_scale(rows: ModnnRows) -> Iterator[Case]:
    """The reduction of memory for networks of one kind, each against the next larger one."""
    known = {row.network: row for row in rows.memory}
    for kind in _KINDS:
        for small, large in pairwise(name for name in kind if name in known):
            for suffix, what in (("", ""), ("_weights", ", weights leave")):
                before, after = (
                    Fraction(known[name].ideal, getattr(known[name], f"least{suffix}"))
                    for name in (small, large)
                )
                text = f"{float(before):.3g}× and {float(after):.3g}×"
                label = f"{small} and {large}{what}"
                yield _decided(label, after > before, after <= before, text)


def never_longer(rows: ModnnRows) -> Iterator[Case]:
    """Algorithm 1 against vDNN+ in every memory."""
    for row in rows.times:
        if row.modnn_time is not None and row.plus_time is not None:
            text = f"{row.plus_time / row.modnn_time:.3f} times as fast"
            shorter = row.modnn_time < row.plus_time
            yield _decided(point(row), shorter, not shorter, text)


def slower_with_less(rows: ModnnRows) -> Iterator[Case]:
    """Algorithm 1 in every memory against that in the next larger one."""
    for network in rows.networks:
        own = sorted((row for row in rows.times if row.network == network), key=_memory)
        for less, more in pairwise(own):
            if less.modnn_time is not None and more.modnn_time is not None:
                times = less.modnn_time / less.ideal_time, more.modnn_time / more.ideal_time
                text = f"{times[0]:.3f} with sub-batches of {less.modnn_size}, {times[1]:.3f} "
                text += f"with {more.modnn_size} in {more.memory / GB:g} GB"
                shorter = less.modnn_time < more.modnn_time
                yield _decided(point(less), not shorter, shorter, text)


def _memory(row: TimeRow) -> int:
    return row.memory


def whole_batch(rows: ModnnRows) -> Iterator[Case]:
    """The sub-batches of ResNet-34: 256 at 5 GB and more, fewer images below."""
    for row in _power_rows(rows):
        kept = row.memory >= min(_KEPT) * GB
        holds = (row.modnn_size == _POWER_BATCH) is kept
        text = f"{row.modnn_size}, in the paper {'' if kept else 'less than '}{_POWER_BATCH}"
        yield _decided(f"{row.memory / GB:g} GB", holds, not holds, text)


def more_moved(rows: ModnnRows) -> Iterator[Case]:
    """Bytes that Algorithm 1 moves for ResNet-34 where its batch is kept and room is scarce."""
    live = {row.network: row.live for row in rows.memory}
    for row in _power_rows(rows):
        if row.memory in [size * GB for size in _KEPT] and row.modnn_moved is not None:
            text = f"{row.modnn_moved / GB:.2f} GB leave or return; at most "
            text += f"{live[_POWER_NETWORK] / GB:.2f} GB are there at a time"
            moved = row.modnn_moved > 0
            yield _decided(f"{row.memory / GB:g} GB", moved, not moved, text)


def _power_rows(rows: ModnnRows) -> list[TimeRow]:
    return [row for row in rows.times if row.network == _POWER_NETWORK]


def host_better(rows: ModnnRows) -> Iterator[Case]:
    """The host against the first device on four GPUs, by what is certified of both."""
    for size in ("6 GB", "3 GB"):
        naive = {row.network: row for row in rows.case(f"{size}, naive")}
        for row in rows.case(size):
            other = naive[row.network]
            holds = row.makespan < other.lower_bound
            fails = row.lower_bound >= other.makespan
            text = f"{row.one_gpu / row.makespan:.2f} against {row.one_gpu / other.makespan:.2f}"
            yield _decided(f"{row.network} at {size}", holds, fails, text)


def poorer_with_more(rows: ModnnRows) -> Iterator[Case]:
    """The speed-up a GPU of each number of GPUs against the next smaller one, as certified."""
    names = ("2 GPUs, 12 GB", "12 GB", "8 GPUs, 12 GB")
    for fewer, more in pairwise(names):
        known = {row.network: row for row in rows.case(fewer)}
        for row in rows.case(more):
            other = known.get(row.network)
            if other is not None:
                holds = _part(row, row.lower_bound) < _part(other, other.makespan)
                fails = _part(row, row.makespan) >= _part(other, other.lower_bound)
                text = f"{float(_part(other, other.makespan)):.0%} of what GPUs could do, then "
                text += f"{float(_part(row, row.makespan)):.0%}"
                label = f"{row.network}, {other.devices} to {row.devices} GPUs"
                yield _decided(label, holds, fails, text)


def _part(row: DeviceRow, time: int) -> Fraction:
    """Return the speed-up of a GPU, relative to one that has all memory and the link alone."""
    return Fraction(row.one_gpu, row.devices * time)


RATE = "The paper does not say at which rate its host adds; a core adds 4 GB/s here."

CASES = (
    CaseClaim(
        "modnn-too-large",
        "§7.1, Fig. 9",
        "Except for ResNet-34 the networks cannot be trained in 12 GB, the VGGs and ResNet-152 not "
        "even in 24 GB, unless something leaves or batches are split.",
        "Each case is a network whose ideal case is larger, with its whole batch and the fastest "
        "algorithms. It fails if there is a schedule with addresses in which nothing leaves, and "
        "holds if more is there at a time.",
        too_large,
        "The ideal case gives every tensor a place of its own. Rooms of tensors that are no longer "
        "needed can be used again.",
        "addresses",
    ),
    CaseClaim(
        "modnn-scale",
        "§7.1, Fig. 9",
        "Among networks of one kind, memory is reduced the more the larger the network.",
        "Each case is a network and the next larger one of its kind, with weights that stay and "
        "with weights that leave: the bytes of the ideal case by the least. That nothing runs with "
        "a byte less than the least is certified.",
        grows_with_scale,
        certified="none with a byte less",
    ),
    CaseClaim(
        "modnn-less-than-vdnn",
        "§7.1",
        f"moDNN can do with more than {_VDNN_FACTOR} times less memory than vDNN without "
        "sub-batches.",
        "The only case is the mean over the networks of the least memory with which vDNN runs the "
        "whole batch, by that of Eq. 7. Neither depends on times.",
        less_than_vdnn,
        "The paper derives it from means of Fig. 13, in which vDNN saves 4.1 times.",
        "exact",
    ),
    CaseClaim(
        "modnn-any-budget",
        "§7.2",
        "moDNN fits any memory that is not smaller than Eq. 7.",
        "Each case is a network with exactly so many bytes, and with those for weights that leave. "
        "It holds if Algorithm 1 finds a schedule with addresses for single images. That nothing "
        "runs with a byte less is certified.",
        any_budget,
        certified="none with a byte less",
    ),
    CaseClaim(
        "modnn-always-better",
        "§7.2, Fig. 12",
        "moDNN is always better than vDNN+.",
        "Each case is a network in a memory. It holds if Algorithm 1's time is shorter than "
        "vDNN's with the sub-batch of Eq. 8.",
        never_longer,
    ),
    CaseClaim(
        "modnn-slower-with-less",
        "§7.2, Fig. 12; §7.4, Fig. 16",
        "The less memory, the longer a batch takes.",
        "Each case is a network in a memory. It fails if Algorithm 1 is faster than in the next "
        "larger memory of the table.",
        slower_with_less,
        "The certified best is never faster with less. Algorithm 1 is, where profiling and "
        "selection run in a circle and a larger memory gets the smaller sub-batch.",
    ),
    CaseClaim(
        "modnn-whole-batch",
        "§7.4",
        "ResNet-34 keeps its batch of 256 at 5 and 6 GB, and has smaller sub-batches below.",
        "Each case is a memory. Sizes alone decide it, no times.",
        whole_batch,
        "These are the only sub-batches that the paper prints, and our reading of Eq. 8 was chosen "
        "by them.",
        "exact",
        fitted=True,
    ),
    CaseClaim(
        "modnn-more-moved",
        "§7.4",
        "At 5 and 6 GB more is offloaded and prefetched for ResNet-34 than in the ideal case, in "
        "which nothing is.",
        "Each case is a memory. It holds if Algorithm 1 moves anything.",
        more_moved,
        "With 6 GB all of it finds room here. With workspaces as large as the paper's, 15 % of the "
        "memory, it would not.",
        "addresses",
    ),
    CaseClaim(
        "modnn-host-better",
        "§7.5, Fig. 18",
        "In the same memory the host's additions are always better than naive ones.",
        "Each case is a network on four GPUs with 6 or 3 GB each, one core. It holds if the "
        "host's schedule is shorter than is proved for the naive way, and fails if it is proved "
        "not to be.",
        host_better,
        RATE,
        "bounds",
    ),
    CaseClaim(
        "modnn-more-gpus",
        "§6.2",
        "It can be expected that the approach does poorer on systems with more GPUs.",
        "Each case is a network on twice as many GPUs of 12 GB, one core. It holds if the speed-up "
        "a GPU is proved to be less than what is found on half as many, and fails if it is "
        "proved not to be.",
        poorer_with_more,
        RATE,
        "bounds",
    ),
)
