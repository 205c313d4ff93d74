"""Joint bounds, the cheapest first: the computing time, then one grid after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from offcert.core.network import Network
from offcert.core.result import Bound
from offcert.formulations.joint.program import JointProgram, Solved
from offcert.formulations.joint.room import (
    Contents,
    Grid,
    Room,
    contents,
    demands,
    grid_of,
    least_need,
    rooms,
)
from offcert.formulations.joint.tree import JointBound, Runs, grow, rounded
from offcert.proofs.joint_document import PLACES, JointCases, JointWeights, write
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Problem, Transfers

METHOD = "joint-lp"
# Numbers of runs, beside the worst one, at which grids are cut, tried in turn. Arbitrary.
_COUNTS = (0, 3, 6, 12, 24)
# Computations beyond which a network counts as large. There only runs that take more than two
# thirds of the memory are cut at: others added nothing to the bound, and their programs took most
# of the time. Measured; no record.
_LARGE = 200
# Computations up to which a program with all of them as moments is worth its time. Assumed.
_FEW = 16
# Computations up to which deciding about runs again is worth its time. Assumed.
_SMALL = 40
# A program is not begun if so many times the time of the one before would not fit. Arbitrary.
_GROWTH = 3.0
# Grids before cases of large networks are decided, the number of runs between which they
# are decided, and the share of the time that this gets. Arbitrary.
_COARSE, _BETWEEN, _DECIDING = 2, 3, 0.8
# The grid, by its place in the order, in whose last window runs again are counted: the finest of
# the coarse ones. Arbitrary.
_COUNTED = 1
# Equal computations from which on they are counted, and the share of the time for it. Arbitrary.
_EQUAL, _COUNTING = 16, 0.2
# Values below this part of the memory are ignored there. Arbitrary.
_TINY = 1e-4


def computing_bound(problem: Problem) -> Bound:
    """Return the bound that every computation has to run once, as a proof without multipliers.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    """
    assert problem.computed is not None
    nothing = JointWeights(1, {family: {} for family in PLACES})
    proof = JointProof(moments=(), spans=(), whole=False, proof=write(JointCases((nothing,))))
    return proved(METHOD, problem.computed.compute_time, proof)


def joint_bounds(
    problem: Problem,
    seconds: float,
    target: int | None = None,
    tell: Callable[[dict[int, float]], object] | None = None,
) -> Iterator[Bound]:
    """Yield proved bounds, each better than those before.

    The first cut is where most has to be absent: what is not on the device then must come back or
    run again, and so must what that reads. With little memory it helps to cut as well where single
    runs take so much of it that little can outlast them.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    seconds : float
        Seconds for the linear programs together.
    target : int, optional
        More ticks than this are of no use.
    tell : callable, optional
        Called with what share of each computation runs again after the first cut.
    """
    cuts = JointCuts(problem, target)
    most = cuts.network.compute_time
    for found in cuts.tried(time.monotonic() + seconds, tell):
        if found is not None and found.value > most:
            most = found.value
            yield found
        if target is not None and most >= target:
            return


class JointCuts:
    """The bounds of one problem with a network, by cuts of that.

    More ticks than the `target` are of no use. If `whole`, room is rounded down to what whole
    values take, as it is by default where transfers cannot pause. Every bound is None if the solver
    does not end in time.
    """

    def __init__(
        self, problem: Problem, target: int | None = None, whole: bool | None = None
    ) -> None:
        assert problem.computed is not None
        self.problem, self.network, self.target = problem, problem.computed, target
        self.known = contents(self.network, problem.offload)
        # Whole values cannot be told from parts where transfers may pause.
        can_tell = not problem.offload or problem.transfers is Transfers.ATOMIC
        self.whole = can_tell if whole is None else whole

    def tried(
        self, deadline: float, tell: Callable[[dict[int, float]], object] | None
    ) -> Iterator[Bound | None]:
        """Yield the bounds of grids that are worth it, and of cases; see `joint_bounds`."""
        network, memory = self.network, self.problem.platform.memory
        large = len(network) > _LARGE
        repeats = large and _repeats(network, self.known)
        took, finest = 0.0, None
        for number, grid in enumerate(_grids(network, self.known, memory)):
            if number == _COARSE and large:
                yield self.between(_DECIDING * (deadline - time.monotonic()))
            began = time.monotonic()
            # Each program takes several times as long as the one before.
            if began + took * _GROWTH > deadline:
                return
            solved = self._solved(grid, deadline - began)
            if solved is None:
                return
            if finest is None and tell is not None:
                tell(_shares(*solved))
            found = self._proof(solved[0], rounded(*solved))
            took, finest = time.monotonic() - began, grid
            yield found
            if number == _COUNTED and repeats:
                yield self.counted(grid, _COUNTING * (deadline - time.monotonic()))
        if finest is not None and len(network) <= _SMALL:
            yield self.cases(finest, deadline - time.monotonic())

    def cut(self, grid: Grid, seconds: float) -> Bound | None:
        """Return the bound that a grid gives."""
        found = self._solved(grid, seconds)
        return None if found is None else self._proof(found[0], rounded(*found))

    def cases(self, grid: Grid, seconds: float) -> Bound | None:
        """Return the bound of a grid if runs again are decided one by one."""
        deadline = time.monotonic() + seconds
        found = self._solved(grid, seconds)
        return None if found is None else self._grown(*found, deadline)

    def between(self, seconds: float) -> Bound | None:
        """Return the bound of cases about what runs again between the runs that take most memory.

        Next to nothing outlasts these. So a large value that is needed between two of them comes
        back as a whole in that time, or is made again as a whole: in the linear program half of it
        does one, half the other. None if there are no such runs and values, too.
        """
        deadline = time.monotonic() + seconds
        network, known, memory = self.network, self.known, self.problem.platform.memory
        marks = _marks(network, known, memory)
        pairs = [] if marks is None else list(pairwise(sorted(marks.greedy[:_BETWEEN])))
        if marks is None or not pairs:
            return None
        windows = {moment for begin, end in pairs for moment in (2 * begin + 1, 2 * end)}
        grid = grid_of(network, windows | {marks.first, 2 * marks.worst}, 2 * marks.worst)
        room = rooms(known, grid, memory, self.whole)
        if not any(_has_to_come(known, grid, room, *pair) for pair in pairs):
            return None
        # Spans from the worst moment or to the end: with the others the optimum is the same on
        # ResNet-50, and the program takes three times as long. Measured; no record.
        worst = grid.moments.index(2 * marks.worst) + 1
        joined = tuple(each for each in grid.joined if worst in each or grid.windows in each)
        tiny = frozenset(v for v, size in enumerate(known.size) if size < _TINY * memory)
        program = JointProgram(self.problem, known, replace(grid, joined=joined), room, tiny)
        solved = program.solve(seconds, "highs-ds")
        return None if solved is None else self._grown(program, solved, deadline, by_size=True)

    def counted(self, grid: Grid, seconds: float) -> Bound | None:
        """Return the bound of cases about how many of equal computations run again in the end.

        That is after the last cut. Equal layers share equally in the linear program, and deciding
        one by itself leaves the others to make up for it; but how many of them do something is a
        whole number.
        """
        deadline = time.monotonic() + seconds
        found = self._solved(grid, seconds)
        if found is None:
            return None
        window = grid.windows - 1
        columns = found[0].again[window]
        runs = [
            Runs(window, row, tuple(columns[number] for number in row))
            for row in _equal(self.network, self.known, sorted(columns))
        ]
        return self._grown(*found, deadline, runs=runs)

    def _solved(self, grid: Grid, seconds: float) -> tuple[JointProgram, Solved] | None:
        room = rooms(self.known, grid, self.problem.platform.memory, self.whole)
        program = JointProgram(self.problem, self.known, grid, room)
        solved = program.solve(seconds)
        return None if solved is None else (program, solved)

    def _grown(
        self, program: JointProgram, solved: Solved, deadline: float, **choices: Any
    ) -> Bound:
        """Return the bound of a tree of cases; choices are those of `grow`."""
        left = deadline - time.monotonic()
        return self._proof(program, grow(program, solved, left, self.target, **choices))

    def _proof(self, program: JointProgram, bound: JointBound) -> Bound:
        grid, cases = program.grid, write(bound.cases)
        proof = JointProof(moments=grid.moments, spans=grid.joined, whole=self.whole, proof=cases)
        return proved(METHOD, bound.value, proof)


@dataclass(frozen=True)
class _Marks:
    """The runs at which a network is cut."""

    worst: int  # The run during which most bytes have to be absent.
    first: int  # The moment from which on there is something that may leave.
    crowded: list[int]  # The runs during which some bytes have to be absent.
    greedy: list[int]  # Runs worth a cut that take most memory themselves, by how much.


def _marks(network: Network, known: Contents, memory: int) -> _Marks | None:
    """Return the runs at which to cut; None if no bytes have to be absent at any time."""
    demand = demands(network, known)
    crowded = [number for number in range(len(network)) if demand[number] > memory]
    if not crowded:
        return None
    worst = max(crowded, key=demand.__getitem__)
    needs = {number: least_need(network, known, number) for number in crowded}
    greedy = sorted(crowded, key=lambda number: (-needs[number], -demand[number]))
    if len(network) > _LARGE:
        greedy = [number for number in greedy if 3 * needs[number] > 2 * memory]
    movable = (maker for maker, may in zip(known.maker, known.movable, strict=True) if may)
    return _Marks(worst, 2 * max(0, min(movable, default=0)) + 1, crowded, greedy)


def _grids(network: Network, known: Contents, memory: int) -> Iterator[Grid]:
    """Yield the grids that are worth trying, the smallest first."""
    marks = _marks(network, known, memory)
    if marks is None:
        return
    worst, crowded, greedy = marks.worst, marks.crowded, marks.greedy
    yield grid_of(network, {2 * worst}, 2 * worst)
    # Before something is there that may leave, the link has nothing to do.
    first = {2 * worst, marks.first}
    for count in _COUNTS:
        if not count or count < len(crowded):
            # During the runs that take most themselves, next to nothing comes back.
            ends = {2 * number + end for number in greedy[:count] for end in (0, 1)}
            moments = {moment for moment in first | ends if moment < 2 * len(network) - 1}
            yield grid_of(network, moments, 2 * worst)
        if count >= len(greedy):
            break
    if len(crowded) <= _FEW:
        yield grid_of(network, [2 * number for number in crowded], 2 * worst)
    if len(network) <= _FEW:
        yield grid_of(network, range(2 * len(network) - 1))


def _repeats(network: Network, known: Contents) -> bool:
    """Return whether so many computations that may run again are equal that they are counted."""
    again = (n for n, each in enumerate(network.computations) if each.repeatable)
    return max(map(len, _equal(network, known, again)), default=0) >= _EQUAL


def _equal(network: Network, known: Contents, computations: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the classes of computations that last as long, and read and make as many bytes."""
    rows = defaultdict(list)
    for number in computations:
        each = network.computations[number]
        sizes = [tuple(known.size[v] for v in row[number]) for row in (known.makes, known.reads)]
        rows[each.duration, each.workspace, *sizes].append(number)
    return [tuple(row) for row in rows.values()]


def _has_to_come(known: Contents, grid: Grid, room: Sequence[Room], begin: int, end: int) -> bool:
    """Return whether what is too large to outlast a run is read after it, up to another one."""
    too_large = room[grid.moments.index(2 * begin + 1)].too_large
    return any(not too_large.isdisjoint(known.reads[c]) for c in range(begin + 1, end + 1))


def _shares(program: JointProgram, solved: Solved) -> dict[int, float]:
    """Return the share of each computation that runs again in the last window."""
    last = program.again[program.grid.windows - 1]
    return {number: float(solved.amounts[column]) for number, column in last.items()}
