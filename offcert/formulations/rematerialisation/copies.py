"""Executions put together from runs and copies, several copies of a value at a time included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.core.simulate import simulate
from offcert.core.trace import Operation, Tensor, Trace


@dataclass(slots=True)
class Copy:
    """A copy of a value that some run has written, or that is there at the start.

    Attributes
    ----------
    value : int
        With memory of its own.
    uses : list of int
        Runs that need it, its writer first; -1 is the start.
    changes : list of int
        Runs that change it in place.
    """

    value: int
    uses: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)


def executed(network: Network, order: Sequence[int], copies: Sequence[Copy]) -> Execution:
    """Return the execution that consists of these runs, in which exactly these copies are kept.

    Parameters
    ----------
    network : Network
        Of which.
    order : sequence of int
        The computation of each run.
    copies : sequence of Copy
        Those that are kept; what a run writes beyond them it discards.
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


def scheduled(problem: Problem, execution: Execution) -> tuple[Schedule, int]:
    """Return the schedule in which nothing leaves the device, and the bytes that it takes."""
    memory = execution.trace.peak_memory
    return simulate(problem.executed(execution).with_memory(memory), Plan()), memory
