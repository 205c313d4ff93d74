"""Test two papers' claims about recomputation alone: a section of docs/claims.md.

    python benchmarks/claims_recomputation.py

Everything is computed anew, in two minutes: the evidence, a certificate a case, and the section,
which is replaced; the rest of the page stays.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

from claims_sections import replace_section

from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.heuristics.checkpoint.selections import SELECTIONS
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection
from papers.checkpoint_chains.lemmas import (
    FOUR_LEMMAS,
    all_chains,
    failures,
    lemma_4_last,
    random_chains,
)
from papers.checkpoint_chains.memory_models import (
    dynamic_memory,
    reforwarding_memory,
    static_memory,
)
from papers.checkpoint_chains.networks import selection_network
from papers.checkpoint_graphs.counterexamples import CHAINS, GRAPHS, GraphCounterexample
from papers.checkpoint_graphs.exhaustive import exhaustive_selection, recomputes_closed_sets
from papers.checkpoint_graphs.least import least_selection
from papers.checkpoint_graphs.networks import TABLE_1, reforwarding_network
from papers.checkpoint_graphs.packing import packing_bound
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, rows_again
from papers.claims.recomputation import (
    HEADING,
    RECOMPUTATION,
    SEARCHED,
    recomputation_section,
    recomputation_verdict,
)
from papers.claims.searched import searched_row
from papers.claims.selection_certificate import SelectionCertificate
from papers.claims.theory import Experiment

DOCS = Path(__file__).parent.parent / "docs"
SECTION, COMMAND = "recomputation", "python benchmarks/claims_recomputation.py"
# How many random instances of each sort.
RANDOM_GRAPHS, RANDOM_CHAINS = 300, 100
_DENSITIES = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
_MODELS = {
    "linear-solver": ("reforwarding", reforwarding_memory, "reforwarding"),
    "selection-algorithm-3": ("algorithm-3", static_memory, "static"),
    "selection-algorithm-5": ("algorithm-5", dynamic_memory, "dynamic"),
    "selection-algorithm-6": ("algorithm-6", dynamic_memory, "dynamic"),
}
_SOLVER, _CLOSED, _TREE = (
    "arbitrary-graph-solver",
    "arbitrary-graph-solver-closed",
    "reforwarding-theorem-1",
)
# Inner vertices up to which verification goes through all selections.
_FEW = 12
# Chains on which lemmas are tried: layers and sizes of all, number of random ones. Arbitrary.
_LAYERS, _SIZES, _DRAWN = 6, 3, 1000
_ROOTS = range(2, 13)
# Residual networks with a bound that is found in seconds: how far below the best known it may be.
_GAPS = {"resnet18": Fraction(0), "resnet34": Fraction(0), "resnet50": Fraction(1, 20)}
Shown = tuple[EvidenceRow, list[Any]]


def evidence(
    graphs: int = RANDOM_GRAPHS,
    chains: int = RANDOM_CHAINS,
    networks: bool = True,
    named: Sequence[GraphCounterexample] = GRAPHS,
) -> EvidenceFile:
    """Return a row for every case, with its certificates; lemmas go with the networks."""
    return evidence_of(SECTION, COMMAND, _rows(graphs, chains, networks, named))


def _rows(
    graphs: int, chains: int, networks: bool, named: Sequence[GraphCounterexample]
) -> Iterator[Shown]:
    yield from _chains(chains)
    for row in CHAINS:
        memory, model = (
            (static_memory, "static") if row.algorithm == 3 else (dynamic_memory, "dynamic")
        )
        name = f"sizes {' '.join(map(str, row.sizes))}, {row.reason}"
        key = f"selection-algorithm-{row.algorithm}-as-printed"
        yield _chain(key, name, row.sizes, model, memory, row.stated)
    for each in named:
        yield from _graph(each.name, each.graph)
    for seed in range(graphs):
        # 4 to 10 vertices, each density with each.
        graph = random_checkpoint_graph(seed, 4 + seed % 7, _DENSITIES[seed // 7 % 3])
        yield from _graph(f"random-{seed}", graph)
    for published in TABLE_1 if networks else ():
        if published.name.startswith("resnet"):
            graph = reforwarding_network(published.name, published.batch, published.image)
            yield _network(published.name, graph)
    for make in SEARCHES if networks else ():
        yield from ((row, []) for row in make())


def lemma_rows() -> Iterator[EvidenceRow]:
    """Yield the selection paper's lemmas on all small chains, and on random ones."""
    for key, lemma in LEMMAS.items():
        small, drawn = all_chains(_LAYERS, _SIZES), random_chains(_DRAWN)
        yield searched_row(key, "small chains", failures(lemma, small))
        yield searched_row(key, "random chains", failures(lemma, drawn))
    found = failures(lemma_4_last, all_chains(_LAYERS, _SIZES))
    reading = "the last of several best ones"
    yield searched_row("selection-lemma-4", "small chains", found, reading)


