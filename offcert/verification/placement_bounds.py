"""Bounds on the pool: computed from the problem alone, or established by a search."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from offcert.proofs.placement_certificate import InfeasibleSubset
from offcert.proofs.proof import Proof
from offcert.questions.placement.problem import PlacementProblem
from offcert.verification.limits import Allowance, BeyondLimitsError

# Parts that are looked at where nobody sets a limit: a minute or so. Measured; no record.
MOST_PARTS = 100_000
# Boxes of a part that take as much memory as one of the labels that `Allowance` reckons with.
# Assumed.
_BOXES_A_LABEL = 4

# The first section, the one after the last, and the size.
Box = tuple[int, int, int]


class PartialPlacement(NamedTuple):
    """Boxes that are still to be placed over floors, of which the least is 0."""

    boxes: tuple[Box, ...]
    floors: tuple[int, ...]
    room: int


class TooManyPartsError(Exception):
    """A search had more parts to look at than it may."""


class _Decision:
    """A part that is looked at, and the parts that the present choice leaves."""

    def __init__(self, part: PartialPlacement) -> None:
        self.part = part
        self.made = False
        self.left: list[PartialPlacement] = []
        self._choices = choices(part)

    def choose(self, allowance: Allowance) -> bool:
        """Go on to the next choice that is not refuted at once; return whether there is one."""
        for choice in self._choices:
            # Of many boxes, each choice takes a while.
            allowance.require_time()
            found = parts(*choice)
            if found is not None:
                self.left, self.made = found, True
                return True
        return False


class Stacks:
    """Looks at every way of stacking, and remembers which parts do not fit, or do."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._most = 0
        self._known: dict[PartialPlacement, bool] = {}
        self._seen = 0

    def fit(self, boxes: list[Box], sections: int, room: int) -> bool:
        """Return whether boxes have addresses from 0 on, below `room`.

        Raises `TooManyPartsError` if there are more than `MOST_PARTS` parts to be looked at, and
        `BeyondLimitsError` if that takes more than is allowed.
        """
        self._most = self._allowance.labels(MOST_PARTS, 2 + len(boxes) // _BOXES_A_LABEL)
        begin = parts(boxes, [0] * sections, room)
        return begin is not None and all(self._fits(part) for part in begin)

    def _fits(self, part: PartialPlacement) -> bool:
        """Return whether a part fits; decisions are a list, since they may be many."""
        way = [_Decision(part)]
        while True:
            decision = way[-1]
            while decision.left and self._known.get(decision.left[-1]):
                decision.left.pop()
            if decision.made and not decision.left:
                fits = True
            elif decision.left and decision.left[-1] not in self._known:
                self._count()
                way.append(_Decision(decision.left[-1]))
                continue
            elif decision.choose(self._allowance):
                continue
            else:
                fits = False
            self._known[decision.part] = fits
            way.pop()
            if not way:
                return fits

    def _count(self) -> None:
        self._seen += 1
        self._allowance.require_time()
        if self._seen > self._most:
            if self._most < MOST_PARTS:
                raise BeyondLimitsError(f"more than {self._most} parts of a search")
            raise TooManyPartsError(f"more than {MOST_PARTS} parts would have to be looked at")


def choices(part: PartialPlacement) -> Iterator[tuple[list[Box], list[int], int]]:
    """Yield the part that is left after each of the decisions about one section of a valley."""
    boxes, floors, room = part
    section, first, last = _where(part)
    floor = floors[section]
    within = [box for box in boxes if first <= box[0] and box[1] <= last]
    for box in sorted(set(within), key=lambda box: (box[0] - box[1]) * box[2]):
        if box[0] <= section < box[1]:
            left = list(boxes)
            left.remove(box)
            risen = list(floors)
            risen[box[0] : box[1]] = [floor + box[2]] * (box[1] - box[0])
            yield left, risen, room
    heights = [floors[wall] for wall in (first - 1, last) if 0 <= wall < len(floors)]
    heights += [floor + box[2] for box in within if not box[0] <= section < box[1]]
    if heights:
        risen = list(floors)
        risen[section] = min(heights)
        yield list(boxes), risen, room


def _where(part: PartialPlacement) -> tuple[int, int, int]:
    """Return a section of a valley with few choices, and the valley."""
    boxes, floors, room = part
    best: tuple[int, int, int] | None = None
    found = (0, 0, 0)
    first = 0
    while first < len(floors):
        last = first + 1
        while last < len(floors) and floors[last] == floors[first]:
            last += 1
        if (first == 0 or floors[first - 1] > floors[first]) and (
            last == len(floors) or floors[last] > floors[first]
        ):
            within = {box for box in boxes if first <= box[0] and box[1] <= last}
            for section in range(first, last):
                count = sum(box[0] <= section < box[1] for box in within)
                load = sum(box[2] for box in boxes if box[0] <= section < box[1])
                value = (count + (floors[section] + load < room), floors[section], room - load)
                if best is None or value < best:
                    best, found = value, (section, first, last)
        first = last
    return found


def parts(boxes: list[Box], floors: list[int], room: int) -> list[PartialPlacement] | None:
    """Return the parts that boxes over floors are made of, or None if they cannot fit."""
    waiting, found = [(boxes, floors, room)], []
    while waiting:
        boxes, floors, room = waiting.pop()
        if not boxes:
            continue
        lows = [max(floors[first:last]) for first, last, _ in boxes]
        if not _loads_fit(boxes, lows, len(floors), room):
            return None
        sides = list(_sides(boxes, _risen(boxes, lows, len(floors))))
        for left, above in sides:
            whole = sum(size for first, last, size in left if last - first == len(above))
            if whole:
                left = [box for box in left if box[1] - box[0] < len(above)]
                waiting.append((left, above, room - whole))
            elif len(sides) > 1 or len(above) < len(floors) or above != floors:
                waiting.append((left, above, room))
            else:
                least = min(above)
                lowered = tuple(height - least for height in above)
                found.append(PartialPlacement(tuple(sorted(left)), lowered, room - least))
    return found


def _loads_fit(boxes: list[Box], lows: list[int], sections: int, room: int) -> bool:
    """Return whether those above any height, in any section, have room above it.

    In a section boxes lie one above the other. So those that lie no lower than some height take the
    sum of their sizes above it.
    """
    above = [0] * sections
    for low, (first, last, size) in sorted(zip(lows, boxes, strict=True), reverse=True):
        for section in range(first, last):
            above[section] += size
            if low + above[section] > room:
                return False
    return True


def _risen(boxes: list[Box], lows: list[int], sections: int) -> list[int | None]:
    """Return the least height of a box in each section, None where there is no box."""
    least: list[int | None] = [None] * sections
    for low, (first, last, _) in zip(lows, boxes, strict=True):
        for section in range(first, last):
            height = least[section]
            least[section] = low if height is None else min(height, low)
    return least


def _sides(boxes: list[Box], heights: list[int | None]) -> Iterator[tuple[list[Box], list[int]]]:
    """Yield the boxes and the floors of stretches that no box connects.

    Sections are left out that say nothing which the next one does not say.
    """
    ends = {last for _, last, _ in boxes}
    begins = {first for first, _, _ in boxes}
    crossed = [False] * (len(heights) + 1)
    for first, last, _ in boxes:
        for section in range(first + 1, last):
            crossed[section] = True
    begin = 0
    for end in range(1, len(heights) + 1):
        if crossed[end]:
            continue
        # Where there is no box, `begin` to `end` is one section.
        if heights[begin] is not None:
            kept = _telling(begin, end, heights, begins, ends)
            place = {section: number for number, section in enumerate(kept)}
            yield _renumbered(boxes, begin, end, kept), [heights[each] or 0 for each in place]
        begin = end


def _telling(
    begin: int, end: int, heights: list[int | None], begins: set[int], ends: set[int]
) -> list[int]:
    """Return the sections without which something would not be known of the boxes."""
    kept: list[int] = []
    for section in range(begin, end):
        height = heights[section] or 0
        # Since the last one that was kept: has any box ended, has any begun?
        while kept:
            before = heights[kept[-1]] or 0
            between = range(kept[-1] + 1, section + 1)
            if before <= height and not any(each in ends for each in between):
                kept.pop()
            else:
                break
        if kept:
            between = range(kept[-1] + 1, section + 1)
            if (heights[kept[-1]] or 0) >= height and not any(each in begins for each in between):
                continue
        kept.append(section)
    return kept


def _renumbered(boxes: list[Box], begin: int, end: int, kept: list[int]) -> list[Box]:
    """Return the boxes of a stretch, in terms of the sections that were kept."""
    before = [0]
    for section in range(begin, end):
        before.append(before[-1] + (section in kept))
    return [
        (before[first - begin], before[last - begin], size)
        for first, last, size in boxes
        if begin <= first and last <= end
    ]


def infeasible_subset(
    problem: PlacementProblem, value: int, proof: InfeasibleSubset, allowance: Allowance
) -> str | None:
    """Return None if some residences need a pool of `value` bytes, or why that is not shown.

    Moved down as far as they go, they lie at sums of sizes: at multiples of what divides all of
    these. So one unit less is all that has to be excluded.
    """
    rows, chosen = problem.residences, proof.residences
    if any(index >= len(rows) for index in chosen):
        return f"there are {len(rows)} residences, so none is number {max(chosen)}"
    if len(set(chosen)) < len(chosen):
        return "a residence is named twice"
    align = problem.alignment
    sizes = {index: -(-rows[index].size // align) * align for index in chosen if rows[index].size}
    unit = math.gcd(*sizes.values()) or 1
    # Two residences meet if and only if one of them is there when the other begins.
    moments = sorted({rows[index].start for index in sizes})
    boxes: list[Box] = [
        (
            bisect_left(moments, rows[index].start),
            bisect_left(moments, rows[index].end),
            size // unit,
        )
        for index, size in sizes.items()
    ]
    try:
        fit = Stacks(allowance).fit(boxes, len(moments), (value - 1) // unit)
    except TooManyPartsError as error:
        return str(error)
    # No residences fit into any pool, but none is smaller than 0.
    return f"they fit into {(value - 1) // unit * unit} bytes" if fit and value > 0 else None


def load(problem: PlacementProblem, value: int, proof: Proof, allowance: Allowance) -> str | None:
    """Return None if that many bytes are taken at some moment, or how many are."""
    unit = problem.alignment
    # At one moment what ends goes before what begins.
    events = []
    for residence in problem.residences:
        size = -(-residence.size // unit) * unit
        events.append((residence.start, 1, size))
        events.append((residence.end, 0, -size))
    most = taken = 0
    for _, _, change in sorted(events):
        taken += change
        most = max(most, taken)
    return None if value <= most else f"at most {most} bytes are taken at a time, not {value}"
