"""A search for a plan that ends after so many steps, and not after seconds."""

from __future__ import annotations

from typing import Any

from offcert.certification.methods import solve
from offcert.certification.search import Search
from offcert.heuristics.joint.plans import JointPlan, ranges_of
from offcert.heuristics.joint.search import joint_search
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute

# Seconds that such a search never takes.
_HOUR = 3600.0


def counted_search(problem: Problem, **_: Any) -> Certificate:
    """Return a plan that is the same on a fast and on a slow machine; takes the place of `certify`.

    On steps of thirty operations, with a link so slow that whoever can runs again, eight seeds of
    eight found no plan that moves where one that only runs again was possible.
    """
    if problem.recompute is Recompute.NONE:
        return solve(problem, "sequential")
    search = Search(problem, _HOUR)

    def offer(plan: JointPlan) -> None:
        search.offer_executed(plan.execution, plan.schedule)

    joint_search(
        problem,
        time_limit=_HOUR,
        coolings=8,
        steps=200,
        transfers=0.0,
        ranges=ranges_of(problem),
        on_improvement=offer,
    )
    settings = Settings(time_limit=_HOUR, workers=1, target_gap=0.0, seed=0)
    return search.certificate("joint-search", settings)
