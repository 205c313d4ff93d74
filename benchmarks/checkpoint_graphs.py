"""Least peak memory by recomputation on graphs: published solver against optimum.

    python benchmarks/checkpoint_graphs.py random [--graphs 300]
    python benchmarks/checkpoint_graphs.py networks [--proofs] [--gap 1/20]
    python benchmarks/checkpoint_graphs.py captured [--models resnet18,...]

``random`` says how often the re-forwarding paper's solver for arbitrary graphs is worse than the
best of all selections, and how much. ``networks`` sets the "memory cut" of that solver and of the
optimum beside the published column of Table 1, and beside what PyTorch counts: maxima of poolings,
gradients, what is lost already. With ``--proofs`` it also looks for a bound on each optimum that is
verified without a solver: seconds for graphs of 80 vertices, many minutes for larger ones unless
a gap is allowed (ResNet-50: 5 % in half a minute). ``captured`` does the same on the zoo's captured
steps, with exact live bytes. Each prints a table and writes ``out/checkpoint_graphs/*.json``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.heuristics.checkpoint.division_tree import Reading
from offcert.heuristics.checkpoint.graph_networks import NetworkGraph, graph_of
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection
from papers.checkpoint_graphs.exhaustive import exhaustive_selection
from papers.checkpoint_graphs.frontier import TooWideError
from papers.checkpoint_graphs.least import least_selection
from papers.checkpoint_graphs.networks import TABLE_1, PublishedNetwork, reforwarding_network
from papers.checkpoint_graphs.packing import packing_bound
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph
from papers.checkpoint_graphs.training_steps import training_step
from papers.claims.selection_check import graph_bound_fault

FOLDER = Path("out/checkpoint_graphs")
MIB = 2**20
# Points of "memory cut" from which on a difference wants a reason.
POINTS = 5
DENSITIES = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
CAPTURED = {
    "alexnet": "16x3x224x224",
    "vgg16": "4x3x224x224",
    "resnet18": "8x3x224x224",
    "resnet50": "4x3x224x224",
    "densenet121": "4x3x224x224",
    "gpt-tiny": "4x32",
}


def random_row(seed: int) -> dict[str, Any]:
    """Return both readings of the published solver and the optimum on a random graph, in bytes."""
    graph = random_checkpoint_graph(seed, 4 + seed % 7, DENSITIES[seed // 7 % 3])
    best = exhaustive_selection(graph).objective
    found = {reading: arbitrary_graph_solver(graph, reading) for reading in Reading}
    row: dict[str, Any] = {"seed": seed, "vertices": len(graph), "optimum": best}
    for reading, solution in found.items():
        row[str(reading)] = solution.objective
        row[f"{reading}_stated"] = solution.stated
    return row


def random_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how often each reading is worse, and how much at most."""
    summary: dict[str, Any] = {"graphs": len(rows)}
    for reading in map(str, Reading):
        ratios = [Fraction(row[reading], row["optimum"]) for row in rows if row["optimum"]]
        summary[reading] = {
            "worse": sum(ratio > 1 for ratio in ratios),
            "equal": sum(ratio == 1 for ratio in ratios),
            "better": sum(ratio < 1 for ratio in ratios),
            "largest_ratio": float(max(ratios)),
            "states_less_than_it_takes": sum(r[f"{reading}_stated"] < r[reading] for r in rows),
        }
    return summary


def network_row(
    published: PublishedNetwork, proofs: bool, gap: Fraction = Fraction(0)
) -> dict[str, Any]:
    """Return a row of Table 1 as published, by the paper's model, and by live bytes."""
    began = time.process_time()
    graph = reforwarding_network(published.name, published.batch, published.image)
    solver = arbitrary_graph_solver(graph)
    solver_seconds = time.process_time() - began
    best = least_selection(graph, solver.selection).selection
    row: dict[str, Any] = {
        "network": published.name,
        "batch": published.batch,
        "vertices": len(graph),
        "published": [published.regular, published.reforwarding, published.cut],
        "bytes": graph.inner_bytes,
        "solver": solver.objective,
        "optimum": best.objective,
        "solver_cut": cut(solver.objective, graph.inner_bytes),
        "optimum_cut": cut(best.objective, graph.inner_bytes),
    }
    row |= live_row(published, solver.selection, best)
    row["reason"] = reason(row)
    row["seconds"] = [round(solver_seconds, 2), round(time.process_time() - began, 2)]
    if proofs:
        row |= proof_row(graph, best, gap)
    return row


def live_row(
    published: PublishedNetwork, solver: GraphSelection, best: GraphSelection
) -> dict[str, Any]:
    """Return live bytes of a step with gradients, with and without the maxima of poolings.

    What is stored is what was chosen without knowing of these.
    """
    live: dict[bool, list[int]] = {}
    for maxima in (True, False):
        graph = reforwarding_network(
            published.name, published.batch, published.image, indices=maxima
        )
        made = graph_of(training_step(graph, unread(graph)))
        chosen = [made.graph.select(each.stored) for each in (solver, best)]
        live[maxima] = [made.network.trace().peak_memory, *map(made.live_bytes, chosen)]
    plain, by_solver, by_optimum = live[True]
    return {
        "live_plain": plain,
        "live_solver": by_solver,
        "live_optimum": by_optimum,
        "live_cut": cut(by_solver, plain),
        "live_solver_without_maxima": live[False][1],
        "live_cut_maxima_in_plain_training_only": cut(live[False][1], plain),
    }


