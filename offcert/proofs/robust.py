"""Claims of a certificate about a whole box of uncertain times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcert.core.documents import Fields
from offcert.core.result import Bound, Bounded
from offcert.proofs.any_certificate import bound_from_json, bounds_to_json, exact_gap


@dataclass(frozen=True)
class Robust(Bounded):
    """Whatever the times in the problem's box are, the plan takes no longer, and none is shorter.

    Attributes
    ----------
    longest : int
        Ticks of the certificate's plan, in its fixed order, at the slowest corner.
    bounds : tuple of Bound
        Proved lower bounds on the problem at the fastest corner.
    """

    longest: int
    bounds: tuple[Bound, ...]

    @property
    def objective(self) -> int:
        """The ticks at the slowest corner: `gap` is about the longest time and the shortest."""
        return self.longest

    def to_json(self) -> dict[str, Any]:
        """Return the claim as a JSON value."""
        return {
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": exact_gap(self.objective, self.lower_bound),
            "bounds": bounds_to_json(self.bounds),
        }


def robust_from_fields(document: Fields) -> Robust | None:
    """Return the claims in a certificate's field ``robust``, or None without that field.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    if not document.has("robust"):
        return None
    fields = Fields(document.get("robust", dict), document.path("robust"))
    bounds = tuple(bound_from_json(item) for item in fields.each("bounds"))
    found = Robust(fields.integer("objective", 0), bounds)
    # What these say is derived; `verify` compares it with what it ought to be.
    fields.integer("lower_bound")
    fields.get("gap", str)
    fields.finish()
    return found
