"""The ladder for addresses, as data."""

from __future__ import annotations

from typing import Any

from offcert.certification.placement_methods import PLACEMENT_METHODS
from offcert.certification.rung import Rung
from offcert.questions.placement.problem import PlacementProblem

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
