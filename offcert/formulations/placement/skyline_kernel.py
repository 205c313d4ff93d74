"""The skyline search itself: depth first, over points and over parts that do not meet.

It keeps its place in `SkylineState.registers`, so that it can be left and entered again.
"""

from __future__ import annotations

from offcert.core.compiled import plain, plain_inner
from offcert.formulations.placement.skyline_branch import (
    CHOICE,
    FREE,
    PARTS,
    choose,
    next_floor,
    push_choices,
    push_frame,
    push_parts,
)
from offcert.formulations.placement.skyline_state import (
    BEGIN,
    CLEAN,
    DIRTY,
    END,
    ENTER,
    FILLED,
    FLOOR,
    FRAMES,
    FROM,
    FULL,
    KIND,
    LEFT,
    LOW,
    MARK,
    NEXT,
    NODES,
    POINT,
    RIGHT,
    STACK,
    TO,
    UNPLACED,
    Boxes,
    SkylineState,
    lift_box,
    put,
    stack_box,
    undo,
)

# An address above all others. By definition.
_HIGH = 2**60
# How often the boxes that hold a box are asked: where small boxes abound, it may rise by little
# every time. Arbitrary.
_ROUNDS = 8


@plain_inner
def propagate(boxes: Boxes, state: SkylineState) -> bool:
    """Raise floors and least addresses as they follow from each other; False if something fails.

    A box lies on no floor lower than the highest below it; a section's floor is the least address
    of the boxes that are still to come there. Only what the last change can reach is looked at.
    """
    left, right = state.registers[LEFT], state.registers[RIGHT]
    dirty, clean = state.registers[DIRTY], state.registers[CLEAN]
    from_, to = dirty, clean
    rounds = 0
    while dirty < clean:
        reach_from, reach_to = dirty, clean
        rounds += 1
        for box in range(boxes.begins[left], boxes.begins[clean]):
            if state.address[box] != UNPLACED or boxes.last[box] <= dirty:
                continue
            low = _least_address(boxes, state, box, rounds <= _ROUNDS)
            if low + boxes.size[box] > state.ceiling[left]:
                blame(boxes, state, box)
                return False
            if low != state.low[box]:
                put(state, LOW, box, low)
                reach_from = min(reach_from, boxes.first[box])
                reach_to = max(reach_to, boxes.last[box])
        from_, to = min(from_, reach_from), max(to, reach_to)
        dirty, clean = _raise_floors(boxes, state, reach_from, reach_to)
        if dirty < 0 or state.registers[FULL]:
            return False
    state.registers[DIRTY] = state.registers[CLEAN] = 0
    return from_ == to or _released(boxes, state, left, right, from_, to)


@plain_inner
def _least_address(boxes: Boxes, state: SkylineState, box: int, held: bool) -> int:
    """Return the least address of a box: the highest floor below, or more if nothing holds it.

    Where all floors below are that high and nothing ends there, what holds the box is still to be
    placed on them. That is asked only if `held` is true.
    """
    low = state.low[box]
    for section in range(boxes.first[box], boxes.last[box]):
        low = max(low, state.floor[section])
    if not held:
        return low
    for section in range(boxes.first[box], boxes.last[box]):
        if state.floor[section] < low or state.top[section] == low:
            return low
    smallest = _HIGH
    for other in range(boxes.begins[state.registers[LEFT]], boxes.begins[boxes.last[box]]):
        meets = boxes.last[other] > boxes.first[box]
        if meets and other != box and state.address[other] == UNPLACED:
            smallest = min(smallest, boxes.size[other])
    return low + smallest


@plain_inner
def _raise_floors(boxes: Boxes, state: SkylineState, from_: int, to: int) -> tuple[int, int]:
    """Raise floors between two sections; return between which they rose, or -1 if too far."""
    left, top = state.registers[LEFT], state.ceiling[from_]
    for section in range(from_, to):
        state.least[section] = _HIGH
    for box in range(boxes.begins[left], boxes.begins[to]):
        if state.address[box] != UNPLACED:
            continue
        for section in range(max(from_, boxes.first[box]), min(to, boxes.last[box])):
            state.least[section] = min(state.least[section], state.low[box])
    dirty, clean = to, from_
    for section in range(from_, to):
        if state.rest[section] > 0 and state.least[section] > state.floor[section]:
            if state.least[section] + state.rest[section] > top:
                state.weight[section] += 1.0
                return -1, -1
            put(state, FLOOR, section, state.least[section])
            dirty, clean = min(dirty, section), section + 1
    return dirty, clean


@plain_inner
def blame(boxes: Boxes, state: SkylineState, box: int) -> None:
    """Note that a box could not be placed, in its sections."""
    part = 1.0 / (boxes.last[box] - boxes.first[box])
    for section in range(boxes.first[box], boxes.last[box]):
        state.weight[section] += part


