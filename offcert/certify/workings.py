"""What steps of a search need to go on where they stopped, and what they tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offcert.formulations.labels.atomic_heads.bound import SideEnds
    from offcert.formulations.labels.matched_heads.bound import MatchedProgram
    from offcert.formulations.labels.outward.bound import OutwardProgram
    from offcert.formulations.labels.pivot.bound import PivotSearch
    from offcert.formulations.labels.pivot_outward.bound import PivotOutwardProgram
    from offcert.heuristics.joint.sinking import SinkingSearch


@dataclass
class Workings:
    """What steps leave for later ones; programs are there once they have begun.

    Attributes
    ----------
    pivot, pivot_outward, matched, joined, outward : program or None
        Searches over labels that go on where they stopped.
    ends : list of SideEnds
        Heads and tails that verification can establish; the pivot programs begin with them.
    outward_open : float
        The part of the makespan that the outward search has left open; 1 before it has run.
    outward_tried : (int, float)
        The greatest bound, and the seconds, with which its verification was tried in vain.
    sinking : SinkingSearch or None
        The search for least memory within a deadline, which goes on where it stopped.
    """

    pivot: PivotSearch | None = None
    pivot_outward: PivotOutwardProgram | None = None
    matched: MatchedProgram | None = None
    joined: MatchedProgram | None = None
    outward: OutwardProgram | None = None
    ends: list[SideEnds] = field(default_factory=list)
    outward_open: float = 1.0
    outward_tried: tuple[int, float] = (0, 0.0)
    sinking: SinkingSearch | None = None
