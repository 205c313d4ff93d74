"""Every selection of checkpoints for chains, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offcert.heuristics.checkpoint.reforwarding import linear_reforwarding, queued_reforwarding
from offcert.heuristics.checkpoint.selections import (
    dynamic_selection,
    linear_selection,
    static_selection,
)
from offcert.heuristics.checkpoint.sizes import Selection, budget_search, sqrt_rule


@dataclass(frozen=True, slots=True)
class SelectionMethod:
    """An algorithm that selects the checkpoints of a chain.

    Attributes
    ----------
    select : callable
        From the sizes ``d_0 … d_n`` in bytes to a `Selection`.
    model : str
        The memory model in which it counts; a name in
        ``offcert.heuristics.checkpoint.live.MEMORY_MODELS``.
    optimal : bool
        Whether no other checkpoints take less memory under that model.
    source : str
        Where it was published.
    """

    select: Callable[[Sequence[int]], Selection]
    model: str
    optimal: bool
    source: str


SELECTIONS: dict[str, SelectionMethod] = {
    "sqrt": SelectionMethod(sqrt_rule, "chen", False, "Chen et al. 2016, §4.1"),
    "budget": SelectionMethod(budget_search, "chen", False, "Chen et al. 2016, Algorithm 3"),
    "reforwarding": SelectionMethod(
        linear_reforwarding, "reforwarding", True, "Feng and Huang 2018, Algorithm 1"
    ),
    "reforwarding-queue": SelectionMethod(
        queued_reforwarding, "reforwarding", True, "Feng and Huang 2018, Algorithm 1, with a queue"
    ),
    "algorithm-3": SelectionMethod(
        static_selection, "static", True, "Hong et al., Algorithm 3, corrected"
    ),
    "algorithm-5": SelectionMethod(
        dynamic_selection, "dynamic", True, "Hong et al., Algorithm 5, corrected"
    ),
    "algorithm-6": SelectionMethod(
        linear_selection, "dynamic", True, "Hong et al., Algorithm 6, corrected"
    ),
}
"""For chains of which only sizes are known; `live_selection` takes all that a chain says."""