def unread(graph: CheckpointGraph) -> list[int]:
    """Return vertices that their own backward operation does not need: no ReLU in place ends them.

    The ReLU behind the convolutions of VGG and AlexNet has had its backward step before that of
    the convolution takes memory.
    """
    return [v for v, name in enumerate(graph.names) if not name.startswith(("norm", "sum", "line"))]


def proof_row(graph: CheckpointGraph, best: GraphSelection, gap: Fraction) -> dict[str, Any]:
    """Return the best bound that is found and verified, and how far it is from the optimum."""
    began = time.process_time()
    bound = packing_bound(graph, best, gap=gap)
    fault = graph_bound_fault(graph, bound)
    if fault is not None:
        raise AssertionError(fault)
    return {
        "proved": bound.value,
        "proved_gap": float(1 - Fraction(bound.value, best.objective)),
        "proof_seconds": round(time.process_time() - began, 1),
    }


def cut(found: int, plain: int) -> float:
    """Return the memory cut in percent."""
    return round(100 * (1 - found / plain), 1)


def reason(row: dict[str, Any]) -> str:
    """Return why the published cut and that of the model differ, as far as live bytes say it."""
    published = row["published"][2]
    if abs(row["solver_cut"] - published) <= POINTS:
        return ""
    left = row["live_cut"] - published
    counted = "gradients and maxima of poolings"
    if abs(left) <= POINTS:
        return f"{counted}, which the model does not count"
    if abs(row["live_cut_maxima_in_plain_training_only"] - published) <= POINTS:
        return f"{counted}, the latter as if they took memory in plain training only"
    side = "above" if left > 0 else "below"
    return f"{counted}; with them {abs(left):.0f} points {side}, for a reason not known"


def captured_row(name: str, shape: str) -> dict[str, Any]:
    """Return the published model beside exact live bytes on a captured step."""
    from offcert.runtime.hardware import hardware
    from offcert.runtime.profiling.profile import profile

    network = profile(
        name, shape, clock="operators", hardware=hardware("v100-pcie", peak=True)
    ).computed
    assert network is not None
    made = graph_of(network)
    solver = arbitrary_graph_solver(made.graph)
    row: dict[str, Any] = {
        "network": name,
        "input": shape,
        "vertices": len(made.graph),
        "bytes": made.graph.inner_bytes,
        "solver": solver.objective,
        "live_plain": network.trace().peak_memory,
        "live_solver": made.live_bytes(solver.selection),
    }
    return row | _captured_optimum(made, solver.selection)


def _captured_optimum(made: NetworkGraph, known: GraphSelection) -> dict[str, Any]:
    try:
        best = least_selection(made.graph, known, max_states=20_000).selection
    except TooWideError as error:
        return {"optimum": None, "live_optimum": None, "note": str(error)}
    return {"optimum": best.objective, "live_optimum": made.live_bytes(best)}


def print_networks(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table of `networks`."""
    print(
        "| network | published cut | solver | optimum | solver, live bytes | "
        "solver above optimum | why |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in rows:
        above = 100 * (row["solver"] / row["optimum"] - 1)
        print(
            f"| {row['network']} | {row['published'][2]} % | {row['solver_cut']:.0f} % | "
            f"{row['optimum_cut']:.0f} % | {row['live_cut']:.0f} % | {above:.1f} % | "
            f"{row['reason']} |"
        )
        if "proved" in row:
            print(f"<!-- proved within {100 * row['proved_gap']:.3g} % -->")


def print_captured(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table of `captured`, in MiB."""
    keys = ("bytes", "solver", "optimum", "live_plain", "live_solver", "live_optimum")
    print(f"| network | {' | '.join(keys)} |")
    print("| --- |" + " ---: |" * len(keys))
    for row in rows:
        cells = ["–" if row[key] is None else f"{row[key] / MIB:.1f}" for key in keys]
        print(f"| {row['network']} | {' | '.join(cells)} |")


def main(arguments: Iterable[str] | None = None) -> None:
    """Carry out the command line's choices."""
    parser = argparse.ArgumentParser(description="Recomputation on graphs")
    parser.add_argument("what", choices=("random", "networks", "captured"))
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--networks", default="", help="comma-separated; by default all")
    parser.add_argument("--proofs", action="store_true")
    parser.add_argument("--gap", type=Fraction, default=Fraction(0), help="of proofs (%(default)s)")
    parser.add_argument("--models", default=",".join(CAPTURED))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(None if arguments is None else list(arguments))
    document: dict[str, Any] = {"command": f"benchmarks/checkpoint_graphs.py {options.what}"}
    if options.what == "random":
        rows = [random_row(seed) for seed in range(options.graphs)]
        document["summary"] = random_summary(rows)
        print(document["summary"])
    elif options.what == "networks":
        wanted = set(filter(None, options.networks.split(",")))
        chosen = [row for row in TABLE_1 if not wanted or row.name in wanted]
        rows = [network_row(row, options.proofs, options.gap) for row in chosen]
        print_networks(rows)
    else:
        rows = [captured_row(name, CAPTURED[name]) for name in options.models.split(",")]
        print_captured(rows)
    document["rows"] = rows
    options.folder.mkdir(parents=True, exist_ok=True)
    write_json(options.folder / f"{options.what}.json", document)


if __name__ == "__main__":
    main()
