"""Boxes and decisions of the skyline search; how a decision is made and taken back."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cached_property
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import FloatArray, IntArray, compiled, plain_inner
from offcert.questions.placement.problem import Placement, PlacementProblem


class Sections:
    """A problem as boxes over sections: what every exact method starts from.

    Only who meets whom matters, not for how long. So the axis of time is reduced to the largest
    sets of residences that are live together (the maximal cliques of an interval graph, in order of
    time): two residences meet if and only if they share such a *section*. Sizes are counted in the
    largest unit that divides all of them; every address can be taken to be a multiple of it, since
    pushing all boxes down makes every address a sum of sizes. Residences of no size are left out.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        sizes, rows = problem.sizes, problem.residences
        chosen = [index for index, size in enumerate(sizes) if size > 0]
        moments = largest_sets(
            [rows[index].start for index in chosen], [rows[index].end for index in chosen]
        )
        first = {index: bisect_left(moments, rows[index].start) for index in chosen}
        last = {index: bisect_left(moments, rows[index].end) for index in chosen}
        # The number of the residence of each box: ordered by first section, longer ones first.
        self.residence = tuple(sorted(chosen, key=lambda index: (first[index], -last[index])))
        self.unit = math.gcd(*(sizes[index] for index in chosen)) or 1
        # Of each box, the units of its size; it is live in sections from `first` to before `last`.
        self.size = np.array([sizes[index] // self.unit for index in self.residence], np.int64)
        self.first = np.array([first[index] for index in self.residence], np.int64)
        self.last = np.array([last[index] for index in self.residence], np.int64)
        self.count = len(moments)
        self._problem = problem

    def __len__(self) -> int:
        return len(self.residence)

    @cached_property
    def index(self) -> IntArray:
        """The first box that begins in a section or later, for every section and after the last."""
        return np.searchsorted(self.first, np.arange(self.count + 1)).astype(np.int64)

    @cached_property
    def loads(self) -> IntArray:
        """Units that are live in each section."""
        change = np.zeros(self.count + 1, np.int64)
        np.add.at(change, self.first, self.size)
        np.add.at(change, self.last, -self.size)
        return np.cumsum(change)[:-1]

    def placement(self, addresses: IntArray | list[int]) -> Placement:
        """Return the placement that puts boxes at addresses in units."""
        found = [0] * len(self._problem.residences)
        for index, address in zip(self.residence, addresses, strict=True):
            found[index] = int(address) * self.unit
        return Placement(found)

    def addresses(self, placement: Placement) -> list[int]:
        """Return the addresses of boxes, in units, rounded down."""
        return [placement.addresses[index] // self.unit for index in self.residence]


def largest_sets(starts: list[int], ends: list[int]) -> list[int]:
    """Return moments at which the largest sets of intervals are live: one moment a set.

    A set is largest where an interval begins and the next thing that happens is that one ends.
    """
    beginning, ending = set(starts), set(ends)
    moments: list[int] = []
    latest = None
    for moment in sorted(beginning | ending):
        if moment in ending and latest is not None:
            moments.append(latest)
            latest = None
        if moment in beginning:
            latest = moment
    return moments


# Rows of `SkylineState.restorable`: what the trail can restore. By definition.
LOW, FLOOR, TOP, REST, ADDRESS, CEILING, OWNER = range(7)
# Entries of `SkylineState.registers`: whether a node is entered or left, its sections, whether it
# could be filled, how much is in use of frames, stack and trail, nodes so far, whether something
# ran full, and the sections that have changed. By definition.
ENTER, LEFT, RIGHT, FILLED, FRAMES, STACK, TRAIL, NODES, FULL, DIRTY, CLEAN = range(11)
REGISTERS = 11
# Columns of `SkylineState.frames`: whether it is parts that are all to be filled or choices of
# which one will do; the sections; the stretch of the stack and where in it the search is; where the
# trail stood; the section that is chosen for. By definition.
KIND, FROM, TO, BEGIN, END, NEXT, MARK, POINT = range(8)
COLUMNS = 8
UNPLACED = -1
_TRAIL = 2_000_000


class Boxes(NamedTuple):
    """The constant part, `Sections`, as arrays."""

    size: IntArray
    first: IntArray
    last: IntArray
    begins: IntArray


class SkylineState(NamedTuple):
    """Decisions, and what follows from them."""

    restorable: IntArray  # The arrays that the trail can restore: views of its rows are below.
    address: IntArray  # Of each box, or `UNPLACED`.
    low: IntArray  # Least address that each unplaced box can still have.
    order: IntArray  # All boxes, those with large `low` first.
    floor: IntArray  # In each section: no unplaced box goes lower.
    # In each section: where the highest placed box ends; the space up to the floor stays free.
    top: IntArray
    owner: IntArray  # In each section: which box that is, or -1.
    rest: IntArray  # In each section: units of unplaced boxes.
    ceiling: IntArray  # In each section: no unplaced box reaches higher.
    # Scratch: one entry a section.
    least: IntArray
    choices: IntArray
    weight: FloatArray  # In each section: how often it was the reason that something failed.
    priority: FloatArray  # Of each box: what is tried first.
    trail: IntArray  # Row, index and value before, of every change (shape (most, 3)).
    frames: IntArray  # The way to the current node (shape (most, 8)).
    stack: IntArray  # Boxes to try, and parts to fill (shape (most, 2)).
    registers: IntArray  # Where the search is.


def boxes_of(sections: Sections) -> Boxes:
    """Return the arrays that do not change."""
    return Boxes(sections.size, sections.first, sections.last, sections.index)


def new_state(sections: Sections) -> SkylineState:
    """Return a state that `begin` has to set up."""
    boxes, count = len(sections), sections.count
    depth = 4 * (boxes + count) + 1000

    def zeros(length: int) -> IntArray:
        return np.zeros(length, np.int64)

    rows = np.zeros((7, max(boxes, count)), np.int64)
    return SkylineState(
        restorable=rows,
        address=rows[ADDRESS, :boxes],
        low=rows[LOW, :boxes],
        order=zeros(boxes),
        floor=rows[FLOOR, :count],
        top=rows[TOP, :count],
        owner=rows[OWNER, :count],
        rest=rows[REST, :count],
        ceiling=rows[CEILING, :count],
        least=zeros(count),
        choices=zeros(count),
        weight=np.ones(count),
        priority=np.zeros(boxes),
        trail=np.empty((_TRAIL, 3), np.int64),
        frames=np.empty((depth, COLUMNS), np.int64),
        stack=np.empty((64 * depth, 2), np.int64),
        registers=zeros(REGISTERS),
    )


@compiled
def begin(boxes: Boxes, state: SkylineState, capacity: int) -> None:
    """Set up the search for a capacity, in units that are at least the load."""
    state.address[:] = UNPLACED
    state.low[:] = 0
    state.floor[:] = 0
    state.top[:] = 0
    state.owner[:] = -1
    state.rest[:] = 0
    state.ceiling[:] = capacity
    for box in range(len(boxes.size)):
        state.order[box] = box
        for section in range(boxes.first[box], boxes.last[box]):
            state.rest[section] += boxes.size[box]
    state.registers[:] = 0
    state.registers[ENTER] = 1
    state.registers[RIGHT] = len(state.floor)
    state.registers[CLEAN] = len(state.floor)


@plain_inner
def put(state: SkylineState, row: int, index: int, value: int) -> None:
    """Change an entry, so that `undo` can restore it."""
    used = state.registers[TRAIL]
    if used == len(state.trail):
        state.registers[FULL] = 1
        return
    state.trail[used, 0] = row
    state.trail[used, 1] = index
    state.trail[used, 2] = state.restorable[row, index]
    state.registers[TRAIL] = used + 1
    state.restorable[row, index] = value


@plain_inner
def undo(state: SkylineState, mark: int) -> None:
    """Restore all that was changed since the trail was as long as `mark`."""
    for place in range(state.registers[TRAIL] - 1, mark - 1, -1):
        row, index, value = state.trail[place, 0], state.trail[place, 1], state.trail[place, 2]
        state.restorable[row, index] = value
    state.registers[TRAIL] = mark


@plain_inner
def stack_box(boxes: Boxes, state: SkylineState, box: int, height: int) -> bool:
    """Place a box on the floor; return False if something better is possible.

    It is if an unplaced box fits into the space that is left free below (moving it down there is no
    loss), or if the box lies directly on a smaller one that lives in the same sections.
    """
    first, last, size = boxes.first[box], boxes.last[box], boxes.size[box]
    below = state.owner[first]
    if (
        below >= 0
        and state.top[first] == height
        and boxes.first[below] == first
        and boxes.last[below] == last
        and boxes.size[below] < size
    ):
        return False
    wasted = False
    for section in range(first, last):
        if state.top[section] < height:
            wasted = True
            break
    if wasted and _fills_waste(boxes, state, box, height):
        return False
    put(state, ADDRESS, box, height)
    for section in range(first, last):
        put(state, FLOOR, section, height + size)
        put(state, TOP, section, height + size)
        put(state, OWNER, section, box)
        put(state, REST, section, state.rest[section] - size)
    state.registers[DIRTY], state.registers[CLEAN] = first, last
    return True


@plain_inner
def _fills_waste(boxes: Boxes, state: SkylineState, box: int, height: int) -> bool:
    """Return whether some other unplaced box fits below a box at some height."""
    first, last = boxes.first[box], boxes.last[box]
    for other in range(boxes.begins[first], boxes.begins[last]):
        if state.address[other] != UNPLACED or other == box or boxes.last[other] > last:
            continue
        top = 0
        for section in range(boxes.first[other], boxes.last[other]):
            top = max(top, state.top[section])
        if top + boxes.size[other] <= height:
            return True
    return False


@plain_inner
def lift_box(boxes: Boxes, state: SkylineState, box: int) -> None:
    """Place a box that is live in all sections of a part at the part's ceiling.

    What is left is a problem of its own: everything below the floor is solid ground from then on,
    and what is placed already no longer changes places with what is not.
    """
    first, last = boxes.first[box], boxes.last[box]
    under = state.ceiling[first] - boxes.size[box]
    put(state, ADDRESS, box, under)
    for section in range(first, last):
        put(state, CEILING, section, under)
        put(state, REST, section, state.rest[section] - boxes.size[box])
        if state.top[section] < state.floor[section]:
            put(state, TOP, section, state.floor[section])
        if state.owner[section] >= 0:
            put(state, OWNER, section, -1)
    state.registers[DIRTY], state.registers[CLEAN] = first, last
