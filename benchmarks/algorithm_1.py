"""Algorithm 1 of the offloading paper as printed but for its errata: one dictionary a stage.

The yardstick of `dynprog.py`. States are the paper's ``(M_F, Delta_F, Delta_B)``; nothing is
clamped or dominated, and nothing is shared with `offcert.heuristics` but the discretised chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offcert.heuristics.evictions.dynprog_states import ScaledChain


class Stage(NamedTuple):
    """The numbers of one stage that Algorithm 1 reads, in slots."""

    size: int
    output: int
    gradient: int
    output_gradient: int
    forward: int
    backward: int
    forward_workspace: int
    backward_workspace: int


class State(NamedTuple):
    """The key of the paper's hash tables: ``M_F``, ``Delta_F`` and ``Delta_B``."""

    used: int
    front: int
    back: int


Table = dict[State, tuple[int, State | None, bool]]


def stages_of(chain: ScaledChain) -> list[Stage]:
    return [
        Stage(*numbers)
        for numbers in zip(
            chain.activation[:-1],
            chain.activation[1:],
            chain.gradient[:-1],
            chain.gradient[1:],
            chain.forward,
            chain.backward,
            chain.forward_workspace,
            chain.backward_workspace,
            strict=True,
        )
    ]


def successors(
    state: State, stage: Stage, memory: int, choices: Sequence[bool]
) -> Iterator[tuple[State, int, bool]]:
    """Yield successors of a state, delays, and whether ``x_i`` leaves: equations (1) to (8)."""
    front, back = max(0, state.front), max(0, state.back)
    used_back = stage.gradient + back + state.used - front
    need = state.used + stage.forward_workspace + stage.output - memory
    need_back = used_back + stage.backward_workspace + stage.output - memory
    need_back += stage.output_gradient
    if need > front or need_back > back:
        return
    wait, wait_back = max(0, need), max(0, need_back)
    moved, moved_back = wait + stage.forward, wait_back + stage.backward
    for leaves in choices:
        ready = front + stage.size if leaves else front
        after = State(
            state.used + stage.output - min(ready, moved),
            (ready if leaves else state.front) - moved,
            stage.size + max(0, state.back - moved_back) if leaves else state.back - moved_back,
        )
        yield after, wait + wait_back, leaves


def turn_idle(state: State, stages: Sequence[Stage], memory: int) -> int:
    """Return ``epsilon_G`` of a final state, by equations (9) and (10) with their errata."""
    if state.front > 0 and state.back > 0:
        return state.front + state.back
    if state.front <= 0 and state.back <= 0:
        return 0
    final = stages[-1].output_gradient
    if state.front > 0:
        pending, available, used = state.front, -state.back, state.used
        needs = [s.backward_workspace + s.gradient + s.output_gradient for s in stages]
        times = [s.backward for s in stages]
    else:
        pending, available, used = state.back, -state.front, final + state.back + state.used
        needs = [s.forward_workspace - final for s in stages]
        times = [s.forward for s in stages]
    idle = max(0, pending - available)
    gone = elapsed = 0
    for stage, need, duration in zip(stages[::-1], needs[::-1], times[::-1], strict=True):
        if elapsed >= available:
            break
        idle = max(idle, need - gone + used - memory - elapsed)
        gone += stage.output
        elapsed += duration
    return idle


def plain(chain: ScaledChain, chosen: Sequence[int] | None = None) -> tuple[int | None, int]:
    """Run Algorithm 1 with one dictionary a stage.

    Returns the least idle time, or None if no state is left, and the number of entries of all
    dictionaries. With `chosen`, only that set is followed.
    """
    stages = stages_of(chain)
    tables: list[Table] = [{State(stages[0].size, 0, 0): (0, None, False)}]
    for number, stage in enumerate(stages):
        table: Table = {}
        choices = (True, False) if chosen is None else (number in chosen,)
        for state, (idle, _, _) in tables[-1].items():
            for after, wait, leaves in successors(state, stage, chain.memory, choices):
                known = table.get(after)
                if known is None or idle + wait < known[0]:
                    table[after] = (idle + wait, state, leaves)
        tables.append(table)
    totals = [
        idle + turn_idle(state, stages, chain.memory) for state, (idle, _, _) in tables[-1].items()
    ]
    return min(totals, default=None), sum(map(len, tables))
