"""Every persistent strategy of a tiny chain, one operation after the other.

It shares nothing with what it checks. Operations are the papers': ``F_all`` (keeps its input, and
all that its backward operation needs), ``F_ck`` (keeps its input, makes its output), ``F_0`` (gives
its input up, makes its output) and ``B``. What is stored stays until its backward operation; an
output may also be passed to the next operation. Anything may run again at any time. Dijkstra's
algorithm finds the least time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from offcert.core.checkpoint_chain import CheckpointChain


@dataclass(frozen=True)
class _State:
    """How much has run for the first time, what is stored, and what is passed on.

    ``inputs`` are stages whose input is stored, ``saved`` those of which everything is.
    """

    frontier: int
    inputs: frozenset[int]
    saved: frozenset[int]
    passed: int | None


class _Search:
    def __init__(self, chain: CheckpointChain, memory: int) -> None:
        self.chain, self.memory = chain, memory
        self.stages = len(chain)

    def bytes_of(self, *states: _State) -> int:
        """Return the bytes of activations that are in any of these states."""
        outputs: set[int] = set()
        extras: set[int] = set()
        for state in states:
            outputs |= state.inputs | {stage + 1 for stage in state.saved}
            outputs |= set() if state.passed is None else {state.passed}
            extras |= state.saved
        chain = self.chain
        return sum(chain.output[i] for i in outputs) + sum(chain.extra[i] for i in extras)

    def followers(self, state: _State) -> Iterator[tuple[int, _State]]:
        for stage in range(min(state.frontier, self.stages - 1) + 1):
            yield from self.forward(state, stage)
        if self.stages <= state.frontier < 2 * self.stages:
            yield from self.backward(state, 2 * self.stages - 1 - state.frontier)

    def forward(self, state: _State, stage: int) -> Iterator[tuple[int, _State]]:
        chain = self.chain
        stored = stage in state.inputs or stage - 1 in state.saved
        if not stored and state.passed != stage:
            return
        frontier = max(state.frontier, stage + 1)
        turned = state.frontier - self.stages
        gradient = chain.gradient[self.stages - turned] if turned > 0 else 0
        held = state.inputs if stage - 1 in state.saved else state.inputs | {stage}
        ways = [
            # F_all, and F_ck whose output is passed on or stored.
            _State(frontier, held, state.saved | {stage}, None),
            _State(frontier, held, state.saved, stage + 1),
            _State(frontier, held | {stage + 1}, state.saved, None),
        ]
        if not stored:
            ways += [
                _State(frontier, state.inputs, state.saved, stage + 1),
                _State(frontier, state.inputs | {stage + 1}, state.saved, None),
            ]
        # What was passed and is not read is given up.
        before = _State(0, state.inputs | {stage}, state.saved, None)
        for after in ways:
            taken = self.bytes_of(before, after) + chain.forward_workspace[stage] + gradient
            if taken <= self.memory:
                yield chain.forward[stage], after

    def backward(self, state: _State, stage: int) -> Iterator[tuple[int, _State]]:
        chain = self.chain
        there = state.inputs | {each + 1 for each in state.saved}
        if stage not in state.saved or (stage not in there and state.passed != stage):
            return
        before = _State(0, state.inputs | {stage}, state.saved, None)
        taken = self.bytes_of(before) + chain.backward_workspace[stage]
        taken += chain.gradient[stage] + chain.gradient[stage + 1]
        if taken > self.memory:
            return
        gone = range(stage, self.stages + 1)
        saved = state.saved - {stage}
        for inputs in (state.inputs.difference(gone), (state.inputs | {stage}) - set(gone[1:])):
            yield chain.backward[stage], _State(state.frontier + 1, inputs, saved, None)


def least_persistent_time(chain: CheckpointChain, memory: int) -> int | None:
    """Return the least ticks of a persistent strategy within a memory limit, or None."""
    search = _Search(chain, memory)
    first = _State(0, frozenset({0}), frozenset(), None)
    if chain.output[0] > memory:
        return None
    ticket = count()
    best, queue = {first: 0}, [(0, next(ticket), first)]
    while queue:
        time, _, state = heapq.heappop(queue)
        if time > best[state]:
            continue
        if state.frontier == 2 * len(chain):
            return time
        for duration, after in search.followers(state):
            if time + duration < best.get(after, time + duration + 1):
                best[after] = time + duration
                heapq.heappush(queue, (time + duration, next(ticket), after))
    return None
