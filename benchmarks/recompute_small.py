"""Small graphs where nothing may leave: this search beside HiGHS alone on Checkmate's program.

    python benchmarks/recompute_small.py -o out/recompute_small.json

Twelve graphs of 28 to 64 computations from the library, with its memory limits. Each is certified,
and its program in stages handed to HiGHS as it is; both get the same limit in seconds. Prints for
each the values, the bounds and the seconds of processor time, of this process and of the one that
runs HiGHS together, and writes them as JSON.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.formulations.common.highs import end_process
from offcert.formulations.rematerialisation import checkmate_milp
from offcert.instances.library import Library
from offcert.questions.schedule.problem import Problem

FAMILIES = (
    "checkpoint-chain-held-16-0",
    "checkpoint-chain-held-32-0",
    "recompute-network-4-0",
    "recompute-network-8-0",
)


def problems(names: tuple[str, ...] = FAMILIES) -> Iterator[Problem]:
    """Yield the problems, in which nothing may leave."""
    for family in Library().families():
        if family.name in names:
            for entry in family.entries:
                yield replace(entry.problem, offload=False, name=f"{entry.name}, held")


def processor_seconds(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result, and its seconds of processor time, those of its processes included."""

    def used() -> float:
        end_process()
        usage = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return sum(each.ru_utime + each.ru_stime for each in usage)

    before = used()
    result = function()
    return result, round(used() - before, 2)


def measure(problem: Problem, time_limit: float) -> dict[str, Any]:
    """Return values, bounds and seconds of both."""
    ours, seconds = processor_seconds(lambda: certify(problem, time_limit=time_limit, workers=1))
    plain, beside = processor_seconds(lambda: checkmate_milp.solve(problem, time_limit=time_limit))
    result = ours.result
    return {
        "problem": problem.name,
        "computations": len(problem.trace),
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "proved_bound": result.proved_bound,
        "seconds": seconds,
        "highs_objective": plain.objective,
        "highs_within": plain.within,
        "highs_seconds": beside,
        "ratio": round(seconds / beside, 2),
    }


def main() -> None:
    """Measure all problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    # Loads what is compiled once.
    certify(next(problems()), time_limit=5.0)
    rows = []
    for problem in problems():
        rows.append(measure(problem, options.time_limit))
        print(rows[-1], flush=True)
        if options.output is not None:
            write_json(options.output, rows)


if __name__ == "__main__":
    main()
