"""From a state of the search to a program, its execution and a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from offcert.core.carried.ranges import RANGES, Line, SequentialCall
from offcert.core.documents import Fields
from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.program import Program
from offcert.core.strategy import Strategy
from offcert.heuristics.evictions.rules import sequential
from offcert.heuristics.joint.evaluation import IMPOSSIBLE, evaluate
from offcert.heuristics.joint.state import (
    GAPS,
    RUNS,
    UNCOVERED,
    JointState,
    Scratch,
    new_work,
    program_of,
)
from offcert.heuristics.joint.tables import Tables
from offcert.heuristics.orders.local_search import local_search
from offcert.heuristics.orders.order_search import order_search, set_search
from offcert.heuristics.orders.ordered import ordered_orders, ordered_schedule
from offcert.questions.schedule.carried import carried_on
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

# Coolings without success after which annealing over places ends. Arbitrary.
_PATIENCE = 12


@dataclass(frozen=True)
class Estimate:
    """The estimate of a program: its time, its memory and the gaps that leave."""

    # Ticks of the ordered schedule that moves `gaps`; on a duplex link a little less at times. None
    # if it does not fit.
    makespan: int | None
    lacking: int  # Bytes that do not fit.
    # The computation of each run, and bytes on the device during it if nothing leaves.
    runs: tuple[int, ...]
    demand: tuple[int, ...]
    gaps: tuple[tuple[int, int, int], ...]  # Value, and the runs before and after, of what leaves.


def estimate(tables: Tables, state: JointState) -> Estimate:
    """Return the evaluation of a program: ticks, bytes that are lacking, runs and gaps."""
    work = new_work(tables)
    found = evaluate(tables, state, work, 0.0)
    lacking = int(work.facts[UNCOVERED])
    if found >= IMPOSSIBLE:
        return Estimate(None, lacking, (), (), ())
    count = int(work.facts[RUNS])
    chosen = np.flatnonzero(work.chosen[: work.facts[GAPS]])
    return Estimate(
        int(found) if lacking == 0 else None,
        lacking,
        tuple(work.runs[:count].tolist()),
        tuple(work.need[:count].tolist()),
        tuple(
            (int(work.gap_value[gap]), int(work.gap_before[gap]), int(work.gap_after[gap]))
            for gap in chosen
        ),
    )


@dataclass(frozen=True)
class JointPlan:
    """An execution and its schedule: the runs, and when tensors leave and return.

    The program has the segments that run again, and what is kept in them; the execution names it.
    """

    program: Program
    execution: Execution
    schedule: Schedule


def tidied(tables: Tables, state: JointState, work: Scratch) -> JointState:
    """Return a state without the segments that bring nothing, inner ones first."""
    best = evaluate(tables, state, work, 0.0)
    if work.facts[UNCOVERED]:
        return state
    for place in range(int(state.number[0]) - 1, -1, -1):
        without = _without(state, place)
        found = evaluate(tables, without, work, 0.0)
        if not work.facts[UNCOVERED] and found <= best:
            best, state = found, without
    return state


def _without(state: JointState, place: int) -> JointState:
    """Return a copy without a segment; what is inside of it stays."""
    copy = state.copy()
    count = int(state.number[0])
    for ends in (copy.first, copy.last):
        ends[place : count - 1] = ends[place + 1 : count].copy()
    copy.number[0] = count - 1
    return copy


def realised(
    problem: Problem, tables: Tables, state: JointState, anyhow: bool = False
) -> JointPlan | None:
    """Return the plan of a state with the transfers of its estimate, or None if it does not fit.

    If it does not, but `anyhow` is set, each tensor moves just in time, while nothing runs.
    """
    network = problem.computed
    assert network is not None
    found = estimate(tables, state)
    if not found.runs or (found.makespan is None and not (anyhow and problem.offload)):
        return None
    program = program_of(state)
    execution = _execution(problem, tables, program, found)
    if execution.runs != found.runs:
        return None
    scheduled = problem.executed(execution)
    schedule = None if found.makespan is None else _schedule(scheduled, execution, found)
    if schedule is None and anyhow:
        with suppress(MethodError):
            schedule = simulate(scheduled, sequential(scheduled))
    return None if schedule is None else JointPlan(program, execution, schedule)


def _execution(problem: Problem, tables: Tables, program: Program, found: Estimate) -> Execution:
    """Return the execution of a program; of a captured step, the one that training carries out."""
    network = problem.computed
    assert network is not None
    carried = carried_on(problem, program) if tables.carrying.known[0] else None
    if carried is not None:
        return carried.execution
    strategy = Strategy(found.runs).without_unread(network)
    return replace(strategy.expand(network), program=program.to_json())


def _schedule(problem: Problem, execution: Execution, found: Estimate) -> Schedule | None:
    if not found.gaps:
        return simulate(problem, Plan())
    numbers = {
        (execution.values[gap.tensor], gap.before, gap.after): number
        for number, gap in enumerate(problem.trace.gaps)
    }
    gaps = [numbers[gap] for gap in found.gaps]
    with suppress(MethodError):
        return ordered_schedule(problem, *ordered_orders(problem, gaps))
    return None


def improved(
    problem: Problem,
    plan: JointPlan,
    *,
    time_limit: float,
    seed: int,
    target: int,
    on_improvement: Callable[[JointPlan], object],
) -> None:
    """Search for a better schedule of a plan's execution, over sets, orders and places."""
    scheduled = problem.executed(plan.execution)
    target = max(target, scheduled.trace.compute_time)
    best = plan.schedule
    if best.makespan <= target or not scheduled.trace.gaps:
        return
    end = time.monotonic() + time_limit

    def offer(schedule: Schedule) -> None:
        nonlocal best
        if schedule.makespan < best.makespan:
            best = schedule
            on_improvement(replace(plan, schedule=schedule))

    with suppress(MethodError):
        set_search(
            scheduled,
            time_limit=0.2 * time_limit,
            seed=seed,
            target=target,
            on_improvement=offer,
        )
    with suppress(MethodError):
        order_search(
            scheduled,
            time_limit=max(0.0, 0.6 * (end - time.monotonic())),
            seed=seed,
            target=target,
            start=best,
            on_improvement=offer,
        )
    if best.makespan > target:
        local_search(
            scheduled,
            time_limit=max(0.0, end - time.monotonic()),
            seed=seed,
            target=target,
            start=best.plan(scheduled.trace),
            patience=_PATIENCE,
            pass_interrupts=True,
            on_improvement=offer,
        )


Pairs = list[tuple[int, int]]


def ranges_of(problem: Problem) -> Pairs | None:
    """Return first and last computations of the ranges that may be segments, or None if any may.

    A captured step names them in ``source["capture"]["ranges"]``: calls of modules, rows of
    children and lines of calls, of both of which any consecutive ones are a range.
    """
    capture = (problem.source or {}).get("capture")
    if not isinstance(capture, dict) or "ranges" not in capture:
        return None
    ranges = RANGES.read_in(Fields(capture, "source.capture"), "ranges")
    found = {(call.first, call.last) for call in ranges.calls}
    series: list[SequentialCall | Line] = [*ranges.rows, *ranges.lines]
    for row in series:
        found.update(_runs_of(row))
    return sorted(found)


def _runs_of(row: SequentialCall | Line) -> Pairs:
    """Return all consecutive children of a row, or calls of a line."""
    # A call in a line may compute nothing; a range begins and ends with one that does.
    ends = [each for each in zip(row.first, row.last, strict=True) if each[0] <= each[1]]
    return [(first, last) for i, (first, _) in enumerate(ends) for _, last in ends[i:]]
