"""Exact models and our search on graphs: all equal to brute force."""

from __future__ import annotations

import pytest

from offcert.core.errors import InputError
from offcert.core.result import SolveStatus
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs import selection_cpsat, selection_milp
from papers.checkpoint_graphs.exhaustive import LARGEST, exhaustive_selection
from papers.checkpoint_graphs.frontier import TooWideError, least_stored
from papers.checkpoint_graphs.least import least_selection
from papers.checkpoint_graphs.networks import reforwarding_network
from papers.checkpoint_graphs.orders import elimination_order, frontiers
from papers.checkpoint_graphs.pairs import component_pairs
from papers.checkpoint_graphs.random_graphs import shortcut_path
from support.oracles.graphs import optimum, random_graphs


def test_the_search_equals_brute_force() -> None:
    for graph in random_graphs(250):
        best = optimum(graph)
        assert least_selection(graph).selection.objective == best
        assert exhaustive_selection(graph).objective == best
        known = arbitrary_graph_solver(graph).selection
        assert least_selection(graph, known).selection.objective == best


@pytest.mark.parametrize("solver", ["cpsat", "scipy", "PULP_CBC_CMD"])
def test_models_equal_brute_force(solver: str) -> None:
    for index, graph in enumerate(random_graphs(60, first=1000)):
        hint = arbitrary_graph_solver(graph).selection if index % 2 else None
        if solver == "cpsat":
            found = selection_cpsat.solve(graph, hint=hint)
        else:
            found = selection_milp.solve(graph, solver=solver, hint=hint)
        assert found.error is None
        assert found.selection.objective == found.lower_bound == optimum(graph), graph
        assert found.status is SolveStatus.OPTIMAL


def test_a_model_without_time_claims_nothing_false() -> None:
    graph = reforwarding_network("resnet50", 64)
    best = least_selection(graph).selection.objective
    for solve in (selection_cpsat.solve, selection_milp.solve):
        found = solve(graph, time_limit=0.5, hint=arbitrary_graph_solver(graph).selection)
        assert found.lower_bound <= best <= found.selection.objective


def test_models_agree_on_a_network() -> None:
    graph = reforwarding_network("resnet18", 256)
    best = least_selection(graph).selection.objective
    for solve in (selection_cpsat.solve, selection_milp.solve):
        found = solve(graph, hint=arbitrary_graph_solver(graph).selection)
        assert (found.status, found.lower_bound) == (SolveStatus.OPTIMAL, best)


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(InputError, match="'nosuch' is unknown"):
        selection_milp.solve(shortcut_path(3), solver="nosuch")


def test_the_least_that_must_be_stored_for_a_limit() -> None:
    """A path of nine: every third one for components of two."""
    path = shortcut_path(9)
    stored = least_stored(path, 2, 9)
    assert stored is not None
    assert (len(stored), path.select(stored).component_bytes) == (3, 2)
    assert least_stored(path, 2, 2) is None
    assert least_stored(path, 9, 0) == []
    assert least_stored(path, 0, 9) == list(range(1, 10))


def test_a_graph_that_is_too_wide_is_refused() -> None:
    with pytest.raises(TooWideError, match="more than 1 states at vertex"):
        least_selection(shortcut_path(9), max_states=1)


def test_orders_are_complete_and_their_frontiers_are_what_they_say() -> None:
    for graph in random_graphs(60):
        order = elimination_order(graph)
        assert sorted(order) == list(graph.inner)
        for place, frontier in enumerate(frontiers(graph, order)):
            behind = sum(1 << v for v in order[place + 1 :])
            assert frontier == sorted(v for v in order[: place + 1] if graph.neighbours[v] & behind)


def test_networks_have_narrow_frontiers() -> None:
    for name in ("resnet50", "densenet121", "inception_v3"):
        graph = reforwarding_network(name)
        assert max(map(len, frontiers(graph, elimination_order(graph)))) <= 4


def test_pairs_are_those_within_a_limit() -> None:
    path = CheckpointGraph([0, 1, 2, 3, 0], [(0, 1), (1, 2), (2, 3), (3, 4)])
    pairs = component_pairs(path, 5)
    assert pairs.above == {1: [1, 2], 2: [2, 3], 3: [3]}
    assert pairs.steps[1] == [(1, 2), (2, 3)]


def test_too_many_selections_are_not_tried() -> None:
    with pytest.raises(InputError, match=f"{LARGEST + 1} inner vertices, too many"):
        exhaustive_selection(shortcut_path(LARGEST + 1))
