"""Steps that prove how long an execution takes at least if computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.core.problem import Minimise
from offcert.core.simulate import simulate
from offcert.heuristics.sequential import sequential
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
    """Find a best execution of a small network and prove that it is one, or that none is."""
    from offcert.formulations.labels.joint.bound import no_execution, shortest_execution

    search.begin("exact joint search")
    problem = search.problem
    if problem.minimise is Minimise.MEMORY:
        _close_memory(search, effort)
        return
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


def _close_memory(search: Search, effort: Effort) -> None:
    """Find the execution that takes least memory, and prove that none takes less."""
    from offcert.formulations.labels.joint.bound import least_memory_execution

    problem, objective = search.problem, search.objective
    # Without a schedule, that everything once fits into the peak is to be found, too.
    enough = problem.trace.peak_memory + 1 if objective is None else objective
    found = least_memory_execution(problem, effort.seconds, (search.proved_bound, enough))
    execution, schedule, memory = found.execution, found.schedule, found.memory
    if execution is not None and memory is not None and not legality_faults(problem, execution):
        if schedule is None:
            executed = problem.executed(execution).with_memory(memory)
            schedule = simulate(executed, sequential(executed))
        search.offer_executed(execution, schedule, memory)
    if found.bound is not None:
        search.add(found.bound)
