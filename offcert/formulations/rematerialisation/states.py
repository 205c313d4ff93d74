"""A network in terms of states (`offcert.core.states`), and executions, for models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.states import StatesUsed, ValueState, readers_of, states_of
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
        written = [v for v in computation.writes if network.stored[v] == v]
        discarded = [v for v in written if v not in kept.get(position, [])]
        workspace = computation.workspace
        if discarded:
            beside = workspace + network.size_of(discarded)
            workspace = beside if computation.lean is None else computation.lean
        operations.append(Operation(f"{computation.name}{again}", computation.duration, workspace))
    return Execution(Trace(operations, tensors), tuple(order), tuple(values))


@dataclass(frozen=True, slots=True)
class ComputationRun(StatesUsed):
    """A run of a computation: the states that it takes and leaves, and its cost."""

    duration: int  # Ticks.
    workspace: int  # Bytes if it keeps all that it writes.
    lean: int | None  # Bytes of workspace if it keeps less; None if that spares nothing.
    repeatable: bool  # Whether it may run again, and that can be of any use.


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
    states, used = states_of(network)
    readers = readers_of(states, used)
    steps = []
    for computation, each in zip(network.computations, used, strict=True):
        left = [states[number] for number in each.leaves]
        # What takes no memory can stay for ever, unless a change in place ends it.
        useful = any(
            readers[number] and (state.size or state.value in network.changers)
            for number, state in zip(each.leaves, left, strict=True)
        )
        lean = computation.lean
        kept = computation.workspace + sum(states[number].size for number in each.makes)
        if not each.makes or (lean is not None and lean >= kept):
            lean = None
        steps.append(
            ComputationRun(
                each.needs,
                each.makes,
                each.turns,
                computation.duration,
                computation.workspace,
                lean,
                computation.repeatable and useful,
            )
        )
    return StateNetwork(network, states, tuple(steps), tuple(map(tuple, readers)))
