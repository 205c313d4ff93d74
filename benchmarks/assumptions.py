"""The cost of each assumption of the combined paper, on random chains.

    python benchmarks/assumptions.py [--chains 8] [--stages 3 4 5] [--seconds 20] [--output FILE]

For every chain, memory and bandwidth the optimum under all assumptions is found by enumeration
(`papers.combined`), then that with each of them lifted, and with all. A cell says on
how many of the problems the optimum is shorter, and by how much on average and at most; where
lifting an assumption makes problems feasible that were not, that is counted as well. Whole
transfers are no assumption but the opposite: what they cost is what they add. Times are those of
the optimum divided by that under all assumptions; no time is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.documents import write_json
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.questions.schedule.problem import Problem, Recompute
from papers.combined.assumptions import NAMES, PUBLISHED, Assumptions
from papers.combined.exact import CombinedOutcome, solve_combined

Row = dict[str, Any]

# Of the way from the least memory that any operation takes to the peak.
MEMORIES = (Fraction(0), Fraction(1, 5), Fraction(2, 5))
# Bytes a tick; an activation has about as many bytes as its stage takes ticks.
BANDWIDTHS = (Fraction(1, 4), Fraction(1, 2), Fraction(1))
LIFTED = "all"
LIFTED_WHOLE = "all, whole transfers"
WHOLE = "whole transfers"

WORDS = {
    "operations": "stages keep their input with what they keep",
    "persistent": "stored until the backward operation, and the next",
    "nested": "recomputed just before, from the last that is stored",
    "early_offloads": "no offload after the loss",
    "late_prefetches": "no prefetch before the loss",
    "stage_inputs": "only stage inputs leave, as wholes",
    LIFTED: "all of these",
    WHOLE: "(transfers are whole instead)",
    LIFTED_WHOLE: "(all of these, and transfers are whole)",
}


def variants() -> dict[str, Assumptions]:
    """Return the assumptions to be compared with the optimum under all of them, by name."""
    found = {name: PUBLISHED.without(name) for name in NAMES if name != "pausing"}
    # What is given up and computed anew is of use in no other order.
    found["persistent"] = PUBLISHED.without("persistent").without("nested")
    return {
        **found,
        LIFTED: Assumptions.lifted(),
        WHOLE: PUBLISHED.without("pausing"),
        LIFTED_WHOLE: Assumptions.lifted(pausing=False),
    }


def random_chain(rng: random.Random, stages: int) -> CheckpointChain:
    """Draw a chain whose outputs shrink with depth and whose backward takes twice as long."""
    output = [rng.randint(3, 9) for _ in range(stages + 1)]
    output = [max(1, size * (2 * stages - i) // (2 * stages)) for i, size in enumerate(output)]
    forward = [rng.randint(1, 9) for _ in range(stages)]
    return CheckpointChain(
        forward,
        [2 * time + rng.randint(-1, 1) for time in forward],
        output,
        [size + rng.choice((0, size // 2, size)) for size in output[1:]],
        forward_workspace=[rng.choice((0, 0, 2)) for _ in forward],
        backward_workspace=[rng.choice((0, 0, 3)) for _ in forward],
    )


def problems(chains: int, stages: int, seed: int) -> Iterator[Problem]:
    """Yield every chain at every memory and bandwidth."""
    for number in range(chains):
        chain = random_chain(random.Random(f"{seed} {stages} {number}"), stages)
        least, peak = max(chain.network().own_memory), chain.network().trace().peak_memory
        for part in MEMORIES:
            memory = least + int((peak - least) * part)
            for bandwidth in BANDWIDTHS:
                name = f"{stages} stages, chain {number}, memory {memory}, bandwidth {bandwidth}"
                yield Problem(name, chain, Platform(memory, bandwidth), recompute=Recompute.CHAIN)


def measured(problem: Problem, seconds: float) -> Row:
    """Return the optima of a problem: ticks, None if there is none, "?" if time ran out."""
    base = solve_combined(problem, time_limit=seconds)
    row: Row = {"problem": problem.name, "base": _told(base)}
    for name, assumptions in variants().items():
        # What is found under all assumptions may be done without them.
        upper = base.objective if assumptions.pausing else None
        found = solve_combined(problem, assumptions, upper_bound=upper, time_limit=seconds)
        row[name] = _told(found)
    return row


def _told(outcome: CombinedOutcome) -> int | str | None:
    if outcome.status is SolveStatus.INFEASIBLE:
        return None
    return outcome.objective if outcome.status is SolveStatus.OPTIMAL else "?"


def summary(rows: list[Row], name: str) -> Row:
    """Return how often and by how much a variant differs from the base."""
    solved = [row for row in rows if row["base"] != "?" and row[name] != "?"]
    both = [row for row in solved if row["base"] and row[name]]
    ratios = [row[name] / row["base"] for row in both]
    return {
        "solved": len(solved),
        "feasible": len(both),
        "differ": sum(ratio != 1 for ratio in ratios),
        "mean": sum(ratios) / len(ratios) if ratios else None,
        "extreme": max(ratios, key=lambda ratio: abs(ratio - 1)) if ratios else None,
        "newly_feasible": sum(row["base"] is None and row[name] is not None for row in solved),
    }


def table(rows: list[Row]) -> str:
    """Return the Markdown table of all variants."""
    lines = [
        "| assumption lifted | solved | shorter on | mean time | extreme | newly feasible |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in variants():
        found = summary(rows, name)
        mean, extreme = (
            "–" if found[key] is None else f"{found[key]:.3f}" for key in ("mean", "extreme")
        )
        lines.append(
            f"| {WORDS[name]} | {found['solved']} of {len(rows)} | {found['differ']} of "
            f"{found['feasible']} | {mean} | {extreme} | {found['newly_feasible']} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--stages", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each optimum")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for stages in options.stages:
        group = []
        for problem in problems(options.chains, stages, options.seed):
            group.append(measured(problem, options.seconds) | {"stages": stages})
            print(json.dumps(group[-1]), file=sys.stderr, flush=True)
        rows += group
        print(f"\n{stages} stages\n\n{table(group)}", flush=True)
    if len(options.stages) > 1:
        print(f"\nall\n\n{table(rows)}")
    if options.output is not None:
        settings = {key: str(value) for key, value in vars(options).items()}
        write_json(options.output, {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
