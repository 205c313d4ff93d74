"""Close small joint problems: how many are solved and proved, and what verifying takes.

    python benchmarks/joint_exact.py --computations 4-7 --problems 120 --time-limit 5
    python benchmarks/joint_exact.py --computations 8-10 --problems 30 --time-limit 60

Every problem is random: a forward pass on a graph, some of it changed in place, some not to run
again, then a backward pass; everything repeatable may run again, what is evictable may leave. Each
is certified and verified. Prints a line for what stays open and a summary, and writes all as JSON,
times as parts of the limit.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certify.ladder import certify
from offcert.core.computations import Computation, Value
from offcert.core.documents import write_json
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.problem import Problem, Recompute
from offcert.core.result import Evidence, SolveStatus
from offcert.verify.document import verify


def drawn(seed: int, computations: int) -> Problem:
    """Return a random problem with so many computations."""
    rng = random.Random(seed)
    network = _network(rng, computations)
    least, peak = max(network.own_memory), network.trace().peak_memory
    # Half of the limits are tight: a quarter of the way up, or less.
    part = Fraction(rng.randint(0, 8), rng.choice((8, 32)))
    memory = least + int(max(0, peak - least) * part)
    back = Fraction(rng.randint(1, 6), rng.randint(1, 4)) if rng.random() < 0.3 else None
    rate = Fraction(rng.randint(1, 6), rng.randint(1, 4))
    platform = Platform(memory, rate, rng.choice(tuple(Link)), back)
    name = f"{computations} computations, seed {seed}"
    return Problem(name, network, platform, recompute=Recompute.ANY)


def _network(rng: random.Random, computations: int) -> Network:
    values = [Value("x", rng.randint(1, 6), rng.random() < 0.8)]
    forward: list[Computation] = []
    live = [0]
    for step in range(max(1, (computations + rng.randint(0, 2)) // 2)):
        reads = {live[-1], rng.choice(live)}
        last = max(reads)
        if step and rng.random() < 0.2:
            # Changed in place, some more than once.
            base = last if (root := values[last].base) is None else root
            values.append(Value(f"v{step}'", 0, False, base=base))
            live.remove(last)
        else:
            values.append(Value(f"v{step}", rng.randint(0, 9), rng.random() < 0.9))
        writes = [len(values) - 1]
        live.append(writes[0])
        if rng.random() < 0.35:
            values.append(Value(f"s{step}", rng.randint(1, 6)))
            writes.append(len(values) - 1)
        reads |= {base for value in reads if (base := values[value].base) is not None}
        forward.append(
            Computation(
                f"F{step}",
                rng.randint(0, 12),
                rng.choice((0, 0, 1, 3)),
                tuple(sorted(reads)),
                tuple(writes),
                rng.random() < 0.9,
                lean=rng.choice((None, None, None, 0, 2)),
            )
        )
    return Network([*forward, *_backward(rng, forward, values, computations)], values)


def _backward(
    rng: random.Random, forward: list[Computation], values: list[Value], computations: int
) -> Iterator[Computation]:
    """Yield computations that read what the forward pass wrote, and the gradient before."""
    gradient: set[int] = set()
    for step in range(computations - len(forward)):
        of = forward[max(0, len(forward) - 1 - step)]
        reads = {v for v in (*of.reads, *of.writes) if rng.random() < 0.7}
        reads |= gradient | {base for v in reads if (base := values[v].base) is not None}
        values.append(Value(f"g{step}", rng.randint(0, 3), evictable=False))
        gradient = {len(values) - 1}
        reads_, writes = tuple(sorted(reads)), tuple(gradient)
        yield Computation(f"B{step}", rng.randint(0, 15), rng.choice((0, 2)), reads_, writes, False)


def measure(problem: Problem, time_limit: float) -> dict[str, Any]:
    """Return what is known of a problem in so many seconds, and whether verifying agrees."""
    begun = time.monotonic()
    certificate = certify(problem, time_limit=time_limit)
    middle = time.monotonic()
    verification = verify(certificate.to_json())
    end = time.monotonic()
    result = certificate.result
    proved = result.status is SolveStatus.OPTIMAL and result.evidence is Evidence.PROVED
    closed = proved or result.status is SolveStatus.INFEASIBLE
    return {
        "problem": problem.name,
        "status": str(result.status),
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "closed_and_verified": closed and verification.valid,
        "certify_of_limit": (middle - begun) / time_limit,
        "verify_of_limit": (end - middle) / time_limit,
    }


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--computations", default="4-7", help="least and most, as 4-7")
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--time-limit", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    least, most = map(int, options.computations.split("-"))
    rows = []
    for seed in range(options.seed, options.seed + options.problems):
        rows.append(measure(drawn(seed, least + seed % (most - least + 1)), options.time_limit))
        if not rows[-1]["closed_and_verified"]:
            print(rows[-1], flush=True)
    print(summary(rows))
    if options.output is not None:
        write_json(options.output, rows)


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the figures in a line."""
    closed = sum(row["closed_and_verified"] for row in rows)
    impossible = sum(row["status"] == SolveStatus.INFEASIBLE for row in rows)
    slowest = [max(row[f"{what}_of_limit"] for row in rows) for what in ("certify", "verify")]
    return (
        f"{closed} of {len(rows)} closed and verified, {impossible} of them infeasible; at worst "
        f"{slowest[0]:.2f} of the limit to certify, {slowest[1]:.2f} to verify"
    )


if __name__ == "__main__":
    main()
