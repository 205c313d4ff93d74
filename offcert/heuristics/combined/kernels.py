"""The two tables of the combined paper's dynamic program, filled by compiled code.

Recomputation, ``C_A(i, j, A, Δ)``: least ticks to get from the input of stage i and the gradient of
the output of stage j to the gradient of the input of stage i. `A` slots are on the device for
good, the input among them, and `Δ` slots that are none of theirs have returned when ``B_i`` ends.
There is one table more than in the paper: ``y = 1`` says that all that stage j keeps is there
already. With it, both cases of the paper are one: a sweep ``F_i … F_k`` keeps its last output
(``z = 0``) or all that its last stage keeps (``z = 1``); what comes after k is solved with that as
input, and then what is up to k, for which it is there. The paper's F_all is the sweep of one stage
with ``z = 1``; longer ones drop the input of the stage whose results they keep, which the paper's
operations cannot.

Forward, ``OC_x(i, A, Δ_F, Δ_B)``: least ticks from the start of ``F_i`` to the end of ``B_i``.

Data return as late as they can and leave as early as they can. An operation that lacks memory for
`X` slots waits for them: that idle time is whole ticks, so that a schedule can have it.

Cells of a table stand in the order of A; for each, only as many Δ as there is room for exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import IntArray, compiled, inlined
from offcert.heuristics.combined.slots import SlottedChain

Shorts = NDArray[np.int16]

# A value above all others, of a state that cannot be reached. By definition.
NEVER = 2**61


@inlined
def _slots(size: int, unit: int) -> int:
    """Return the slots that scaled bytes take; less than none stay less than none."""
    return -((-size) // unit)


@compiled
def fill_recompute(
    planes: IntArray,
    bases: IntArray,
    chain: SlottedChain,
    cost: IntArray,
    moved: Shorts,
    choice: Shorts,
) -> None:
    """Fill ``C_A`` for all stages but the last.

    Parameters
    ----------
    planes : int64 array, (2, stages, stages)
        The number of the plane of each ``(y, i, j)``; -1 where there is none.
    bases : int64 array
        The cell of each A with Δ = 0, and the number of cells.
    cost, moved, choice : arrays, one plane a row
        Ticks; slots that return meanwhile; the sweep to begin with, as ``2 (k - i) + z``.
    """
    slots, backward, returned = chain.slots, chain.backward, chain.returned
    numerator, denominator = chain.rate
    stages = planes.shape[1]
    for length in range(stages):
        for i in range(stages - length):
            j = i + length
            for y in range(2):
                plane = planes[y, i, j]
                if plane < 0:
                    continue
                for cell in range(bases[-1]):
                    cost[plane, cell] = NEVER
                if length == 0:
                    need = chain.own[1, i]
                    pressed = need
                    time = backward[i + 1] - backward[i]
                    if y == 0:
                        before = _slots(chain.first_again[i] + chain.hold[0, i], chain.unit)
                        pressed = max(need, before - (returned[i + 1] - returned[i]))
                        need = max(need, before)
                        time += chain.forward[i + 1] - chain.forward[i]
                    for kept in range(slots - need + 1):
                        for late in range(bases[kept + 1] - bases[kept]):
                            lacking = max(0, pressed - slots + kept + late)
                            cost[plane, bases[kept] + late] = time + chain.idle[1, lacking]
                else:
                    for k in range(i, j):
                        for z in range(1, -1, -1):
                            if planes[z, i, k] >= 0:
                                which = (i, j, k, y, z)
                                _try_sweep(which, planes, bases, chain, cost, moved, choice)
                least = backward[j + 1] - backward[i]
                passed = returned[j + 1] - returned[i]
                for cell in range(bases[-1]):
                    time = cost[plane, cell]
                    if time < NEVER:
                        extra = (time - least) * numerator // denominator
                        moved[plane, cell] = min(slots, passed + extra)


@inlined
def _try_sweep(
    which: tuple[int, int, int, int, int],
    planes: IntArray,
    bases: IntArray,
    chain: SlottedChain,
    cost: IntArray,
    moved: Shorts,
    choice: Shorts,
) -> None:
    """Improve a plane by those strategies that begin with the sweep from i to k."""
    i, j, k, y, z = which
    slots, unit, hold, idle = chain.slots, chain.unit, chain.hold, chain.idle[1]
    first, rest, pressed, _ = chain.back
    plane, last, then = planes[y, i, j], planes[z, i, k], planes[y, k + 1, j]
    most = _slots(max(first[z, i, k], rest[z, i, k]) + hold[y, j], unit)
    press = _slots(pressed[z, i, k] + hold[y, j], unit)
    time = chain.forward[k + 1] - chain.forward[i]
    for kept in range(slots - most + 1):
        inside = kept + chain.output[z, k]
        room = bases[inside + 1] - bases[inside]
        for late in range(bases[kept + 1] - bases[kept]):
            cell = bases[kept] + late
            after = cost[last, cell]
            if after >= cost[plane, cell]:
                continue
            back = max(0, late - moved[last, cell])
            if back >= room:
                continue
            between = cost[then, bases[inside] + back]
            if between >= NEVER:
                continue
            back = max(0, back - moved[then, bases[inside] + back])
            value = time + idle[max(0, press - slots + kept + back)] + between + after
            if value < cost[plane, cell]:
                cost[plane, cell] = value
                choice[plane, cell] = 2 * (k - i) + z


@compiled
def fill_forward(
    planes: IntArray,
    bases: tuple[IntArray, IntArray],
    chain: SlottedChain,
    again: bool,
    bare: bool,
    recompute: tuple[IntArray, Shorts],
    value: IntArray,
    choice: Shorts,
) -> None:
    """Fill ``OC``.

    Parameters
    ----------
    planes : int64 array, (2, stages, stages)
        Of `fill_recompute`.
    bases : (int64 array, int64 array)
        The cells of ``C_A`` by A, and those of ``OC``.
    again, bare : bool
        Whether anything may run again; whether sweeps of more than one stage may keep everything of
        their last.
    recompute : (cost, moved)
        The table of `fill_recompute`.
    value, choice : arrays, (2, stages, cells)
        Ticks, and the sweep to begin with, as ``4 (j - i) + 2 z + v``.
    """
    stages = planes.shape[1]
    scratch = np.empty((2, chain.slots + 1), dtype=np.int64)
    for i in range(stages - 1, -1, -1):
        for x in range(2):
            for cell in range(bases[1][-1]):
                value[x, i, cell] = NEVER
            if i == stages - 1:
                _fill_turn(x, bases[1], chain, value)
                continue
            for j in range(i, stages - 1):
                for z in range(1, -1, -1):
                    whole = z == 1 and (j == i or (bare and again))
                    if not whole and (z == 1 or not again):
                        continue
                    for v in range(2):
                        if v == 0 or (chain.most > 0 and chain.input[x, i] > 0):
                            which = (x, i, j, z, v)
                            _try_first_sweep(
                                which, planes, bases, chain, recompute, scratch, value, choice
                            )


@inlined
def _fill_turn(x: int, bases: IntArray, chain: SlottedChain, value: IntArray) -> None:
    """Fill the last stage: its two operations, and all that is left to move between them."""
    slots, own, forward, backward = chain.slots, chain.own, chain.forward, chain.backward
    passed, returned = chain.out.passed, chain.returned
    idle, moved, turn = chain.idle, chain.moved, chain.turn
    i = own.shape[1] - 1
    size = chain.input[x, i]
    time = forward[i + 1] - forward[i] + backward[i + 1] - backward[i]
    for kept in range(slots - size - max(own[0, i], own[1, i]) + 1):
        width = min(turn.shape[0], slots - kept + 1)
        for front in range(width):
            lacking = max(0, own[0, i] - slots + kept + size + front)
            leaving = max(0, front - passed[i + 1] + passed[i] - moved[0, lacking])
            start = time + idle[0, lacking]
            for back in range(width):
                lacking = max(0, own[1, i] - slots + kept + size + back)
                coming = max(0, back - returned[i + 1] + returned[i] - moved[1, lacking])
                value[x, i, bases[kept] + front * width + back] = (
                    start + idle[1, lacking] + turn[leaving, coming]
                )


@inlined
def _try_first_sweep(
    which: tuple[int, int, int, int, int],
    planes: IntArray,
    bases: tuple[IntArray, IntArray],
    chain: SlottedChain,
    recompute: tuple[IntArray, Shorts],
    scratch: IntArray,
    value: IntArray,
    choice: Shorts,
) -> None:
    """Improve a stage by those strategies that begin with the sweep from i to j."""
    x, i, j, z, v = which
    slots, unit, idle, moved = chain.slots, chain.unit, chain.idle, chain.moved
    first, rest, pressed, passed = chain.out
    cost, returned = recompute
    costs, backs = scratch[0], scratch[1]
    size = chain.input[x, i]
    alone = _slots(first[z, i, j], unit) + size
    others = _slots(rest[z, i, j], unit) + (0 if v else size)
    press = _slots(pressed[z, i, j], unit) + size
    time = chain.forward[j + 1] - chain.forward[i]
    leaves = passed[j + 1] - passed[i]
    plane = planes[z, i, j]
    limit = chain.turn.shape[0]
    waiting = size if v else 0
    for kept in range(slots - max(alone, others, size) + 1):
        inside = kept if v else kept + size
        width, room = min(limit, slots - kept + 1), min(limit, slots - inside + 1)
        cell = bases[0][kept + size]
        for back in range(width):
            costs[back] = NEVER
            if back < min(limit, slots - kept - size + 1):
                late = max(0, back - returned[plane, cell + back]) + waiting
                if late < room:
                    costs[back], backs[back] = cost[plane, cell + back], late
        for front in range(width):
            lacking = max(0, press - slots + kept + front)
            left = max(0, front + waiting - leaves - moved[0, lacking])
            if left >= room:
                continue
            start = time + idle[0, lacking]
            row = bases[1][kept] + front * width
            after = bases[1][inside] + left * room
            for back in range(width):
                if costs[back] < NEVER:
                    found = start + costs[back] + value[z, j + 1, after + backs[back]]
                    if found < value[x, i, row + back]:
                        value[x, i, row + back] = found
                        choice[x, i, row + back] = 4 * (j - i) + 2 * z + v


def cells(slots: int, most: int, dimensions: int) -> IntArray:
    """Return, for each A up to the slots, the number of its first cell; in the end that of all.

    There are so many Δ (dimensions), each of at most so much.
    """
    widths: Sequence[int] = [min(most, slots - kept) + 1 for kept in range(slots + 1)]
    return np.concatenate(
        [np.zeros(1, dtype=np.int64), np.cumsum(np.array(widths, dtype=np.int64) ** dimensions)]
    )
