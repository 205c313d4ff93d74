"""The steps of the ladder for addresses: each adds placements or bounds, within its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from offcert.certification.method import Effort
from offcert.certification.search import PlacementSearch
from offcert.core.result import Bound
from offcert.formulations.placement.skyline import skyline_search
from offcert.heuristics.placement.ejection import ejection_search
from offcert.heuristics.placement.in_order import placed_in_order
from offcert.proofs.placement_certificate import (
    PLACEMENT_PROOFS,
    Computed,
    InfeasibleSubset,
    proved_bytes,
)
from offcert.questions.placement.problem import Placement, PlacementProblem
from offcert.verification.findings import recheck
from offcert.verification.limits import BeyondLimitsError, Limits

# The name of its bounds.
SUBSET = "infeasible-subset"
# Shares of the time for finding residences that do not fit, and for finding fewer of them; the rest
# is for checks. Arbitrary.
_EXCLUDE, _REDUCE = 0.4, 0.3


def prove_by_subset(search: PlacementSearch, effort: Effort) -> None:
    """Add the largest bound that verification will establish from residences that do not fit."""
    search.begin(SUBSET)
    from offcert.formulations.placement.skyline import exclude, reduced

    began = time.monotonic()
    problem, seed = search.problem, effort.seed
    least = max(search.proved_bound, problem.load)
    until = began + _EXCLUDE * effort.seconds
    excluded = exclude(problem, least, until, seed, search.placement, search.offer)
    if excluded is None:
        return
    fewer = reduced(problem, excluded, time.monotonic() + _REDUCE * effort.seconds, seed)
    # Fewer residences are easier to read, but may take longer to look through than all.
    for each in (fewer, excluded):
        bound = proved_bytes(SUBSET, each.value, InfeasibleSubset(residences=each.residences))
        if _holds(search, bound, (began + effort.seconds - time.monotonic()) / 2):
            search.add(bound)
            return


def _holds(search: PlacementSearch, bound: Bound, seconds: float) -> bool:
    """Return whether verification establishes a bound within so many seconds."""
    if seconds <= 0:
        return False
    try:
        allowance = Limits(seconds=seconds).begin()
        return recheck(bound, search.problem, allowance, PLACEMENT_PROOFS) is None
    except BeyondLimitsError:
        return False


# Part of the load that small residences may take together, at most. Arbitrary.
_SMALL = 0.002
# Part of the residences that must be small for them to be set apart. Arbitrary.
_MANY = 0.1
# How far above the load a pool is first looked for, as a part of the load, and the share of the
# time for that. A pool that close is often found at once, and slowly from afar. Arbitrary.
_NEAR, _FIRST = 0.008, 0.6
# How far above the load, as a part of it, a pool may be for ejection to improve it. Arbitrary.
_CLOSE = 0.01
# Seconds between two completed placements: to complete one, and to check it, takes a while.
# Arbitrary.
_PAUSE = 0.5


def place_apart(
    problem: PlacementProblem,
    seconds: float,
    seed: int,
    found: Callable[[Placement], object],
) -> None:
    """Search for placements of the large residences by skyline, and complete each.

    With a capacity, the search ends with the first placement of large residences within what small
    ones leave of it. `found` is given every placement of all residences.
    """
    parts = _parts(problem, found)
    if parts is None:
        return
    _, part, complete = parts
    until, hint = time.monotonic() + seconds, None
    if part.capacity is None:
        near = part.with_capacity(part.load + int(_NEAR * part.load))
        limit = _FIRST * seconds
        hint = skyline_search(near, time_limit=limit, seed=seed, found=complete).placement
    left = until - time.monotonic()
    skyline_search(part, time_limit=left, seed=seed, hint=hint, found=complete)


def eject_apart(
    problem: PlacementProblem,
    seconds: float,
    seed: int,
    found: Callable[[Placement], object],
    hint: Placement | None = None,
) -> None:
    """Do the same by ejection, from the placement of all that is known, if it is close.

    From others it comes less far than from large areas first.
    """
    parts = _parts(problem, found)
    if parts is None:
        return
    large, part, complete = parts
    start = None
    if hint is not None and hint.pool(problem) <= (1 + _CLOSE) * problem.load:
        start = Placement(hint.addresses[index] for index in large)
    latest, last = time.monotonic(), start

    def take(placement: Placement) -> None:
        nonlocal latest, last
        last = placement
        if time.monotonic() >= latest + _PAUSE:
            complete(placement)
            latest = time.monotonic()

    try:
        last = ejection_search(part, time_limit=seconds, seed=seed, hint=start, found=take)
    finally:
        if last is not None:
            complete(last)


def _parts(
    problem: PlacementProblem, found: Callable[[Placement], object]
) -> tuple[list[int], PlacementProblem, Callable[[Placement], None]] | None:
    """Return the large residences, their problem, and what completes a placement of them.

    None where too few are small for that to help.
    """
    large, small = apart(problem)
    if not large or len(small) < _MANY * len(problem.residences):
        return None
    residences = problem.residences
    part = PlacementProblem(
        problem.name, [residences[index] for index in large], None, problem.alignment
    )
    if problem.capacity is not None:
        room = problem.capacity - sum(problem.sizes[index] for index in small)
        if room >= part.load:
            part = part.with_capacity(room)

    def complete(placement: Placement) -> None:
        found(completed(problem, large, small, placement))

    return large, part, complete


def apart(problem: PlacementProblem) -> tuple[list[int], list[int]]:
    """Return the large residences, and the small ones: as many as take little of the load."""
    sizes = problem.sizes
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    # The fewest that are small, and the most.
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        some = [problem.residences[index] for index in order[:middle]]
        load = PlacementProblem(problem.name, some, None, problem.alignment).load
        if load <= _SMALL * problem.load:
            low = middle
        else:
            high = middle - 1
    return sorted(order[low:]), order[:low]


def completed(
    problem: PlacementProblem, large: Sequence[int], small: Sequence[int], placement: Placement
) -> Placement:
    """Place large residences in order of their addresses, then small ones, largest first.

    None of the large ones moves up.
    """
    address = dict(zip(large, placement.addresses, strict=True))
    order = sorted(large, key=lambda index: address[index])
    order += sorted(small, key=lambda index: -problem.sizes[index])
    return placed_in_order(problem, order)


Heuristic = Callable[[PlacementProblem], Placement]


def compute_load(search: PlacementSearch, effort: Effort) -> None:
    """Add the load: the most bytes that are taken at a time."""
    search.begin("load")
    search.add(proved_bytes("load", search.problem.load, Computed()))


def run_heuristic(name: str) -> Callable[[PlacementSearch, Effort], None]:
    """Return the step that places everything once, as a heuristic does."""

    def step(search: PlacementSearch, effort: Effort) -> None:
        search.begin(name)
        with search.untimed():
            function = HEURISTICS[name]()
        search.offer(function(search.problem))

    return step


def _in_order(name: str) -> Heuristic:
    return getattr(import_module("offcert.heuristics.placement.in_order"), name)


# Loaded when they run.
HEURISTICS: dict[str, Callable[[], Heuristic]] = {
    "first-fit": partial(_in_order, "first_fit"),
    "best-fit": partial(_in_order, "best_fit"),
    "modnn-pool": partial(_in_order, "modnn_pool"),
    "greedy-size": partial(_in_order, "greedy_by_size"),
    "greedy-area": partial(_in_order, "greedy_by_area"),
}


def search_skyline(search: PlacementSearch, effort: Effort) -> None:
    """Search for smaller pools, or for any within the capacity, and exclude what there is not."""
    search.begin("skyline")
    from offcert.formulations.placement.skyline import skyline_search

    search.take(
        skyline_search(
            search.problem,
            time_limit=effort.seconds,
            seed=effort.seed,
            hint=search.placement,
            bound=search.lower_bound,
            found=search.offer,
        )
    )


def search_apart(search: PlacementSearch, effort: Effort) -> None:
    """Search for placements of the large residences, and complete them with the small ones."""
    search.begin("skyline-apart")
    place_apart(search.problem, effort.seconds, effort.seed, search.offer)


def eject_large(search: PlacementSearch, effort: Effort) -> None:
    """Search by ejection for the large residences, and complete with the small ones."""
    search.begin("ejection-apart")
    eject_apart(search.problem, effort.seconds, effort.seed, search.offer, search.placement)


def search_ejection(search: PlacementSearch, effort: Effort) -> None:
    """Search by ejection, from the best placement that is known."""
    search.begin("ejection")
    from offcert.heuristics.placement.ejection import ejection_search

    found = ejection_search(
        search.problem,
        time_limit=effort.seconds,
        seed=effort.seed,
        hint=search.placement,
        found=search.offer,
    )
    search.offer(found)


def solve_no_overlap(search: PlacementSearch, effort: Effort) -> None:
    """Hand rectangles that must not overlap to CP-SAT."""
    search.begin("no_overlap_cpsat")
    with search.untimed():
        from offcert.formulations.placement.no_overlap_cpsat import no_overlap_cpsat
    outcome = no_overlap_cpsat(
        search.problem,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed,
        hint=search.placement,
        bound=search.proved_bound,
        found=search.offer,
    )
    search.take(outcome)
