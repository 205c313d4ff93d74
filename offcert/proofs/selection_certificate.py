"""`SelectionCertificate`: what is stored of a chain or graph, what it takes, and the least it can.

The papers about recomputation alone have memory models of their own. A certificate names the model,
holds the instance and a selection, and says what the selection takes and what every selection takes
at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offcert.core.documents import Fields, canonical_digest, require_format
from offcert.core.errors import InputError
from offcert.core.messages import show
from offcert.proofs.component_packing import PackingBound, packing_bound_from_json
from offcert.proofs.questions import SELECTION
from offcert.questions.selection.graph import CheckpointGraph

CHAIN_MODELS = ("static", "dynamic", "reforwarding")
GRAPH_MODELS = ("components", "closed-components")


@dataclass(frozen=True)
class SelectionCertificate:
    """A selection in a paper's memory model, and a bound on all others.

    It is no `AnyCertificate`: it states a verdict on a paper, and answers no search. So it has no
    settings, methods or versions, and no problem apart from the numbers that it holds.

    Attributes
    ----------
    name : str
        Name for people.
    model : str
        On a chain one of `CHAIN_MODELS` (selection paper, Eqs. 6 and 9; re-forwarding paper,
        Eq. 1), on a graph one of `GRAPH_MODELS`: Eq. 1 with components for segments, of all
        selections or only of those whose components are closed sets.
    sizes : tuple of int
        Bytes of the data of the chain, or of the vertices.
    edges : tuple of (int, int) or None
        The edges of the graph; None of a chain.
    stored : tuple of int
        Of a chain all checkpoints, both ends among them; of a graph the inner vertices stored.
    objective : int
        Bytes that this takes in the model.
    lower_bound : int
        Bytes that every selection takes at least.
    proof : PackingBound or None
        Of a bound on a graph. Without it verification computes the least itself where it can:
        on chains, and on graphs of few vertices.
    """

    name: str
    model: str
    sizes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...] | None
    stored: tuple[int, ...]
    objective: int
    lower_bound: int
    proof: PackingBound | None = None

    @property
    def graph(self) -> CheckpointGraph:
        """The graph that it is about; of a chain a path.

        Raises
        ------
        InputError
            If the edges make no graph.
        """
        edges = self.edges
        if edges is None:
            edges = tuple((index, index + 1) for index in range(len(self.sizes) - 1))
        return CheckpointGraph(self.sizes, edges)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as a JSON value."""
        document: dict[str, Any] = {
            "format": SELECTION.format,
            "version": SELECTION.version,
            "name": self.name,
            "model": self.model,
            "sizes": list(self.sizes),
            "edges": None if self.edges is None else [list(edge) for edge in self.edges],
            "stored": list(self.stored),
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "proof": None if self.proof is None else self.proof.to_json(),
        }
        document["digest"] = canonical_digest(document)
        return document

    @classmethod
    def from_json(cls, document: Any) -> SelectionCertificate:
        """Return the certificate that a JSON value describes, without verifying what it claims.

        Raises
        ------
        InputError
            One sentence that names the first field that is missing, wrong or unknown.
        """
        fields = Fields(document)
        require_format(fields, SELECTION.format, SELECTION.version)
        model = fields.get("model", str)
        if model not in (*CHAIN_MODELS, *GRAPH_MODELS):
            known = ", ".join((*CHAIN_MODELS, *GRAPH_MODELS))
            raise InputError(f"model must be one of {known}, not {show(model)}")
        on_graph = fields.get("edges", (list, type(None))) is not None
        if on_graph is not (model in GRAPH_MODELS):
            raise InputError(f'edges must be {"a list" if not on_graph else "null"} for "{model}"')
        proof = fields.get("proof", (dict, type(None)))
        certificate = cls(
            name=fields.get("name", str),
            model=model,
            sizes=fields.integers("sizes", 0),
            edges=_edges(fields.integer_lists("edges", 0)) if on_graph else None,
            stored=fields.integers("stored", 0),
            objective=fields.integer("objective", 0),
            lower_bound=fields.integer("lower_bound", 0),
            proof=None if proof is None else packing_bound_from_json(proof),
        )
        fields.get("digest", str)
        fields.finish()
        # Refuses what is no graph, or no sizes.
        _ = certificate.graph
        return certificate


selection_certificate_from_json = SelectionCertificate.from_json


def _edges(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    for index, row in enumerate(rows):
        if len(row) != 2:
            raise InputError(f"edges[{index}] must have 2 entries, not {len(row)}")
    return tuple((row[0], row[1]) for row in rows)
