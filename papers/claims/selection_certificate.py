"""`SelectionCertificate`: what is stored of a chain or graph, what it takes, and the least it can.

The papers about recomputation alone have memory models of their own. A certificate names the model,
holds the instance and a selection, and says what the selection takes and what every selection takes
at least.

On a graph the bound is a packing of sets that are too heavy (`PackingBound`). Any connected set of
vertices that weighs more than a limit holds a stored vertex if no component may weigh more. If sets
have multipliers so that no vertex is charged more than its bytes, what is stored weighs at least as
much as the multipliers together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from offcert.core.documents import Fields, canonical_digest, parse_rational, require_format
from offcert.core.errors import InputError
from offcert.core.forms import Integers
from offcert.core.list_forms import Each
from offcert.core.messages import show
from offcert.questions.selection.graph import CheckpointGraph

FORMAT, VERSION = "offcert-selection-certificate", 1
PACKING_FORMAT, PACKING_VERSION = "offcert-component-packing", 1


@dataclass(frozen=True, slots=True)
class HeavySet:
    """A connected set of inner vertices that are not all left out."""

    vertices: tuple[int, ...]  # Increasing.
    multiplier: Fraction  # Bytes, positive.


@dataclass(frozen=True, slots=True)
class Packing:
    """Heavy sets that together charge no vertex more than its bytes."""

    sets: tuple[HeavySet, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """Either a vertex is stored, or it is not."""

    vertex: int  # An inner vertex, decided for the first time.
    # The rest of the proof in either case.
    stored: Case | Packing
    left_out: Case | Packing


@dataclass(frozen=True, slots=True)
class LimitProof:
    """How much has to be stored if no component has more bytes than a limit."""

    limit: int  # Bytes.
    cases: Case | Packing  # From which the amount follows.


@dataclass(frozen=True, slots=True)
class PackingBound:
    """No selection has fewer stored bytes and bytes of its largest component together."""

    value: int  # Bytes.
    # Decreasing limits. Each says enough for the largest components from its limit down to where
    # the next one begins.
    limits: tuple[LimitProof, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the bound as a JSON value."""
        return {
            "format": PACKING_FORMAT,
            "version": PACKING_VERSION,
            "value": self.value,
            "limits": [
                {"limit": each.limit, "cases": _cases_to_json(each.cases)} for each in self.limits
            ],
        }


def packing_bound_from_json(document: Any) -> PackingBound:
    """Return the bound that a JSON value holds."""
    fields = Fields(document)
    require_format(fields, PACKING_FORMAT, PACKING_VERSION)
    value = fields.integer("value", 0)
    limits = []
    for item in fields.each("limits"):
        limits.append(LimitProof(item.integer("limit", 0), _cases_from_json(item, "cases")))
        item.finish()
    fields.finish()
    return PackingBound(value, tuple(limits))


def _cases_to_json(cases: Case | Packing) -> dict[str, Any]:
    if isinstance(cases, Case):
        return {
            "vertex": cases.vertex,
            "stored": _cases_to_json(cases.stored),
            "left_out": _cases_to_json(cases.left_out),
        }
    return {
        "sets": [
            {"vertices": list(each.vertices), "multiplier": str(each.multiplier)}
            for each in cases.sets
        ]
    }


def _cases_from_json(parent: Fields, name: str) -> Case | Packing:
    fields = Fields(parent.get(name, dict), parent.path(name))
    if "vertex" in parent.get(name, dict):
        try:
            case = Case(
                fields.integer("vertex", 0),
                _cases_from_json(fields, "stored"),
                _cases_from_json(fields, "left_out"),
            )
        except RecursionError:
            raise InputError("limits hold more cases inside of cases than can be read") from None
        fields.finish()
        return case
    sets = []
    for item in fields.each("sets"):
        multiplier = parse_rational(item.get("multiplier", str), item.path("multiplier"))
        sets.append(HeavySet(item.integers("vertices", 0), multiplier))
        item.finish()
    fields.finish()
    return Packing(tuple(sets))


CHAIN_MODELS = ("static", "dynamic", "reforwarding")
GRAPH_MODELS = ("components", "closed-components")


@dataclass(frozen=True)
class SelectionCertificate:
    """A selection in a paper's memory model, and a bound on all others.

    It states a verdict on a paper, and answers no search. So it has no settings, methods or
    versions, and no problem apart from the numbers that it holds.

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
        """The graph that it is about; of a chain a path."""
        edges = self.edges
        if edges is None:
            edges = tuple((index, index + 1) for index in range(len(self.sizes) - 1))
        return CheckpointGraph(self.sizes, edges)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as a JSON value."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
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
        """Return the certificate that a JSON value describes, without verifying what it claims."""
        fields = Fields(document)
        require_format(fields, FORMAT, VERSION)
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
            edges=_edges(Each(Integers(0)).read(fields, "edges")) if on_graph else None,
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


def _edges(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    for index, row in enumerate(rows):
        if len(row) != 2:
            raise InputError(f"edges[{index}] must have 2 entries, not {len(row)}")
    return tuple((row[0], row[1]) for row in rows)
