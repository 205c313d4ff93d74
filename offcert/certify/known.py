"""Beginning with what is known: a schedule for less memory is one for more."""

from __future__ import annotations

from dataclasses import replace

from offcert.certify.search import Search
from offcert.core.errors import InputError, PlanError
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.messages import cut
from offcert.core.problem import Minimise, Problem
from offcert.core.schedule import Schedule
from offcert.core.simulate import simulate
from offcert.proofs.certificate import Certificate


def require_known(problem: Problem, known: Certificate) -> None:
    """Raise unless a certificate's schedule is one of the problem, too.

    Raises
    ------
    InputError
        If it is about another problem, or about the same one with more memory.
    """
    other = known.problem
    memory = problem.platform.memory
    least_bytes = problem.minimise is Minimise.MEMORY
    if other.platform.memory > memory and not least_bytes:
        raise InputError(
            f"known must be a certificate for at most {memory} bytes, not {other.platform.memory}"
        )
    if replace(other.with_memory(memory), name=problem.name, source=problem.source) != problem:
        raise InputError(
            f"known is about {cut(other.name)}, which is another problem than {cut(problem.name)}"
        )


def offer_known(search: Search, known: Certificate) -> None:
    """Offer what a certificate holds; with more memory the same decisions may take less time."""
    search.begin("what is known")
    schedule, execution = known.result.schedule, known.result.execution
    if isinstance(schedule, FluidSchedule):
        search.offer_fluid(schedule)
    if not isinstance(schedule, Schedule):
        return
    problem, memory = search.problem, known.result.memory
    executed = problem if execution is None else problem.executed(execution)
    best = schedule
    if memory is None:
        try:
            again = simulate(executed, schedule.plan(executed.trace))
            best = min(again, schedule, key=lambda each: each.makespan)
        except PlanError:
            # No plan of whole transfers makes this schedule; it is one all the same.
            pass
    search.offer_executed(execution, best, memory)
