"""The steps of the ladder that bound: each adds bounds to a search, within its time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offcert.certify import heads_check, matched_check
from offcert.certify.effort import Effort
from offcert.certify.interrupts import held_interrupts
from offcert.certify.pivot_check import within_reach
from offcert.certify.search import Search
from offcert.certify.warm import (
    warm_heads,
    warm_matched,
    warm_pivot,
)
from offcert.core.errors import MethodError, NoPlanError, PlanError
from offcert.core.problem import Transfers
from offcert.core.result import Bound, Evidence
from offcert.core.simulate import simulate
from offcert.core.trace import LARGEST_TOTAL
from offcert.formulations.relaxations import (
    fractional_bound,
    prop3_bound,
    required_absent,
    whole_tensors_count,
)

if TYPE_CHECKING:
    from offcert.formulations.atomic_heads.bound import Ends
    from offcert.formulations.outcome import ModelOutcome

# About 100 bytes each.
_MOST_LABELS = 30_000_000
# Verification searches about as many labels and gives up at several times more than these; a bound
# that took more is not called proved.
_MOST_CONFIRMED_LABELS = 3_000_000

# Tensors that are tried to be added to orders.
_MOST_INSERTED = 10

# Operations of a trace; dives into longer ones have come back with nothing.
_LONGEST_DIVE = 80

# The same solver under several names; two formulations on one of them attest nothing together.
_FAMILIES = {
    "scipy": "HiGHS",
    "HiGHS_CMD": "HiGHS",
    "PULP_CBC_CMD": "CBC",
    "OR-Tools CP-SAT": "CP-SAT",
}


def climb_combinatorial(search: Search, effort: Effort, late_too: bool = False) -> None:
    """Add the bounds that need no solver: Prop. 3 and the fractional optimum, rounded if valid.

    Rounding takes a second on long chains; once the time is over that is done only for `late_too`.
    """
    search.begin("combinatorial bounds")
    for rounding in (False, True):
        # What is cheap is said however little time there is.
        if rounding and search.late and not late_too:
            return
        if not rounding or whole_tensors_count(search.problem):
            search.add(prop3_bound(search.problem, rounding))
        if not rounding or search.problem.transfers is Transfers.ATOMIC:
            search.add(fractional_bound(search.problem, rounding))


def climb_heads(search: Search, effort: Effort) -> None:
    """Search for the best head and tail with whole tensors; it applies to every trace and link.

    The sets of tensors that they move and the orders in which they do are plans, too.
    """
    search.begin("atomic heads and tails")
    with held_interrupts():
        from offcert.formulations.atomic_heads.bound import heads_bound
        from offcert.heuristics.ordered import ordered_plan, ordered_schedule
    with search.untimed():
        warm_heads()
    outcome = heads_bound(
        search.problem,
        upper_bound=LARGEST_TOTAL if search.objective is None else search.objective,
        time_limit=effort.seconds,
        # Other orders each time it is called within one search.
        seed=effort.seed + 1000 * len(search.bounds),
    )
    for gaps in outcome.sets if search.schedule is not None else ():
        with suppress(MethodError, PlanError):
            search.offer(simulate(search.problem, ordered_plan(search.problem, gaps)))
    for orders in outcome.orders if search.schedule is not None else ():
        with suppress(MethodError):
            search.offer(ordered_schedule(search.problem, orders.offloads, orders.prefetches))
    ends = outcome.ends
    confirmable = outcome.labels <= _MOST_CONFIRMED_LABELS and _ends_within_reach(search, ends)
    if confirmable and outcome.pivot >= 0:
        # The pivot program does better with what is proved about the ends of its sides.
        search.workings.setdefault("ends", []).append(ends)
    if outcome.lower_bound > search.proved_bound:
        details = {"pivot": outcome.pivot, **ends_details(ends)}
        _add_searched(search, "atomic-heads", outcome.lower_bound, details, confirmable)


def _ends_within_reach(search: Search, ends: Ends) -> bool:
    """Return whether verification can work with such numbers at all."""
    return heads_check.within_reach(
        search.problem,
        ends.pivot,
        ends.head,
        ends.tail,
        counted=ends.counted,
        units=ends.units,
    )


def ends_details(ends: Ends) -> dict[str, Any]:
    """Return what verification needs to establish head and tail again."""
    return {
        "head": ends.head,
        "tail": ends.tail,
        "head_counted": list(ends.counted[0]),
        "tail_counted": list(ends.counted[1]),
        "head_unit": ends.units[0],
        "tail_unit": ends.units[1],
    }


def climb_matched(search: Search, effort: Effort) -> None:
    """Search for the best head and tail that move the same tensors, on any trace and link."""
    search.begin("matched heads and tails")
    with held_interrupts():
        from offcert.formulations.matched_heads.bound import MatchedProgram
        from offcert.heuristics.insertion import with_insertions
    with search.untimed():
        warm_matched()
    assert search.objective is not None
    if "matched" not in search.workings:
        search.workings["matched"] = MatchedProgram(search.problem)
    program: MatchedProgram = search.workings["matched"]
    outcome = program.improve(search.objective, effort.seconds)
    trace = search.problem.trace
    for orders in outcome.orders:
        # The search left small tensors out.
        others = sorted(set(range(len(trace.gaps))) - set(orders.offloads), key=trace.gap_size)
        with suppress(MethodError):
            ways = orders.offloads, orders.prefetches
            search.offer(with_insertions(search.problem, *ways, others[:_MOST_INSERTED]))
    if outcome.lower_bound > search.proved_bound:
        proof = outcome.proof
        advice: dict[str, Any] = {
            "unit": proof.unit,
            "free_below": proof.free_below,
            "levels": [list(level) for level in proof.levels],
            "spare": proof.spare,
        }
        ends = ends_details(outcome.ends)
        confirmable = proof.labels <= _MOST_CONFIRMED_LABELS and matched_check.within_reach(
            search.problem,
            outcome.ends.pivot,
            (outcome.ends.head, outcome.ends.tail),
            outcome.ends.counted,
            outcome.ends.units,
            outcome.lower_bound,
            **advice,
        )
        details = {"pivot": outcome.ends.pivot, **ends, **advice}
        _add_searched(search, "matched-heads", outcome.lower_bound, details, confirmable)


def climb_pivot(search: Search, effort: Effort) -> None:
    """Run the pivot dynamic program; it applies to nested traces and simplex links only."""
    search.begin("pivot program")
    with held_interrupts():
        from offcert.formulations.pivot.bound import PivotSearch
    with search.untimed():
        warm_pivot()
    assert search.objective is not None
    if "pivot" not in search.workings:
        search.workings["pivot"] = PivotSearch(search.problem, max_labels=_MOST_LABELS)
    program: PivotSearch = search.workings["pivot"]
    known = search.workings.pop("ends", [])
    outcome = program.improve(search.objective, effort.seconds, known)
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    # A bound that says nothing new would only cost its verification.
    if outcome.lower_bound > search.proved_bound:
        details = {
            "pivot": outcome.pivot,
            "front_limit": outcome.front_limit,
            "back_limit": outcome.back_limit,
            "once": list(outcome.once),
        }
        if outcome.ends is not None:
            details["ends"] = ends_details(outcome.ends)
        confirmable = (
            outcome.labels <= _MOST_CONFIRMED_LABELS
            and within_reach(search.problem, outcome.pivot, outcome.lower_bound)
            and (outcome.ends is None or _ends_within_reach(search, outcome.ends))
        )
        _add_searched(search, "pivot", outcome.lower_bound, details, confirmable)


def _add_searched(
    search: Search, name: str, value: int, details: dict[str, Any], confirmable: bool
) -> None:
    """Add what a search of our own established: proved if verification can search as much."""
    if not confirmable:
        details["solver"] = "offcert"
    evidence = Evidence.PROVED if confirmable else Evidence.ATTESTED
    search.add(Bound(name, value, evidence, details))


def climb_fluid(search: Search, effort: Effort) -> None:
    """Bound by the aggregated interruptible relaxation, proved where that takes not too long.

    Fractional transfers get its linear relaxation: binaries would bound too much.
    """
    if search.problem.transfers is Transfers.FRACTIONAL:
        climb_fluid_lp(search, effort)
        return
    search.begin("fluid MILP")
    with held_interrupts():
        from offcert.certify.fluid_climb import climb_milp
    climb_milp(
        search,
        effort.seconds,
        lambda value, details: _add_attested(search, "fluid-milp", "HiGHS", value, details),
    )


def climb_fluid_lp(search: Search, effort: Effort) -> None:
    """Prove the linear relaxation of the fluid model: on nested traces, the fractional optimum."""
    search.begin("fluid LP")
    with held_interrupts():
        from offcert.certify.fluid_climb import climb_lp
    climb_lp(search, effort.seconds)


def climb_fluid_exact(search: Search, effort: Effort) -> None:
    """Solve Problem 2 or the fractional problem exactly; a bound alone if transfers are atomic."""
    search.begin("exact fluid MILP")
    with held_interrupts():
        from offcert.formulations.fluid_exact import solve_fluid
    atomic = search.problem.transfers is Transfers.ATOMIC
    required = required_absent(search.problem, subset_sum=True) if atomic else None
    outcome = solve_fluid(search.problem, time_limit=effort.seconds, required=required)
    if outcome.schedule is not None:
        search.offer_fluid(outcome.schedule)
    _add_attested(search, "fluid-exact", "HiGHS", outcome.bound, outcome.details)
    _pass_on(search, "fluid-exact", outcome.details)


def descend_fluid_ordered(search: Search, effort: Effort) -> None:
    """Find the best ordered schedule; what bounds it bounds no other, so it is a remark only."""
    search.begin("ordered fluid MILP")
    with held_interrupts():
        from offcert.formulations.fluid_exact import solve_fluid
    outcome = solve_fluid(search.problem, ordered=True, time_limit=effort.seconds)
    if outcome.details.get("infeasible"):
        raise NoPlanError("the solver found no schedule with all offloads before all prefetches")
    search.remarks["ordered_lower_bound"] = outcome.bound
    if outcome.schedule is not None:
        search.remarks["ordered_objective"] = outcome.schedule.makespan
        search.offer_fluid(outcome.schedule)
    _pass_on(search, "fluid-ordered", outcome.details)


def climb_stage(search: Search, effort: Effort) -> None:
    """Solve the stage model, which sees that tensors leave whole but not when."""
    search.begin("stage MILP")
    with held_interrupts():
        from offcert.formulations.stage_milp import SCIPY, solve
    outcome = solve(search.problem, **_known(search, effort), solver=effort.solver or SCIPY)
    _take(search, "stage-milp", outcome)


def climb_time_indexed_cpsat(search: Search, effort: Effort) -> None:
    """Solve the time-indexed model with CP-SAT."""
    search.begin("time-indexed CP-SAT")
    with held_interrupts():
        from offcert.formulations.time_indexed_cpsat import solve
    outcome = solve(search.problem, **_known(search, effort), grid=effort.grid, seed=effort.seed)
    _take(search, "time-indexed-cpsat", outcome)


def climb_time_indexed_milp(search: Search, effort: Effort) -> None:
    """Solve the time-indexed model with a linear solver."""
    search.begin("time-indexed MILP")
    with held_interrupts():
        from offcert.formulations.time_indexed_milp import DEFAULT, solve
    solver = effort.solver or DEFAULT
    outcome = solve(search.problem, **_known(search, effort), grid=effort.grid, solver=solver)
    _take(search, "time-indexed-milp", outcome)


def climb_disjunctive(search: Search, effort: Effort) -> None:
    """Solve the disjunctive model with a linear solver."""
    search.begin("disjunctive MILP")
    with held_interrupts():
        from offcert.formulations.disjunctive_milp import DEFAULT, solve
    outcome = solve(search.problem, **_known(search, effort), solver=effort.solver or DEFAULT)
    _take(search, "disjunctive-milp", outcome)


def _known(search: Search, effort: Effort) -> dict[str, Any]:
    """Return what every model is told; of the bounds only proved ones, so that claims are its own.

    Two solvers that each rest on the other's claim would attest nothing.
    """
    return {
        "time_limit": effort.seconds,
        "threads": effort.workers,
        "upper_bound": search.objective,
        "hint": search.schedule,
        "lower_bound": search.proved_bound,
    }


def _take(search: Search, name: str, outcome: ModelOutcome) -> None:
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    value = outcome.details.get("model_bound")
    if value is not None:
        solver = str(outcome.details.get("solver"))
        family = _FAMILIES.get(solver, solver)
        _add_attested(search, name, family, int(value), outcome.details)
    _pass_on(search, name, outcome.details)


def _pass_on(search: Search, name: str, details: Mapping[str, Any]) -> None:
    """Say aloud what a model met with, and end the search if that was an interrupt."""
    if "error" in details:
        search.note_failure(str(details["error"]), name)
    if details.get("interrupted"):
        raise KeyboardInterrupt


def _add_attested(
    search: Search, name: str, family: str, value: int, details: Mapping[str, Any]
) -> None:
    """Add a solver's claim; its family decides who may attest whom."""
    # A certificate says the same on every machine, so it holds nothing read from a clock.
    kept = {
        key: item for key, item in details.items() if "seconds" not in key and key != "time_limit"
    }
    search.add(Bound(name, value, Evidence.ATTESTED, kept | {"solver": family}))


