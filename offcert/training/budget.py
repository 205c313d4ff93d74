"""`budget_solver`: decides what to save in place of PyTorch's knapsack, with a bound."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from torch import fx

from offcert._version import __version__
from offcert.core.options import require_seconds
from offcert.core.result import relative_gap
from offcert.core.units import Units, format_gap, format_size, require_size
from offcert.runtime.compiled.torch_compiler import CustomKnapsackSolver, bytes_of_node
from offcert.training.saved_choice import GraphChoice

LOG = logging.getLogger("offcert.training")
_BYTES = Units("ns", "B")


def budget_solver(*, peak: int | str | None = None, time_limit: float = 20.0) -> BudgetSolver:
    """Return a solver for ``torch._functorch.config.activation_memory_budget_solver``.

    With one line PyTorch's partitioner saves what costs least to do without::

        torch._functorch.config.activation_memory_budget_solver = offcert.budget_solver()

    PyTorch's own solvers weigh operators one by one: what one costs that is not saved, and its
    bytes. But an operator that is not saved may need others again that are not either, saving
    another one may make up for it, and PyTorch cuts the graph anew afterwards. This solver takes
    the graph as it is: which operators run again in the backward pass follows from what is saved,
    and what is saved are whole storages. The cost is what
    ``torch._functorch.config.activation_memory_budget_runtime_estimator`` says, for every operator
    that runs again.

    For every graph a line is logged (logger ``offcert.training``), and a `BudgetReport` kept.
    PyTorch asks a solver only for budgets between 0 and 1, and only where its own rules for cheap
    operators do not keep to the budget already.

    Parameters
    ----------
    peak : int or str, optional
        A limit on the bytes that the tensors of both passes take beside the inputs (parameters,
        batch) while the divided graphs run node by node, in bytes or as ``"6GiB"``. It takes the
        place of PyTorch's budget for what is saved, whose peak may rise as the budget falls; the
        budget then only says whether PyTorch asks: choose a small one, such as 1e-6. If nothing was
        found that keeps to the limit, what takes least is used, and a warning says so. How far from
        the best it is nobody knows: there is a bound for a budget alone.
    time_limit : float
        Seconds for a graph.

    Returns
    -------
    BudgetSolver
        For any number of graphs.

    Raises
    ------
    InputError
        If the peak is no size, or the time no time.
    """
    limit = None if peak is None else int(require_size(peak, "peak"))
    return BudgetSolver(limit, require_seconds(time_limit, "time_limit"))


@dataclass(frozen=True)
class BudgetReport:
    """The decision for one graph.

    Attributes
    ----------
    budget, saved : int or None, int
        Bytes that may be saved (None if the peak is limited instead), and that are, without inputs.
    cost, bound : int, int or None
        Of what runs again, in units of PyTorch's estimator (FLOPs, if it is ``"flops"``; times that
        are no whole numbers are counted in billionths of the longest). No choice that keeps to the
        budget costs less than the bound, which follows from multipliers and has been established
        again in rationals, by code that shares nothing with what found them. None if the peak is
        limited: nothing is claimed then.
    peak, peak_limit : int, int or None
        Bytes of the tensors of both passes beside the inputs of the step, at most, and their limit.
    kept : bool
        Whether what was decided keeps to all limits.
    again : tuple of str
        Operators that run again.
    """

    budget: int | None
    saved: int
    cost: int
    bound: int | None
    peak: int
    peak_limit: int | None
    kept: bool
    again: tuple[str, ...]

    @property
    def gap(self) -> float | None:
        """How much less the cost could be at most, as a part of it; None without a bound."""
        if not self.cost:
            return 0.0
        return None if self.bound is None else relative_gap(self.cost, self.bound)

    def __str__(self) -> str:
        saved = f"{format_size(self.saved, _BYTES)} saved"
        if self.budget is not None:
            saved += f" of {format_size(self.budget, _BYTES)} allowed"
        peak = f"peak {format_size(self.peak, _BYTES)}"
        if self.peak_limit is not None:
            peak += f" of {format_size(self.peak_limit, _BYTES)} allowed"
        text = (
            f"budget: {saved}, {peak}, {len(self.again)} operators run again for {self.cost} units"
        )
        if self.bound is not None and self.gap is not None:
            text += f", at least {self.bound} in any choice (proved within {format_gap(self.gap)})"
        else:
            text += ", and how few would do is not known"
        if self.kept:
            return text
        limit = "peak" if self.budget is None else "budget"
        return f"{text}; nothing was found that keeps to the {limit}, this takes least"


class BudgetSolver(CustomKnapsackSolver):
    """Decides which tensors are saved; see `budget_solver`.

    Attributes
    ----------
    reports : list of BudgetReport
        One for every graph, in their order. Graphs that PyTorch finds in its caches are not asked
        for again.
    """

    def __init__(self, peak: int | None, time_limit: float) -> None:
        self.reports: list[BudgetReport] = []
        self._peak, self._time_limit = peak, time_limit

    def uuid(self) -> tuple[Any, ...]:
        """Return a key that tells this solver from others in PyTorch's caches."""
        return ("offcert.budget_solver", __version__, self._peak, self._time_limit)

    def __call__(
        self,
        memory: list[float],
        joint_graph: fx.Graph,
        max_memory: float,
        node_info: Any,
        all_recomputable_banned_nodes: list[fx.Node],
    ) -> tuple[list[int], list[int]]:
        """Return the numbers of the nodes that are saved, and of those that may run again.

        Parameters are PyTorch's; sizes are parts of what it calls the budget's range.
        """
        candidates = all_recomputable_banned_nodes
        sizes = [bytes_of_node(node) for node in candidates]
        unit = max((size / part for size, part in zip(sizes, memory, strict=True) if part > 0))
        budget = math.floor(max_memory * unit) if self._peak is None else None
        choice = GraphChoice(joint_graph, node_info, candidates, memory, budget, self._peak)
        made, bound = choice.made(self._time_limit)
        kept = self._peak is None or made.peak <= self._peak
        kept &= budget is None or made.bytes <= budget
        report = BudgetReport(
            budget,
            made.bytes,
            made.cost,
            None if bound is None else min(bound, made.cost),
            made.peak,
            self._peak,
            kept,
            tuple(node.name for node in made.again),
        )
        self.reports.append(report)
        LOG.log(logging.INFO if kept else logging.WARNING, "%s", report)
        # What is not among the candidates is PyTorch's own business.
        freed = [number for number, node in enumerate(candidates) if node in made.computed]
        return [n for n in range(len(candidates)) if n not in set(freed)], freed
