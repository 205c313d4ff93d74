"""The cost of addresses: small problems, solved with and without.

    python benchmarks/fragmentation.py --problems 100 --time-limit 10 -o out/fragmentation.json

Two families, drawn from seeds. ``any``: traces whose tensors have any uses and sizes, at little
memory. ``fragmented``: traces that fit into their memory, but if nothing leaves there are no
addresses in a pool of that size. Every schedule with addresses is verified. Prints a Markdown table
and writes everything as JSON; optima are CP-SAT's word.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify
from papers.fragmentation.price import price_of_fragmentation

# Bytes, first operation, and the one after the last.
Row = tuple[int, int, int]


def any_trace(rng: random.Random, name: str) -> Problem:
    """Return tensors with any uses, at most two bytes above the least memory."""
    count = rng.randint(6, 10)
    operations = [
        Operation(f"o{i}", rng.choice((1, 1, 2, 3)), rng.choice((0, 0, 0, 1, 2)))
        for i in range(count)
    ]
    tensors = []
    for index in range(rng.randint(7, 12)):
        first = rng.randint(-1, count - 2)
        uses = rng.sample(range(first + 1, count), min(rng.choice((1, 1, 2)), count - first - 1))
        tensors.append(Tensor(f"t{index}", rng.choice((1, 1, 2, 2, 3)), (first, *sorted(uses))))
    trace = Trace(operations, tensors)
    memory = rng.randint(trace.least_memory, min(trace.peak_memory, trace.least_memory + 2))
    return _on(rng, name, trace, memory)


def fragmented(rng: random.Random, name: str) -> Problem:
    """Return a trace whose load is its memory, without addresses unless something leaves."""
    while True:
        span, memory = rng.randint(5, 8), rng.choice((4, 5, 6))
        rows = _full(rng, span, memory, rng.randint(7, 10))
        if max(_taken(rows, span)) == memory and not fits(rows, memory):
            break
    operations = [Operation(f"o{i}", rng.choice((1, 2, 3))) for i in range(span)]
    tensors = [
        Tensor(f"t{index}", size, tuple(sorted({start, end - 1})))
        for index, (size, start, end) in enumerate(rows)
    ]
    return _on(rng, name, Trace(operations, tensors), memory)


def _on(rng: random.Random, name: str, trace: Trace, memory: int) -> Problem:
    link = rng.choice((Link.SIMPLEX, Link.DUPLEX))
    return Problem(name, trace, Platform(memory, Fraction(rng.choice((1, 2))), link))


def _full(rng: random.Random, span: int, memory: int, most: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(60):
        start = rng.randrange(span)
        row = (rng.choice((1, 1, 2, 2, 3)), start, rng.randint(start + 1, span))
        if len(rows) < most and max(_taken([*rows, row], span)) <= memory:
            rows.append(row)
    return rows


def _taken(rows: list[Row], span: int) -> list[int]:
    return [sum(size for size, s, e in rows if s <= time < e) for time in range(span)]


def fits(rows: list[Row], pool: int) -> bool:
    """Whether addresses exist in a pool; tries all, in the order of time."""
    return _fits(sorted(rows, key=lambda row: (row[1], -row[0])), pool, [])


def _fits(rows: list[Row], pool: int, there: list[tuple[int, int]]) -> bool:
    if not rows:
        return True
    (size, start, end), *others = rows
    there = [each for each in there if each[0] > start]
    taken = 0
    for _, bytes_ in there:
        taken |= bytes_
    bits = (1 << size) - 1
    return any(
        not taken & bits << address and _fits(others, pool, [*there, (end, bits << address)])
        for address in range(pool - size + 1)
    )


FAMILIES = {"any": any_trace, "fragmented": fragmented}


def measure(problem: Problem, family: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one row: both optima, and the seconds that they took."""
    begun = time.process_time()
    price = price_of_fragmentation(problem, time_limit=options.time_limit, seed=options.seed)
    if price.placed.schedule is not None:
        verification = verify(price.certificate())
        assert verification.valid, verification.faults
    return {
        "name": problem.name,
        "family": family,
        "operations": len(problem.trace),
        "tensors": len(problem.trace.tensors),
        "gaps": len(problem.trace.gaps),
        "memory": problem.platform.memory,
        "closed": price.closed,
        "without": price.without.makespan,
        "placed": price.placed.makespan,
        "impossible": price.placed.infeasible and not price.without.infeasible,
        "price": price.ticks,
        "cpu_seconds": round(time.process_time() - begun, 3),
    }


def rows_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row a problem."""
    for family, draw in FAMILIES.items():
        for number in range(options.problems):
            name = f"{family}-{options.seed + number}"
            row = measure(draw(random.Random(name), name), family, options)
            print(f"{name}: {row['without']} {row['placed']}", file=sys.stderr)
            yield row


def table(rows: list[dict[str, Any]]) -> str:
    """Return the Markdown table."""
    lines = [
        "| family | problems | solved | price above 0 | no addresses at all | mean | largest |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for family in FAMILIES:
        chosen = [row for row in rows if row["family"] == family]
        closed = [row for row in chosen if row["closed"]]
        parts = [row["price"] / row["without"] for row in closed if row["price"]]
        mean = 100 * sum(parts) / max(1, len([row for row in closed if row["price"] is not None]))
        none = sum(row["impossible"] for row in closed)
        lines.append(
            f"| {family} | {len(chosen)} | {len(closed)} | {len(parts)} | {none} "
            f"| {mean:.1f} % | {100 * max(parts, default=0):.1f} % |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100, help="of each family")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each optimum")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    rows = list(rows_of(options))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.output, {"rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
