"""Steps that prove how long an execution takes at least if computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search


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
