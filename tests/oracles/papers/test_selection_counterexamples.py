"""The shipped counterexamples fail as they say, and none smaller does."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.heuristics.checkpoint.division_tree import Reading
from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.counterexamples import CHAINS, GRAPHS
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph, shortcut_path
from support.oracles.checkpoint import (
    algorithm_3_as_printed,
    algorithm_3_with_output_stored,
    algorithm_5_as_printed,
    algorithm_6_as_printed,
    least_both,
)
from support.oracles.graphs import objective, optimum

PRINTED = {
    (3, 3): algorithm_3_as_printed,
    (3, 6): algorithm_3_with_output_stored,
    (5, 1): algorithm_5_as_printed,
    (6, 6): algorithm_6_as_printed,
}


@pytest.mark.parametrize("example", GRAPHS, ids=lambda example: example.name)
def test_a_graph_fails_as_it_says(example) -> None:
    graph = example.graph
    for reading in Reading:
        assert arbitrary_graph_solver(graph, reading).objective == example.stated
    assert objective(graph, example.stored) == example.optimum < example.stated
    if len(graph) <= 11:
        assert optimum(graph) == example.optimum


@pytest.mark.parametrize("example", CHAINS, ids=lambda example: str(example.sizes))
def test_a_chain_fails_as_it_says(example) -> None:
    static, dynamic = least_both(example.sizes)
    assert example.optimum == (static if example.algorithm == 3 else dynamic)
    printed = PRINTED[example.algorithm, example.stated]
    assert printed(example.sizes) == example.stated != example.optimum


def graphs(vertices: int, largest: int):
    """Yield all graphs with so many vertices, sizes up to a number, by their edges."""
    pairs = list(combinations(range(vertices), 2))
    subsets = chain.from_iterable(combinations(pairs, n) for n in range(len(pairs) + 1))
    for edges in subsets:
        try:
            CheckpointGraph([1] * vertices, edges)
        except InputError:
            continue
        for sizes in product(range(1, largest + 1), repeat=vertices - 2):
            yield CheckpointGraph([0, *sizes, 0], edges)


def test_no_smaller_graph_fails() -> None:
    """Fewer vertices with sizes up to 4; as many vertices of one byte with fewer edges."""
    smallest = GRAPHS[0].graph
    assert len(smallest) == 5
    assert smallest.sizes == (0, 1, 1, 1, 0)
    for vertices in (2, 3, 4):
        for graph in graphs(vertices, 4):
            assert arbitrary_graph_solver(graph).objective == optimum(graph)
    fewest = min(
        len(graph.edges)
        for graph in graphs(5, 1)
        if arbitrary_graph_solver(graph).objective > optimum(graph)
    )
    assert fewest == len(smallest.edges) == 5


def test_random_graphs_are_the_same_for_a_seed() -> None:
    assert random_checkpoint_graph(5, 9) == random_checkpoint_graph(5, 9)
    assert random_checkpoint_graph(5, 9) != random_checkpoint_graph(6, 9)
    # Written down, so that another Python cannot change the benchmark unnoticed.
    known = random_checkpoint_graph(1, 5)
    assert (known.sizes, known.edges) == KNOWN


KNOWN = ((0, 8, 8, 5, 0), ((0, 1), (0, 2), (0, 4), (1, 3), (2, 4), (3, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_checkpoint_graph(0, 1), "vertices must be at least 2, not 1"),
        (lambda: random_checkpoint_graph(0, 4, 2), "density must be from 0 to 1, not 2"),
        (lambda: random_checkpoint_graph(0, 4, largest=0), "largest must be at least 1, not 0"),
        (lambda: shortcut_path(0), "inner must be at least 1, not 0"),
    ],
)
def test_bad_numbers_are_refused(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
