"""The moDNN paper's claims (Chen et al., TPDS 2019, §7), one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from offcert.report.claims.judge import ALWAYS, Case, Finding, Outcome, judge
from offcert.report.claims.modnn_claims import (
    NumberClaim,
    Numbers,
    least,
    offloading_time,
    over_one,
    over_vdnn,
    point,
    slowdown,
    speed_up,
    technique,
    technique_time,
)
from offcert.report.claims.modnn_rows import GB, ModnnRows

_TRANSFERS = 378


@dataclass(frozen=True)
class CaseClaim:
    """A statement about every network, or every network in every memory; as for `Claim`.

    Attributes
    ----------
    certified : str
        What the cases rest on, in a word.
    """

    key: str
    place: str
    statement: str
    test: str
    cases: Callable[[ModnnRows], Iterator[Case]]
    why: str = ""
    certified: str = "–"

    def judge(self, rows: ModnnRows) -> Finding:
        """Return what the rows say about it."""
        return judge(list(self.cases(rows)), ALWAYS)


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
            text = f"{getattr(row, f'least{suffix}') / 10**6:.0f} MB"
            if time is not None and best is not None:
                text += f", {time / row.ideal_time:.2f} times the ideal time (certified: "
                text += f"{best / row.ideal_time:.2f})"
            yield _decided(row.network + what, time is not None, time is None, text)


def fewer_transfers(rows: ModnnRows) -> Iterator[Case]:
    """Bytes moved at 12 GB, where vDNN has a plan that moves something."""
    for row in rows.at(12 * GB):
        if row.vdnn_moved and row.modnn_moved is not None:
            holds = _TRANSFERS * row.modnn_moved <= row.vdnn_moved
            text = f"{row.vdnn_moved / GB:.0f} GB by vDNN, {row.modnn_moved / GB:.1f} by moDNN"
            yield _decided(row.network, holds, not holds, text)


def never_longer(rows: ModnnRows) -> Iterator[Case]:
    """Algorithm 1 against vDNN+ in every memory."""
    for row in rows.times:
        if row.modnn_time is not None and row.plus_time is not None:
            text = f"{row.plus_time / row.modnn_time:.3f} times as fast"
            shorter = row.modnn_time < row.plus_time
            yield _decided(point(row), shorter, not shorter, text)


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


_RATE = "The paper does not say at which rate its host adds; a core adds 4 GB/s here."
_SMALL = (
    "The paper does not state its sub-batches; what ours selects is small, and only the last "
    "round's computing hides transfers and additions."
)
_KERNELS = "It measured kernels and does not list their times; ours are a stated model's."

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
        "modnn-transfers",
        "§7.2, Fig. 11",
        f"moDNN moves {_TRANSFERS} times fewer bytes than vDNN at 12 GB.",
        "Each case is a network for which vDNN has a plan and moves something.",
        fewer_transfers,
        "The paper's is a mean over six networks, and finite. With our sub-batches moDNN moves "
        "nothing at all, and vDNN finds no room for VGG-16 and VGG-19.",
    ),
    CaseClaim(
        "modnn-always-better",
        "§7.2, Fig. 12",
        "moDNN is always better than vDNN+.",
        "Each case is a network in a memory. It holds if Algorithm 1's time is shorter than "
        "vDNN's with the sub-batch of Eq. 8.",
        never_longer,
        "Eq. 8 selects sub-batches so small that almost nothing leaves; then both do the same.",
    ),
    CaseClaim(
        "modnn-host-better",
        "§7.5, Fig. 18",
        "In the same memory the host's additions are always better than naive ones.",
        "Each case is a network on four GPUs with 6 or 3 GB each, one core. It holds if the "
        "host's schedule is shorter than is proved for the naive way, and fails if it is proved "
        "not to be.",
        host_better,
        _RATE,
        "bounds",
    ),
)


def _best(size: str) -> tuple[str, Callable[[ModnnRows], Numbers]]:
    return "with the best sub-batches", speed_up(f"{size}, best")


NUMBERS = (
    NumberClaim(
        "modnn-least",
        "§7.1, Fig. 9",
        "The lower bound on memory is 59 times less than the ideal case.",
        "The bytes of the ideal case by those of Eq. 7. Certified: a schedule with so many bytes, "
        "and that there is none with a byte less, whatever the sub-batch and the algorithms.",
        Fraction(59),
        least(),
        why="What the paper leaves open about its networks was decided by four other numbers of "
        "Fig. 9, so it is no surprise.",
        beside=("by *live*, what is there at a time", least(size="live")),
    ),
    NumberClaim(
        "modnn-least-weights",
        "§7.1, Fig. 9",
        "If weights leave, too, it is 396 times less.",
        "The same with weights as tensors that may leave.",
        Fraction(396),
        least("_weights"),
        why="ResNet-152 governs the mean, and the paper lists no number of single networks.",
        beside=("by *live*", least("_weights", "live")),
    ),
    NumberClaim(
        "modnn-sub-batches",
        "§7.3, Fig. 13",
        "Sub-batches alone take 42 times less memory.",
        "The ideal case of the whole batch by that of single images. Nothing is scheduled; "
        "the number is exact.",
        Fraction(42),
        technique("sub_batches"),
    ),
    NumberClaim(
        "modnn-offloading",
        "§7.3, Fig. 13",
        "Offloading alone takes 4.1 times less memory.",
        "The ideal case by the least with which the whole batch and the fastest algorithms run; "
        "that is exact.",
        Fraction(41, 10),
        technique("offloading"),
        why="The paper equates it with what vDNN reaches, which keeps more than one layer needs. "
        "Deep networks, of which a task uses a small part, make our mean large.",
    ),
    NumberClaim(
        "modnn-algorithms",
        "§7.3, Fig. 13",
        "Choosing algorithms alone takes 15 % less memory.",
        "The ideal case by that with the algorithms of least workspace; exact.",
        Fraction(20, 17),
        technique("algorithms"),
        "less",
        why=f"{_KERNELS} Its workspaces were cuDNN's; ours are formulas, for at most 32 images at "
        "a time.",
    ),
    NumberClaim(
        "modnn-slow-down",
        "§7.2, Fig. 10",
        "At 12 GB moDNN is 3 % slower than the ideal case.",
        "Algorithm 1 with the sub-batch of Eq. 8. Certified: the best sub-batch, algorithms and "
        "schedule.",
        Fraction(103, 100),
        slowdown("modnn"),
        "more",
        larger=False,
    ),
    NumberClaim(
        "modnn-vdnn",
        "§7.2, Fig. 10",
        "At 12 GB vDNN is 31 % slower than the ideal case.",
        "vDNN with the whole batch, on networks for which it finds room. Certified: as above, on "
        "these.",
        Fraction(131, 100),
        slowdown("vdnn"),
        "more",
        larger=False,
        why="Where what is there at a time fits, our vDNN lets nothing leave; on VGG-16 and "
        f"VGG-19, where it would be slow, it finds no room. {_KERNELS}",
    ),
    NumberClaim(
        "modnn-over-vdnn-plus",
        "§7.2, Fig. 12",
        "moDNN is 1.26 times as fast as vDNN+, on average over memories.",
        "The time of vDNN+ by Algorithm 1's, over all networks and memories of the table. "
        "Certified: by the best choice.",
        Fraction(126, 100),
        over_vdnn,
        why="Eq. 8 selects sub-batches so small that almost nothing leaves, and then both do the "
        "same.",
        beside=(
            "with 5 % in Eq. 8 instead of 15 %",
            lambda rows: over_vdnn(rows, "careless", "careless_plus"),
        ),
    ),
    NumberClaim(
        "modnn-sub-batches-time",
        "§7.3, Fig. 14",
        "Sub-batches alone, at least memory, are 3.74 times slower than the ideal case.",
        "Single images, nothing leaves; exact for the model's times.",
        Fraction(374, 100),
        technique_time("sub_batches"),
        larger=False,
        why=f"{_KERNELS} A roofline knows less of what makes small kernels slow.",
    ),
    NumberClaim(
        "modnn-offloading-time",
        "§7.3, Fig. 14",
        "Offloading alone is 28 % slower than the ideal case.",
        "Algorithm 1 with the whole batch in 12 GB and the fastest algorithms (where these do not "
        "fit, with those it chooses). Certified: the best schedule for the same algorithms.",
        Fraction(128, 100),
        offloading_time,
        "more",
        larger=False,
        why="Only on VGG-16 and VGG-19 it takes long; what must leave of the others fits behind "
        "computing.",
    ),
    NumberClaim(
        "modnn-algorithms-time",
        "§7.3, Fig. 14",
        "The algorithms of least workspace are 2.7 times slower than the fastest.",
        "The whole batch, nothing leaves; exact for the model's times.",
        Fraction(27, 10),
        technique_time("algorithms"),
        larger=False,
        why=_KERNELS,
    ),
    NumberClaim(
        "modnn-naive",
        "§7.5, Fig. 17",
        "Four GPUs with naive accumulation and memory for everything are 3.1 times as fast as one.",
        "Time of one GPU by the makespan. Certified: no schedule is shorter than its bound.",
        Fraction(31, 10),
        speed_up("ideal, naive"),
    ),
    NumberClaim(
        "modnn-host-12",
        "§7.5, Fig. 17",
        "With moDNN, 12 GB and one core they are 3.7 times as fast.",
        "As above, with the sub-batch of Eq. 8.",
        Fraction(37, 10),
        speed_up("12 GB"),
    ),
    NumberClaim(
        "modnn-naive-6",
        "§7.5, Fig. 18",
        "Naively at 6 GB they are 2.9 times as fast.",
        "As above.",
        Fraction(29, 10),
        speed_up("6 GB, naive"),
    ),
    NumberClaim(
        "modnn-host-6",
        "§7.5, Fig. 18",
        "With one core at 6 GB they are 3.4 times as fast.",
        "As above.",
        Fraction(34, 10),
        speed_up("6 GB"),
        why=f"{_SMALL} {_RATE}",
        beside=_best("6 GB"),
    ),
    NumberClaim(
        "modnn-naive-3",
        "§7.5, Fig. 18",
        "Naively at 3 GB they are 2.6 times as fast.",
        "As above.",
        Fraction(26, 10),
        speed_up("3 GB, naive"),
    ),
    NumberClaim(
        "modnn-host-3",
        "§7.5, Fig. 18",
        "With one core at 3 GB they are 3.1 times as fast.",
        "As above.",
        Fraction(31, 10),
        speed_up("3 GB"),
        why=f"{_SMALL} {_RATE}",
        beside=_best("3 GB"),
    ),
    NumberClaim(
        "modnn-host-3-20",
        "§7.5, Fig. 18",
        "With 20 cores at 3 GB they are 3.2 times as fast.",
        "As above; all cores together add 10 GB/s.",
        Fraction(32, 10),
        speed_up("3 GB, 20 cores"),
        why=_SMALL,
    ),
    NumberClaim(
        "modnn-over-one",
        "§7.5, Fig. 19",
        "Four GPUs of 3 GB are 3.1 times as fast as one of 12 GB, with one core.",
        "Time of moDNN on one GPU by the makespan; certified as above.",
        Fraction(31, 10),
        over_one("3 GB"),
        why=_SMALL,
    ),
    NumberClaim(
        "modnn-over-one-20",
        "§7.5, Fig. 19",
        "They are 3.3 times as fast with 20 cores.",
        "As above.",
        Fraction(33, 10),
        over_one("3 GB, 20 cores"),
        why=_SMALL,
    ),
)
