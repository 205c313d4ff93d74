"""Graphs of tensors on which to choose what is stored: random ones, and a family."""

from __future__ import annotations

import random
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.questions.selection.graph import CheckpointGraph


def random_checkpoint_graph(
    seed: int, vertices: int, density: Fraction = Fraction(3, 10), largest: int = 9
) -> CheckpointGraph:
    """Draw a graph with one source and one target.

    Every pair of vertices has an edge with probability `density`. A vertex that nothing leads to,
    or from, gets an edge from a random earlier one, or to a random later one.

    Parameters
    ----------
    seed : int
        Seed of the random numbers: the same one, the same graph.
    vertices : int
        How many, both ends among them; at least 2.
    density : Fraction
        From 0 to 1.
    largest : int
        Sizes are from 1 to this; those of the ends, which count nowhere, are 0.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    require_integer(vertices, "vertices", 2)
    require_integer(largest, "largest", 1)
    if not 0 <= density <= 1:
        raise InputError(f"density must be from 0 to 1, not {density}")
    rng = random.Random(f"checkpoint-graph {seed} {vertices} {density} {largest}")
    edges = {
        (tail, head)
        for tail in range(vertices)
        for head in range(tail + 1, vertices)
        if rng.randrange(density.denominator) < density.numerator
    }
    for vertex in range(1, vertices):
        if not any(head == vertex for _, head in edges):
            edges.add((rng.randrange(vertex), vertex))
    for vertex in range(vertices - 1):
        if not any(tail == vertex for tail, _ in edges):
            edges.add((vertex, rng.randrange(vertex + 1, vertices)))
    sizes = [rng.randint(1, largest) for _ in range(vertices - 2)]
    return CheckpointGraph([0, *sizes, 0], edges)


def shortcut_path(inner: int) -> CheckpointGraph:
    """Return a path of vertices of one byte, each with edges from the source and to the target too.

    No part of the path is a closed set, so the re-forwarding paper's solver stores all of it or
    nothing, `inner` bytes either way, where about ``2 √inner`` are enough: its ratio to the optimum
    has no bound.

    Raises
    ------
    InputError
        If there is no inner vertex.
    """
    require_integer(inner, "inner", 1)
    last = inner + 1
    path = {(vertex, vertex + 1) for vertex in range(last)}
    shortcuts = {(0, vertex) for vertex in range(1, last)}
    shortcuts |= {(vertex, last) for vertex in range(1, last)}
    return CheckpointGraph([0, *[1] * inner, 0], path | shortcuts)
