"""`Planned`: what a plan says, in terms that can be found again in a compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.runtime.capture import Clock, read_capture
from offcert.runtime.plan.place import carried_by
from offcert.runtime.plan.predict import Prediction
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.segments.placed import PlacedProgram
from offcert.runtime.watch.events import Event
from offcert.runtime.watch.saved_hooks import SavedPlace


@dataclass(frozen=True)
class Eviction:
    """One stretch in which a storage is off the device; both are operations, it is so before them.

    Attributes
    ----------
    release : int
        Before it the storage has left.
    claim : int
        Before it the memory for its return is taken.
    """

    release: int
    claim: int


@dataclass(frozen=True)
class PlannedMove:
    """A storage that the plan moves."""

    tensor: str  # Name of the tensor that it is a part of
    place: SavedPlace  # By what it is recognised
    evictions: tuple[Eviction, ...]  # In order


@dataclass(frozen=True)
class Planned:
    """A plan for a compiled step."""

    name: str  # Name of the problem
    # Whether operations are operators; else they are stretches between events at modules.
    by_operators: bool
    names: tuple[str, ...]  # The names of the operations
    # The event with which each operation begins; of one that runs again, that of its first run.
    events: tuple[Event, ...]
    again: tuple[bool, ...]  # Whether the operation runs something again
    # For each operation of a backward pass, the operations whose gradients it computes, as far as
    # that is known.
    of: tuple[tuple[int, ...], ...]
    saved: tuple[SavedPlace, ...]  # All that the forward passes save, in order
    moved: tuple[PlannedMove, ...]  # In the order in which they leave
    segments: PlacedProgram  # The segments that run again
    limit: int  # Bytes that the plan may take

    @cached_property
    def kept(self) -> frozenset[int]:
        """The operations whose results segments keep."""
        kept = {(k.kind, k.path, k.call) for each in self.segments.nested() for k in each.kept}
        events = [(each.kind, each.path, each.call) for each in self.events]
        return frozenset(n for n, each in enumerate(events) if each in kept and not self.again[n])

    @property
    def bytes_moved(self) -> int:
        """Bytes of the storages that the plan moves, each counted once."""
        return sum(each.place.size for each in self.moved)


def planned(
    problem: Problem, plan: Plan | Schedule | FluidSchedule, execution: Execution | None = None
) -> Planned:
    """Return a plan's operations, moves and segments in terms of a compiled graph.

    Raises
    ------
    InputError
        If the problem was not captured with a clock that can be followed, the step calls the model
        several times, or the plan is a schedule that moves tensors in pieces.
    PlanError
        If the plan does not make sense, or exceeds the problem's memory.
    """
    found = step_plan(problem, plan, execution)
    calls = len(found.capture.calls)
    if calls > 1:
        raise InputError(
            f"the captured step calls the model {calls} times, but a compiled graph is of one call"
        )
    events = found.capture.ticks
    runs: Sequence[int] = range(len(found.trace))
    if execution is not None:
        assert problem.computed is not None
        runs = carried_by(problem, execution)[0].execution.runs
        plain = read_capture(problem.source, problem.computed.trace()).ticks
        events = tuple(plain[run] for run in runs)
    return Planned(
        found.name,
        found.capture.clock is Clock.OPERATORS,
        tuple(operation.name for operation in found.trace.operations),
        events,
        _again(runs),
        _of(problem, runs),
        tuple(storage.place for storage in found.capture.storages),
        tuple(_moved(found)),
        found.segments,
        problem.platform.memory,
    )


def _again(runs: Sequence[int]) -> tuple[bool, ...]:
    seen: set[int] = set()
    rows = []
    for run in runs:
        rows.append(run in seen)
        seen.add(run)
    return tuple(rows)


def _of(problem: Problem, runs: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    network = problem.computed
    if network is None:
        return ((),) * len(runs)
    first: dict[int, int] = {}
    for operation, run in enumerate(runs):
        first.setdefault(run, operation)
    return tuple(tuple(first[each] for each in network.computations[run].of) for run in runs)


def absences(prediction: Prediction) -> dict[int, list[Eviction]]:
    """Return when each tensor that moves is away, in the order in which they leave."""
    claims: dict[int, list[int]] = {}
    releases: dict[int, list[int]] = {}
    for operation, (gone, back) in enumerate(
        zip(prediction.releases, prediction.claims, strict=True)
    ):
        for rows, tensors in ((releases, gone), (claims, back)):
            for tensor in tensors:
                rows.setdefault(tensor, []).append(operation)
    return {each: list(map(Eviction, releases[each], claims[each])) for each in releases}


def _moved(found: StepPlan) -> list[PlannedMove]:
    return [
        PlannedMove(found.trace.tensors[tensor].name, place, tuple(evictions))
        for tensor, evictions in absences(found.prediction).items()
        for place in found.parts[tensor]
    ]
