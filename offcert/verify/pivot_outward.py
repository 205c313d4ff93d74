"""An independent, plain re-run of a bound of which one side is searched and the other is asked.

`confirm_pivot_outward` establishes again, from the problem's numbers alone and without a line of
the program that found it, that no schedule is shorter than a claimed bound.

A schedule shorter than the claim is cut where the pivot starts. One side is searched as for a pivot
bound (`verify.pivot`): all ways are listed in which it can end by a limit, each with the tensors
that are out at the cut. If it ended later, the other side would end before it can. For each of
these ways the other side is followed from the cut outward with exactly those tensors out
(`verify.outward`), in the time that is left. What straddles the cut is one of two:

- It returns to the searched side, and is out there only. It begins as early as that side allows;
  what is left of it when the side ends keeps the other side's link busy.
- It is to be out on the other side. It begins when the searched side's link is free and the tensor
  is there; again what is left of it when the side ends keeps the other side's link busy.

Each way is listed at its earliest end. If a schedule's side ends some ticks later than that, all
that its other side does could be done as many ticks later in the time that was asked about. So if
the question is refuted, there is no such schedule. docs/theory/pivot-outward.md has the argument,
with an example on paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from offcert.core.compiled import IntArray
from offcert.proofs.kinds.labels import PivotOutward
from offcert.questions.schedule.problem import Problem
from offcert.verify.heads.check import ends
from offcert.verify.limits import Allowance, BeyondLimitsError, TooLargeError
from offcert.verify.outward.search import REFUTED
from offcert.verify.outward.search import search as follow
from offcert.verify.outward.sets import order_fault
from offcert.verify.outward.tables import Cut, cut_at
from offcert.verify.outward.view import Asked, Tables
from offcert.verify.pivot.check import MOST_LABELS, classes_of
from offcert.verify.pivot.side import Found, Side


def pivot_outward(
    problem: Problem, value: int, proof: PivotOutward, allowance: Allowance
) -> str | None:
    """Return None if no schedule is shorter than `value` ticks, or why that is not shown."""
    fault = ends(problem, proof.pivot, proof.ends, allowance)
    if fault is not None:
        return fault
    advice = proof.side, proof.limit, value, proof.free_below, proof.ends.times
    return pivot_outward_fault(
        problem,
        proof.pivot,
        *advice,
        max_labels=allowance.labels(MOST_LABELS),
        require_time=allowance.require_time,
    )


# The mark of no label, and a time that never comes. By definition.
NONE = -1
NEVER = 2**62
# Labels of the other side for one set. Arbitrary.
_MOST_OF_A_SET = 200_000
_SIDES = ("front", "back")

# The class that is leaving on the other side, or `NONE`; when the searched side ends; how long
# after that the link is still busy.
_Demand = tuple[int, int, int]


def confirm_pivot_outward(
    problem: Problem,
    pivot: int,
    side: int,
    limit: int,
    claimed: int,
    *,
    free_below: Sequence[int] = (1,),
    ends: tuple[int, int] = (0, 0),
    max_labels: int = MOST_LABELS,
) -> bool:
    """Return whether no schedule of `problem` is shorter than `claimed` ticks.

    Parameters
    ----------
    problem : Problem
        Atomic transfers, simplex link, one gap per evictable tensor, nested gaps; false for others.
    pivot : int
        The operation at whose start schedules are cut.
    side : int
        The side that is searched: 0 for the front, 1 for the back.
    limit : int
        Ticks of its own time by which the side must end to be searched.
    claimed : int
        The bound, in ticks.
    free_below : sequence of int
        Bytes below which tensors are absent on the other side at no cost, decreasing.
    ends : pair of int
        Times before which no front and no back of a schedule ends, established elsewhere.
    max_labels : int
        Labels that the searches may store at most.

    Returns
    -------
    bool
        False if the bound is wrong, the advice is insufficient, or the search is too large.
    """
    advice = side, limit, claimed, free_below, ends
    try:
        return pivot_outward_fault(problem, pivot, *advice, max_labels=max_labels) is None
    except BeyondLimitsError:
        return False


def pivot_outward_fault(
    problem: Problem,
    pivot: int,
    side: int,
    limit: int,
    claimed: int,
    free_below: Sequence[int],
    ends: tuple[int, int],
    *,
    max_labels: int = MOST_LABELS,
    require_time: Callable[[], None] = lambda: None,
) -> str | None:
    """Return None if no schedule is shorter than `claimed` ticks, or where that fails to be shown.

    Parameters are those of `confirm_pivot_outward`; `require_time` is called before each question,
    and raises if there is no time for it.

    Raises
    ------
    BeyondLimitsError
        If the search is too large.
    """
    trace = problem.trace
    if trace.least_memory > problem.platform.memory or claimed <= sum(trace.durations):
        return None
    classes = classes_of(problem)
    if not classes:
        return "the program is for atomic transfers, simplex links and nested traces"
    if not 0 <= pivot < len(trace):
        return f"details.pivot must name an operation, not {pivot}"
    if side not in (0, 1):
        return f"details.side must be 0 or 1, not {side}"
    if limit > 2 * claimed:
        # No shorter schedule has a side that long: it would only make the search endless.
        return f"details.limit must be at most {2 * claimed}, not {limit}"
    if limit + ends[1 - side] < claimed - 1:
        return f"details.limit is too small: a {_SIDES[side]} of more than {limit} may do"
    unordered = order_fault("free_below", free_below)
    if unordered is not None:
        return unordered
    if limit < ends[side]:
        return None
    searched = Side(problem, classes, pivot, claimed - 1, limit, (), backwards=side == 1)
    try:
        cuts = [cut_at(problem, pivot, least) for least in free_below]
        ways = Ways(searched, searched.search(max_labels))
        still = _open_demand(ways, cuts, 1 - side, claimed - 1, max_labels, require_time)
    except TooLargeError:
        return "its numbers are too large for the search"
    if still is None:
        return None
    count, end = still
    return (
        f"at details.pivot {pivot} the {_SIDES[side]} can end at {end} with {count} tensors out, "
        f"and then the {_SIDES[1 - side]}, as far as the search can tell, in time"
    )


class Ways:
    """The ways in which the searched side can end, by the tensors that are out at the cut.

    Parameters
    ----------
    side : Side
        The side.
    found : Found
        The labels that its search found.
    """

    def __init__(self, side: Side, found: Found) -> None:
        self.side = side
        codes = np.concatenate((found.labels[:, -1], found.straddles[:, -1]))
        ends = np.concatenate((side.ends(found.labels), found.straddles[:, 0]))
        different, which = np.unique(codes, return_inverse=True)
        which = which.reshape(-1)
        digits = [
            different // radix % (len(members) + 1)
            for radix, members in zip(side.radix, side.movable, strict=False)
        ]
        self.out = np.stack(digits, axis=1)
        self.earliest = np.full(len(different), NEVER)
        np.minimum.at(self.earliest, which, ends)
        count = len(found.labels)
        self._labels = _Sorted(found.labels, which[:count], len(different))
        self._straddles = _Sorted(found.straddles, which[count:], len(different))

    def labels(self, index: int) -> list[list[int]]:
        """Return when the link is free and the ticks waited, of the labels with one set."""
        return self._labels.rows(index)

    def straddles(self, index: int) -> list[list[int]]:
        """Return end, begin and class of the returns across the cut with one set."""
        return self._straddles.rows(index)


class _Sorted:
    """Rows by a number of each.

    Parameters
    ----------
    rows : int64 array
        The rows.
    which : int64 array
        Their numbers, below `count`.
    """

    def __init__(self, rows: IntArray, which: IntArray, count: int) -> None:
        self._rows = rows[np.argsort(which, kind="stable")]
        self._first = np.concatenate(([0], np.cumsum(np.bincount(which, minlength=count))))

    def rows(self, number: int) -> list[list[int]]:
        """Return those of one number."""
        rows: list[list[int]] = self._rows[self._first[number] : self._first[number + 1]].tolist()
        return rows


class Asking:
    """The questions that the other side is asked, and its answers.

    Parameters
    ----------
    ways : Ways
        Of the searched side.
    cut : Cut
        Both sides as the other is followed.
    asked : int
        Number of the side that is asked.
    longest : int
        Ticks; longer schedules are of no interest.
    """

    def __init__(self, ways: Ways, cut: Cut, asked: int, longest: int) -> None:
        self._ways = ways
        self._tables: Tables = cut.sides[asked]
        self._longest = longest
        # The class by which the other side knows the tensors of each, unless they are free there.
        sizes = ways.side.sizes
        self._place = [cut.sizes.index(size) if size in cut.sizes else NONE for size in sizes]
        counts = np.zeros((len(ways.out), len(cut.sizes)), dtype=np.int64)
        for c, place in enumerate(self._place):
            if place != NONE:
                counts[:, place] += ways.out[:, c]
        # What the link alone brings back too late is not asked about.
        in_time = np.flatnonzero(ways.earliest + counts @ self._tables.back <= longest)
        self.groups = defaultdict(list)
        for index, row in zip(in_time.tolist(), counts[in_time].tolist(), strict=True):
            self.groups[tuple(row)].append(index)

    def demands(self, counts: tuple[int, ...], chosen: Sequence[int]) -> Iterator[_Demand]:
        """Yield the demands about a set of tensors that the link alone does not refute.

        A demand is left out if another about the same tensors leaves no less time.
        """
        ways, back = self._ways, self._tables.back.tolist()
        latest = self._longest - int(np.dot(counts, self._tables.back))
        kept: dict[int, list[tuple[int, int]]] = {}

        def ask(leaving: int, end: int, begin: int) -> None:
            # What is leaving has to return as well.
            if end + begin + (0 if leaving == NONE else back[leaving]) > latest:
                return
            known = kept.setdefault(leaving, [])
            if not any(one <= end and two <= begin for one, two in known):
                known[:] = [(one, two) for one, two in known if one < end or two < begin]
                known.append((end, begin))

        for index in chosen:
            for end, begin, c, _, _ in ways.straddles(index):
                ask(NONE, end, max(0, ways.side.back_times[c] - (end - begin)))
            self._ask_of_labels(index, latest, ask)
        for leaving, times in kept.items():
            for end, begin in times:
                yield leaving, end, begin

    def _ask_of_labels(self, index: int, latest: int, ask: Callable[[int, int, int], None]) -> None:
        side, labels = self._ways.side, self._ways.labels(index)
        ends = [max(free, waited + side.clock[side.count]) for free, waited, _, _ in labels]
        if min(ends, default=latest + 1) > latest:
            return
        out = self._ways.out[index].tolist()
        nexts = [
            (c, place, side.clock[side.movable[c][out[c]].ready + 1])
            for c, place in enumerate(self._place)
            if place != NONE and out[c] < side.here[c]
        ]
        for (free, waited, _, _), end in zip(labels, ends, strict=True):
            ask(NONE, end, 0)
            for c, place, ready in nexts:
                begins = max(free, waited + ready)
                ask(place, end, max(0, side.out_times[c] - (end - begins)))

    def is_refuted(self, counts: tuple[int, ...], demand: _Demand) -> tuple[bool, int]:
        """Return whether the other side cannot meet a demand, and the labels that took."""
        leaving, end, begin = demand
        out = np.array(counts, dtype=np.int64)
        moved, ticks = int(out @ self._tables.sizes), int(out @ self._tables.back)
        limit = self._longest - end
        question = Asked(moved, moved, begin, leaving, ticks, limit, moved, True)
        status, _, _, stored = follow(self._tables, out, out, question, _MOST_OF_A_SET)
        return status == REFUTED, int(stored)


def _open_demand(
    ways: Ways,
    cuts: Sequence[Cut],
    asked: int,
    longest: int,
    max_labels: int,
    require_time: Callable[[], None],
) -> tuple[int, int] | None:
    """Return count of tensors that are out, and end, of a way not refuted; None if all are refuted.

    What is not refuted while small tensors are absent at no cost is asked again with more of them
    counted.
    """
    left = set(range(len(ways.out)))
    first: tuple[int, int] | None = None
    for cut in cuts:
        asking = Asking(ways, cut, asked, longest)
        still: set[int] = set()
        first = None
        for counts, members in asking.groups.items():
            chosen = [index for index in members if index in left]
            require_time()
            for demand in asking.demands(counts, chosen):
                refuted, stored = asking.is_refuted(counts, demand)
                max_labels -= stored
                if max_labels < 0:
                    raise BeyondLimitsError("the search is too large")
                if not refuted:
                    first = first or (sum(counts), demand[1])
                    still.update(chosen)
                    break
        left = still
    return first
