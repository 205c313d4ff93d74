"""Close small joint problems: how many are solved and proved, and what verifying takes.

    python benchmarks/joint_exact.py -o out/joint_exact.json
    python benchmarks/joint_exact.py --computations 11-13 --problems 30 --time-limit 60 --ask time

Every problem is random: a forward pass on a graph, some of it changed in place, some not to run
again, then a backward pass; everything repeatable may run again, what is evictable may leave, on
simplex and duplex links. Asked is for the least time, the least time where nothing may leave
("held"), the least memory, and the least memory within a deadline, each of which may be held, too.
Each is certified and verified. Prints a Markdown table, a line a question, seconds of CPU; what
stays open goes to stderr, and all is written as JSON.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.computations import Computation, Value
from offcert.core.documents import write_json
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.result import Evidence, SolveStatus
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.document import verify

ASKED = (
    "time",
    "time, held",
    "memory",
    "memory, held",
    "memory by a deadline",
    "memory by a deadline, held",
)
COLUMNS = (
    "computations",
    "least",
    "closed and verified",
    "infeasible",
    "longest to certify",
    "longest to verify",
)


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


def asked(problem: Problem, ask: str, seed: int) -> Problem:
    """Return the question about a problem: least time, with transfers or not, or least memory."""
    if "held" in ask:
        problem = replace(problem, offload=False)
    if "memory" in ask:
        problem = replace(problem, minimise=Minimise.MEMORY)
    if "deadline" in ask:
        spare = random.Random(seed).randint(0, 20)
        problem = replace(problem, deadline=problem.trace.compute_time + spare)
    return problem


def measure(problem: Problem, time_limit: float) -> dict[str, Any]:
    """Return objective and bound after so many seconds, and whether verification agrees."""
    begun = time.process_time()
    certificate = certify(problem, time_limit=time_limit)
    middle = time.process_time()
    verification = verify(certificate.to_json())
    end = time.process_time()
    result = certificate.result
    proved = result.status is SolveStatus.OPTIMAL and result.evidence is Evidence.PROVED
    closed = proved or result.status is SolveStatus.INFEASIBLE
    return {
        "problem": problem.name,
        "status": str(result.status),
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "closed_and_verified": closed and verification.valid,
        "certify_seconds": middle - begun,
        "verify_seconds": end - middle,
    }


def line(what: list[str], rows: list[dict[str, Any]]) -> str:
    """Return the figures as a line of a Markdown table."""
    closed = sum(row["closed_and_verified"] for row in rows)
    impossible = sum(row["status"] == SolveStatus.INFEASIBLE for row in rows)
    slowest = [max(row[f"{part}_seconds"] for row in rows) for part in ("certify", "verify")]
    cells = [*what, f"{closed} of {len(rows)}", str(impossible), *(f"{s:.2g} s" for s in slowest)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--computations", nargs="+", default=["4-7", "8-10"], help="least and most")
    parser.add_argument("--problems", type=int, nargs="+", default=[120, 30])
    parser.add_argument("--time-limit", type=float, nargs="+", default=[5.0, 60.0])
    parser.add_argument("--ask", nargs="+", choices=ASKED, default=[*ASKED])
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * (len(COLUMNS) - 2)}")
    document = []
    sets = zip(options.computations, options.problems, options.time_limit, strict=True)
    for (computations, problems, limit), ask in product(sets, options.ask):
        least, most = map(int, computations.split("-"))
        rows = []
        for seed in range(options.seed, options.seed + problems):
            problem = asked(drawn(seed, least + seed % (most - least + 1)), ask, seed)
            rows.append({"asked": ask, **measure(problem, limit)})
            if not rows[-1]["closed_and_verified"]:
                print(rows[-1], file=sys.stderr, flush=True)
        print(line([computations, ask], rows), flush=True)
        document += rows
        if options.output is not None:
            write_json(options.output, document)


if __name__ == "__main__":
    main()
