"""The steps of the ladder that search by themselves, without a solver: heads, pivot program."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from offcert.certification.interrupts import held_interrupts
from offcert.certification.method import Effort
from offcert.certification.rung import is_fine
from offcert.certification.search import Search
from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Kind
from offcert.core.trace import LARGEST_TOTAL
from offcert.proofs.registry import proved, searched
from offcert.questions.schedule.simulate import simulate
from offcert.verification.ends import check as ends_check
from offcert.verification.limits import BeyondLimitsError
from offcert.verification.outward import check as outward_check
from offcert.verification.pivot import check as pivot_check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offcert.formulations.labels.ends.heads import HeadsOutcome
    from offcert.formulations.labels.ends.orders import Orders
    from offcert.formulations.labels.ends.targets import MatchedOutcome
    from offcert.formulations.labels.outward.bound import OutwardOutcome
    from offcert.proofs.proof import Proof
    from offcert.questions.schedule.problem import Problem
    from offcert.questions.schedule.schedule import Schedule

# Labels of a search, of about 100 bytes each, and of a search on a fine trace: the process stays
# well below 2 GiB. Derived.
_MOST_LABELS, _MOST_LABELS_OF_FINE = 30_000_000, 6_000_000
# Labels of one side of a level of the matched search, and the same on a fine trace; the arrays have
# room for several times as many. Arbitrary.
_MOST_MATCHED, _MOST_MATCHED_OF_FINE = 6_400_000, 1_600_000
# Labels of a search above which its bound is not called proved: verification searches about as
# many, and gives up at several times this number. Derived from the limits of `verify`.
MOST_CONFIRMED_LABELS = 3_000_000
# The same number for an outward bound, whose searches are small and need little memory. Derived.
_MOST_CONFIRMED_OUTWARD = 12_000_000
# The same number for a pivot bound, of whose labels verification expands a part. Derived.
_MOST_CONFIRMED_PIVOT = 16_000_000
# Tensors that are tried to be added to an order. Arbitrary.
_MOST_INSERTED = 16
# Share of its time that the outward search takes; the rest is for verification. Arbitrary.
_SEARCHING = 0.7
# Seconds that verification may take beyond its share. Arbitrary.
_LONGER = 1.0
# Seconds of the first outward search; parts of the makespan that may be open for it to go on, in
# general and where gaps are many, of which it closes most; gaps that are many. Measured; no record.
_FIRST_LOOK = 1.0
NEAR, NEAR_OF_MANY = 0.005, 0.01
MANY_GAPS = 60
# Part of the makespan below which the outward search counts as nearly closed, and the share of the
# remaining time that it then takes. Arbitrary.
_NEARLY_CLOSED = 0.0001
_GOING_ON = 0.7
# Part of what is still open below which a late gain does not count. Arbitrary.
_HARDLY = 0.01


def climb_heads(search: Search, effort: Effort) -> None:
    """Search for the best head and tail with whole tensors; it applies to every trace and link.

    The sets of tensors that they move and the orders in which they do are plans, too.
    """
    search.begin("atomic heads and tails")
    with held_interrupts():
        from offcert.formulations.labels.ends.heads import heads_bound
        from offcert.heuristics.orders.ordered import ordered_plan, ordered_schedule

    def offer(orders: Orders) -> None:
        if search.schedule is not None:
            with suppress(MethodError):
                search.offer(ordered_schedule(search.problem, orders.offloads, orders.prefetches))

    outcome = heads_bound(
        search.problem,
        upper_bound=LARGEST_TOTAL if search.objective is None else search.objective,
        time_limit=effort.seconds,
        # Other orders each time it is called within one search.
        seed=effort.seed + 1000 * len(search.bounds),
        on_orders=offer,
    )
    for gaps in outcome.sets if search.schedule is not None else ():
        with suppress(MethodError, PlanError):
            search.offer(simulate(search.problem, ordered_plan(search.problem, gaps)))
    if outcome.proof is None:
        return
    if _add_heads(search, search.problem, "atomic-heads", outcome):
        # The pivot program does better with what is proved about the ends of its sides.
        search.workings.ends.append(outcome.proof)


def _add_heads(
    search: Search, problem: Problem, name: str, outcome: HeadsOutcome | MatchedOutcome
) -> bool:
    """Add a bound that says anything new; return whether verification can establish it.

    `problem` is what the bound was found for.
    """
    assert outcome.proof is not None
    confirmable = outcome.labels <= MOST_CONFIRMED_LABELS and ends_check.within_reach(
        problem, outcome.lower_bound, outcome.proof
    )
    if outcome.lower_bound > search.proved_bound:
        _add_searched(search, name, outcome.lower_bound, outcome.proof, confirmable)
    return confirmable


def climb_matched(search: Search, effort: Effort) -> None:
    """Search for the best head and tail that move the same tensors, on any trace and link."""
    search.begin("matched heads and tails")
    _climb_matched(search, effort, "matched-heads", search.problem)


def climb_joined(search: Search, effort: Effort) -> None:
    """Search for the best head and tail that move the same, as if tensors had one gap each.

    It applies to traces on which some have several, and finds no schedules.
    """
    search.begin("matched heads and tails, gaps joined")
    with held_interrupts():
        from offcert.formulations.labels.common import joined_gaps
    _climb_matched(search, effort, "matched-heads-joined", joined_gaps(search.problem))


def _climb_matched(search: Search, effort: Effort, name: str, problem: Problem) -> None:
    """Search for heads and tails of a problem, whose bounds hold for that of the search."""
    with held_interrupts():
        from offcert.formulations.labels.ends.targets import MatchedHeadsSearch
    most = _MOST_MATCHED_OF_FINE if is_fine(search.problem) else _MOST_MATCHED
    program = search.workings.search(name, lambda: MatchedHeadsSearch(problem, max_labels=most))
    # Seconds of the whole time that remain when this step's are over.
    rest = max(0.0, search.remaining - effort.seconds)
    while True:
        assert search.objective is not None
        outcome = program.improve(search.objective, search.remaining - rest)
        for orders in outcome.orders if problem is search.problem else ():
            _offer_orders(search, orders)
        _add_heads(search, problem, name, outcome)
        if outcome.finished or search.done or search.remaining <= rest:
            return


def _offer_orders(search: Search, orders: Orders) -> None:
    """Offer a schedule of these orders, and of some of the small tensors that they left out."""
    with held_interrupts():
        from offcert.heuristics.orders.insertion import with_insertions
    _offer_completed(search, orders.offloads, orders.prefetches, with_insertions)


def _offer_completed(
    search: Search,
    offloads: Sequence[int],
    prefetches: Sequence[int],
    complete: Callable[..., Schedule],
) -> None:
    """Offer the schedule of orders of offloads and prefetches, and some of the other tensors."""
    trace = search.problem.trace
    others = sorted(set(range(len(trace.gaps))) - set(offloads), key=trace.gap_size)
    with suppress(MethodError):
        search.offer(complete(search.problem, offloads, prefetches, others[:_MOST_INSERTED]))


def climb_outward(search: Search, effort: Effort) -> None:
    """Follow both sides of the cut outward from the pivot; it applies to every trace and link."""
    search.begin("outward from the pivot")
    with held_interrupts():
        from offcert.formulations.labels.outward.bound import OutwardSearch
    program = search.workings.search(
        "outward", lambda: OutwardSearch(search.problem, workers=effort.workers)
    )
    assert search.objective is not None
    seconds = _SEARCHING * effort.seconds
    offer = partial(_offer_outward, search)
    first = min(seconds, _FIRST_LOOK)
    outcome = program.improve(search.objective, first, offer)
    near = NEAR_OF_MANY if len(search.problem.trace.gaps) >= MANY_GAPS else NEAR
    if _open_part(search, outcome) <= near and not outcome.finished:
        outcome = program.improve(search.objective, seconds - first, offer)
    # Verification comes after it, and takes about as long for what was found at once.
    verifying = effort.seconds - seconds + _LONGER
    if _open_part(search, outcome) <= _NEARLY_CLOSED and not outcome.finished:
        # Nothing else closes it, so it keeps its turn.
        rest = (1 - _GOING_ON) * search.remaining
        search.grant(search.remaining + _LONGER)
        while not outcome.finished and search.remaining > rest:
            outcome = program.improve(search.objective, search.remaining - rest, offer)
        verifying = search.remaining + _LONGER
    search.workings.outward_open = _open_part(search, outcome)
    # A bound that verification could not establish, it cannot in less time.
    attempt = outcome.lower_bound, verifying
    tried = search.workings.outward_tried
    if _is_worth_verifying(search, outcome.lower_bound) and attempt > tried:
        search.workings.outward_tried = attempt
        _add_outward(search, outcome, verifying, effort.workers)


def _is_worth_verifying(search: Search, bound: int) -> bool:
    """Whether a bound says enough more than what is proved, or there will be no other occasion."""
    assert search.objective is not None
    gained, still_open = bound - search.proved_bound, search.objective - bound
    return gained > 0 and (gained >= still_open or search.remaining < search.seconds)


def _open_part(search: Search, outcome: OutwardOutcome) -> float:
    assert search.objective is not None
    return (search.objective - outcome.lower_bound) / search.objective


def _offer_outward(search: Search, schedule: Schedule) -> int:
    """Offer a schedule that may lack some small transfers; return the best makespan."""
    with held_interrupts():
        from offcert.heuristics.orders.insertion import with_all_but, with_insertions
    with suppress(PlanError):
        search.offer(simulate(search.problem, schedule.plan(search.problem.trace)))
    offloads, prefetches = (
        [item.gap for item in schedule.transfers if item.kind is kind] for kind in Kind
    )
    _offer_completed(search, offloads, prefetches, with_insertions)
    _offer_completed(search, offloads, prefetches, with_all_but)
    assert search.objective is not None
    return search.objective


def _add_outward(search: Search, outcome: OutwardOutcome, seconds: float, workers: int) -> None:
    """Add the bound: proved, if verification agrees within some seconds that it is."""
    proof = outcome.proof
    try:
        fault = outward_check.outward_fault(
            search.problem,
            outcome.lower_bound,
            proof,
            max_labels=min(_MOST_CONFIRMED_OUTWARD, 2 * outcome.labels),
            max_seconds=seconds,
            workers=workers,
        )
    except BeyondLimitsError as error:
        fault = str(error)
    if fault is None:
        search.add(proved("outward", outcome.lower_bound, proof))
    else:
        # The divisions of its parts may be long, and nobody can use them.
        search.add(searched("outward", outcome.lower_bound, {"pivot": proof.pivot}))


def climb_pivot(search: Search, effort: Effort) -> None:
    """Run the pivot dynamic program; it applies to nested traces only."""
    search.begin("pivot program")
    with held_interrupts():
        from offcert.formulations.labels.pivot.bound import PivotSearch
    assert search.objective is not None
    most = _MOST_LABELS_OF_FINE if is_fine(search.problem) else _MOST_LABELS
    program = search.workings.search("pivot", lambda: PivotSearch(search.problem, max_labels=most))
    # The search keeps these ends, and need not be told again.
    known, search.workings.ends = search.workings.ends, []
    outcome = program.improve(search.objective, effort.seconds, known)
    if outcome.schedule is not None:
        search.offer(outcome.schedule)
    # A bound that says nothing new would only cost its verification.
    if _says_enough(search, outcome.lower_bound):
        bound, proof = outcome.lower_bound, outcome.proof
        confirmable = outcome.labels <= _MOST_CONFIRMED_PIVOT
        confirmable = confirmable and pivot_check.within_reach(search.problem, bound, proof)
        _add_searched(search, "pivot", bound, proof, confirmable)


def _says_enough(search: Search, bound: int) -> bool:
    """Whether a bound is above what is proved; when the time is over, by a part that counts.

    Whether verification can establish it has to be found out, which takes time.
    """
    assert search.objective is not None
    gained, still_open = bound - search.proved_bound, search.objective - bound
    return gained > 0 and not (search.late and gained < _HARDLY * still_open)


def _add_searched(search: Search, method: str, value: int, proof: Proof, confirmable: bool) -> None:
    """Add the bound of a search of our own: proved if verification can search as much."""
    state = proved if confirmable else searched
    search.add(state(method, value, proof))
