"""The steps of the ladder for addresses: each adds placements or bounds, within its time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from offcert.certify.placement_search import PlacementSearch
from offcert.certify.warm import warm_placement
from offcert.core.placement import Placement, PlacementProblem
from offcert.proofs.placement.claims import proved
from offcert.proofs.placement.kinds import Computed

Heuristic = Callable[[PlacementProblem], Placement]


def compute_load(search: PlacementSearch, seconds: float) -> None:
    """Add the load: the most bytes that are taken at a time."""
    search.begin("load")
    search.add(proved("load", search.problem.load, Computed()))


def run_heuristic(name: str) -> Callable[[PlacementSearch, float], None]:
    """Return the step that places everything once, as a heuristic does."""

    def step(search: PlacementSearch, seconds: float) -> None:
        search.begin(name)
        with search.untimed():
            warm_placement()
            function = HEURISTICS[name]()
        search.offer(function(search.problem))

    return step


def _greedy(name: str) -> Heuristic:
    return getattr(import_module("offcert.heuristics.placement.in_order"), name)


def _online(name: str) -> Heuristic:
    return getattr(import_module("offcert.heuristics.placement.in_order"), name)


def _modnn() -> Heuristic:
    from offcert.heuristics.placement.modnn_pool import modnn_pool

    return modnn_pool


# Loaded when they run.
HEURISTICS: dict[str, Callable[[], Heuristic]] = {
    "first-fit": partial(_online, "first_fit"),
    "best-fit": partial(_online, "best_fit"),
    "modnn-pool": _modnn,
    "greedy-size": partial(_greedy, "greedy_by_size"),
    "greedy-lifetime": partial(_greedy, "greedy_by_lifetime"),
    "greedy-area": partial(_greedy, "greedy_by_area"),
    "greedy-degree": partial(_greedy, "greedy_by_degree"),
}


def search_skyline(search: PlacementSearch, seconds: float) -> None:
    """Search for smaller pools, or for any within the capacity, and exclude what there is not."""
    search.begin("skyline")
    with search.untimed():
        warm_placement()
    from offcert.formulations.placement.skyline_search import skyline_search

    search.take(
        skyline_search(
            search.problem,
            time_limit=seconds,
            seed=search.seed,
            hint=search.placement,
            bound=search.lower_bound,
            found=search.offer,
        )
    )


def search_apart(search: PlacementSearch, seconds: float) -> None:
    """Search for placements of the large residences, and complete them with the small ones."""
    search.begin("skyline-apart")
    with search.untimed():
        warm_placement()
    from offcert.certify.placement_apart import place_apart

    place_apart(search.problem, seconds, search.seed, search.offer)


def eject_large(search: PlacementSearch, seconds: float) -> None:
    """Search by ejection for the large residences, and complete with the small ones."""
    search.begin("ejection-apart")
    with search.untimed():
        warm_placement()
    from offcert.certify.placement_apart import eject_apart

    eject_apart(search.problem, seconds, search.seed, search.offer, search.placement)


def search_ejection(search: PlacementSearch, seconds: float) -> None:
    """Search by ejection, from the best placement that is known."""
    search.begin("ejection")
    with search.untimed():
        warm_placement()
    from offcert.heuristics.placement.ejection import ejection_search

    found = ejection_search(
        search.problem,
        time_limit=seconds,
        seed=search.seed,
        hint=search.placement,
        found=search.offer,
    )
    search.offer(found)


def solve_no_overlap(search: PlacementSearch, seconds: float) -> None:
    """Hand rectangles that must not overlap to CP-SAT."""
    search.begin("no_overlap_cpsat")
    with search.untimed():
        from offcert.formulations.placement.no_overlap_cpsat import no_overlap_cpsat
    found: list[Placement] = []
    outcome = no_overlap_cpsat(
        search.problem,
        time_limit=seconds,
        workers=search.workers,
        seed=search.seed,
        hint=search.placement,
        bound=search.proved_bound,
        found=found.append,
    )
    search.take(outcome)
