"""`StepPlan`: a plan as the runtime follows it, made of whatever `offload` takes as a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from offcert.core.carried.carry import Carried
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.trace import Trace
from offcert.questions.schedule.carried import translated
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import host_residences_in_order
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.runtime.capture import Capture, read_capture
from offcert.runtime.capture.capture import require_once
from offcert.runtime.plan.host_layout import HostLayout, host_layout, layout_within
from offcert.runtime.plan.place import carried_by
from offcert.runtime.plan.predict import Prediction, predict
from offcert.runtime.plan.step_table import StepTable, step_table
from offcert.runtime.plan.timetable import Timetable, host_residences_in_streams, timetable
from offcert.runtime.segments.placed import NOTHING_AGAIN, PlacedProgram
from offcert.runtime.watch.saved_hooks import SavedPlace
from offcert.runtime.watch.signature import Signature, as_if_on, covers, difference, volume


class CertificateLike(Protocol):
    """The part of a certificate that training needs (`offcert.proofs.certificate.Certificate`)."""

    @property
    def problem(self) -> Problem:
        """The problem that was planned."""

    @property
    def result(self) -> Result:
        """The schedule, among other things."""


AnyPlan = CertificateLike | Plan | Schedule | FluidSchedule


def step_plans(
    plan: AnyPlan | Sequence[CertificateLike], problem: Problem | None, *, streams: bool = False
) -> list[StepPlan]:
    """Return the step plans of a plan or schedule for `problem`, or of certificates.

    `streams`: those of a device move tensors. Errors are those of `step_plan`, and an `InputError`
    if there is no schedule.
    """
    return [step_plan(*pair, streams=streams) for pair in planned(plan, problem)]


def planned(
    plan: AnyPlan | Sequence[CertificateLike], problem: Problem | None
) -> Iterator[tuple[Problem, Plan | Schedule | FluidSchedule, Execution | None]]:
    """Yield problem, plan or schedule, and what is executed, if not everything just once."""
    if isinstance(plan, Plan | Schedule | FluidSchedule):
        if problem is None:
            raise InputError("problem must be given with a plan that is no certificate")
        yield problem, plan, None
        return
    if problem is not None:
        raise InputError("problem must not be given with a certificate, which brings its own")
    for certificate in plan if isinstance(plan, list | tuple) else [plan]:
        if not hasattr(certificate, "problem") or not hasattr(certificate, "result"):
            kind = type(certificate).__name__
            raise InputError(f"plan must be a certificate, a plan or a schedule, not {kind}")
        schedule = certificate.result.schedule
        if schedule is None:
            raise InputError(
                f"the certificate of {certificate.problem.name} holds no schedule: its status is "
                f"{certificate.result.status}"
            )
        limit = certificate.result.memory
        asked = certificate.problem
        yield (
            asked if limit is None else asked.with_memory(limit),
            schedule,
            certificate.result.execution,
        )


def plans_for(found: Sequence[StepPlan], call: Signature, here: str) -> list[StepPlan] | str:
    """Return the step plans for a first call, on a device `here`, or why there is none.

    They were captured with the same call, or else with the smallest one that covers it
    (`offcert.runtime.watch.signature.covers`).
    """
    pairs = [(each.capture.calls[0], as_if_on(call, each.capture.device, here)) for each in found]
    same = [each for each, (known, asked) in zip(found, pairs, strict=True) if known == asked]
    if same:
        return same
    larger = [known for known, asked in pairs if covers(known, asked)]
    if larger:
        chosen = min(larger, key=volume)
        return [each for each in found if each.capture.calls[0] == chosen]
    # Only now: to say in what calls differ takes longer than to see that they do.
    reason = (difference(*pairs[0]) if pairs else None) or "none has been made yet"
    return f"there is no plan for this step: {reason}"


@dataclass(frozen=True)
class StepPlan:
    """The tensors that leave and come back, when they do, and how to recognise them."""

    trace: Trace  # The operations, as often as they run
    capture: Capture
    # Bytes that the plan predicts around and during every operation, and that it was made for.
    prediction: Prediction
    limit: int
    # Everything that the captured forward pass saved, with the tensor it is a part of, or None.
    places: dict[SavedPlace, int | None]
    # For each tensor that the plan moves, the storages that it consists of.
    parts: dict[int, tuple[SavedPlace, ...]]
    # Where each storage that moves lies on the host.
    host: HostLayout[SavedPlace]
    problem: Problem
    segments: PlacedProgram = NOTHING_AGAIN  # The segments that run again in the backward pass
    # Copies that are handed to the streams of a device; None where tensors move at once.
    timetable: Timetable | None = None

    def within_host(self, limit: int, spill: bool) -> StepPlan:
        """Return the step plan with so many bytes of host memory; `spill`: the rest into a file."""
        staged = self.timetable is not None
        return replace(self, host=layout_within(self.host, limit, spill, staged=staged))

    @property
    def moves_nothing(self) -> bool:
        """Whether the plan leaves everything where it is."""
        return not self.parts

    def said_of_attention(self, here: str) -> str | None:
        """Return in words how a card computes attention, if the step runs on the CPU."""
        source = self.problem.source or {}
        if here != "cpu" or "attention" not in source:
            return None
        return (
            f"the step of {self.problem.name} was captured for attention as "
            f"{source.get('hardware')} runs it ({source['attention']}), which keeps other tensors "
            "than the CPU may"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the plan does and where the host keeps its copies."""
        table = () if self.timetable is None else self.timetable.actions
        return canonical_digest(
            {
                "limit": self.limit,
                "ticks": [list(event) for event in self.capture.ticks],
                "releases": [list(each) for each in self.prediction.releases],
                "claims": [list(each) for each in self.prediction.claims],
                "actions": [[[a.act.value, a.gap] for a in each] for each in table],
                "parts": [[tensor, list(map(list, of))] for tensor, of in self.parts.items()],
                "offsets": [[list(place), at] for place, at in self.host.offsets.items()],
                "again": list(map(repr, self.segments.segments)),
            }
        )

    @cached_property
    def saved_bytes(self) -> Counter[int]:
        """How many bytes each operation of the captured forward pass saved."""
        found: Counter[int] = Counter()
        for place in self.places:
            found[place.operation] += place.size
        return found

    @cached_property
    def table(self) -> StepTable:
        """The table of the events before which something moves."""
        actions = self.prediction.releases if self.timetable is None else self.timetable.actions
        pairs = zip(actions, self.prediction.claims, strict=True)
        matter = [operation for operation, (out, back) in enumerate(pairs) if out or back]
        return step_table(self.capture.ticks, matter, self.places)

    @cached_property
    def full_table(self) -> StepTable:
        """The table for steps that have to hear of every operation."""
        return step_table(self.capture.ticks, range(len(self.trace)), self.places)

    @property
    def by_operators(self) -> bool:
        """Whether it moves something, and operators are its clock."""
        return not self.moves_nothing and self.capture.clock == "operators"

    @property
    def is_idle(self) -> bool:
        """Whether the step runs as it would without it."""
        return self.moves_nothing and not self.segments


