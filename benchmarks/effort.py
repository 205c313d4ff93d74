"""Whether the effort that `offcert generate core` counts stands for the time that `certify` takes.

    python benchmarks/effort.py --problems 60 -o out/effort.json

Random chains of 10 to 22 stages at random memory and bandwidth; of each the effort, and the time of
`certify` with one thread. Problems that stay open in that time are ranked by their gap. Printed is
Spearman's rank correlation.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.questions.schedule.problem import Problem
from offcert_lab.hunts.effort import effort
from offcert_lab.hunts.phase import CoreProblems

SHAPES = ("cnn", "cnn-spiky", "uniform", "uniform-spiky", "broad", "narrow", "narrow-spiky")


def drawn(rng: random.Random) -> Problem:
    """Return a random chain at a random point of the map."""
    core = CoreProblems(shape=rng.choice(SHAPES), stages=rng.randrange(10, 23, 2))
    memory, ratio = Fraction(rng.randrange(33), 80), Fraction(rng.randrange(4, 33), 8)
    return core.at(rng.randrange(1000), memory, ratio)


def measure(problem: Problem, labels: int, time_limit: float) -> dict[str, Any]:
    """Return the effort on a problem, and the time and gap of `certify`."""
    found = effort(problem, labels)
    result = certify(problem, time_limit=time_limit, workers=1).result
    assert result.objective is not None
    return {
        "name": problem.name,
        "memory": problem.platform.memory,
        "source": dict(problem.source or {}),
        "labels": found.labels,
        "effort_gap": float(found.gap),
        "seconds": result.runtime,
        "gap": (result.objective - result.lower_bound) / result.objective,
    }


def ranks(values: Sequence[Any]) -> list[float]:
    """Return the rank of each value, the mean one where several are equal."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    return [first[value] + (ordered.count(value) - 1) / 2 for value in values]


def rank_correlation(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return Spearman's rank correlation."""
    first, second = ranks(one), ranks(other)
    means = fmean(first), fmean(second)
    product = sum((a - means[0]) * (b - means[1]) for a, b in zip(first, second, strict=True))
    squares = [
        sum((value - mean) ** 2 for value in row)
        for row, mean in zip((first, second), means, strict=True)
    ]
    return float(product / (squares[0] * squares[1]) ** 0.5)


def correlation(rows: list[dict[str, Any]]) -> float:
    """Return how well the order by effort agrees with the order by time."""
    counted = [(row["effort_gap"], row["labels"]) for row in rows]
    # Whatever is open took all of its time; by how much it missed the limit is chance.
    timed = [(row["gap"] > 0, 0 if row["gap"] else row["seconds"], row["gap"]) for row in rows]
    return rank_correlation(counted, timed)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    rows: list[dict[str, Any]] = []
    begun = time.monotonic()
    for number in range(1, options.problems + 1):
        rows.append(measure(drawn(rng), options.labels, options.time_limit))
        spent = time.monotonic() - begun
        print(f"{spent:7.1f} s  {number}/{options.problems} {rows[-1]}", file=sys.stderr)
    found = correlation(rows)
    still = sum(row["gap"] > 0 for row in rows)
    print(f"{len(rows)} problems, {still} open: rank correlation {found:.3f}")
    if options.output is not None:
        write_json(options.output, {"rank_correlation": found, "rows": rows})


if __name__ == "__main__":
    main()
