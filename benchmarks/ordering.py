"""The cost of an order: Algorithm 1 and ordered schedules against the optimum of Problem 2.

python benchmarks/ordering.py --stages 8,12 --count 6 -o out/ordering.json

Transfers may be interrupted; tensors leave whole. For random chains, prints ratios to that optimum
(mean / extreme (how many)): of the fractional optimum below it, of the best schedule in which all
offloads precede all prefetches, of Algorithm 1's value without discretisation, and of what the
heuristic DYNPROG makes of it with atomic transfers. ``--family cnn``: like convolutional networks,
with workspace spikes in a share of the operations; ``spiky``: few sizes, some 0, no gradients and
spikes that tower over the rest, where bringing a tensor back before another leaves can pay.

Algorithm 1 knows no ticks, and lets some prefetches begin too early (`heuristics.dynprog`), so its
ratio can be below 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.chain import Chain
from offcert.core.documents import write_json
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.formulations.fluid.exact import solve_fluid
from offcert.heuristics.evictions.dynprog import algorithm_1, dynprog
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.simulate import simulate

RATIOS = ("fractional", "ordered", "algorithm_1", "dynprog_atomic")


def cnn_chain(stages: int, seed: int, spikes: float) -> Problem:
    """Return a chain whose activations shrink with depth and whose link is as slow as its device.

    A share `spikes` of the operations, chosen at random, has a workspace of up to the largest
    activation.
    """
    rng = random.Random(1000 * stages + seed)
    decay = 20 ** (-1 / stages)
    activation = [
        max(1, round(200 * decay**stage * 2 ** rng.uniform(-1, 1))) for stage in range(stages + 1)
    ]
    forward = [rng.randint(10, 100) for _ in range(stages)]
    backward = [round(time * rng.uniform(1.6, 2.4)) for time in forward]

    def workspace() -> list[int]:
        return [
            rng.randint(1, max(activation)) if rng.random() < spikes else 0 for _ in range(stages)
        ]

    chain = Chain(forward, backward, activation, activation, workspace(), workspace())
    bandwidth = Fraction(2 * sum(activation), chain.trace().compute_time)
    name = f"cnn-{stages}-{seed}-spikes-{spikes:g}"
    return Problem(name, chain, Platform(0, bandwidth), Transfers.INTERRUPTIBLE)


def spiky_chain(stages: int, seed: int, spikes: float) -> Problem:
    """Return a chain with few sizes and durations, some of them 0, and high workspace spikes."""
    rng = random.Random(1000 * stages + seed)
    activation = [rng.choice((0, 30, 30, 50, 80, 130, 200)) for _ in range(stages + 1)]
    forward, backward = (
        [rng.choice((0, 0, 10, 20, 50, 100, 200)) for _ in range(stages)] for _ in range(2)
    )
    forward_workspace, backward_workspace = (
        [rng.randint(10, 400) if rng.random() < spikes else 0 for _ in range(stages)]
        for _ in range(2)
    )
    gradient = [0] * (stages + 1)
    chain = Chain(forward, backward, activation, gradient, forward_workspace, backward_workspace)
    name = f"spiky-{stages}-{seed}-spikes-{spikes:g}"
    return Problem(name, chain, Platform(0, Fraction(1)), Transfers.INTERRUPTIBLE)


FAMILIES = {"cnn": cnn_chain, "spiky": spiky_chain}


def measure(problem: Problem, percent: int, time_limit: float) -> dict[str, Any]:
    """Return one row; ratios are missing where there is no plan, or no proved optimum."""
    limited = problem.with_memory(problem.memory_at(Fraction(percent, 100)))
    chain, platform = limited.chain, limited.platform
    assert chain is not None
    row: dict[str, Any] = {
        "problem": problem.name,
        "stages": len(chain),
        "memory_percent": percent,
    }
    general = solve_fluid(limited, time_limit=time_limit)
    ordered = solve_fluid(limited, ordered=True, time_limit=time_limit)
    if general.schedule is None or general.schedule.makespan != general.bound:
        return row
    best = general.bound
    row |= {"optimum": best, "fractional": fractional_bound(limited).value / best}
    if ordered.schedule is not None and ordered.schedule.makespan == ordered.bound:
        row["ordered"] = ordered.bound / best
    try:
        value, _ = algorithm_1(chain, platform.memory, platform.bandwidth)
        row["algorithm_1"] = float(value / best)
    except MethodError as error:
        row["algorithm_1_failed"] = str(error)
    try:
        atomic = replace(limited, transfers=Transfers.ATOMIC)
        row["dynprog_atomic"] = simulate(atomic, dynprog(atomic)).makespan / best
    except MethodError as error:
        row["dynprog_failed"] = str(error)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return mean and extreme ratios by number of stages and memory, as a Markdown table."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["stages"], row["memory_percent"]].append(row)
    lines = [
        f"| stages | memory | solved | {' | '.join(RATIOS)} |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (stages, percent), group in sorted(groups.items()):
        cells = []
        for name in RATIOS:
            found = [row[name] for row in group if name in row]
            extreme = min if name == "fractional" else max
            cells.append(
                f"{sum(found) / len(found):.4f} / {extreme(found):.4f} ({len(found)})"
                if found
                else "–"
            )
        solved = sum("optimum" in row for row in group)
        lines.append(f"| {stages} | {percent} % | {solved} of {len(group)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", default="8,12")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--memory", default="0,10,25,50")
    parser.add_argument("--family", choices=FAMILIES, default="cnn")
    parser.add_argument("--spikes", type=float, default=0.25)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for stages in map(int, options.stages.split(",")):
        for percent in map(int, options.memory.split(",")):
            for seed in range(options.count):
                problem = FAMILIES[options.family](stages, seed, options.spikes)
                rows.append(measure(problem, percent, options.time_limit))
                print(json.dumps(rows[-1]), file=sys.stderr)
                if options.output is not None:
                    write_json(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
