"""Strategies on a chain, in the order of their computing time.

A partial execution is a node: which outputs and which internals of stages are stored, what runs
next. A value is stored when it is written, or passed to the very next forward operation; a stored
one is given up after an operation that reads it, so that the trace of the strategy holds exactly
what the node says. Every strategy is listed once whose every run writes something that is read
later and is not there already; whatever else a strategy did could be left out, and its schedule
would stay one. Nodes are taken in the order of what their computing takes at least: what has run,
what has not run yet, and the forward operations whose internals are not stored.

Nodes are dropped whose operation does not fit into the memory even if all that it does not use were
absent, or for which what must be absent takes too long to leave and return.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import ceil

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Run
from offcert.core.platform import Kind, Platform
from offcert.core.strategy import Strategy
from papers.combined.assumptions import Assumptions


@dataclass(frozen=True, slots=True)
class _Node:
    """A partial execution.

    `stored` and `internal` are sets of outputs and of internals as bits; `passed` is the output
    that the next operation has to read, or -1; `forward` first runs are done, and `backward` is the
    stage whose gradient is next.
    """

    spent: int
    forward: int
    backward: int
    stored: int
    internal: int
    passed: int
    run: Run | None
    before: _Node | None

    def strategy(self) -> Strategy:
        runs = []
        node: _Node | None = self
        while node is not None and node.run is not None:
            runs.append(node.run)
            node = node.before
        return Strategy(reversed(runs))


class Strategies:
    """The strategies of a chain, by computing time.

    Parameters
    ----------
    chain : CheckpointChain
    platform : Platform
        Its memory and rates say what cannot be worth while.
    assumptions : Assumptions
        `operations` and `persistent` count.
    offload : bool
        Whether anything may leave.

    Attributes
    ----------
    upper : int or None
        Ticks: only schedules that are shorter are of interest. It may fall while the list is read.
    reached : int
        Ticks: the computing time of every strategy that has not been listed is at least this.
    """

    def __init__(
        self, chain: CheckpointChain, platform: Platform, assumptions: Assumptions, offload: bool
    ) -> None:
        self.chain, self.assumptions, self.offload = chain, assumptions, offload
        self.memory = platform.memory
        self.slowness = sum((1 / platform.rate(kind) for kind in Kind), Fraction(0))
        self.upper: int | None = None
        self.reached = sum(chain.forward) + sum(chain.backward)

    def __iter__(self) -> Iterator[Strategy]:
        """Yield strategies; computing times never fall."""
        stages = len(self.chain)
        order = count()
        first = _Node(0, 0, stages - 1, 1, 0, -1, None, None)
        waiting = [(self._least(first), 0, next(order), first)]
        while waiting:
            least, _, _, node = heapq.heappop(waiting)
            self.reached = max(self.reached, least)
            if self.upper is not None and least >= self.upper:
                return
            if node.backward < 0:
                yield node.strategy()
                continue
            for following in self._following(node):
                least = self._least(following)
                if self.upper is None or least < self.upper:
                    # The deepest first, so that there is something to compare with soon.
                    depth = following.forward - following.backward
                    heapq.heappush(waiting, (least, -depth, next(order), following))
        self.reached = max(self.reached, self.upper or self.reached)

    def _least(self, node: _Node) -> int:
        """Return the least ticks that a strategy with such a beginning computes."""
        chain = self.chain
        least = node.spent + sum(chain.forward[node.forward :])
        least += sum(chain.backward[: node.backward + 1])
        for stage in range(min(node.forward, node.backward + 1)):
            if not node.internal >> stage & 1:
                least += chain.forward[stage]
        return least

    def _following(self, node: _Node) -> Iterator[_Node]:
        if node.passed >= 0:
            yield from self._forward(node, node.passed)
            return
        for stage in self._beginnings(node):
            yield from self._forward(node, stage)
        yield from self._backward(node)

    def _beginnings(self, node: _Node) -> list[int]:
        """Return the stages whose forward operation may run now, from what is stored."""
        last = min(node.forward, len(self.chain) - 1, node.backward)
        stages = [stage for stage in range(last + 1) if node.stored >> stage & 1]
        if not self.assumptions.nested:
            return stages
        if node.forward < len(self.chain):
            return [node.forward] if node.forward in stages else []
        return [] if self._is_ready(node) else stages[-1:]

    def _is_ready(self, node: _Node) -> bool:
        """Whether the next backward operation has all that it reads."""
        both = 3 << node.backward
        return node.stored & both == both and bool(node.internal >> node.backward & 1)

    def _forward(self, node: _Node, stage: int) -> Iterator[_Node]:
        """Run a forward operation in every way that is of use."""
        if stage > min(node.forward, node.backward):
            return
        has_output = bool(node.stored >> (stage + 1) & 1)
        has_internal = bool(node.internal >> stage & 1)
        passed = node.passed == stage
        if has_output and self.assumptions.nested:
            return
        gives_up = [False]
        if not passed and not self.assumptions.persistent and stage > 0:
            # What was written just now and is read only here would be passed.
            run = node.run
            new = run is not None and run.computation == stage - 1 and stage not in run.discards
            gives_up += [] if new else [True]
        for internal in self._internals(stage, has_internal, passed):
            for output in ("there",) if has_output else ("stored", "passed"):
                if output == "there" and not internal:
                    continue
                if internal and self.assumptions.operations and output != "stored":
                    continue
                if output == "passed" and stage >= node.backward:
                    continue
                if not self._fits_forward(node, stage, internal, output):
                    continue
                for dropped in gives_up:
                    if not (dropped and internal and self.assumptions.operations):
                        yield self._after(node, stage, internal, output, dropped)

    def _internals(self, stage: int, there: bool, passed: bool) -> tuple[bool, ...]:
        """Return whether internals may be kept by a run, in every way that is of use."""
        if there:
            return (False,)
        if self.assumptions.operations:
            # What keeps everything keeps its input as well, which is stored then.
            return (False,) if passed else (True, False)
        return (True,) if self.chain.extra[stage] == 0 else (True, False)

    def _after(self, node: _Node, stage: int, internal: bool, output: str, dropped: bool) -> _Node:
        stages = len(self.chain)
        discards = []
        if output == "there":
            discards.append(stage + 1)
        if not internal:
            discards.append(stages + 1 + stage)
        stored = node.stored | (1 << (stage + 1) if output == "stored" else 0)
        return _Node(
            node.spent + self.chain.forward[stage],
            max(node.forward, stage + 1),
            node.backward,
            stored & ~(1 << stage) if dropped else stored,
            node.internal | (1 << stage if internal else 0),
            stage + 1 if output == "passed" else -1,
            Run(stage, tuple(discards)),
            node,
        )

    def _backward(self, node: _Node) -> Iterator[_Node]:
        """Run the next backward operation; its stage's input may be given up after it."""
        stage, stages = node.backward, len(self.chain)
        if node.forward < stages or not self._is_ready(node):
            return
        chain, both = self.chain, 3 << stage
        own = chain.saved[stage] + chain.output[stage] + chain.backward_workspace[stage]
        own += chain.gradient[stage] + chain.gradient[stage + 1]
        if not self._fits(own, self._size(node.stored & ~both, node.internal & ~(1 << stage))):
            return
        stored = node.stored & ~(2 << stage)
        internal = node.internal & ~(1 << stage)
        together = stage > 0 and self.assumptions.operations and internal >> (stage - 1) & 1
        choices = [stored] if together or stage == 0 else [stored, stored & ~(1 << stage)]
        for kept in choices:
            yield _Node(
                node.spent + chain.backward[stage],
                node.forward,
                stage - 1,
                kept,
                internal,
                -1,
                Run(2 * stages - 1 - stage),
                node,
            )

    def _fits_forward(self, node: _Node, stage: int, internal: bool, output: str) -> bool:
        chain = self.chain
        own = chain.output[stage] + chain.forward_workspace[stage]
        own += chain.extra[stage] if internal else 0
        own += 0 if output == "there" else chain.output[stage + 1]
        if node.backward < len(chain) - 1:
            own += chain.gradient[node.backward + 1]
        return self._fits(own, self._size(node.stored & ~(1 << stage), node.internal))

    def _size(self, stored: int, internal: int) -> int:
        chain = self.chain
        size = sum(chain.output[v] for v in range(len(chain) + 1) if stored >> v & 1)
        return size + sum(chain.extra[v] for v in range(len(chain)) if internal >> v & 1)

    def _fits(self, own: int, rest: int) -> bool:
        """Whether an operation with `own` bytes can run in time while `rest` are stored."""
        absent = own + rest - self.memory
        if absent <= 0:
            return True
        if absent > rest or not self.offload:
            return False
        return self.upper is None or ceil(absent * self.slowness) < self.upper
