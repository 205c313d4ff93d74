"""Joint bounds, the cheapest first: the computing time, then one grid after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

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
    network = problem.computed
    assert network is not None
    deadline = time.monotonic() + seconds
    known = contents(network, problem.offload)
    # Whole values cannot be told from parts where transfers may pause.
    whole = not problem.offload or problem.transfers is Transfers.ATOMIC
    repeats = len(network) > _LARGE and _repeats(network, known)
    most, took = network.compute_time, 0.0
    finest = None
    for number, grid in enumerate(_grids(network, known, problem.platform.memory)):
        if number == _COARSE and len(network) > _LARGE:
            seconds = _DECIDING * (deadline - time.monotonic())
            decided = between(problem, known, whole, seconds, target)
            if decided is not None and decided.value > most:
                most = decided.value
                yield decided
        began = time.monotonic()
        # Each program takes several times as long as the one before.
        if began + took * _GROWTH > deadline:
            return
        solved = _solved(problem, known, grid, whole, deadline - began)
        if solved is None:
            return
        if finest is None and tell is not None:
            tell(_shares(*solved))
        found = proof_of(solved[0], rounded(*solved), whole)
        took, finest = time.monotonic() - began, grid
        if found.value > most:
            most = found.value
            yield found
        if number == _COUNTED and repeats:
            seconds = _COUNTING * (deadline - time.monotonic())
            numbers = counted(problem, known, grid, whole, seconds, target)
            if numbers is not None and numbers.value > most:
                most = numbers.value
                yield numbers
    if finest is None or len(network) > _SMALL or (target is not None and most >= target):
        return
    decided = cases(problem, known, finest, whole, deadline - time.monotonic(), target)
    if decided is not None and decided.value > most:
        yield decided


@dataclass(frozen=True)
class _Marks:
    """The runs at which a network is cut.

    Attributes
    ----------
    worst : int
        The run during which most bytes have to be absent.
    first : int
        The moment from which on there is something that may leave.
    crowded : list of int
        The runs during which some bytes have to be absent.
    greedy : list of int
        Runs worth a cut that take most memory themselves, by how much.
    """

    worst: int
    first: int
    crowded: list[int]
    greedy: list[int]


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


def cut(
    problem: Problem,
    known: Contents,
    grid: Grid,
    whole: bool,
    seconds: float,
) -> Bound | None:
    """Return the bound that a grid gives, or None if the solver does not end in time.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    known : Contents
        Of that network.
    grid : Grid
        Where to cut.
    whole : bool
        Whether room is rounded down to what whole values take.
    seconds : float
        Time limit.
    """
    found = _solved(problem, known, grid, whole, seconds)
    return None if found is None else proof_of(found[0], rounded(*found), whole)


def cases(
    problem: Problem,
    known: Contents,
    grid: Grid,
    whole: bool,
    seconds: float,
    target: int | None = None,
) -> Bound | None:
    """Return the bound of a grid if runs again are decided one by one.

    Parameters are those of `cut`.

    Parameters
    ----------
    target : int, optional
        More ticks than this are of no use.
    """
    deadline = time.monotonic() + seconds
    found = _solved(problem, known, grid, whole, seconds)
    if found is None:
        return None
    return proof_of(found[0], grow(*found, deadline - time.monotonic(), target), whole)


def between(
    problem: Problem,
    known: Contents,
    whole: bool,
    seconds: float,
    target: int | None = None,
) -> Bound | None:
    """Return the bound of cases about what runs again between the runs that take most memory.

    Next to nothing outlasts these. So a large value that is needed between two of them comes back
    as a whole in that time, or is made again as a whole: in the linear program half of it does one,
    half the other. Parameters are those of `cases`; None if there are no such runs and values, or
    there is no time.
    """
    deadline = time.monotonic() + seconds
    network, memory = problem.computed, problem.platform.memory
    assert network is not None
    marks = _marks(network, known, memory)
    pairs = [] if marks is None else list(pairwise(sorted(marks.greedy[:_BETWEEN])))
    if marks is None or not pairs:
        return None
    windows = {moment for begin, end in pairs for moment in (2 * begin + 1, 2 * end)}
    grid = grid_of(network, windows | {marks.first, 2 * marks.worst}, 2 * marks.worst)
    room = rooms(known, grid, memory, whole)
    if not any(_has_to_come(known, grid, room, *pair) for pair in pairs):
        return None
    # Spans from the worst moment or to the end: with the others the optimum is the same on
    # ResNet-50, and the program takes three times as long. Measured; no record.
    worst = grid.moments.index(2 * marks.worst) + 1
    grid = replace(
        grid, joined=tuple(each for each in grid.joined if worst in each or grid.windows in each)
    )
    tiny = frozenset(v for v, size in enumerate(known.size) if size < _TINY * memory)
    program = JointProgram(problem, known, grid, room, tiny)
    solved = program.solve(seconds, "highs-ds")
    if solved is None:
        return None
    left = deadline - time.monotonic()
    return proof_of(program, grow(program, solved, left, target, by_size=True), whole)


def counted(
    problem: Problem,
    known: Contents,
    grid: Grid,
    whole: bool,
    seconds: float,
    target: int | None = None,
) -> Bound | None:
    """Return the bound of cases about how many of equal computations run again after the last cut.

    Equal layers share equally in the linear program, and deciding one by itself leaves the others
    to make up for it; but how many of them do something is a whole number. Parameters are those of
    `cases`.
    """
    deadline = time.monotonic() + seconds
    found = _solved(problem, known, grid, whole, seconds)
    if found is None:
        return None
    window = grid.windows - 1
    columns = found[0].again[window]
    runs = [
        Runs(window, row, tuple(columns[number] for number in row))
        for row in _equal(grid.network, known, sorted(columns))
    ]
    left = deadline - time.monotonic()
    return proof_of(found[0], grow(*found, left, target, runs=runs), whole)


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


def _solved(
    problem: Problem, known: Contents, grid: Grid, whole: bool, seconds: float
) -> tuple[JointProgram, Solved] | None:
    room = rooms(known, grid, problem.platform.memory, whole)
    program = JointProgram(problem, known, grid, room)
    solved = program.solve(seconds)
    return None if solved is None else (program, solved)


def _shares(program: JointProgram, solved: Solved) -> dict[int, float]:
    """Return the share of each computation that runs again in the last window."""
    last = program.again[program.grid.windows - 1]
    return {number: float(solved.amounts[column]) for number, column in last.items()}


def proof_of(program: JointProgram, bound: JointBound, whole: bool) -> Bound:
    """Return a bound with its proof."""
    grid = program.grid
    proof = JointProof(
        moments=grid.moments, spans=grid.joined, whole=whole, proof=write(bound.cases)
    )
    return proved(METHOD, bound.value, proof)
