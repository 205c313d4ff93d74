"""When the host holds copies that streams write and read: residences in the arena. Needs no torch.

A copy is needed from the operation before which it is handed to the stream that writes it, to the
one before which ``compute`` waits for the last copy back. Whatever takes its place is handed over
later, so its stream waits only for what ``compute`` has waited for already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import HostResidences, residences_of
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.plan.predict import Prediction, predict_in_order, written_and_dying


class Act(StrEnum):
    """The actions before an operation."""

    COPY_OUT = "copy out"
    RELEASE = "release"
    CLAIM = "claim"
    AWAIT = "await"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done before an operation, for a gap (index into ``trace.gaps``).

    A copy to the host is for the first evicted gap of its tensor.
    """

    act: Act
    gap: int


Actions = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Timetable:
    """A plan as it is handed to the streams of a device: actions before each operation, in order.

    The prediction is that of the bytes on the device; `simplex`: transfers in both directions
    follow each other.
    """

    actions: Actions
    prediction: Prediction
    simplex: bool

    def gaps(self, act: Act) -> list[int]:
        """Return the gaps for which there are actions of a kind, in order."""
        return [each.gap for row in self.actions for each in row if each.act is act]


def timetable(
    problem: Problem,
    plan: Plan | Schedule,
    ready: Mapping[int, int] | None = None,
) -> Timetable:
    """Return the copies and claims that are handed to the streams, operation by operation.

    The plan fits into the problem's memory; without times, those of the simulator are its. Tensors
    that move are saved in the operations of `ready`; one may be complete only some operations after
    it was written first, if they change it in place.

    Raises
    ------
    PlanError
        If the plan does not make sense on the trace, or exceeds the memory.
    """
    trace = problem.trace
    schedule = plan if isinstance(plan, Schedule) else _simulated(problem, plan)
    rows = _Rows(problem, schedule, ready or {})
    rows.bring_claims_forward()
    actions = rows.actions()
    limit = problem.platform.memory
    actions = _released_late(trace, actions, limit)
    prediction = predict_in_order(trace, _memory_moves(trace, actions))
    return Timetable(actions, prediction, not problem.platform.duplex)


def _simulated(problem: Problem, plan: Plan) -> Schedule:
    """Return the times of a plan; in the order in which memory is needed if its own gets stuck."""
    try:
        return simulate(problem, plan)
    except PlanError:
        kinds = (Kind.OFFLOAD, Kind.PREFETCH)
        moves = sorted(plan.moves, key=lambda move: (move.before, kinds.index(move.kind)))
        return simulate(problem, Plan(moves))


@dataclass(slots=True)
class _Row:
    """An action with the operation before which it comes, and its place there."""

    operation: int
    time: int
    action: Action
    transfer: Transfer | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.time, _PHASES.index(self.action.act)


_PHASES = (Act.COPY_OUT, Act.RELEASE, Act.CLAIM)


