"""How long the combined paper's dynamic program takes, and what slots and its operations cost.

    python benchmarks/combined.py [--stages 50 100] [--slots 25 50] [--chains 2] [--output FILE]

Seconds are of one core (CPU time), of compiled code, which is warmed up first. What is found is
timed exactly, with transfers that pause and turn at the loss, and with whole ones, all out before
all back; its overhead is what it takes above the computing time.
"Bare" are sweeps that keep all of their last stage but not its input, which the paper's operations
cannot.
"""

from __future__ import annotations

import argparse
import random
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.joint_methods import warm_combined
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.documents import write_json
from offcert.core.errors import NoPlanError
from offcert.core.platform import Platform
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.problem import Problem, Recompute
from papers.combined.turned import fluid

Row = dict[str, Any]

MEMORIES = (Fraction(1, 12), Fraction(1, 4))


def random_chain(rng: random.Random, stages: int) -> CheckpointChain:
    """Draw a chain in bytes and nanoseconds, which moves in about three times its computing."""
    output = [rng.randint(5, 100) * 10**6 for _ in range(stages + 1)]
    saved = [size * rng.randint(1, 4) for size in output[1:]]
    forward = [rng.randint(1, 20) * 10**5 for _ in range(stages)]
    backward = [2 * duration + rng.randint(0, 10**5) for duration in forward]
    return CheckpointChain(forward, backward, output, saved)


def measured(problem: Problem, slots: int, bare: bool) -> Row:
    """Return seconds of one core and what was found, with `slots` and either set of sweeps."""
    began = time.process_time()
    row: Row = {"problem": problem.name, "slots": slots, "bare": bare}
    try:
        plan = combined_plan(problem, slots, bare=bare)
    except NoPlanError:
        return row | {"seconds": time.process_time() - began}
    row["seconds"] = time.process_time() - began
    compute = problem.trace.compute_time
    alone = None
    with suppress(NoPlanError):
        alone = combined_plan(problem, slots, bare=bare, offload=False).value / compute - 1
    return row | {
        "value": plan.value / compute - 1,
        "overhead": fluid(plan, problem).makespan / compute - 1,
        "whole": plan.atomic(problem).makespan / compute - 1,
        "without_link": alone,
        "leave": len(plan.gaps),
        "again": plan.execution.repeated,
    }


def problems(stages: int, chains: int) -> list[Problem]:
    """Return chains at either memory, at 12.2 bytes a nanosecond."""
    found = []
    for number in range(chains):
        chain = random_chain(random.Random(f"{stages} {number}"), stages)
        least, peak = max(chain.network().own_memory), chain.network().trace().peak_memory
        for part in MEMORIES:
            platform = Platform(least + int((peak - least) * part), Fraction(61, 5))
            name = f"{stages} stages, chain {number}, {part} of the way"
            found.append(Problem(name, chain, platform, recompute=Recompute.CHAIN))
    return found


def shown(row: Row) -> str:
    """Return the line of a Markdown table."""
    kind = "bare" if row["bare"] else "paper"
    begin = f"| {row['problem']} | {row['slots']} | {kind} | {row['seconds']:.2f} |"
    if "value" not in row:
        return f"{begin} no plan | | | | | |"
    alone = row["without_link"]
    numbers = [f"{row[key]:.1%}" for key in ("value", "overhead", "whole")]
    numbers.append("no plan" if alone is None else f"{alone:.1%}")
    return f"{begin} {' | '.join(numbers)} | {row['leave']} | {row['again']} |"


HEADER = (
    "| problem | slots | operations | s | overhead in slots | exactly | whole transfers | "
    "without a link | leave | again |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--slots", type=int, nargs="+", default=[25, 50])
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    warm_combined()
    rows: list[Row] = []
    print(HEADER)
    for stages in options.stages:
        for problem in problems(stages, options.chains):
            for slots in options.slots:
                for bare in (False, True):
                    rows.append(measured(problem, slots, bare))
                    print(shown(rows[-1]), flush=True)
    if options.output is not None:
        settings = {key: str(value) for key, value in vars(options).items()}
        write_json(options.output, {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
