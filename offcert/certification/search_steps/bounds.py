"""The steps of the ladder that bound: each adds bounds to a search, within its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcert.certification.interrupts import held_interrupts
from offcert.certification.method import Effort
from offcert.certification.rung import is_long
from offcert.certification.search import Search
from offcert.core.errors import MethodError, NoPlanError
from offcert.formulations.combinatorial.exact_sums import exact_sums_bound
from offcert.formulations.combinatorial.large_tensors import (
    large_tensors_bound,
    sizes_worth_counting,
    without_forced_returns,
)
from offcert.formulations.combinatorial.pieces import pieces_bound
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    prop3_bound,
    required_absent,
    whole_tensors_count,
)
from offcert.proofs.kinds.computed import LargeTensors
from offcert.proofs.registry import claimed, proved
from offcert.questions.schedule.problem import Transfers

if TYPE_CHECKING:
    from offcert.formulations.common.outcome import ModelOutcome

# Operations of the longest trace that a dive is made into; dives into longer ones have come back
# with nothing. Measured; no record.
_LONGEST_DIVE = 80


def climb_combinatorial(search: Search, effort: Effort, late_too: bool = False) -> None:
    """Add the bounds that need no solver: Prop. 3 and the fractional optimum, rounded if valid.

    Rounding takes a second on long chains; once the time is over that is done only for `late_too`.
    It would take a minute where there are thousands of operations: there, only large tensors count
    as wholes.
    """
    search.begin("combinatorial bounds")
    if (pieces := pieces_bound(search.problem)) is not None:
        search.add(pieces)
    if is_long(search.problem):
        _climb_large(search)
        climb_returns(search)
        return
    for rounding in (False, True):
        # A cheap bound is added however little time there is.
        if rounding and search.late and not late_too:
            return
        if not rounding or whole_tensors_count(search.problem):
            search.add(prop3_bound(search.problem, rounding))
        if not rounding or search.problem.transfers is Transfers.ATOMIC:
            search.add(fractional_bound(search.problem, rounding))


def _climb_large(search: Search) -> None:
    """Add the fractional optimum, and with large tensors as wholes while there is time."""
    search.add(prop3_bound(search.problem))
    search.add(fractional_bound(search.problem))
    if search.problem.transfers is Transfers.ATOMIC:
        for smallest in sizes_worth_counting(search.problem):
            if search.late:
                return
            bound = large_tensors_bound(search.problem, smallest)
            # Sizes of one unit often say the same.
            if bound.value > search.proved_bound:
                search.add(bound)


def climb_returns(search: Search) -> None:
    """Add the fractional bound with the time of forced returns cut out, where there are any."""
    try:
        rest, ticks = without_forced_returns(search.problem)
    except MethodError:
        return
    for smallest in sizes_worth_counting(rest):
        if search.late:
            return
        value = large_tensors_bound(rest, smallest).value + ticks
        if value > search.proved_bound:
            proof = LargeTensors(smallest=smallest)
            search.add(proved("fractional-large-tensors-returns", value, proof))


def climb_sums(search: Search, effort: Effort) -> None:
    """Go through the exact sums of what may be absent where most has to be."""
    search.begin("exact sums")
    for smallest in sorted({1, *sizes_worth_counting(search.problem)}):
        if search.late:
            return
        bound = exact_sums_bound(search.problem, smallest)
        if bound is not None:
            if bound.value > search.proved_bound:
                search.add(bound)
            # With larger tensors alone it hardly ever says more.
            return


def climb_fluid(search: Search, effort: Effort) -> None:
    """Bound by the aggregated interruptible relaxation, as HiGHS claims it."""
    search.begin("fluid MILP")
    with held_interrupts():
        from offcert.formulations.fluid.milp import fluid_bound
    whole = search.problem.transfers is Transfers.ATOMIC
    required = required_absent(search.problem, whole)
    outcome = fluid_bound(search.problem, time_limit=effort.seconds, required=required)
    search.add(claimed("fluid-milp", outcome.value, "HiGHS", outcome.details))
    _pass_on(search, "fluid-milp", outcome.error)


def climb_fluid_exact(search: Search, effort: Effort) -> None:
    """Solve Problem 2 or the fractional problem exactly; a bound alone if transfers are atomic."""
    search.begin("exact fluid MILP")
    with held_interrupts():
        from offcert.formulations.fluid.exact import solve_fluid
    atomic = search.problem.transfers is Transfers.ATOMIC
    required = required_absent(search.problem, subset_sum=True) if atomic else None
    outcome = solve_fluid(search.problem, time_limit=effort.seconds, required=required)
    if outcome.schedule is not None:
        search.offer_fluid(outcome.schedule)
    search.add(claimed("fluid-exact", outcome.bound, "HiGHS", outcome.details))
    _pass_on(search, "fluid-exact", outcome.error)


def descend_fluid_ordered(search: Search, effort: Effort) -> None:
    """Find the best ordered schedule; what bounds it bounds no other, so it is a remark only."""
    search.begin("ordered fluid MILP")
    with held_interrupts():
        from offcert.formulations.fluid.exact import solve_fluid
    outcome = solve_fluid(search.problem, ordered=True, time_limit=effort.seconds)
    if outcome.infeasible:
        raise NoPlanError("the solver found no schedule with all offloads before all prefetches")
    search.note(ordered_lower_bound=outcome.bound)
    if outcome.schedule is not None:
        search.note(ordered_objective=outcome.schedule.makespan)
        search.offer_fluid(outcome.schedule)
    _pass_on(search, "fluid-ordered", outcome.error)


def climb_stage(search: Search, effort: Effort, exact: bool = False) -> None:
    """Solve the stage model, which sees that tensors leave whole but not when.

    With `exact` it also sees in which order.
    """
    search.begin("stage MILP")
    with held_interrupts():
        from offcert.formulations.models.stage_milp import SCIPY, solve
    outcome = solve(
        search.problem,
        **_known(search),
        exact=exact,
        time_limit=effort.seconds,
        threads=effort.workers,
        solver=effort.solver or SCIPY,
    )
    _take(search, "stage-milp", outcome)


def climb_cells(name: str, search: Search, effort: Effort) -> None:
    """Solve a time-indexed model by its name, which says how: a pure one is told nothing."""
    search.begin(f"time-indexed model, {name}")
    solver = "cpsat" if name.endswith("cpsat") else effort.solver or "scipy"
    known: dict[str, Any] = {"plain": True} if name.startswith("pure") else _known(search)
    with held_interrupts():
        from offcert.formulations.models import time_indexed
    given: dict[str, Any] = {"time_limit": effort.seconds, "threads": effort.workers}
    given |= {"seed": effort.seed, "grid": effort.grid}
    if search.problem.transfers is Transfers.ATOMIC:
        _take(search, name, time_indexed.solve(search.problem, solver, **given, **known))
        return
    outcome = time_indexed.solve_pausing(search.problem, solver, **given)
    if outcome.schedule is not None:
        search.offer_fluid(outcome.schedule)
    if outcome.bound > search.problem.trace.compute_time:
        search.add(claimed(name, outcome.bound, outcome.statistics["solver"], outcome.details))
    _pass_on(search, name, outcome.error)


def _known(search: Search) -> dict[str, Any]:
    """Return limits, hint and proved bound for a model; claims of others are left out.

    Two solvers that each rest on the other's claim would attest nothing.
    """
    return {
        "upper_bound": search.objective,
        "hint": search.schedule,
        "lower_bound": search.proved_bound,
    }


def _take(search: Search, name: str, outcome: ModelOutcome) -> None:
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    claim = outcome.claim
    if claim is not None:
        search.add(claimed(name, claim.value, claim.solver, outcome.details))
    _pass_on(search, name, outcome.error)
    if outcome.interrupted:
        raise KeyboardInterrupt


def _pass_on(search: Search, name: str, error: str | None) -> None:
    """Say aloud what went wrong in a solver, if anything did."""
    if error is not None:
        search.note_failure(error, name)


def descend_dives(search: Search, effort: Effort) -> None:
    """Ask the interval model for schedules that meet the bound; it may refute that there are."""
    if len(search.problem.trace) > _LONGEST_DIVE or search.done:
        return
    search.begin("interval CP-SAT, dives")
    with held_interrupts():
        from offcert.formulations.models.interval_cpsat import dive
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
    _take(search, "interval-cpsat", outcome)


def climb_interval(search: Search, effort: Effort) -> None:
    """Give the interval model the rest of the time, the best schedule as hint, and all windows."""
    search.begin("interval CP-SAT")
    _take(search, "interval-cpsat", _intervals(search, effort))


def descend_neighbourhoods(search: Search, effort: Effort) -> None:
    """Let CP-SAT search the neighbourhoods of the best schedule."""
    if not search.done:
        search.begin("interval CP-SAT, neighbourhoods")
        _take(search, "interval-cpsat", _intervals(search, effort, near=True))


def _intervals(search: Search, effort: Effort, near: bool = False) -> ModelOutcome:
    with held_interrupts():
        from offcert.formulations.models.interval_cpsat import solve
    return solve(
        search.problem,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed,
        hint=search.schedule,
        lower_bound=search.proved_bound,
        upper_bound=search.objective,
        on_solution=search.offer,
        near=near,
    )
