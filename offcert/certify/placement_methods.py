"""Every method for addresses by name, and the ladder that ``offcert place`` climbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcert.certify.placement_search import PlacementSearch
from offcert.certify.placement_steps import (
    compute_load,
    eject_large,
    run_heuristic,
    search_apart,
    search_ejection,
    search_skyline,
    solve_no_overlap,
)
from offcert.certify.placement_subset import prove_by_subset
from offcert.core.errors import InputError
from offcert.core.messages import meant, show
from offcert.proofs.placement.registry import PLACEMENT_CLAIMS, PLACEMENT_PROOFS


@dataclass(frozen=True)
class PlacementMethod:
    """A method that ``offcert place --method`` can run.

    Attributes
    ----------
    run : callable
        Given the search and the seconds that it may take, adds placements or bounds to the search.
    summary : str
        What it is, in one line.
    bounds : tuple of str
        The bounds that are its own, by their names in `offcert.proofs.placement.registry`; none if
        it only finds addresses.
    reads : tuple of str
        Which of ``"time_limit"``, ``"workers"`` and ``"seed"`` may change what it finds.
    """

    run: Callable[[PlacementSearch, float], None]
    summary: str
    bounds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """What supports its bounds, in words."""
        if not self.bounds:
            return "addresses, no bound"
        kinds = [PLACEMENT_PROOFS.get(name) or PLACEMENT_CLAIMS[name] for name in self.bounds]
        proved = any(name in PLACEMENT_PROOFS for name in self.bounds)
        solvers = sorted({solver for kind in kinds for solver in kind.families})
        said = ["proved"] if proved else []
        said += [f"attested by {' or '.join(solvers)}"] if solvers else []
        return ", or ".join(said)


@dataclass(frozen=True)
class PlacementRung:
    """A step of the ladder.

    Attributes
    ----------
    method : str
        A key of `PLACEMENT_METHODS`.
    share : float
        The part that it may take of the time that is left when it begins.
    """

    method: str
    share: float = 1.0


PLACEMENT_METHODS: dict[str, PlacementMethod] = {
    "load": PlacementMethod(compute_load, "the most bytes that are taken at a time", ("load",)),
    "first-fit": PlacementMethod(
        run_heuristic("first-fit"), "in order of time, each at the lowest address that is free"
    ),
    "best-fit": PlacementMethod(
        run_heuristic("best-fit"), "in order of time, each in the smallest free piece that has room"
    ),
    "modnn-pool": PlacementMethod(
        run_heuristic("modnn-pool"),
        "in order of time, each in a free piece of exactly its size, or else the first with room",
    ),
    "greedy-size": PlacementMethod(
        run_heuristic("greedy-size"), "large residences first, each at the lowest free address"
    ),
    "greedy-lifetime": PlacementMethod(
        run_heuristic("greedy-lifetime"), "long residences first, each at the lowest free address"
    ),
    "greedy-area": PlacementMethod(
        run_heuristic("greedy-area"), "those of most bytes times time first, as low as possible"
    ),
    "greedy-degree": PlacementMethod(
        run_heuristic("greedy-degree"), "those that meet most others first, as low as possible"
    ),
    "skyline-apart": PlacementMethod(
        search_apart,
        "skyline for the large residences alone, then the small ones wherever they fit",
        (),
        ("time_limit", "seed"),
    ),
    "ejection-apart": PlacementMethod(
        eject_large,
        "ejection for the large residences alone, then the small ones wherever they fit",
        (),
        ("time_limit", "seed"),
    ),
    "ejection": PlacementMethod(
        search_ejection,
        "a local search: each residence pushes out what is in its way and weighs least",
        (),
        ("time_limit", "seed"),
    ),
    "infeasible-subset": PlacementMethod(
        prove_by_subset,
        "what skyline finds not to fit, with ever fewer residences, so that it can be proved",
        ("infeasible-subset",),
        ("time_limit", "seed"),
    ),
    "skyline": PlacementMethod(
        search_skyline,
        "depth first over what covers points just above what is placed: exact, anytime",
        ("skyline",),
        ("time_limit", "seed"),
    ),
    "no-overlap-cpsat": PlacementMethod(
        solve_no_overlap,
        "rectangles that must not overlap, for a constraint solver: exact",
        ("no_overlap_cpsat",),
        ("time_limit", "workers", "seed"),
    ),
}

# Bounds that cost nothing come first: a placement that meets one ends the search.
PLACEMENT_LADDER: tuple[PlacementRung, ...] = (
    PlacementRung("load"),
    PlacementRung("greedy-area"),
    PlacementRung("greedy-size"),
    # Only where many residences are small, as in training steps: those are beyond exact methods.
    PlacementRung("skyline-apart", 0.25),
    PlacementRung("ejection-apart", 0.9),
    PlacementRung("infeasible-subset", 0.2),
    PlacementRung("skyline", 0.8),
    PlacementRung("ejection", 0.5),
    PlacementRung("no-overlap-cpsat"),
)


def placement_method_called(name: object) -> PlacementMethod:
    """Return the method with a name.

    Raises
    ------
    InputError
        If there is none.
    """
    if not isinstance(name, str) or name not in PLACEMENT_METHODS:
        known = ", ".join(PLACEMENT_METHODS)
        hint = meant(name, PLACEMENT_METHODS) if isinstance(name, str) else ""
        raise InputError(f"method must be one of {known}, not {show(name)}{hint}")
    return PLACEMENT_METHODS[name]
