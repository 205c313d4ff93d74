"""The choice of the next point in the skyline search, and of the boxes that can cover it."""

from __future__ import annotations

from offcert.core.compiled import plain_inner
from offcert.formulations.placement.skyline_state import (
    BEGIN,
    END,
    FRAMES,
    FROM,
    FULL,
    KIND,
    LEFT,
    MARK,
    NEXT,
    POINT,
    RIGHT,
    STACK,
    TO,
    TRAIL,
    UNPLACED,
    Boxes,
    SkylineState,
)

# What a frame is about, and what stands on the stack where a point is left free. By definition.
CHOICE, PARTS = 0, 1
FREE = -1
_HIGH = 2**60
# Which point is chosen: with the fewest choices, the lowest, with the fewest choices for what
# failed there so far, or where most failed.
FEWEST, LOWEST, WEIGHTED, HEAVIEST = range(4)


@plain_inner
def push_parts(boxes: Boxes, state: SkylineState) -> int:
    """Push the parts of the current sections that no unplaced box connects; return how many.

    Shorter ones first: they fail soonest.
    """
    left, right = state.registers[LEFT], state.registers[RIGHT]
    stack, start = state.stack, state.registers[STACK]
    used, reach = start, -1
    for box in range(boxes.begins[left], boxes.begins[right]):
        if state.address[box] != UNPLACED:
            continue
        if boxes.first[box] >= reach:
            stack[used, 0] = boxes.first[box]
            reach = boxes.last[box]
            used += 1
        reach = max(reach, boxes.last[box])
        stack[used - 1, 1] = reach
    for place in range(start + 1, used):
        first, last = stack[place, 0], stack[place, 1]
        before = place
        while before > start and stack[before - 1, 1] - stack[before - 1, 0] > last - first:
            stack[before, 0], stack[before, 1] = stack[before - 1, 0], stack[before - 1, 1]
            before -= 1
        stack[before, 0], stack[before, 1] = first, last
    state.registers[STACK] = used
    return used - start


@plain_inner
def push_frame(state: SkylineState, kind: int, start: int, point: int) -> None:
    """Remember the decisions on the stack from `start` on, to go through them one by one."""
    registers = state.registers
    used = registers[FRAMES]
    if used + 1 >= len(state.frames) or registers[STACK] + len(state.low) >= len(state.stack):
        registers[FULL] = 1
        return
    frame = state.frames[used]
    frame[KIND], frame[FROM], frame[TO] = kind, registers[LEFT], registers[RIGHT]
    frame[BEGIN], frame[END], frame[NEXT] = start, registers[STACK], start
    frame[MARK], frame[POINT] = registers[TRAIL], point
    registers[FRAMES] = used + 1


@plain_inner
def choose(boxes: Boxes, state: SkylineState, rule: int) -> int:
    """Return the section to decide about: one in a valley of the floor.

    A valley is a stretch of sections with one floor and higher ones on both sides. What covers the
    point just above its floor in one of its sections either lies on that floor, within the valley,
    or nothing covers it.
    """
    left, right = state.registers[LEFT], state.registers[RIGHT]
    _count_choices(boxes, state, left, right)
    floor, rest, top = state.floor, state.rest, state.ceiling[left]
    chosen, least = -1, 1e300
    valley = left
    while valley < right:
        end = valley + 1
        while end < right and floor[end] == floor[valley]:
            end += 1
        shut = valley == left or floor[valley - 1] > floor[valley]
        if shut and (end == right or floor[end] > floor[valley]):
            for section in range(valley, end):
                slack = top - floor[section] - rest[section]
                choices = state.choices[section] + (1 if slack > 0 else 0)
                if choices == 1 and rule >= WEIGHTED:
                    return section
                if rule == FEWEST:
                    value = choices * 1e6 + slack
                elif rule == LOWEST:
                    value = floor[section] * 1e6 + choices * 1e3 + min(slack, 999)
                elif rule == WEIGHTED:
                    value = choices / state.weight[section]
                else:
                    value = 1.0 / state.weight[section]
                if value < least:
                    chosen, least = section, value
        valley = end
    return chosen


@plain_inner
def _count_choices(boxes: Boxes, state: SkylineState, left: int, right: int) -> None:
    """Count, in every section, the boxes that could lie on the floor without space below them."""
    for section in range(left, right):
        state.choices[section] = 0
    for box in range(boxes.begins[left], boxes.begins[right]):
        if state.address[box] != UNPLACED:
            continue
        low, flat = state.low[box], True
        for section in range(boxes.first[box], boxes.last[box]):
            if state.floor[section] != low:
                flat = False
                break
        if flat:
            for section in range(boxes.first[box], boxes.last[box]):
                state.choices[section] += 1


@plain_inner
def push_choices(boxes: Boxes, state: SkylineState, point: int) -> None:
    """Push the decisions at a point of a valley: the boxes of high priority first.

    Of equal boxes only the first, and last that nothing lies there, if there is room to spare.
    """
    left, registers = state.registers[LEFT], state.registers
    stack, start = state.stack, registers[STACK]
    used, height = start, state.floor[point]
    for box in range(boxes.begins[left], boxes.begins[point + 1]):
        if (
            state.address[box] != UNPLACED
            or boxes.last[box] <= point
            or state.low[box] != height
            or _has_twin(boxes, state, box)
        ):
            continue
        before = used
        while before > start and state.priority[stack[before - 1, 0]] < state.priority[box]:
            stack[before, 0] = stack[before - 1, 0]
            before -= 1
        stack[before, 0] = box
        used += 1
    free = next_floor(boxes, state, point)
    if free + state.rest[point] <= state.ceiling[left]:
        stack[used, 0] = FREE
        used += 1
    registers[STACK] = used


@plain_inner
def next_floor(boxes: Boxes, state: SkylineState, point: int) -> int:
    """Return the least address, above a point left free in a valley, of a box that covers it.

    One that lives within the valley lies on another that does and is not placed yet; any other
    reaches over a wall of the valley.
    """
    left, right, height = state.registers[LEFT], state.registers[RIGHT], state.floor[point]
    first, last = point, point + 1
    while first > left and state.floor[first - 1] == height:
        first -= 1
    while last < right and state.floor[last] == height:
        last += 1
    least = _HIGH
    if first > left:
        least = state.floor[first - 1]
    if last < right:
        least = min(least, state.floor[last])
    for box in range(boxes.begins[first], boxes.begins[last]):
        if state.address[box] == UNPLACED and boxes.last[box] <= last:
            least = min(least, height + boxes.size[box])
    return least


@plain_inner
def _has_twin(boxes: Boxes, state: SkylineState, box: int) -> bool:
    """Return whether an equal box that comes before is still to be placed."""
    for other in range(boxes.begins[boxes.first[box]], box):
        if (
            state.address[other] == UNPLACED
            and boxes.last[other] == boxes.last[box]
            and boxes.size[other] == boxes.size[box]
        ):
            return True
    return False
