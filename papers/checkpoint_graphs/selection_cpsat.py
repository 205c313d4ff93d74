"""Selections on a graph, for OR-Tools' CP-SAT: literals and clauses, one sum a vertex."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from ortools.sat.python import cp_model

from offcert.formulations.common.cpsat import OverrunError, run_cpsat, solver_with
from offcert.formulations.common.outcome import CP_SAT
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection
from papers.checkpoint_graphs.frontier import size_unit
from papers.checkpoint_graphs.outcome import GraphOutcome, GraphRun
from papers.checkpoint_graphs.pairs import component_pairs

# The solver reports an integer bound as a float.
_MARGIN = 1e-6


def solve(
    graph: CheckpointGraph,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    hint: GraphSelection | None = None,
) -> GraphOutcome:
    """Choose vertices to store: they and the largest component have the least bytes together.

    Parameters
    ----------
    graph : CheckpointGraph
        Source and target are always there and count nowhere.
    time_limit : float
        Seconds, building the model not included.
    threads, seed : int
        For the solver.
    hint : GraphSelection, optional
        A known selection; the better, the smaller the model.
    """
    start = graph.select(()) if hint is None else hint
    run = GraphRun(graph, start, CP_SAT)
    run.statistics |= {"version": version("ortools"), "threads": threads, "seed": seed}
    if not graph.inner_bytes:
        return run.outcome()
    unit = size_unit(graph)
    model = _Model(graph, start, unit)
    run.statistics["literals"] = len(model.model.proto.variables)
    solver = solver_with(threads, seed)
    try:
        end = run_cpsat(solver, model.model, time_limit)
    except (OverrunError, RuntimeError, ValueError) as error:
        run.error = f"{type(error).__name__}: {error}"
        return run.outcome()
    run.statistics["solver_status"] = solver.status_name(end.status)
    if end.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        run.take([v for v in graph.inner if solver.boolean_value(model.stored[v])])
        run.take_bound((solver.best_objective_bound - _MARGIN) * unit, unit)
    elif end.status in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID):
        # What stores nothing new, the hint, is a solution of every such model.
        run.error = "the solver excludes a selection that exists"
    return run.outcome()


class _Model:
    """Literals "stored" and "in one component", and the largest component."""

    def __init__(self, graph: CheckpointGraph, known: GraphSelection, unit: int) -> None:
        self.model = cp_model.CpModel()
        limit = known.objective
        pairs = component_pairs(graph, limit)
        self.stored: dict[int, Any] = {v: self.model.new_bool_var(f"s{v}") for v in graph.inner}
        together = {
            (u, v): ~self.stored[u] if u == v else self.model.new_bool_var(f"c{u},{v}")
            for u, row in pairs.above.items()
            for v in row
        }
        for u, steps in pairs.steps.items():
            for v, w in steps:
                inside = [together[u, w]] if (u, w) in together else []
                self.model.add_bool_or([~together[u, v], self.stored[w], *inside])
        largest = self.model.new_int_var(0, limit // unit, "largest")
        sizes = [size // unit for size in graph.sizes]
        for u, row in pairs.above.items():
            self.model.add(sum(sizes[v] * together[u, v] for v in row) <= largest)
        self.model.minimize(sum(sizes[v] * self.stored[v] for v in graph.inner) + largest)
        for v in graph.inner:
            self.model.add_hint(self.stored[v], v in known.stored)