@plain_inner
def _released(
    boxes: Boxes, state: SkylineState, left: int, right: int, from_: int, to: int
) -> bool:
    """Return whether boxes fit above their least addresses, section by section.

    In one section, boxes lie one above the other: those that cannot lie lower than some address
    take, from there on, at least the sum of their sizes (as jobs with release dates on a machine).
    """
    order, low = state.order, state.low
    # The row was in order a few changes ago.
    for place in range(1, len(order)):
        box = order[place]
        before = place
        while before > 0 and low[order[before - 1]] < low[box]:
            order[before] = order[before - 1]
            before -= 1
        order[before] = box
    for section in range(from_, to):
        state.choices[section] = 0
    top = state.ceiling[left]
    for box in order:
        if state.address[box] != UNPLACED or boxes.first[box] >= to or boxes.last[box] <= from_:
            continue
        for section in range(max(from_, boxes.first[box]), min(to, boxes.last[box])):
            state.choices[section] += boxes.size[box]
            if low[box] + state.choices[section] > top:
                state.weight[section] += 1.0
                return False
    return True


# Outcomes of a search. By definition.
NONE, FOUND, GOING_ON, TOO_DEEP = 0, 1, 2, 3


@plain
def advance(boxes: Boxes, state: SkylineState, nodes: int, rule: int) -> int:
    """Search on for some nodes, from where `begin` or the last call left the state.

    Points are chosen by a rule. Return `FOUND` (addresses are in the state), `NONE` (there is no
    placement), `GOING_ON`, or `TOO_DEEP` where there is not enough memory to go on.
    """
    registers = state.registers
    last = registers[NODES] + nodes
    while True:
        if registers[FULL]:
            return TOO_DEEP
        if registers[ENTER]:
            if registers[NODES] >= last:
                return GOING_ON
            registers[NODES] += 1
            _enter(boxes, state, rule)
        elif registers[FRAMES] == 0:
            return FOUND if registers[FILLED] else NONE
        else:
            _leave(boxes, state)


@plain_inner
def _enter(boxes: Boxes, state: SkylineState, rule: int) -> None:
    """Begin with a part: see whether it can be right, and how to go on."""
    registers = state.registers
    if not propagate(boxes, state):
        registers[ENTER], registers[FILLED] = 0, 0
        return
    start = registers[STACK]
    parts = push_parts(boxes, state)
    if parts == 0:
        registers[ENTER], registers[FILLED] = 0, 1
        return
    if parts > 1:
        push_frame(state, PARTS, start, -1)
        registers[ENTER], registers[FILLED] = 0, 1
        return
    registers[LEFT], registers[RIGHT] = state.stack[start, 0], state.stack[start, 1]
    registers[STACK] = start
    if _lift_all(boxes, state):
        return
    point = choose(boxes, state, rule)
    push_choices(boxes, state, point)
    push_frame(state, CHOICE, start, point)
    registers[ENTER], registers[FILLED] = 0, 0


@plain_inner
def _lift_all(boxes: Boxes, state: SkylineState) -> bool:
    """Place the boxes that are live in all sections of the part; return whether there are any."""
    left, right = state.registers[LEFT], state.registers[RIGHT]
    found = False
    for box in range(boxes.begins[left], boxes.begins[left + 1]):
        if state.address[box] == UNPLACED and boxes.last[box] == right:
            lift_box(boxes, state, box)
            found = True
    return found


@plain_inner
def _leave(boxes: Boxes, state: SkylineState) -> None:
    """Go on with what the last frame holds, after a part was filled or could not be."""
    registers = state.registers
    frame = state.frames[registers[FRAMES] - 1]
    filled = registers[FILLED] == 1
    # Of parts all must be filled, and of choices one.
    over = frame[NEXT] == frame[END] or (filled if frame[KIND] == CHOICE else not filled)
    if frame[KIND] == CHOICE and not filled:
        undo(state, frame[MARK])
    if over:
        registers[STACK] = frame[BEGIN]
        registers[FRAMES] -= 1
        return
    registers[STACK] = frame[END]
    chosen = frame[NEXT]
    frame[NEXT] += 1
    if frame[KIND] == PARTS:
        registers[LEFT], registers[RIGHT] = state.stack[chosen, 0], state.stack[chosen, 1]
        registers[DIRTY] = registers[CLEAN] = 0
        registers[ENTER] = 1
        return
    registers[LEFT], registers[RIGHT] = frame[FROM], frame[TO]
    point, box = frame[POINT], state.stack[chosen, 0]
    height = state.floor[point]
    if box == FREE:
        put(state, FLOOR, point, next_floor(boxes, state, point))
        registers[DIRTY], registers[CLEAN] = point, point + 1
        registers[ENTER] = 1
    elif stack_box(boxes, state, box, height):
        registers[ENTER] = 1
