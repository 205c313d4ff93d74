"""Interruptible and fractional transfers, exactly (Problem 2 and §4 of the offloading paper).

`fluid.program` describes the program, with amounts per tensor, and why it is exact. The HiGHS
inside SciPy solves it. A solver's floats become a schedule in three steps: its decisions (evicted
gaps, idle times, the turn of an ordered schedule) are fixed as integers; the linear program that is
left is solved, whose vertices have small denominators, and rounded to rationals; the schedule built
from them passes the checker or is dropped. If none passes, the idle times are chosen anew with some
slack in every row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.common.linear_solvers import SCIPY, LinearAnswer, solve_linear
from offcert.formulations.common.outcome import SolverOutcome
from offcert.formulations.fluid.milp import bound_of, recorded, require_feasible
from offcert.formulations.fluid.pieces import exact_amounts, fluid_schedule
from offcert.formulations.fluid.program import FixedDecisions, FluidProgram, Rules
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule

# Ticks of work up to which idle times are integers in the program. HiGHS holds integrality and rows
# to 1e-6 of the mean work of an operation, so beyond it a tick would mean nothing to it. Derived.
MOST_WHOLE_TICKS = 100_000
# Idle times and amounts below this, in the program's units, are taken for rounding errors. Given by
# HiGHS: its tolerance.
_NOISE = 1e-6
# Slacks that are tried in turn, in the program's units; 0 keeps the solver's decisions. Arbitrary.
_SLACKS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
# Factors: bytes are rounded to one part in the bandwidth's denominator times one of these.
# Arbitrary.
_FINENESS = (1, 2, 6, 60, 2520)
# Parts into which stretches on a duplex link are cut, tried in turn. Arbitrary.
_PARTS = (1, 3, 9, 27, 81)
# Share of the time that the first program may take. Arbitrary.
_SOLVING = 0.8


@dataclass(frozen=True)
class FluidOutcome(SolverOutcome):
    """The outcome of the exact program."""

    bound: int  # Ticks. No schedule is shorter; if `ordered`, no ordered one is.
    # The best one found, checked; None if there was none, or if transfers are atomic.
    schedule: FluidSchedule | None
    ordered: bool  # Whether prefetches before offloads were forbidden.
    # Whether the solver claims that there is no ordered schedule, which can be where tensors have
    # several gaps; the bound is then the compute time.
    infeasible: bool = False

    @property
    def details(self) -> dict[str, Any]:
        """The part of a certificate about the solver's work."""
        return super().details | ({"infeasible": True} if self.infeasible else {})


def solve_fluid(
    problem: Problem,
    *,
    ordered: bool = False,
    whole_ticks: bool | None = None,
    time_limit: float = 60.0,
    required: Sequence[int] | None = None,
) -> FluidOutcome:
    """Solve Problem 2, or the fractional problem if tensors may move in part.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link. With atomic transfers the interruptible optimum is bounded,
        which bounds the atomic one, and no schedule is made.
    ordered : bool
        Whether every offload must end before any prefetch begins, which is what Algorithm 1 of the
        offloading paper optimises over. The bound then holds for such schedules only.
    whole_ticks : bool, optional
        Whether idle times are integers in the program, as they are in schedules; without, the bound
        may be lower. By default they are if all work takes at most `MOST_WHOLE_TICKS`.
    time_limit : float
        Seconds; some of them are kept for making a schedule of what the solver finds.
    required : sequence of int, optional
        Bytes that must be absent during each operation; see `fluid.milp.fluid_bound`.

    Returns
    -------
    FluidOutcome
        The bound is HiGHS's, less `fluid.milp.RELATIVE_MARGIN` times all work, rounded up; at least
        the compute time.

    Raises
    ------
    ValueError
        If the problem is infeasible.
    """
    began = time.monotonic()
    require_feasible(problem)
    rules = _rules(problem, ordered, whole_ticks, required)
    program = FluidProgram(problem, rules, FixedDecisions())
    answer = solve_linear(program.model, SCIPY, time_limit=_SOLVING * time_limit)
    bound, margin = bound_of(problem, answer, program.unit)
    schedule = None
    if problem.transfers is not Transfers.ATOMIC:
        schedule = _schedule(problem, rules, program, answer, began + time_limit)
    return FluidOutcome(
        bound,
        schedule,
        ordered,
        infeasible=answer.infeasible and ordered,
        error=answer.error,
        seconds=round(time.monotonic() - began, 3),
        statistics=recorded(answer, whole_ticks=rules.whole_ticks, margin=margin),
    )