class _Rows:
    """The actions of a schedule, while it is decided before which operations they come."""

    def __init__(self, problem: Problem, schedule: Schedule, ready: Mapping[int, int]) -> None:
        self._trace, self._limit = problem.trace, problem.platform.memory
        self._duplex, self._schedule = problem.platform.duplex, schedule
        moves = schedule.plan(self._trace).moves
        before = {(move.kind, move.gap): move.before for move in moves}
        self._copied = {t.gap: t.end for t in schedule.transfers if t.kind is Kind.OFFLOAD}
        rows = [self._row(each, before, ready) for each in schedule.transfers]
        self._rows = sorted(rows, key=lambda row: row.time)
        returning = (move for move in moves if move.kind is Kind.PREFETCH)
        self._releases = [self._release(move, before) for move in returning]
        self._in_order_of_the_link()

    def _row(
        self, transfer: Transfer, before: Mapping[tuple[Kind, int], int], ready: Mapping[int, int]
    ) -> _Row:
        gap, kind = self._trace.gaps[transfer.gap], transfer.kind
        at = before[kind, transfer.gap]
        if kind is Kind.PREFETCH:
            return _Row(at, transfer.start, Action(Act.CLAIM, transfer.gap), transfer)
        complete = self._trace.tensors[gap.tensor].uses[0] + 1
        saved = ready.get(gap.tensor, -1)
        # The schedule may copy what is complete but will be saved later. What it copies until then
        # does not wait for that; what it copies afterwards does not overtake it.
        time = max(transfer.start, self._end(min(saved, gap.before)))
        operation = min(max(complete, saved + 1), at)
        return _Row(operation, time, Action(Act.COPY_OUT, transfer.gap), transfer)

    def _release(self, move: Move, before: Mapping[tuple[Kind, int], int]) -> _Row:
        gap = self._trace.gaps[move.gap]
        at = before.get((Kind.OFFLOAD, move.gap))
        time = self._end(gap.before)
        if at is None:
            # The host has a copy: it leaves as soon as its use has ended.
            return _Row(gap.before + 1, time, Action(Act.RELEASE, move.gap))
        return _Row(at, max(time, self._copied[move.gap]), Action(Act.RELEASE, move.gap))

    def _end(self, operation: int) -> int:
        """Return when an operation ends; 0 before the first."""
        return self._schedule.ends[operation] if operation >= 0 else 0

    def _in_order_of_the_link(self) -> None:
        """Let no transfer be handed over before one that uses the link earlier."""
        latest: dict[Kind | None, int] = {}
        for row in self._rows:
            assert row.transfer is not None
            direction = row.transfer.kind if self._duplex else None
            row.operation = max(row.operation, latest.get(direction, 0))
            latest[direction] = row.operation
        copied = {r.action.gap: r.operation for r in self._rows if r.action.act is Act.COPY_OUT}
        for release in self._releases:
            # A plan lets go before an operation at the latest that its gap spans, even where the
            # schedule, copying while the link is late, has it come back at once.
            release.operation = max(release.operation, copied.get(release.action.gap, 0))

    def bring_claims_forward(self) -> None:
        """Claim before an operation what the schedule claims while it runs, if there is room."""
        trace, gaps = self._trace, self._trace.gaps
        releases = {row.action.gap: row for row in self._releases}
        peaks = list(predict_in_order(trace, _memory_moves(trace, self.actions())).peaks)
        latest: dict[Kind | None, int] = {}
        for row in self._rows:
            assert row.transfer is not None
            direction = row.transfer.kind if self._duplex else None
            earlier = row.operation - 1
            if (
                row.action.act is Act.CLAIM
                and earlier >= max(latest.get(direction, 0), releases[row.action.gap].operation)
                and row.time < self._schedule.ends[earlier]
                and peaks[earlier] + trace.gap_size(row.action.gap) <= self._limit
                and gaps[row.action.gap].after > earlier
            ):
                row.operation = earlier
                peaks[earlier] += trace.gap_size(row.action.gap)
            latest[direction] = max(row.operation, latest.get(direction, 0))

    def actions(self) -> Actions:
        """Return them by operation, in order."""
        rows: list[list[_Row]] = [[] for _ in self._trace.operations]
        awaited: list[list[Action]] = [[] for _ in self._trace.operations]
        for row in (*self._rows, *self._releases):
            rows[row.operation].append(row)
            if row.action.act is Act.CLAIM:
                after = self._trace.gaps[row.action.gap].after
                awaited[after].append(Action(Act.AWAIT, row.action.gap))
        return tuple(
            (*(row.action for row in sorted(each, key=lambda row: row.place)), *waits)
            for each, waits in zip(rows, awaited, strict=True)
        )


def _released_late(trace: Trace, actions: Actions, limit: int) -> Actions:
    """Put every release off until its memory is needed."""
    written, dying = written_and_dying(trace)
    live = trace.resident_at_start
    waiting: deque[int] = deque()
    late = []
    for index, operation in enumerate(trace.operations):
        made: list[Action] = []

        def release_until(size: int, made: list[Action] = made, own: int | None = None) -> None:
            nonlocal live
            while waiting and (live + size > limit or own in waiting):
                gap = waiting.popleft()
                made.append(Action(Act.RELEASE, gap))
                live -= trace.gap_size(gap)

        for action in actions[index]:
            if action.act is Act.RELEASE:
                waiting.append(action.gap)
                continue
            if action.act is Act.CLAIM:
                release_until(trace.gap_size(action.gap), own=action.gap)
                live += trace.gap_size(action.gap)
            if action.act is Act.AWAIT:
                continue
            made.append(action)
        release_until(written[index] + operation.workspace)
        made += [action for action in actions[index] if action.act is Act.AWAIT]
        live += written[index] - dying[index]
        late.append(tuple(made))
    return tuple(late)


def _memory_moves(trace: Trace, actions: Actions) -> list[list[tuple[int, bool]]]:
    """Return, for each operation, which tensors leave (False) and come back (True), in order."""
    return [
        [
            (trace.gaps[action.gap].tensor, action.act is Act.CLAIM)
            for action in each
            if action.act in (Act.RELEASE, Act.CLAIM)
        ]
        for each in actions
    ]


def host_residences_in_streams(trace: Trace, timetable: Timetable) -> HostResidences:
    """Return which tensors have a copy on the host, and before which operations it is needed."""
    stays: dict[int, tuple[int, int]] = {}
    for operation, actions in enumerate(timetable.actions):
        for action in actions:
            tensor = trace.gaps[action.gap].tensor
            if action.act is Act.COPY_OUT:
                stays[tensor] = operation, operation + 1
            elif action.act is Act.AWAIT:
                # What is handed over before this operation comes before it is waited for.
                stays[tensor] = stays[tensor][0], operation + 1
    return residences_of(trace, stays)
