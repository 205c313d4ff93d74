"""Selections on a graph, as a mixed-integer linear program for PuLP's solvers and SciPy."""

from __future__ import annotations

from offcert.formulations.common.linear_model import ONE, LinearModel, Terms, scaled
from offcert.formulations.common.linear_solvers import SCIPY, solve_linear
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection
from papers.checkpoint_graphs.frontier import size_unit
from papers.checkpoint_graphs.outcome import GraphOutcome, GraphRun
from papers.checkpoint_graphs.pairs import component_pairs

# Solvers hold rows and integrality to 1e-6 of numbers near 1; objectives are scaled to 1000. A
# thousand times the error of one row comes off the bound.
RELATIVE_MARGIN = 1e-6
_SCALE = 1000.0


def solve(
    graph: CheckpointGraph,
    *,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    hint: GraphSelection | None = None,
) -> GraphOutcome:
    """Choose vertices to store: they and the largest component have the least bytes together.

    Parameters
    ----------
    graph : CheckpointGraph
        Source and target are always there and count nowhere.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    time_limit : float
        Seconds, building the program not included.
    threads : int
        Threads of the solver.
    hint : GraphSelection, optional
        A known selection; the better, the smaller the program.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    """
    start = graph.select(()) if hint is None else hint
    run = GraphRun(graph, start, solver)
    if not graph.inner_bytes:
        return run.outcome()
    program = _Program(graph, start)
    answer = solve_linear(program.model, solver, time_limit=time_limit, threads=threads)
    run.statistics |= answer.statistics
    run.error = answer.error
    if answer.infeasible:
        run.error = "the solver excludes a selection that exists"
        return run.outcome()
    if answer.values is not None:
        run.take([v for v in graph.inner if answer.values[program.stored[v]] > 0.5])
    bound = answer.bound * program.scale - RELATIVE_MARGIN * start.objective
    run.take_bound(bound, size_unit(graph))
    return run.outcome()


class _Program:
    """Columns "stored" and "in one component", and the largest component; costs are scaled."""

    def __init__(self, graph: CheckpointGraph, known: GraphSelection) -> None:
        self.model = LinearModel()
        self.scale = max(1.0, known.objective / _SCALE)
        pairs = component_pairs(graph, known.objective)
        sizes = [size / self.scale for size in graph.sizes]
        self.stored = {
            v: self.model.column(0.0, 1.0, cost=sizes[v], integer=True) for v in graph.inner
        }
        largest = self.model.column(0.0, known.objective / self.scale, cost=1.0)
        for u, row in pairs.above.items():
            # Once it is decided what is stored, the rows allow 0 and 1 at least; with continuous
            # columns HiGHS 1.12 ends some programs with an error.
            together: dict[int, Terms] = {
                v: [(ONE, 1.0), (self.stored[u], -1.0)] if u == v else self.model.binary()
                for v in row
            }
            for v, w in pairs.steps[u]:
                self._add_step(together, v, w)
            total: Terms = [(largest, 1.0)]
            for v in row:
                total += scaled(together[v], -sizes[v])
            self.model.row(total, 0.0)

    def _add_step(self, together: dict[int, Terms], v: int, w: int) -> None:
        """A neighbour of what is in a component is in it or stored."""
        terms: Terms = [(self.stored[w], 1.0), *scaled(together[v], -1.0)]
        self.model.row([*terms, *together.get(w, [])], 0.0)
