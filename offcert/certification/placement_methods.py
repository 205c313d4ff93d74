"""Every method for addresses by name, and the ladder of those that `place` runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from offcert.certification.method import Method, called
from offcert.certification.rung import Rung
from offcert.certification.search_steps.placement import (
    Heuristic,
    compute_load,
    eject_large,
    place_by,
    prove_by_subset,
    search_apart,
    search_ejection,
    search_skyline,
    solve_no_overlap,
)
from offcert.certification.warm import NO_LIMIT, compiling
from offcert.core.errors import InputError
from offcert.core.messages import meant, show
from offcert.heuristics.placement.in_order import (
    best_fit,
    first_fit,
    greedy_by_area,
    greedy_by_size,
    modnn_pool,
)
from offcert.questions.placement.problem import Placement, PlacementProblem, Residence


@compiling("addresses")
def warm_placement() -> None:
    """Compile the kernels that place residences."""
    from offcert.formulations.placement.skyline import Skyline
    from offcert.formulations.placement.skyline_state import Sections
    from offcert.heuristics.placement.ejection import ejection_search

    problem = PlacementProblem("warm", [Residence("a", 1, 0, 2), Residence("b", 1, 1, 3)])
    greedy_by_size(problem)
    # Alone: where stacked boxes are as good as can be, nothing is searched for.
    Skyline(Sections(problem)).attempt(problem.load, until=NO_LIMIT)
    high = Placement([0, 1])
    disjoint = PlacementProblem("warm", [Residence("a", 1, 0, 1), Residence("b", 1, 1, 2)])
    ejection_search(disjoint, time_limit=NO_LIMIT, hint=high)


# Functions that compile the kernels of all methods that place.
_WARM = (warm_placement,)
_of_addresses = partial(Method, finds="addresses", warm=_WARM)


def _heuristic(name: str, heuristic: Heuristic, summary: str) -> Method:
    return _of_addresses(partial(place_by, name, heuristic), summary)


PLACEMENT_METHODS: dict[str, Method] = called(
    {
        "load": Method(compute_load, "the most bytes that are taken at a time", ("load",)),
        "first-fit": _heuristic(
            "first-fit", first_fit, "in order of time, each at the lowest address that is free"
        ),
        "best-fit": _heuristic(
            "best-fit",
            best_fit,
            "in order of time, each in the smallest free piece that has room",
        ),
        "modnn-pool": _heuristic(
            "modnn-pool",
            modnn_pool,
            "in order of time, each in a free piece of exactly its size, or else the first with "
            "room",
        ),
        "greedy-size": _heuristic(
            "greedy-size", greedy_by_size, "large residences first, each at the lowest free address"
        ),
        "greedy-area": _heuristic(
            "greedy-area",
            greedy_by_area,
            "those of most bytes times time first, as low as possible",
        ),
        "skyline-apart": _of_addresses(
            search_apart,
            "skyline for the large residences alone, then the small ones wherever they fit",
            (),
            ("time_limit", "seed"),
        ),
        "ejection-apart": _of_addresses(
            eject_large,
            "ejection for the large residences alone, then the small ones wherever they fit",
            (),
            ("time_limit", "seed"),
        ),
        "ejection": _of_addresses(
            search_ejection,
            "a local search: each residence pushes out what is in its way and weighs least",
            (),
            ("time_limit", "seed"),
        ),
        "infeasible-subset": _of_addresses(
            prove_by_subset,
            "what skyline finds not to fit, with ever fewer residences, so that it can be proved",
            ("infeasible-subset",),
            ("time_limit", "seed"),
        ),
        "skyline": _of_addresses(
            search_skyline,
            "depth first over what covers points just above what is placed: exact, anytime",
            ("skyline",),
            ("time_limit", "seed"),
        ),
        "no-overlap-cpsat": Method(
            solve_no_overlap,
            "rectangles that must not overlap, for a constraint solver: exact",
            ("no_overlap_cpsat",),
            ("time_limit", "workers", "seed"),
        ),
    }
)


def placement_method_called(name: object) -> Method:
    """Return the method with a name; ``"package.module:function"`` is a function of one's own."""
    if isinstance(name, str) and name in PLACEMENT_METHODS:
        return PLACEMENT_METHODS[name]
    # Methods for schedules are loaded with it.
    from offcert.certification.registry import names_own, own_method

    if names_own(name):
        return own_method(str(name), placing=True)
    known = ", ".join(PLACEMENT_METHODS)
    hint = meant(name, PLACEMENT_METHODS) if isinstance(name, str) else ""
    raise InputError(f"method must be one of {known}, not {show(name)}{hint}")


_APART = "only where many residences are small, as in training steps: beyond exact methods"


def _rung(method: str, share: float, reason: str, **limits: Any) -> Rung:
    return Rung(PLACEMENT_METHODS[method], share, reason, **limits)


PLACEMENT_LADDER: tuple[Rung, ...] = (
    _rung("load", 1.0, "costs nothing; a placement that meets it ends the search"),
    _rung("greedy-area", 1.0, "often meets the load, at once"),
    _rung("greedy-size", 1.0, "another order, at once"),
    _rung("skyline-apart", 0.25, _APART),
    _rung("ejection-apart", 0.9, _APART),
    _rung("infeasible-subset", 0.2, "bounds above the load, proved"),
    _rung("skyline", 0.8, "exact, and closes most of what is small enough"),
    _rung("ejection", 0.5, "smaller pools where exact searches do not end"),
    _rung("no-overlap-cpsat", 1.0, "exact, on another solver, with what is left"),
)


def rungs_for(problem: PlacementProblem) -> tuple[Rung, ...]:
    """Return the rungs for a problem: the same for all, each of which says what it suits."""
    return PLACEMENT_LADDER