def _rules(
    problem: Problem, ordered: bool, whole_ticks: bool | None, required: Sequence[int] | None
) -> Rules:
    if whole_ticks is None:
        trace, platform = problem.trace, problem.platform
        both = sum(1 / platform.rate(kind) for kind in Kind)
        transfers = both * sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
        whole_ticks = trace.compute_time + transfers <= MOST_WHOLE_TICKS
    absent = required_absent(problem) if required is None else required
    fractional = problem.transfers is Transfers.FRACTIONAL
    return Rules(fractional, ordered, whole_ticks, tuple(absent))


def _schedule(
    problem: Problem, rules: Rules, program: FluidProgram, answer: LinearAnswer, deadline: float
) -> FluidSchedule | None:
    """Return a checked schedule of the decisions in a solution, or None."""
    if answer.values is None:
        return None
    decisions = _decisions(program, answer.values)
    values: list[float] | None = answer.values
    for slack in _SLACKS:
        if slack:
            program = FluidProgram(problem, rules, decisions, slack)
            left = deadline - time.monotonic()
            values = solve_linear(program.model, SCIPY, time_limit=left).values
        if values is None:
            continue
        for idle in _idle_times(program, values):
            schedule = _timed(problem, rules, replace(decisions, idle=idle), slack / 2, deadline)
            if schedule is not None:
                return schedule
    return None


def _timed(
    problem: Problem, rules: Rules, decisions: FixedDecisions, slack: float, deadline: float
) -> FluidSchedule | None:
    """Return a checked schedule with given idle times, or None."""
    fixed = FluidProgram(problem, rules, decisions, slack)
    left = deadline - time.monotonic()
    found = solve_linear(fixed.model, SCIPY, time_limit=left).values
    for schedule in () if found is None else candidates(problem, fixed, found):
        if not check_fluid(problem, schedule):
            return schedule
    return None


def schedule_with(
    problem: Problem, decisions: FixedDecisions, deadline: float
) -> FluidSchedule | None:
    """Return a checked schedule that evicts and waits as another model has decided, or None.

    Transfers are interruptible; evicted gaps and idle times are decided. The deadline is one of
    `time.monotonic`.
    """
    return _timed(problem, _rules(problem, False, True, None), decisions, 0.0, deadline)


def _decisions(program: FluidProgram, values: list[float]) -> FixedDecisions:
    """Read the decisions other than idle times out of a solution."""
    evicted = None
    if not program.rules.fractional:
        chosen = [terms[0] for terms in program.evicted]
        evicted = frozenset(gap for gap, (column, _) in enumerate(chosen) if values[column] > 0.5)
    turn = None
    if program.turned is not None:
        binaries = [terms[0][0] for terms in program.turned[1:-1]]
        turn = sum(1 for column in binaries if values[column] < 0.5)
    return FixedDecisions(evicted, turn)


def _idle_times(program: FluidProgram, values: list[float]) -> list[tuple[int, ...]]:
    """Return whole idle times near those of a solution, without what is noise.

    Where they are not whole, there are two ways to round: so that each operation starts at the next
    tick after its start, and so that no idle time becomes shorter.
    """
    lengths = [sum(a * values[column] for column, a in terms) for terms in program.idle]
    if program.rules.whole_ticks:
        return [tuple(round(length * program.unit) for length in lengths)]
    ticks = [0.0 if length < _NOISE else length * program.unit for length in lengths]
    up = tuple(map(math.ceil, ticks))
    # Fractions, because sums of many ticks need more digits than floats have.
    totals = [math.ceil(total - _NOISE) for total in accumulate(map(Fraction, ticks))]
    shifted = tuple(after - before for before, after in pairwise((0, *totals)))
    return [up] if shifted == up else [shifted, up]


def candidates(
    problem: Problem, program: FluidProgram, values: list[float]
) -> Iterator[FluidSchedule]:
    """Yield schedules of ever finer amounts and layouts."""
    assert program.decisions.idle is not None
    whole = math.lcm(*(problem.platform.rate(kind).denominator for kind in Kind))
    for fineness in _FINENESS:
        amounts = exact_amounts(program, values, whole * fineness)
        for parts in _PARTS if problem.platform.duplex else (1,):
            schedule = fluid_schedule(problem, program.decisions.idle, amounts, parts)
            if schedule is None:
                break
            yield schedule
