"""The step of the ladder that searches for joint plans: what runs again and what leaves."""

from __future__ import annotations

from typing import Any

from offcert.certify.effort import Effort
from offcert.certify.interrupts import held_interrupts
from offcert.certify.search import Search
from offcert.certify.warm import (
    warm_joint_search,
    warm_local_search,
    warm_order_search,
    warm_plans,
    warm_set_search,
)
from offcert.core.errors import InputError
from offcert.core.problem import Minimise, Recompute
from offcert.core.program import Program, program_from_json
from offcert.verify.execution import persistency_faults


def descend_joint(search: Search, effort: Effort) -> None:
    """Search for programs of segments that run again, together with what leaves.

    A captured step says which ranges can be segments; elsewhere any may be one. Where strategies
    have to be persistent, plans that are not are passed over.

    Parameters
    ----------
    search : Search
        Given every better plan at once.
    effort : Effort
        Seconds, threads and seed.
    """
    search.begin("joint search")
    with held_interrupts():
        from offcert.heuristics.joint.plans import JointPlan
        from offcert.heuristics.joint.ranges import ranges_of
        from offcert.heuristics.joint.search import joint_search
    problem = search.problem
    network = problem.computed
    if network is None or problem.recompute is Recompute.NONE:
        return
    if problem.minimise is not Minimise.TIME:
        return
    with search.untimed():
        warm_plans()
        warm_set_search()
        warm_order_search()
        warm_local_search()
        warm_joint_search()

    def offer(plan: JointPlan) -> None:
        chain = problem.recompute is Recompute.CHAIN
        if not (chain and persistency_faults(network, plan.execution)):
            search.offer_executed(plan.execution, plan.schedule)

    options: dict[str, Any] = dict(effort.options)
    joint_search(
        problem,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed + 1000 * len(search.bounds),
        target=search.goal,
        ranges=ranges_of(problem),
        known=known_programs(search),
        on_improvement=offer,
        **options,
    )


def known_programs(search: Search) -> list[Program]:
    """Return the program of the best execution so far, if a program makes it."""
    if search.execution is None or search.execution.program is None:
        return []
    value: Any = search.execution.program
    try:
        return [program_from_json(value, "execution.program")]
    except InputError:
        # Others may say in another way what makes their executions.
        return []
