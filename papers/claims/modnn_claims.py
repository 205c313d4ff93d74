"""The moDNN paper's claims about averages, and how they are judged.

A number of the paper is a mean over its six networks of times or bytes that it measured and does
not list. Ours is the same mean by a stated model, judged by the rule for factors. What is certified
beside it may put the paper's number out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean

from papers.claims.modnn_rows import GB, DeviceRow, MemoryRow, ModnnRows, TimeRow
from papers.claims.tolerance import Agreement, agreement

Range = tuple[Fraction, Fraction]
# What agrees by a reading that was chosen so that it does.
FITTED = "fitted"


@dataclass(frozen=True)
class Numbers:
    """The measured and certified rows of a claim.

    Attributes
    ----------
    ours : mapping from str to Fraction
        The factor of each network, or of each network and memory.
    certified : (Fraction, Fraction) or None
        Between what the mean of the optimum lies; None if that is not certified.
    exact : bool
        Whether nothing is scheduled: `ours` are sums of sizes or of times.
    """

    ours: dict[str, Fraction]
    certified: Range | None = None
    exact: bool = False

    @property
    def mean(self) -> Fraction:
        """The mean of all, as the paper takes it."""
        return mean(self.ours.values())


@dataclass(frozen=True)
class NumberClaim:
    """A mean that the paper gives.

    Attributes
    ----------
    key, place, statement, test : str
        As for `Claim`; the test says what is ours, and what is certified.
    paper : Fraction
        The factor.
    numbers : callable
        Returns ours.
    written : str
        How the factor is said: ``"times"``, ``"more"`` (percent above 1) or ``"less"`` (percent
        that is saved).
    larger : bool
        Whether larger is better, so that the paper's is out of reach above what is certified.
    why : str
        Why it differs, or what it depends on; "" if there is nothing to say.
    fitted : bool
        Whether the reading was chosen so that the number comes out: then it confirms nothing.
    beside : (str, callable) or None
        Other numbers to say beside it, and what they are.
    """

    key: str
    place: str
    statement: str
    test: str
    paper: Fraction
    numbers: Callable[[ModnnRows], Numbers]
    written: str = "times"
    larger: bool = True
    why: str = ""
    fitted: bool = False
    beside: tuple[str, Callable[[ModnnRows], Numbers]] | None = None

    def agreement(self, rows: ModnnRows) -> Agreement:
        """Return how the mean agrees with the paper's."""
        return agreement(self.numbers(rows).mean, self.paper, factor=True)

    def verdict(self, rows: ModnnRows) -> str:
        """Return the verdict in words."""
        found = self.agreement(rows)
        text = FITTED if self.fitted and found is Agreement.CONFIRMED else str(found)
        out = found is not Agreement.CONFIRMED and self.out_of_reach(rows)
        return f"{text}; out of reach" if out else text

    def out_of_reach(self, rows: ModnnRows) -> bool:
        """Return whether what is certified excludes that anything is as good as the paper says."""
        certified = self.numbers(rows).certified
        if certified is None:
            return False
        least, most = certified
        return self.paper > most if self.larger else self.paper < least


def _of(rows: Sequence[MemoryRow], ratio: Callable[[MemoryRow], Fraction]) -> dict[str, Fraction]:
    return {row.network: ratio(row) for row in rows}


def least(suffix: str = "", size: str = "ideal") -> Callable[[ModnnRows], Numbers]:
    """Return the ideal memory by Eq. 7; `suffix` ``"_weights"`` where weights leave (Fig. 9).

    It is certified where there is a schedule with so many bytes, and none with a byte less.
    """

    def numbers(rows: ModnnRows) -> Numbers:
        found = _of(
            rows.memory, lambda row: Fraction(getattr(row, size), getattr(row, f"least{suffix}"))
        )
        middle = mean(found.values())
        holds = all(
            getattr(row, f"below_infeasible{suffix}")
            and getattr(row, f"least_time{suffix}") is not None
            for row in rows.memory
        )
        return Numbers(found, (middle, middle) if holds else None)

    return numbers


def technique(name: str) -> Callable[[ModnnRows], Numbers]:
    """Return the ideal memory by that of one technique alone (Fig. 13)."""
    return lambda rows: Numbers(
        _of(rows.memory, lambda row: Fraction(row.ideal, getattr(row, name))), exact=True
    )


