"""The arbitrary-graph solver: never below the optimum, optimal where the paper's argument holds."""

from __future__ import annotations

import random
from itertools import combinations

import networkx
import pytest

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver, cheapest_leaps
from offcert.heuristics.checkpoint.division_tree import Reading
from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.exhaustive import exhaustive_selection, recomputes_closed_sets
from papers.checkpoint_graphs.random_graphs import shortcut_path
from support.oracles.graphs import objective, optimum, random_graphs


@pytest.mark.slow
@pytest.mark.parametrize("reading", Reading)
def test_never_below_the_optimum_and_often_above(reading: Reading) -> None:
    worse = below = 0
    for graph in random_graphs(150):
        found = arbitrary_graph_solver(graph, reading)
        assert found.objective == objective(graph, found.selection.stored)
        best = optimum(graph)
        assert found.objective >= best
        worse += found.objective > best
        # Sets that are no closed ones hang together where the paper's sum takes them apart.
        below += found.stated < found.objective
    assert worse > 30
    assert bool(below) == (reading is Reading.ALGORITHM)


def test_optimal_among_selections_whose_components_are_closed_sets() -> None:
    for graph in random_graphs(150, first=500):
        found = arbitrary_graph_solver(graph)
        assert recomputes_closed_sets(graph, found.selection)
        assert found.objective == exhaustive_selection(graph, recomputes_closed_sets).objective


@pytest.mark.slow
def test_optimal_on_chains() -> None:
    rng = random.Random(3)
    for _ in range(60):
        inner = rng.randint(1, 9)
        sizes = [0] + [rng.choice((0, 1, 2, 5, 9)) for _ in range(inner)] + [0]
        chain = CheckpointGraph(sizes, [(v, v + 1) for v in range(inner + 1)])
        assert arbitrary_graph_solver(chain).objective == optimum(chain)


def test_by_hand() -> None:
    """Eight equal tensors in a row: two stored, two at most between them."""
    chain = CheckpointGraph([0] + [1] * 8 + [0], [(v, v + 1) for v in range(9)])
    found = arbitrary_graph_solver(chain)
    assert found.selection.stored == (3, 6)
    assert (found.objective, found.max_term, found.max_terms) == (4, 2, 9)


def test_the_ratio_has_no_bound() -> None:
    """A path of which no part is a closed set: all or nothing is stored."""
    for count in (4, 9, 16):
        assert arbitrary_graph_solver(shortcut_path(count)).objective == count


def test_networkx_graphs_are_taken() -> None:
    graph = networkx.DiGraph([("s", "a"), ("a", "t")])
    networkx.set_node_attributes(graph, 4, "size")
    assert arbitrary_graph_solver(graph).objective == 4
    graph.add_edge("t", "s")
    with pytest.raises(InputError, match="cycle"):
        arbitrary_graph_solver(graph)


def test_leaps_are_the_cheapest() -> None:
    rng = random.Random(7)
    for _ in range(300):
        count = rng.randint(0, 7)
        joints = [rng.randint(0, 6) for _ in range(count)]
        between = [rng.choice((0, 0, 1, 4)) for _ in range(count + 1)]
        limit = rng.randint(max(between), 14)
        chosen = cheapest_leaps(joints, between, limit)
        assert fits(joints, between, limit, tuple(chosen))
        assert sum(joints[i] for i in chosen) == min(
            sum(joints[i] for i in picked)
            for size in range(count + 1)
            for picked in combinations(range(count), size)
            if fits(joints, between, limit, picked)
        )


def fits(joints: list[int], between: list[int], limit: int, chosen: tuple[int, ...]) -> bool:
    total = between[0]
    for index, joint in enumerate(joints):
        total = between[index + 1] + (0 if index in chosen else total + joint)
        if total > limit:
            return False
    return between[0] <= limit
