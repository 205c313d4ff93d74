"""Bounds on what a selection of checkpoints takes: on chains, and on graphs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, gcd

from offcert.proofs.component_packing import Case, Packing, PackingBound
from offcert.questions.selection.graph import CheckpointGraph


def memory_of(model: str, sizes: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Return the bytes that checkpoints take in a model, both ends among the checkpoints."""
    stretches = list(pairwise(checkpoints))
    if model == "dynamic":
        most = stored = 0
        for h, i in stretches:
            stored += sizes[h]
            most = max(most, stored + sum(sizes[h + 1 : i + 1]) + max(sizes[h:i]))
        return most
    ends = sizes[0] + sizes[-1] if model == "reforwarding" else 0
    segment = max(sum(sizes[h + 1 : i]) for h, i in stretches)
    return sum(sizes[each] for each in checkpoints) + segment - ends


def least_of(model: str, sizes: Sequence[int]) -> int:
    """Return the least bytes that any checkpoints of a chain take in a model."""
    if model == "dynamic":
        return _least_dynamic(sizes)
    ends = sizes[0] + sizes[-1] if model == "reforwarding" else 0
    return _least_static(sizes) - ends


def _least_static(sizes: Sequence[int]) -> int:
    totals = [0, *accumulate(sizes)]
    count = len(sizes)
    stretches = {totals[i] - totals[h + 1] for i in range(count) for h in range(i)}
    best = None
    for limit in stretches:
        paid = [sizes[0]]
        for i in range(1, count):
            near = [paid[h] for h in range(i) if totals[i] - totals[h + 1] <= limit]
            paid.append(sizes[i] + min(near))
        found = limit + paid[-1]
        best = found if best is None else min(best, found)
    assert best is not None
    return best


def _least_dynamic(sizes: Sequence[int]) -> int:
    last = len(sizes) - 1
    least = [0] * last + [sizes[last]]
    for h in reversed(range(last)):
        segment, buffer, options = 0, 0, []
        for i in range(h + 1, last + 1):
            segment += sizes[i]
            buffer = max(buffer, sizes[i - 1])
            options.append(max(least[i], segment + buffer))
        least[h] = sizes[h] + min(options)
    return least[0]


class _WrongError(Exception):
    """An error in a proof."""


def graph_bound_fault(graph: CheckpointGraph, bound: PackingBound) -> str | None:
    """Return None if a bound is proved, or what is wrong with it.

    Parameters
    ----------
    graph : CheckpointGraph
        Only its sizes and edges are looked at.
    bound : PackingBound
        Anything; nothing in it is trusted.

    Notes
    -----
    Let c be the bytes of a selection's largest component. If c is at least the value, so is the
    objective. Otherwise c is covered by the first limit of at least c for which ``b + c`` reaches
    the value, b being what has to be stored if no component has more bytes than that limit.
    Bytes are multiples of the greatest common divisor of the sizes, so b is rounded up to one and
    c skips what is none.
    """
    return _Check(graph).fault(bound)


class _Check:
    def __init__(self, graph: CheckpointGraph) -> None:
        self.sizes = graph.sizes
        self.inner = range(1, len(graph.sizes) - 1)
        self.unit = gcd(*(self.sizes[vertex] for vertex in self.inner)) or 1
        self.beside: dict[int, set[int]] = {vertex: set() for vertex in self.inner}
        for tail, head in graph.edges:
            if tail in self.beside and head in self.beside:
                self.beside[tail].add(head)
                self.beside[head].add(tail)
        self.limit = 0
        self.place = ""

    def fault(self, bound: PackingBound) -> str | None:
        # The largest component's bytes that are not covered yet: at most this many.
        left = (bound.value - 1) // self.unit * self.unit
        try:
            for index, each in enumerate(bound.limits):
                self.limit, self.place = each.limit, f"limits[{index}]"
                if each.limit < left:
                    return (
                        f"{self.place}.limit is {each.limit}, but components of {left} bytes are "
                        "not covered"
                    )
                stored = self._stored(each.cases, frozenset(), frozenset())
                if stored is None:
                    # Nothing keeps all components this small.
                    left = -1
                else:
                    rounded = ceil(stored / self.unit) * self.unit
                    left = min(left, (bound.value - rounded - 1) // self.unit * self.unit)
        except _WrongError as wrong:
            return f"{self.place}: {wrong}"
        if left >= 0:
            return f"components of {left} bytes are not covered by any limit"
        return None

    def _stored(
        self, cases: Case | Packing, stored: frozenset[int], left_out: frozenset[int]
    ) -> Fraction | None:
        """Return the bytes that are stored at least; None if these decisions are impossible."""
        # A pile of its own: a proof may be deeper than Python's.
        waiting = [(cases, stored, left_out)]
        least: Fraction | None = None
        while waiting:
            node, kept, out = waiting.pop()
            if isinstance(node, Case):
                if node.vertex not in self.beside or node.vertex in kept | out:
                    raise _WrongError(f"vertex {node.vertex} cannot be decided there")
                waiting.append((node.stored, kept | {node.vertex}, out))
                waiting.append((node.left_out, kept, out | {node.vertex}))
                continue
            value = self._packed(node, kept, out)
            if value is not None and (least is None or value < least):
                least = value
        return least

    def _packed(
        self, packing: Packing, stored: frozenset[int], left_out: frozenset[int]
    ) -> Fraction | None:
        total = Fraction(sum(self.sizes[vertex] for vertex in stored))
        charged: dict[int, Fraction] = {}
        for each in packing.sets:
            vertices = set(each.vertices)
            self._require_heavy(vertices, len(each.vertices), stored)
            if vertices <= left_out:
                return None
            if each.multiplier <= 0:
                raise _WrongError(f"the multiplier {each.multiplier} is not positive")
            total += each.multiplier
            for vertex in vertices - left_out:
                charged[vertex] = charged.get(vertex, Fraction(0)) + each.multiplier
        for vertex, amount in charged.items():
            if amount > self.sizes[vertex]:
                raise _WrongError(
                    f"vertex {vertex} has {self.sizes[vertex]} bytes and is charged {amount}"
                )
        return total

    def _require_heavy(self, vertices: set[int], count: int, stored: frozenset[int]) -> None:
        """Raise unless vertices are different, not stored, connected, and above the limit."""
        if len(vertices) < count or not vertices or not vertices <= self.beside.keys():
            raise _WrongError(f"{sorted(vertices)[:5]} … is no set of inner vertices")
        if vertices & stored:
            raise _WrongError(f"vertex {min(vertices & stored)} is stored already")
        weight = sum(self.sizes[vertex] for vertex in vertices)
        if weight <= self.limit:
            raise _WrongError(f"a set of {weight} bytes may be a component")
        reached = {min(vertices)}
        border = [min(vertices)]
        while border:
            near = self.beside[border.pop()] & vertices - reached
            reached |= near
            border += near
        if reached != vertices:
            raise _WrongError(f"a set with vertex {min(vertices)} is not connected")
