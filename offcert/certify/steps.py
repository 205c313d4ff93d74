"""The steps of the ladder: each adds bounds or schedules to a search, within its time."""

from __future__ import annotations

from offcert.certify.pivot_check import within_reach
from offcert.certify.search import Search
from offcert.core.errors import MethodError, PlanError
from offcert.core.problem import Transfers
from offcert.core.result import Bound, Evidence
from offcert.core.simulate import simulate
from offcert.formulations.relaxations import fractional_bound, prop3_bound, required_absent

# About 100 bytes each.
_MOST_LABELS = 30_000_000
# Verification searches about as many labels and gives up at several times more than these; a bound
# that took more is not called proved.
_MOST_CONFIRMED_LABELS = 3_000_000


def climb_combinatorial(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Add the bounds that need no solver: Prop. 3 and the fractional optimum, both also rounded."""
    search.begin("combinatorial bounds")
    roundings = (False, True) if search.problem.transfers is Transfers.ATOMIC else (False,)
    for rounding in roundings:
        search.add(prop3_bound(search.problem, rounding))
        search.add(fractional_bound(search.problem, rounding))


def descend_heuristics(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Offer plans that cost next to nothing: `sequential` always works, GREEDY often is good."""
    from offcert.heuristics.greedy import greedy
    from offcert.heuristics.sequential import sequential

    for method in (sequential, greedy):
        search.begin(method.__name__)
        try:
            search.offer(simulate(search.problem, method(search.problem)))
        except (MethodError, PlanError):
            # GREEDY is defined for chains only and may find no plan; `sequential` never fails here.
            if method is sequential:
                raise
        if search.done:
            return


def descend_local_search(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Anneal from the best schedule so far."""
    from offcert.heuristics.local_search import local_search

    search.begin("local search")
    assert search.schedule is not None
    local_search(
        search.problem,
        time_limit=seconds,
        # Another random sequence each time it is called within one search.
        seed=seed + 1000 * len(search.bounds),
        target=search.goal,
        start=search.schedule.plan(search.problem.trace),
        on_improvement=search.offer,
        pass_interrupts=True,
    )


def climb_pivot(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Run the pivot dynamic program, where it applies."""
    from offcert.formulations.pivot.bound import pivot_bound

    search.begin("pivot program")
    assert search.objective is not None
    try:
        outcome = pivot_bound(
            search.problem,
            upper_bound=search.objective,
            time_limit=seconds,
            max_labels=_MOST_LABELS,
        )
    except MethodError:
        return
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    if outcome.lower_bound > 0:
        details = {
            "pivot": outcome.pivot,
            "front_limit": outcome.front_limit,
            "back_limit": outcome.back_limit,
            "once": list(outcome.once),
        }
        confirmable = outcome.labels <= _MOST_CONFIRMED_LABELS and within_reach(
            search.problem, outcome.pivot, outcome.lower_bound
        )
        if not confirmable:
            details["solver"] = "offcert pivot program"
        evidence = Evidence.PROVED if confirmable else Evidence.ATTESTED
        search.add(Bound("pivot", outcome.lower_bound, evidence, details))


def climb_fluid(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Solve the aggregated interruptible relaxation, with whole tensors where they move whole."""
    from offcert.formulations.fluid_milp import fluid_bound

    search.begin("fluid MILP")
    atomic = search.problem.transfers is Transfers.ATOMIC
    required = required_absent(search.problem, subset_sum=True) if atomic else None
    value, details = fluid_bound(search.problem, time_limit=seconds, required=required)
    # A certificate says the same on every machine.
    details = {name: item for name, item in details.items() if name != "seconds"}
    search.add(Bound("fluid-milp", value, Evidence.ATTESTED, details))


def climb_interval(search: Search, seconds: float, workers: int, seed: int) -> None:
    """Give the interval model the rest of the time, the best schedule as hint, and all windows."""
    from offcert.formulations.interval_cpsat import solve

    search.begin("interval CP-SAT")
    outcome = solve(
        search.problem,
        time_limit=seconds,
        workers=workers,
        seed=seed,
        hint=search.schedule,
        lower_bound=search.lower_bound,
        upper_bound=search.objective,
        on_solution=search.offer,
    )
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    if "solver_bound" in outcome.details:
        value = outcome.details["solver_bound"]
        search.add(Bound("interval-cpsat", value, Evidence.ATTESTED, outcome.details))
    if outcome.details.get("interrupted"):
        raise KeyboardInterrupt