def technique_time(name: str) -> Callable[[ModnnRows], Numbers]:
    """Return the time of one technique alone by the ideal one (Fig. 14)."""
    return lambda rows: Numbers(
        _of(rows.memory, lambda row: Fraction(getattr(row, f"{name}_time"), row.ideal_time)),
        exact=True,
    )


def offloading_time(rows: ModnnRows) -> Numbers:
    """Algorithm 1 with the whole batch in 12 GB, and the certified schedule for its algorithms."""
    found = _of(rows.memory, lambda row: Fraction(row.offloading_time, row.ideal_time))
    bound = mean(Fraction(row.offloading_bound, row.ideal_time) for row in rows.memory)
    best = mean(Fraction(row.offloading_best, row.ideal_time) for row in rows.memory)
    return Numbers(found, (bound, best))


def certified_times(rows: Sequence[TimeRow]) -> Range:
    """Return between what the mean slow-down over all choices lies."""
    bound = mean(Fraction(row.bound, row.ideal_time) for row in rows)
    return bound, mean(Fraction(row.best_time, row.ideal_time) for row in rows)


def slowdown(name: str) -> Callable[[ModnnRows], Numbers]:
    """Return a method's time at 12 GB by the ideal one, where it has a plan (Fig. 10)."""

    def numbers(rows: ModnnRows) -> Numbers:
        times = [row for row in rows.at(12 * GB) if getattr(row, f"{name}_time") is not None]
        found = {
            row.network: Fraction(getattr(row, f"{name}_time"), row.ideal_time) for row in times
        }
        return Numbers(found, certified_times(times))

    return numbers


def vdnn_where_needed(rows: ModnnRows) -> Numbers:
    """VDNN's time at 12 GB by the ideal one, which it reaches where the ideal case fits."""
    fits = {row.network for row in rows.memory if row.ideal <= 12 * GB}
    found = slowdown("vdnn")(rows).ours
    ideal = dict.fromkeys(fits & found.keys(), Fraction(1))
    return Numbers({**found, **ideal})


def point(row: TimeRow) -> str:
    """Return the name of a network in a memory."""
    return f"{row.network} at {row.memory / GB:g} GB"


def transfers(rows: ModnnRows) -> Numbers:
    """Bytes that vDNN moves at 12 GB by those of moDNN, input and labels among both (Fig. 11)."""
    loaded = {row.network: row.loaded for row in rows.memory}
    return Numbers(
        {
            row.network: Fraction(
                row.vdnn_moved + loaded[row.network], row.modnn_moved + loaded[row.network]
            )
            for row in rows.at(12 * GB)
            if row.vdnn_moved is not None and row.modnn_moved is not None
        }
    )


def over_vdnn(rows: ModnnRows, other: str = "plus") -> Numbers:
    """The time of vDNN+ by that of moDNN, and by that of any choice (Fig. 12)."""
    found, low, high = {}, [], []
    for row in rows.times:
        modnn, theirs = row.modnn_time, getattr(row, f"{other}_time")
        if modnn is not None and theirs is not None:
            found[point(row)] = Fraction(theirs, modnn)
            low.append(Fraction(theirs, row.best_time))
            high.append(Fraction(theirs, row.bound))
    return Numbers(found, (mean(low), mean(high)))


def speed_up(case: str) -> Callable[[ModnnRows], Numbers]:
    """Return the speed-up of a case on four GPUs over the ideal on one (Figs. 17, 18)."""
    return lambda rows: _speeds(rows.case(case), lambda row: row.one_gpu)


def over_one(case: str) -> Callable[[ModnnRows], Numbers]:
    """Return the speed-up of a case over moDNN on one GPU of 12 GB (Fig. 19)."""

    def numbers(rows: ModnnRows) -> Numbers:
        alone = {row.network: row.makespan for row in rows.case("1 GPU, 12 GB")}
        return _speeds(rows.case(case), lambda row: alone[row.network])

    return numbers


def _speeds(rows: Sequence[DeviceRow], base: Callable[[DeviceRow], int]) -> Numbers:
    found = {row.network: Fraction(base(row), row.makespan) for row in rows}
    most = mean(Fraction(base(row), row.lower_bound) for row in rows)
    return Numbers(found, (mean(found.values()), most))
