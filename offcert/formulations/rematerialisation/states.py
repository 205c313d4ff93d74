"""States of values that are changed in place, for models of recomputation.

A value that is changed in place goes through states: as it was written, after the first change,
and so on. A copy on the device is in one of them, and every computation reads a value in the state
that the program gives it. A run that changes a value turns a copy from one state into the next;
that copy is then gone as what it was. So with states in place of values, in-place changes need no
case of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace


@dataclass(slots=True)
class Copy:
    """A copy of a value that some run has written, or that is there at the start."""

    value: int  # With memory of its own.
    # Runs that need it, its writer first; -1 is the start.
    uses: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)  # Runs that change it in place.


def executed(network: Network, order: Sequence[int], copies: Sequence[Copy]) -> Execution:
    """Return the execution of some runs in which exactly these copies are kept.

    `order` has the computation of each run; other results of a run than those copies are discarded.
    """
    kept: dict[int, list[int]] = {}
    tensors, values = [], []
    changed: dict[int, set[int]] = {}
    for copy in copies:
        changed.setdefault(copy.value, set()).update(copy.changes)
    for copy in copies:
        # Until the last change nothing is won if it leaves: it would have to leave once more. Where
        # another copy of the value is changed, it must not seem to be this one.
        until_settled = set(range(max(copy.uses[0], 0), max(copy.changes, default=-1) + 1))
        until_settled -= changed[copy.value] - set(copy.changes)
        uses = sorted({*copy.uses, *until_settled})
        if uses == [-1]:
            continue
        value = network.values[copy.value]
        tensors.append(Tensor(value.name, value.size, tuple(uses), value.evictable))
        values.append(copy.value)
        kept.setdefault(uses[0], []).append(copy.value)
    counts: Counter[int] = Counter()
    operations = []
    for position, index in enumerate(order):
        computation = network.computations[index]
        counts[index] += 1
        again = "" if counts[index] == 1 else f" (run {counts[index]})"
        written = [v for v in computation.writes if network.values[v].base is None]
        discarded = [v for v in written if v not in kept.get(position, [])]
        workspace = computation.workspace
        if discarded:
            beside = workspace + network.size_of(discarded)
            workspace = beside if computation.lean is None else computation.lean
        operations.append(Operation(f"{computation.name}{again}", computation.duration, workspace))
    return Execution(Trace(operations, tensors), tuple(order), tuple(values))


def bytes_at_start(network: Network) -> int:
    """Return the bytes of the values that are there at the start and are read at all."""
    return sum(
        value.size
        for value, writer, readers in zip(
            network.values, network.writer, network.readers, strict=True
        )
        if writer < 0 and readers
    )


@dataclass(frozen=True, slots=True)
class ValueState:
    """A value after some in-place changes."""

    value: int  # A value with memory of its own.
    level: int  # How many computations have changed it.
    size: int  # Bytes.
    maker: int  # The computation that leaves it so; -1 if it is there at the start.


@dataclass(frozen=True, slots=True)
class ComputationRun:
    """A run of a computation: the states that it takes and leaves."""

    duration: int  # Ticks.
    workspace: int  # Bytes if it keeps all that it writes.
    lean: int | None  # Bytes of workspace if it keeps less; None if that spares nothing.
    repeatable: bool  # Whether it may run again, and that can be of any use.
    needs: tuple[int, ...]  # States of which a copy must be there.
    makes: tuple[int, ...]  # States of which it writes new copies.
    # States of which it changes a copy in place, and what that becomes.
    turns: tuple[tuple[int, int], ...]

    @property
    def leaves(self) -> tuple[int, ...]:
        """All states of which there is a copy afterwards that was not there before."""
        return (*self.makes, *(after for _, after in self.turns))


@dataclass(frozen=True)
class StateNetwork:
    """A network in terms of states."""

    network: Network  # The network that it was made from.
    states: tuple[ValueState, ...]  # States that some computation makes or needs.
    steps: tuple[ComputationRun, ...]  # One a computation.
    readers: tuple[tuple[int, ...], ...]  # For each state, the computations that need it.

    @property
    def sources(self) -> list[int]:
        """The states that are there at the start."""
        return [number for number, state in enumerate(self.states) if state.maker < 0]


def state_network(network: Network) -> StateNetwork:
    """Return a network in terms of states."""
    return _Translation(network).result()


class _Translation:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.changers: dict[int, list[int]] = {}
        for number, value in enumerate(network.values):
            if value.base is not None:
                self.changers.setdefault(value.base, []).append(network.writer[number])
        self.numbers: dict[tuple[int, int], int] = {}
        self.states: list[ValueState] = []

    def result(self) -> StateNetwork:
        parts = [self._parts(index) for index in range(len(self.network))]
        readers: list[list[int]] = [[] for _ in self.states]
        for index, (needs, _, _) in enumerate(parts):
            for state in needs:
                readers[state].append(index)
        steps = [
            self._step(index, needs, makes, turns, readers)
            for index, (needs, makes, turns) in enumerate(parts)
        ]
        return StateNetwork(
            self.network, tuple(self.states), tuple(steps), tuple(map(tuple, readers))
        )

    def _state(self, value: int, level: int, maker: int) -> int:
        key = (value, level)
        if key not in self.numbers:
            self.numbers[key] = len(self.states)
            self.states.append(ValueState(value, level, self.network.values[value].size, maker))
        return self.numbers[key]

    def _parts(
        self, index: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the states a computation needs, makes and turns; makers precede readers."""
        network = self.network
        stored = set()
        for value in network.computations[index].reads:
            base = network.values[value].base
            stored.add(value if base is None else base)
        needs, turns = [], []
        for value in sorted(stored):
            changers = self.changers.get(value, [])
            level = len({each for each in changers if each < index})
            state = self._state(value, level, network.writer[value] if level == 0 else -1)
            needs.append(state)
            if index in changers:
                turns.append((state, self._state(value, level + 1, index)))
        makes = tuple(
            self._state(value, 0, index)
            for value in network.computations[index].writes
            if network.values[value].base is None
        )
        return tuple(needs), makes, tuple(turns)

    def _step(
        self,
        index: int,
        needs: tuple[int, ...],
        makes: tuple[int, ...],
        turns: tuple[tuple[int, int], ...],
        readers: list[list[int]],
    ) -> ComputationRun:
        computation = self.network.computations[index]
        left = (*makes, *(after for _, after in turns))
        # What takes no memory can stay for ever, unless a change in place ends it.
        changed = {self.states[state].value for state in left} & set(self.changers)
        useful = any(
            readers[state] and (self.states[state].size or self.states[state].value in changed)
            for state in left
        )
        lean = computation.lean
        kept = computation.workspace + sum(self.states[state].size for state in makes)
        if not makes or (lean is not None and lean >= kept):
            lean = None
        return ComputationRun(
            computation.duration,
            computation.workspace,
            lean,
            computation.repeatable and useful,
            needs,
            makes,
            turns,
        )
