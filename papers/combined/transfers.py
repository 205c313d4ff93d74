"""The transfers of one execution of a chain, exactly, within the windows that are assumed.

With pausing transfers it is the program of `fluid.program` with two windows: what leaves does so
before the first backward operation starts, what returns does so after the last forward operation of
the first pass has ended, each if it is assumed. A gap that opens after the turn cannot be used if
nothing may leave there, and one that closes before it if nothing may return there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.trace import Tensor, Trace
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    infeasibility,
    required_absent,
)
from offcert.formulations.common.linear_model import Terms
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.formulations.fluid.milp import RELATIVE_MARGIN
from offcert.formulations.fluid.pieces import exact_amounts, fluid_schedule
from offcert.formulations.fluid.program import FixedDecisions, FluidProgram, Rules
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from papers.combined.assumptions import Assumptions

# Bytes are rounded to one over the rates' denominators and these.
_FINENESS = (1, 2, 6, 60, 2520)


@dataclass(frozen=True)
class TransferOutcome:
    """The best schedule of one execution, and the bound on all.

    Attributes
    ----------
    bound : int or None
        Ticks: none is shorter; None if there is none at all.
    schedule : FluidSchedule, Schedule or None
        The best one, checked, of `problem`.
    problem : Problem
        Whose schedules these are: the execution's trace, or the one in which stage inputs are
        wholes.
    """

    bound: int | None
    schedule: FluidSchedule | Schedule | None
    problem: Problem

    @property
    def value(self) -> int | None:
        """Ticks of the best schedule."""
        return None if self.schedule is None else self.schedule.makespan


def scheduled_problem(problem: Problem, execution: Execution, assumptions: Assumptions) -> Problem:
    """Return the problem of an execution's transfers, as the assumptions state it."""
    network = problem.computed
    assert network is not None
    executed = problem.executed(execution)
    if assumptions.stage_inputs:
        executed = replace(executed, network=_with_whole_inputs(network, execution))
    kind = Transfers.INTERRUPTIBLE if assumptions.pausing else Transfers.ATOMIC
    return replace(executed, transfers=kind)


def _with_whole_inputs(network: Network, execution: Execution) -> Trace:
    """Return the trace in which what one run of a stage keeps is one tensor, with all its uses.

    That is so if both are kept until the stage's backward operation. Internals without their output
    are no input of anything, and stay.
    """
    trace, stages = execution.trace, len(network) // 2
    outputs = {
        (tensor.uses[0], tensor.uses[-1]): index
        for index, (tensor, value) in enumerate(zip(trace.tensors, execution.values, strict=True))
        if value <= stages
    }
    tensors = []
    joined: dict[int, Tensor] = {}
    for tensor, value in zip(trace.tensors, execution.values, strict=True):
        internal = stages < value <= 2 * stages
        beside = outputs.get((tensor.uses[0], tensor.uses[-1])) if internal else None
        if beside is not None:
            old = joined.get(beside, trace.tensors[beside])
            uses = tuple(sorted({*old.uses, *tensor.uses}))
            joined[beside] = replace(old, size=old.size + tensor.size, uses=uses)
        elif internal:
            tensors.append(replace(tensor, evictable=False))
    tensors += [
        joined.get(index, tensor)
        for index, (tensor, value) in enumerate(zip(trace.tensors, execution.values, strict=True))
        if not stages < value <= 2 * stages
    ]
    return Trace(trace.operations, tensors)


class _WindowedProgram(FluidProgram):
    """The fluid program with windows.

    Parameters
    ----------
    problem, rules, decisions, slack
        Of `FluidProgram`.
    turn : int
        The last forward operation of the first pass.
    assumptions : Assumptions
        The assumptions, on which the windows depend.
    """

    def __init__(
        self,
        problem: Problem,
        rules: Rules,
        decisions: FixedDecisions,
        turn: int,
        assumptions: Assumptions,
        slack: float = 0.0,
    ) -> None:
        self.turn_instant = 2 * (turn + 1)
        self.assumptions = assumptions
        self.unused = unusable_gaps(problem.trace, turn, assumptions)
        super().__init__(problem, rules, decisions, slack)

    def _grows(self, instant: int, kind: Kind) -> bool:
        if kind is Kind.OFFLOAD and self.assumptions.early_offloads:
            allowed = instant <= self.turn_instant
        elif kind is Kind.PREFETCH and self.assumptions.late_prefetches:
            allowed = instant >= self.turn_instant
        else:
            allowed = True
        return allowed and super()._grows(instant, kind)

    def _evicted_terms(self, gap: int) -> Terms:
        return [] if gap in self.unused else super()._evicted_terms(gap)


