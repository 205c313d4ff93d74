"""Objects that steps of a search leave for later steps, to go on where they stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from offcert.proofs.kinds.labels import Heads

Begun = TypeVar("Begun")


@dataclass
class Workings:
    """Objects and findings that steps leave for later ones.

    Attributes
    ----------
    searches : dict of str to object
        Searches that go on where they stopped, by names that their steps choose.
    ends : list of Heads
        Heads and tails that verification can establish; searches with a pivot begin with them.
    shares : dict of int to float
        For computations, what share of them runs again in the relaxation of a joint problem.
    outward_open : float
        The part of the makespan that the outward search has left open; 1 before it has run.
    outward_tried : (int, float)
        The greatest bound, and the seconds, with which its verification was tried in vain.
    used : set of str
        Names of the searches that the present step has asked for.
    """

    searches: dict[str, Any] = field(default_factory=dict)
    ends: list[Heads] = field(default_factory=list)
    shares: dict[int, float] = field(default_factory=dict)
    outward_open: float = 1.0
    outward_tried: tuple[int, float] = (0, 0.0)
    used: set[str] = field(default_factory=set)

    def search(self, name: str, begin: Callable[[], Begun]) -> Begun:
        """Return the search of a name; the one that `begin` makes if it has not begun."""
        if name not in self.searches:
            self.searches[name] = begin()
        self.used.add(name)
        found: Begun = self.searches[name]
        return found

    def drop_used(self) -> None:
        """Forget the searches of a step that was interrupted: they may be incomplete."""
        for name in self.used:
            self.searches.pop(name, None)
