"""The least that must be stored so that no component exceeds a limit: a search along the graph.

Inner vertices are decided one after the other. All that the future has to know of the past are the
vertices that still have undecided neighbours (the *frontier*): which of them are stored, which of
the others are in one component, and how many bytes these components have so far. Of two pasts that
agree in the first two, one that stores no more and whose components are no larger is at least as
good. Nothing is rounded and no case is left out: what is found is the optimum. It is quick where
the frontier is narrow, as on networks, however long they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.orders import elimination_order, frontiers

# What a vertex of the frontier is if it is stored; others have the number of their component.
_STORED = -1


class TooWideError(RuntimeError):
    """More states would have to be told apart than was allowed."""


@dataclass(slots=True)
class _State:
    """A past: bytes stored, what the last vertex became, and the past before that."""

    weights: tuple[int, ...]
    cost: int
    kept: bool
    before: _State | None


_Layer = dict[tuple[int, ...], list[_State]]


def least_stored(
    graph: CheckpointGraph,
    limit: int,
    most: int,
    max_states: int = 200_000,
    order: Sequence[int] | None = None,
) -> list[int] | None:
    """Return the cheapest vertices to store so that every component has at most `limit` bytes.

    Parameters
    ----------
    graph : CheckpointGraph
        The graph whose inner vertices are decided about.
    limit : int
        Bytes of a component.
    most : int
        Bytes; selections that store more are of no interest.
    max_states : int
        How many pasts may be told apart at a time.
    order : sequence of int, optional
        The inner vertices, each once; by default `elimination_order`.

    Returns
    -------
    list of int or None
        Increasing; None if more than `most` bytes have to be stored.

    Raises
    ------
    TooWideError
        If there are too many states.
    """
    order = elimination_order(graph) if order is None else order
    layer: _Layer = {(): [_State((), 0, False, None)]}
    frontier: list[int] = []
    for vertex, after in zip(order, frontiers(graph, order), strict=True):
        layer = _Step(graph, vertex, frontier, after, limit, most).of(layer)
        if sum(map(len, layer.values())) > max_states:
            raise TooWideError(f"more than {max_states} states at vertex {vertex}")
        frontier = after
    final = min(layer.get((), []), key=lambda state: state.cost, default=None)
    if final is None:
        return None
    chosen = []
    for vertex in reversed(order):
        assert final is not None
        if final.kept:
            chosen.append(vertex)
        final = final.before
    return sorted(chosen)


class _Step:
    """Decides about one vertex in every state."""

    def __init__(
        self,
        graph: CheckpointGraph,
        vertex: int,
        before: Sequence[int],
        after: Sequence[int],
        limit: int,
        most: int,
    ) -> None:
        self.size, self.limit, self.most = graph.sizes[vertex], limit, most
        # Places in the frontier before, with the vertex itself behind them.
        self.beside = [i for i, v in enumerate(before) if graph.neighbours[vertex] >> v & 1]
        place = {v: i for i, v in enumerate([*before, vertex])}
        self.remaining = [place[v] for v in after]

    def of(self, layer: _Layer) -> _Layer:
        found: _Layer = {}
        for labels, states in layer.items():
            self._store(labels, states, found)
            self._leave_out(labels, states, found)
        return {labels: _undominated(states) for labels, states in found.items()}

    def _store(self, labels: tuple[int, ...], states: list[_State], found: _Layer) -> None:
        key, kept = self._renamed((*labels, _STORED))
        row = found.setdefault(key, [])
        for state in states:
            cost = state.cost + self.size
            if cost <= self.most:
                weights = tuple([state.weights[label] for label in kept])
                row.append(_State(weights, cost, True, state))

    def _leave_out(self, labels: tuple[int, ...], states: list[_State], found: _Layer) -> None:
        touched = sorted({labels[i] for i in self.beside} - {_STORED})
        own = touched[0] if touched else max(labels, default=-1) + 1
        merged = tuple([own if label in touched else label for label in labels])
        key, kept = self._renamed((*merged, own))
        row = found.setdefault(key, [])
        for state in states:
            weight = self.size + sum([state.weights[label] for label in touched])
            if weight <= self.limit:
                weights = tuple(
                    [weight if label == own else state.weights[label] for label in kept]
                )
                row.append(_State(weights, state.cost, False, state))

    def _renamed(self, labels: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
        """Return the labels that remain, numbered in order of appearance, and what they were."""
        kept: list[int] = []
        renamed = []
        for place in self.remaining:
            label = labels[place]
            if label == _STORED:
                renamed.append(_STORED)
                continue
            if label not in kept:
                kept.append(label)
            renamed.append(kept.index(label))
        return tuple(renamed), kept


def _undominated(states: list[_State]) -> list[_State]:
    """Return the states than which none is cheaper with components no larger."""
    cheapest: dict[tuple[int, ...], _State] = {}
    for state in states:
        other = cheapest.get(state.weights)
        if other is None or state.cost < other.cost:
            cheapest[state.weights] = state
    ordered = sorted(cheapest.values(), key=lambda state: (state.cost, state.weights))
    if not ordered or not ordered[0].weights:
        return ordered[:1]
    if len(ordered[0].weights) == 1:
        return _lightest(ordered)
    return _staircase(ordered) if len(ordered[0].weights) == 2 else _minimal(ordered)


def _lightest(ordered: list[_State]) -> list[_State]:
    """Return those with a component lighter than any that is no dearer."""
    kept: list[_State] = []
    for state in ordered:
        if not kept or state.weights < kept[-1].weights:
            kept.append(state)
    return kept


def _staircase(ordered: list[_State]) -> list[_State]:
    """Return those for which no cheaper one has two components both no larger."""
    kept: list[_State] = []
    # The corners so far: the first weight increases, the second one falls.
    first: list[int] = []
    second: list[int] = []
    for state in ordered:
        one, two = state.weights
        place = bisect_right(first, one)
        if place and second[place - 1] <= two:
            continue
        end = place
        while end < len(second) and second[end] >= two:
            end += 1
        if place and first[place - 1] == one:
            place -= 1
        first[place:end], second[place:end] = [one], [two]
        kept.append(state)
    return kept


def _minimal(ordered: list[_State]) -> list[_State]:
    """Return those for which no cheaper one has components all no larger."""
    weights = np.array([state.weights for state in ordered], dtype=np.int64)
    # Rows of those that are kept, one behind the other.
    rows = np.empty_like(weights)
    kept: list[_State] = []
    for state, own in zip(ordered, weights, strict=True):
        if not (rows[: len(kept)] <= own).all(axis=1).any():
            rows[len(kept)] = own
            kept.append(state)
    return kept


def size_unit(graph: CheckpointGraph) -> int:
    """Return the greatest common divisor of the sizes of inner vertices, at least 1."""
    return gcd(*(graph.sizes[vertex] for vertex in graph.inner)) or 1
