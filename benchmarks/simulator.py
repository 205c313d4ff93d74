"""How fast plans are evaluated, compiled and interpreted, on chains of several lengths.

python benchmarks/simulator.py -o out/simulator.json
"""

from __future__ import annotations

import argparse
import random
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from offcert.core.chain import Chain
from offcert.core.documents import write_json
from offcert.core.platform import Platform
from offcert.heuristics.orders.local_search import local_search
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import Simulator, moves_to_arrays, run_claims

SECONDS = 0.3


def chain_problem(stages: int) -> Problem:
    """Return a random chain in which moving everything takes about as long as computing."""
    rng = random.Random(stages)
    chain = Chain(
        [rng.randint(20, 60) for _ in range(stages)],
        [rng.randint(20, 60) for _ in range(stages)],
        [rng.randint(10, 100) for _ in range(stages + 1)],
        [rng.randint(1, 10) for _ in range(stages + 1)],
    )
    problem = Problem(f"chain {stages}", chain, Platform(10**9, Fraction(3, 2)))
    return problem.with_memory(problem.memory_at(Fraction(1, 10)))


def measure(stages: int) -> dict[str, Any]:
    """Return evaluations a second of a good plan, compiled and interpreted."""
    problem = chain_problem(stages)
    simulator = Simulator(problem)
    plan = local_search(problem, max_restarts=1)
    arrays = moves_to_arrays(plan.moves)
    expected = simulator.evaluate(*arrays)
    starts = np.empty(len(plan.moves), dtype=np.int64)

    def compiled() -> int:
        return simulator.evaluate(*arrays)

    def interpreted() -> int:
        return int(run_claims.py_func(simulator.tables, False, *arrays, starts, *simulator.scratch))

    rates = {}
    for name, evaluate in (("compiled", compiled), ("interpreted", interpreted)):
        count = 0
        begun = time.perf_counter()
        while time.perf_counter() - begun < SECONDS:
            assert evaluate() == expected
            count += 1
        rates[name] = count / (time.perf_counter() - begun)
    return {
        "stages": stages,
        "moves": len(plan.moves),
        "evaluations_per_second": rates["compiled"],
        "ratio_to_interpreted": rates["compiled"] / rates["interpreted"],
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = [measure(stages) for stages in (8, 24, 50, 101)]
    for row in rows:
        print(
            f"{row['stages']:>4} stages, {row['moves']:>3} moves: "
            f"{row['evaluations_per_second']:>9.0f} evaluations/s, "
            f"{row['ratio_to_interpreted']:.0f} times the interpreted simulator"
        )
    if options.output is not None:
        write_json(options.output, rows)


if __name__ == "__main__":
    main()
