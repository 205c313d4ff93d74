"""The skyline search itself: depth first, over points and over parts that do not meet.

It keeps its place in `State.registers`, so that it can be left and entered again.
"""

from __future__ import annotations

from offcert.core.compiled import plain, plain_inner
from offcert.formulations.placement.skyline_bounds import propagate
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
    MARK,
    NEXT,
    NODES,
    POINT,
    RIGHT,
    STACK,
    TO,
    UNPLACED,
    Boxes,
    State,
    lift_box,
    put,
    stack_box,
    undo,
)

# What a search ends with.
NONE, FOUND, GOING_ON, TOO_DEEP = 0, 1, 2, 3


@plain
def advance(boxes: Boxes, state: State, nodes: int, rule: int) -> int:
    """Search on for some nodes.

    Parameters
    ----------
    boxes : Boxes
        What is to be placed.
    state : State
        As `begin` or the last call left it.
    nodes : int
        After how many to stop.
    rule : int
        How points are chosen.

    Returns
    -------
    int
        `FOUND` (addresses are in the state), `NONE` (there is no placement), `GOING_ON`, or
        `TOO_DEEP` where there is not enough memory to go on.
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
def _enter(boxes: Boxes, state: State, rule: int) -> None:
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
def _lift_all(boxes: Boxes, state: State) -> bool:
    """Place the boxes that are live in all sections of the part; return whether there are any."""
    left, right = state.registers[LEFT], state.registers[RIGHT]
    found = False
    for box in range(boxes.begins[left], boxes.begins[left + 1]):
        if state.address[box] == UNPLACED and boxes.last[box] == right:
            lift_box(boxes, state, box)
            found = True
    return found


@plain_inner
def _leave(boxes: Boxes, state: State) -> None:
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
        put(state, state.floor, FLOOR, point, next_floor(boxes, state, point))
        registers[DIRTY], registers[CLEAN] = point, point + 1
        registers[ENTER] = 1
    elif stack_box(boxes, state, box, height):
        registers[ENTER] = 1
