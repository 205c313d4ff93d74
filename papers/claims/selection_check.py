"""Verification of selections: the bytes they take, and the least that any selection takes.

It shares no code with what finds selections and bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from math import ceil, gcd
from typing import Any

from offcert.questions.selection.graph import CheckpointGraph
from offcert.verification.findings import rewriting_faults
from papers.claims.selection_certificate import (
    CHAIN_MODELS,
    Case,
    Packing,
    PackingBound,
    SelectionCertificate,
)


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
    """Return None if a bound is proved, or its fault.

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


# Inner vertices up to which all selections are gone through, and data of a chain for which the
# least is computed: by one recursion, or by one for each sum that a segment can have. Arbitrary.
MOST_VERTICES, MOST_DATA, MOST_DATA_WITH_LIMITS = 16, 400, 64


@dataclass
class SelectionFindings:
    """The outcome of verifying a certificate of a selection."""

    certificate: SelectionCertificate
    # Every reason why the document is not valid, each with its place.
    faults: list[str] = field(default_factory=list)
    # The bound, with its place, if it could not be established.
    unverified: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether nothing was found wrong, and nothing left unverified."""
        return not self.faults and not self.unverified

    @property
    def reason(self) -> str | None:
        """The first reason why it is not valid."""
        return next(iter((*self.faults, *self.unverified)), None)


def verify_selection(document: dict[str, Any]) -> SelectionFindings:
    """Verify a JSON value: the stored vertices, their memory, and the least of all selections.

    Raises
    ------
    InputError
        If it is no certificate of a selection.
    """
    certificate = SelectionCertificate.from_json(document)
    findings = SelectionFindings(certificate)
    faults = findings.faults
    faults += rewriting_faults(document, certificate.to_json())
    on_chain = certificate.model in CHAIN_MODELS
    faults += _chain_faults(certificate) if on_chain else _graph_faults(certificate)
    if certificate.lower_bound > certificate.objective:
        faults.append(
            f"lower_bound: {certificate.lower_bound} exceeds the objective, {certificate.objective}"
        )
    if not faults:
        _check_bound(findings)
    return findings


def _chain_faults(certificate: SelectionCertificate) -> Iterator[str]:
    """Yield the faults of checkpoints on a chain, and of the memory that they are said to take."""
    stored, last = certificate.stored, len(certificate.sizes) - 1
    increasing = all(a < b for a, b in pairwise(stored))
    if not (len(stored) >= 2 and stored[0] == 0 and stored[-1] == last and increasing):
        yield f"stored: checkpoints must increase from 0 to {last}"
        return
    yield from _objective_faults(
        certificate, memory_of(certificate.model, certificate.sizes, stored)
    )


def _graph_faults(certificate: SelectionCertificate) -> Iterator[str]:
    """Yield the faults of stored vertices, and of the memory that they are said to take."""
    inner = range(1, len(certificate.sizes) - 1)
    stored = certificate.stored
    if list(stored) != sorted(set(stored)) or not set(stored) <= set(inner):
        yield "stored: it must hold inner vertices, increasing"
        return
    graph = _Graph(certificate)
    parts = graph.components(set(stored))
    if certificate.model == "closed-components" and not all(map(graph.is_closed, parts)):
        yield "stored: a component is entered from, or left to, more than one vertex"
    yield from _objective_faults(certificate, graph.objective(stored, parts))


def _objective_faults(certificate: SelectionCertificate, found: int) -> Iterator[str]:
    if found != certificate.objective:
        yield f"objective: what is stored takes {found} bytes, not {certificate.objective}"


def _check_bound(findings: SelectionFindings) -> None:
    certificate = findings.certificate
    if certificate.model in CHAIN_MODELS:
        most = MOST_DATA if certificate.model == "dynamic" else MOST_DATA_WITH_LIMITS
        if len(certificate.sizes) > most:
            findings.unverified.append(
                f"lower_bound: the least of more than {most} data is not computed"
            )
            return
        least = least_of(certificate.model, certificate.sizes)
    elif certificate.proof is not None:
        findings.faults += _proof_faults(certificate)
        return
    elif len(certificate.sizes) - 2 <= MOST_VERTICES:
        least = _Graph(certificate).least(certificate.model == "closed-components")
    else:
        # Every vertex is stored, or part of the largest component at least by itself.
        least = max(certificate.sizes[1:-1])
    if certificate.lower_bound > least:
        findings.faults.append(
            f"lower_bound: {certificate.lower_bound} is not established, only {least}"
        )


def _proof_faults(certificate: SelectionCertificate) -> Iterator[str]:
    assert certificate.proof is not None
    # A bound for all selections is one for some.
    if certificate.proof.value < certificate.lower_bound:
        yield (
            f"lower_bound: the proof is about {certificate.proof.value} bytes, not "
            f"{certificate.lower_bound}"
        )
    fault = graph_bound_fault(certificate.graph, certificate.proof)
    if fault is not None:
        yield f"proof: {fault}"


class _Graph:
    """Sizes and edges of a graph, for counting."""

    def __init__(self, certificate: SelectionCertificate) -> None:
        self.sizes = certificate.sizes
        self.inner = range(1, len(self.sizes) - 1)
        self.before: list[set[int]] = [set() for _ in self.sizes]
        self.behind: list[set[int]] = [set() for _ in self.sizes]
        for tail, head in certificate.edges or ():
            self.before[head].add(tail)
            self.behind[tail].add(head)

    def components(self, stored: set[int]) -> list[set[int]]:
        """Return the connected parts of the inner vertices that are not stored."""
        left = set(self.inner) - stored
        parts = []
        while left:
            border = [left.pop()]
            part = set(border)
            while border:
                vertex = border.pop()
                near = (self.before[vertex] | self.behind[vertex]) & left
                left -= near
                part |= near
                border += near
            parts.append(part)
        return parts

    def is_closed(self, part: set[int]) -> bool:
        """Return whether a component is entered from one vertex and left to one."""
        entered = set().union(*(self.before[vertex] for vertex in part)) - part
        left = set().union(*(self.behind[vertex] for vertex in part)) - part
        return len(entered) == len(left) == 1

    def objective(self, stored: Iterable[int], parts: Iterable[set[int]]) -> int:
        """Return the bytes of the stored vertices and of the largest component."""
        weights = [sum(self.sizes[vertex] for vertex in part) for part in parts]
        return sum(self.sizes[vertex] for vertex in stored) + max(weights, default=0)

    def least(self, closed: bool) -> int:
        """Return the least objective of all selections, or of those with closed components."""
        best = sum(self.sizes[vertex] for vertex in self.inner)
        for count in range(len(self.inner)):
            for stored in combinations(self.inner, count):
                if sum(self.sizes[vertex] for vertex in stored) < best:
                    parts = self.components(set(stored))
                    if not closed or all(map(self.is_closed, parts)):
                        best = min(best, self.objective(stored, parts))
        return best