def batch_rows() -> Iterator[EvidenceRow]:
    """Yield whether the selection paper's algorithms return the same for every batch."""
    batches = [*range(1, 513), 4096]
    for name in ("vgg19", "alexnet"):
        for number in (3, 5, 6):
            select = SELECTIONS[f"algorithm-{number}"].select
            usual = select(selection_network(name, 128).output).checkpoints
            other = [
                f"{batch} images: {found}"
                for batch in batches
                if (found := select(selection_network(name, batch).output).checkpoints) != usual
            ]
            result = len(batches), len(other), other[0] if other else ""
            yield searched_row("selection-batches", f"{name}, Algorithm {number}", result)


def equal_rows() -> Iterator[EvidenceRow]:
    """Yield Case 1 of the re-forwarding paper, both ends counted, and neither."""
    for case, ends in (("both ends stored", 2), ("both ends free", 0)):
        wrong = []
        for root in _ROOTS:
            count = root * root
            sizes = [1] * (count + 2 - ends)
            least = SELECTIONS["reforwarding"].select(sizes).memory + ends
            # As evenly as whole numbers allow: what is not stored, in the segments between.
            even = root + -(-(count - root) // (root + 1 - ends))
            if not least == even == 2 * root:
                wrong.append(f"N = {count}: at least {least}, evenly {even}, not {2 * root}")
        reading = "" if ends else "the ends are stored for nothing"
        found = len(_ROOTS), len(wrong), wrong[0] if wrong else ""
        yield searched_row("reforwarding-case-1", case, found, reading)


LEMMAS = {f"selection-lemma-{n}": one for n, one in enumerate(FOUR_LEMMAS, 1)}
SEARCHES = (lemma_rows, batch_rows, equal_rows)


def _chains(count: int) -> Iterator[Shown]:
    rng = random.Random("claims about chains")
    for number in range(count):
        largest = rng.choice((1, 3, 9, 50))
        sizes = tuple(rng.randint(1, largest) for _ in range(rng.randint(2, 11)))
        for key, (name, memory, model) in _MODELS.items():
            stated = SELECTIONS[name].select(sizes).memory
            yield _chain(key, f"chain-{number}", sizes, model, memory, stated)


def _chain(
    claim: str,
    case: str,
    sizes: tuple[int, ...],
    model: str,
    memory: Callable[[Sequence[int], Sequence[int]], int],
    stated: int,
) -> Shown:
    best, checkpoints = least(sizes, memory)
    document = SelectionCertificate(case, model, sizes, None, checkpoints, best, best).to_json()
    return _row(claim, case, stated, best, best, document), [document]


def _row(claim: str, case: str, stated: int, lower: int, best: int, document: Any) -> EvidenceRow:
    return Experiment(claim, case, Fraction(stated), lower, best).row(document["digest"])


def least(
    sizes: Sequence[int], memory: Callable[[Sequence[int], Sequence[int]], int]
) -> tuple[int, tuple[int, ...]]:
    """Return the least memory of all sets of checkpoints, and one that takes it."""
    last = len(sizes) - 1
    inner = range(1, last)
    return min(
        (memory(sizes, (0, *chosen, last)), (0, *chosen, last))
        for count in range(len(inner) + 1)
        for chosen in combinations(inner, count)
    )


def _graph(name: str, graph: CheckpointGraph) -> Iterator[Shown]:
    """Yield the solver's value on a small graph, against all selections and against some."""
    stated = arbitrary_graph_solver(graph).objective
    best = exhaustive_selection(graph)
    document = certificate(name, graph, best).to_json()
    row = _row(_SOLVER, name, stated, best.objective, best.objective, document)
    yield row, [document]
    closed = exhaustive_selection(graph, recomputes_closed_sets)
    restricted = certificate(name, graph, closed, closed=True).to_json()
    tree = replace(row, claim=_TREE, figures={**row.figures, "stated": str(closed.objective)})
    yield replace(tree, stated=restricted["digest"]), [document, restricted]
    if name.startswith("random"):
        found = closed.objective
        yield _row(_CLOSED, name, stated, found, found, restricted), [restricted]


def certificate(
    name: str, graph: CheckpointGraph, best: GraphSelection, closed: bool = False
) -> SelectionCertificate:
    """Return the certificate of an optimal selection; of larger graphs with a proof."""
    model = "closed-components" if closed else "components"
    proof = None if closed or len(graph.inner) <= _FEW else packing_bound(graph, best)
    bound = best.objective if proof is None else proof.value
    values = graph.sizes, graph.edges, best.stored, best.objective, bound, proof
    return SelectionCertificate(name, model, *values)


def _network(name: str, graph: CheckpointGraph) -> Shown:
    """Return the solver's value on a residual network, and the better one that is known."""
    stated = arbitrary_graph_solver(graph)
    best = least_selection(graph, stated.selection).selection
    made = SelectionCertificate(
        name, "components", graph.sizes, graph.edges, best.stored, best.objective, 0
    )
    if name in _GAPS:
        proof = packing_bound(graph, best, gap=_GAPS[name])
        made = replace(made, lower_bound=proof.value, proof=proof)
    else:
        # A larger one is refuted by the better selection alone.
        made = replace(made, lower_bound=max(graph.sizes[1:-1]))
    document = made.to_json()
    bounds = made.lower_bound, made.objective
    return _row(_SOLVER, name, stated.objective, *bounds, document), [document]


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the rows of its cases."""

    def of(claim: Any) -> Judge:
        return lambda rows: [recomputation_verdict(claim.judge([*map(Experiment.of, rows)]))]

    found = {claim.key: of(claim) for claim in RECOMPUTATION}
    searched: dict[str, Judge] = {
        claim.key: lambda rows, claim=claim: [claim.verdict(rows)] for claim in SEARCHED
    }
    return found | searched


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(SECTION, COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return functions that run each algorithm again on the instance of a certificate."""

    def selected(row: EvidenceRow, held: SelectionCertificate) -> Figures:
        return {"stated": str(SELECTIONS[_MODELS[row.claim][0]].select(held.sizes).memory)}

    def printed(row: EvidenceRow, held: SelectionCertificate) -> Figures:
        number = int(row.claim.split("-")[2])
        known = {(each.algorithm, each.sizes): each.stated for each in CHAINS}
        return {"stated": str(known[number, held.sizes])}

    def solved(row: EvidenceRow, held: SelectionCertificate) -> Figures:
        found: Figures = {"stated": str(arbitrary_graph_solver(held.graph).objective)}
        for each in TABLE_1:
            if each.name == row.case:
                graph = reforwarding_network(each.name, each.batch, each.image)
                if (graph.sizes, graph.edges) != (held.sizes, held.edges):
                    found["network"] = each.name
        return found

    found: dict[str, Again] = dict.fromkeys(_MODELS, selected)
    found |= {f"selection-algorithm-{number}-as-printed": printed for number in (3, 5, 6)}
    found |= {_SOLVER: solved, _CLOSED: solved}
    makers = dict(zip(LEMMAS, [lemma_rows] * len(LEMMAS), strict=True))
    makers |= {"selection-batches": batch_rows, "reforwarding-case-1": equal_rows}
    return found | {key: rows_again(make) for key, make in makers.items()}


def main() -> None:
    """Compute everything, write the evidence and replace the section."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    found = evidence()
    found.write(DOCS)
    replace_section(DOCS / "claims.md", HEADING, recomputation_section(found))
    print(f"wrote evidence and section about recomputation in {DOCS}", file=sys.stderr)


if __name__ == "__main__":
    main()