def unusable_gaps(trace: Trace, turn: int, assumptions: Assumptions) -> frozenset[int]:
    """Return the gaps in which nothing can be absent under the assumptions."""
    return frozenset(
        number
        for number, gap in enumerate(trace.gaps)
        if (assumptions.early_offloads and gap.before > turn)
        or (assumptions.late_prefetches and gap.after <= turn)
    )


def solve_transfers(
    problem: Problem,
    turn: int,
    assumptions: Assumptions,
    upper: int | None = None,
    time_limit: float = 60.0,
) -> TransferOutcome:
    """Find the shortest schedule of a trace that is shorter than `upper`.

    Parameters
    ----------
    problem : Problem
        From `scheduled_problem`.
    turn : int
        The last forward operation of the first pass.
    assumptions : Assumptions
        The assumptions: which windows there are, and whether transfers may pause.
    upper : int, optional
        Ticks.
    time_limit : float
        Seconds.

    Returns
    -------
    TransferOutcome
        The bound rests on a solver's word, unless it is the computing time or a fractional one.
    """
    compute = problem.trace.compute_time
    if problem.trace.peak_memory <= problem.platform.memory:
        starts = [sum(problem.trace.durations[:o]) for o in range(len(problem.trace))]
        ends = [s + d for s, d in zip(starts, problem.trace.durations, strict=True)]
        kept = (
            FluidSchedule(starts, ends, ()) if assumptions.pausing else Schedule(starts, ends, ())
        )
        return TransferOutcome(compute, kept, problem)
    if not problem.offload or infeasibility(problem) is not None:
        return TransferOutcome(None, None, problem)
    quick = fractional_bound(problem, subset_sum=not assumptions.pausing).value
    if upper is not None and quick >= upper:
        return TransferOutcome(quick, None, problem)
    if assumptions.pausing:
        return _solve_pausing(problem, turn, assumptions, quick, time_limit)
    return _solve_whole(problem, turn, assumptions, quick, upper, time_limit)


def _solve_pausing(
    problem: Problem, turn: int, assumptions: Assumptions, quick: int, time_limit: float
) -> TransferOutcome:
    rules = Rules(False, False, True, tuple(required_absent(problem)))
    program = _WindowedProgram(problem, rules, FixedDecisions(), turn, assumptions)
    answer = solve_linear(program.model, SCIPY, time_limit=time_limit)
    if answer.infeasible:
        return TransferOutcome(None, None, problem)
    bound = quick
    if math.isfinite(answer.bound):
        margin = RELATIVE_MARGIN * program.unit * len(problem.trace)
        idle = max(0, math.ceil(answer.bound * program.unit - margin))
        bound = max(quick, problem.trace.compute_time + idle)
    if answer.values is None:
        return TransferOutcome(bound, None, problem)
    values = answer.values
    evicted = frozenset(
        gap
        for gap, terms in enumerate(program.evicted)
        if terms and sum(a * values[column] for column, a in terms) > program.sizes[gap] / 2
    )
    lengths = [sum(a * values[column] for column, a in terms) for terms in program.idle]
    decisions = FixedDecisions(evicted, None, tuple(round(x * program.unit) for x in lengths))
    fixed = _WindowedProgram(problem, rules, decisions, turn, assumptions)
    found = solve_linear(fixed.model, SCIPY, time_limit=time_limit).values
    schedule = None if found is None else _laid_out(problem, fixed, found)
    return TransferOutcome(bound, schedule, problem)


def _laid_out(
    problem: Problem, program: FluidProgram, values: Sequence[float]
) -> FluidSchedule | None:
    """Return a checked schedule with the amounts of a solution."""
    assert program.decisions.idle is not None
    whole = math.lcm(*(Fraction(problem.platform.rate(kind)).denominator for kind in Kind))
    for fineness in _FINENESS:
        amounts = exact_amounts(program, list(values), whole * fineness)
        schedule = fluid_schedule(problem, program.decisions.idle, amounts)
        if schedule is not None and not check_fluid(problem, schedule):
            return schedule
    return None


def _solve_whole(
    problem: Problem,
    turn: int,
    assumptions: Assumptions,
    quick: int,
    upper: int | None,
    time_limit: float,
) -> TransferOutcome:
    if assumptions.early_offloads and assumptions.late_prefetches:
        from papers.combined.turned_cpsat import solve_turned

        bound, schedule = solve_turned(problem, turn, upper, time_limit)
        return TransferOutcome(bound, schedule, problem)
    if assumptions.early_offloads or assumptions.late_prefetches:
        raise ValueError("whole transfers are solved with both windows, or with none")
    from offcert.formulations.models.interval_cpsat import solve

    limit = None if upper is None else upper - 1
    outcome = solve(problem, time_limit=time_limit, upper_bound=limit, lower_bound=quick)
    return TransferOutcome(outcome.lower_bound, outcome.schedule, problem)
