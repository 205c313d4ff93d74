"""Steps that prove how long an execution takes at least if computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.verify.execution import legality_faults


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
    problem = search.problem
    if search.objective is None:
        search.infeasibility = no_execution(problem, effort.seconds / 2)
        if search.infeasibility is not None:
            return
    found = shortest_execution(problem, effort.seconds / 2, search.objective)
    execution, schedule = found.execution, found.schedule
    # Labels allow a little more than executions; on chains, stored copies may have to stay.
    if execution is not None and schedule is not None and not legality_faults(problem, execution):
        search.offer_executed(execution, schedule)
    if found.bound is not None:
        search.add(found.bound)
