"""Put what two papers say about recomputation alone to the test: a section of docs/claims.md.

    python benchmarks/claims_recomputation.py

Everything is computed anew, in half a minute; the section is replaced, the rest of the page stays.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from claims_sections import replaced

from offcert.core.checkpoint_graph import CheckpointGraph
from offcert.core.documents import write_atomically
from offcert.formulations.checkpoint.memory_models import (
    dynamic_memory,
    reforwarding_memory,
    static_memory,
)
from offcert.formulations.checkpoint_graphs.exhaustive import (
    exhaustive_selection,
    recomputes_closed_sets,
)
from offcert.formulations.checkpoint_graphs.least import least_selection
from offcert.heuristics.checkpoint.registry import SELECTIONS
from offcert.heuristics.checkpoint_graphs.arbitrary import arbitrary_graph_solver
from offcert.instances.checkpoint_graphs import random_checkpoint_graph
from offcert.instances.reforwarding_networks import TABLE_1, reforwarding_network
from offcert.instances.selection_counterexamples import CHAINS, GRAPHS
from offcert.report.claims.recomputation import HEADING, recomputation_section
from offcert.report.claims.theory import Experiment

DOCS = Path(__file__).parent.parent / "docs"
# How many random instances of each sort.
RANDOM_GRAPHS, RANDOM_CHAINS = 300, 100
_DENSITIES = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
_MODELS = {
    "linear-solver": ("reforwarding", reforwarding_memory),
    "selection-algorithm-3": ("algorithm-3", static_memory),
    "selection-algorithm-5": ("algorithm-5", dynamic_memory),
    "selection-algorithm-6": ("algorithm-6", dynamic_memory),
}


def experiments(
    graphs: int = RANDOM_GRAPHS, chains: int = RANDOM_CHAINS, networks: bool = True
) -> Iterator[Experiment]:
    """Yield every experiment."""
    yield from _chains(chains)
    for row in CHAINS:
        model = static_memory if row.algorithm == 3 else dynamic_memory
        best = least(row.sizes, model)
        name = f"sizes {' '.join(map(str, row.sizes))}, {row.reason}"
        key = f"selection-algorithm-{row.algorithm}-as-printed"
        yield Experiment(key, name, Fraction(row.stated), best, best)
    for row in GRAPHS:
        yield _graph(row.name, row.graph)
    for seed in range(graphs):
        # 4 to 10 vertices, each density with each.
        graph = random_checkpoint_graph(seed, 4 + seed % 7, _DENSITIES[seed // 7 % 3])
        yield _graph(f"random-{seed}", graph)
        stated = arbitrary_graph_solver(graph).objective
        best = exhaustive_selection(graph, recomputes_closed_sets).objective
        key = "arbitrary-graph-solver-closed"
        yield Experiment(key, f"random-{seed}", Fraction(stated), best, best)
    for published in TABLE_1 if networks else ():
        if published.name.startswith("resnet"):
            graph = reforwarding_network(published.name, published.batch, published.image)
            yield _graph(published.name, graph, small=False)


def _graph(name: str, graph: CheckpointGraph, small: bool = True) -> Experiment:
    found = arbitrary_graph_solver(graph)
    if small:
        best = exhaustive_selection(graph).objective
    else:
        best = least_selection(graph, found.selection).selection.objective
    return Experiment("arbitrary-graph-solver", name, Fraction(found.objective), best, best)


def _chains(count: int) -> Iterator[Experiment]:
    rng = random.Random("claims about chains")
    for number in range(count):
        largest = rng.choice((1, 3, 9, 50))
        sizes = [rng.randint(1, largest) for _ in range(rng.randint(2, 11))]
        for key, (name, model) in _MODELS.items():
            best = least(sizes, model)
            stated = Fraction(SELECTIONS[name].select(sizes).memory)
            yield Experiment(key, f"chain-{number}", stated, best, best)


def least(sizes: Sequence[int], memory: Callable[[Sequence[int], Sequence[int]], int]) -> int:
    """Return the least memory of all sets of checkpoints; the ends are among them."""
    last = len(sizes) - 1
    inner = range(1, last)
    return min(
        memory(sizes, (0, *chosen, last))
        for count in range(len(inner) + 1)
        for chosen in combinations(inner, count)
    )


def main() -> None:
    """Compute everything and replace the section."""
    path = DOCS / "claims.md"
    section = recomputation_section(list(experiments()))
    text = replaced(path.read_text(encoding="utf-8"), HEADING, section)
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
    print(f"wrote the section about recomputation of {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