def step_plan(
    problem: Problem,
    plan: Plan | Schedule | FluidSchedule,
    execution: Execution | None = None,
    *,
    streams: bool = False,
) -> StepPlan:
    """Return the step plan of a plan for a captured problem, or for an execution of it.

    `streams` says whether those of a device move tensors, or they move at once, between two
    operations.

    Raises
    ------
    InputError
        If the problem was not captured with a clock that training can follow, or the plan is a
        schedule that moves tensors in pieces.
    PlanError
        If the plan does not make sense, or exceeds the problem's memory.
    """
    segments = NOTHING_AGAIN
    if execution is None:
        capture = read_capture(problem.source, problem.trace)
        # What is changed after it was saved, autograd refuses.
        settled: Sequence[int] = [-1] * len(problem.trace.tensors)
    else:
        found, capture, segments = carried_by(problem, execution)
        plan = _for_what_runs(plan, execution, found)
        problem = problem.executed(found.execution)
        settled = found.settled
    require_once(capture.ticks)
    trace = problem.trace
    prediction = predict(trace, plan)
    require_memory(problem, prediction)
    assert isinstance(plan, Plan | Schedule)
    moved = {tensor for tensors in prediction.releases for tensor in tensors}
    parts: dict[int, tuple[SavedPlace, ...]] = dict.fromkeys(sorted(moved), ())
    for storage in capture.storages:
        if storage.tensor in parts:
            parts[storage.tensor] += (storage.place,)
    table: Timetable | None = None
    if streams:
        table = timetable(problem, plan, _ready(parts, settled))
        prediction = table.prediction
        stays = host_residences_in_streams(trace, table)
    else:
        made = plan.plan(trace) if isinstance(plan, Schedule) else plan
        stays = host_residences_in_order(trace, made)
    sizes = {tensor: [(each, each.size) for each in places] for tensor, places in parts.items()}
    return StepPlan(
        trace,
        capture,
        prediction,
        problem.platform.memory,
        {storage.place: storage.tensor for storage in capture.storages},
        parts,
        host_layout(problem.name, stays, sizes),
        problem,
        segments,
        table,
    )


def _ready(parts: Mapping[int, tuple[SavedPlace, ...]], settled: Sequence[int]) -> dict[int, int]:
    """Return the operation in which each tensor that moves is saved, and changed no more."""
    return {
        tensor: max(settled[tensor], *(each.operation for each in places))
        for tensor, places in parts.items()
    }


def _for_what_runs(
    plan: Plan | Schedule | FluidSchedule, execution: Execution, found: Carried
) -> Plan | Schedule | FluidSchedule:
    """Return a plan for what really runs; a schedule in pieces is refused later."""
    if isinstance(plan, FluidSchedule) or execution == found.execution:
        return plan
    if isinstance(plan, Schedule):
        plan = plan.plan(execution.trace)
    return translated(plan, execution, found.execution)


def require_memory(problem: Problem, prediction: Prediction) -> None:
    """Raise a `PlanError` if a plan needs more memory than the problem allows."""
    limit = problem.platform.memory
    for operation, peak in zip(problem.trace.operations, prediction.peaks, strict=True):
        if peak > limit:
            raise PlanError(
                f"the plan needs {peak} bytes during {operation.name}, {peak - limit} more than "
                f"the limit of {limit}"
            )