def descend_dives(search: Search, effort: Effort) -> None:
    """Ask the interval model for schedules that meet the bound; it may refute that there are."""
    if len(search.problem.trace) > _LONGEST_DIVE:
        return
    search.begin("interval CP-SAT, dives")
    with held_interrupts():
        from offcert.formulations.interval_dive import dive
    assert search.schedule is not None
    outcome = dive(
        search.problem,
        search.schedule,
        lower_bound=search.lower_bound,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed,
        on_solution=search.offer,
    )
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    if outcome.lower_bound > search.problem.trace.compute_time:
        _add_attested(search, "interval-cpsat", "CP-SAT", outcome.lower_bound, outcome.details)
    _pass_on(search, "interval-cpsat", outcome.details)


def climb_interval(search: Search, effort: Effort) -> None:
    """Give the interval model the rest of the time, the best schedule as hint, and all windows."""
    search.begin("interval CP-SAT")
    with held_interrupts():
        from offcert.formulations.interval_cpsat import solve
    outcome = solve(
        search.problem,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed,
        hint=search.schedule,
        lower_bound=search.proved_bound,
        upper_bound=search.objective,
        on_solution=search.offer,
    )
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    value = outcome.details.get("solver_bound", 0)
    # On long traces the time ends before the model says anything that the definition does not.
    if value >= search.problem.trace.compute_time:
        _add_attested(search, "interval-cpsat", "CP-SAT", value, outcome.details)
    _pass_on(search, "interval-cpsat", outcome.details)
