"""Steps that prove how long an execution takes at least if computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.joint_search import JointSearch
from offcert.certify.search import Search
from offcert.core.problem import Recompute
from offcert.verify.execution.check import persistency_faults


def bound_computing(search: Search, effort: Effort) -> None:
    """Prove that no execution is shorter than the computing time; takes no time itself."""
    from offcert.formulations.joint.bound import computing_bound

    search.begin("computing time")
    search.add(computing_bound(search.problem))


def climb_joint(search: Search, effort: Effort) -> None:
    """Prove bounds on moving and computing again together: coarse grids, fine ones, then cases."""
    from offcert.formulations.joint.bound import joint_bounds

    search.begin("joint bounds")
    for bound in joint_bounds(search.problem, effort.seconds, search.objective):
        search.add(bound)
        if search.done:
            return


def close_joint(search: Search, effort: Effort) -> None:
    """Find a shortest execution of a small network and prove that it is one, or that none is."""
    from offcert.formulations.labels.joint.bound import no_execution, shortest_execution

    search.begin("exact joint search")
    assert isinstance(search, JointSearch)
    problem = search.problem
    if search.objective is None:
        search.infeasibility = no_execution(problem, effort.seconds / 2)
        if search.infeasibility is not None:
            return
    found = shortest_execution(problem, effort.seconds / 2, search.objective)
    if found.execution is not None and found.schedule is not None:
        chain = problem.recompute is Recompute.CHAIN
        assert problem.computed is not None
        if not (chain and persistency_faults(problem.computed, found.execution)):
            search.offer_executed(found.execution, found.schedule)
    if found.bound is not None:
        search.add(found.bound)
