"""Whether a certificate of a selection holds: what it takes, and what all others take at least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import Any

from offcert.proofs.selection_certificate import (
    CHAIN_MODELS,
    SelectionCertificate,
)
from offcert.verify.findings import Verification
from offcert.verify.limits import Allowance
from offcert.verify.selection.bounds import graph_bound_fault, least_of, memory_of

# Inner vertices up to which all selections are gone through, and data of a chain for which the
# least is computed: by one recursion, or by one for each sum that a segment can have. Arbitrary.
MOST_VERTICES, MOST_DATA, MOST_DATA_WITH_LIMITS = 16, 400, 64


def check_selection(
    verification: Verification[SelectionCertificate], document: Any, allowance: Allowance
) -> None:
    """Check what is stored, what that takes, and what all others take at least.

    Parameters
    ----------
    verification : Verification
        To which what is found is added.
    document : object
        The JSON value that holds the certificate.
    allowance : Allowance
        What checking may take; sizes of instances are what limits it.
    """
    certificate, faults = verification.certificate, verification.faults
    on_chain = certificate.model in CHAIN_MODELS
    faults += _chain_faults(certificate) if on_chain else _graph_faults(certificate)
    if certificate.lower_bound > certificate.objective:
        faults.append(
            f"lower_bound: {certificate.lower_bound} exceeds the objective, {certificate.objective}"
        )
    if not faults:
        _check_bound(verification)


def _chain_faults(certificate: SelectionCertificate) -> Iterator[str]:
    """Yield what is wrong with checkpoints, or with what they are said to take."""
    stored, last = certificate.stored, len(certificate.sizes) - 1
    increasing = all(a < b for a, b in pairwise(stored))
    if not (len(stored) >= 2 and stored[0] == 0 and stored[-1] == last and increasing):
        yield f"stored: checkpoints must increase from 0 to {last}"
        return
    yield from _objective_faults(
        certificate, memory_of(certificate.model, certificate.sizes, stored)
    )


def _graph_faults(certificate: SelectionCertificate) -> Iterator[str]:
    """Yield what is wrong with stored vertices, or with what they are said to take."""
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


def _check_bound(verification: Verification[SelectionCertificate]) -> None:
    certificate = verification.certificate
    if certificate.model in CHAIN_MODELS:
        most = MOST_DATA if certificate.model == "dynamic" else MOST_DATA_WITH_LIMITS
        if len(certificate.sizes) > most:
            verification.unverified.append(
                f"lower_bound: the least of more than {most} data is not computed"
            )
            return
        least = least_of(certificate.model, certificate.sizes)
    elif certificate.proof is not None:
        verification.faults += _proof_faults(certificate)
        return
    elif len(certificate.sizes) - 2 <= MOST_VERTICES:
        least = _Graph(certificate).least(certificate.model == "closed-components")
    else:
        # Every vertex is stored, or part of the largest component at least by itself.
        least = max(certificate.sizes[1:-1])
    if certificate.lower_bound > least:
        verification.faults.append(
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
        """Return what of the inner vertices hangs together without those that are stored."""
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
        """Return the bytes of what is stored and of the largest component."""
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
