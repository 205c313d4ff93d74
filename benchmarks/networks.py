"""Certify networks at several memory limits, and put heuristics or other clocks beside the result.

    python benchmarks/networks.py resnet50 --memory 0,10,25,50,75 -o out/networks.json
    python benchmarks/networks.py densenet201 --clock stages,modules,operators \
        --memory 0,25,50 -o out/clocks.json

Prints Markdown tables and writes everything as JSON. With one clock, the makespans of the papers'
heuristics are given as ratios to the best one found in the same run.

Memory is given in per cent of the range of the first clock, or as sizes such as 2731MiB; all clocks
get the same. A trace of stages counts the batch, which may leave; with the other clocks the batch
stays where it is, and its bytes are taken off the limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.documents import write_json
from offcert.core.errors import MethodError
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, parse_memory
from offcert.runtime import zoo
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert.verification.document import verify
from offcert_lab.stages.problem import stage_problem

HEURISTICS = ("greedy", "dynprog")


def measure(problem: Problem, memory: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return one row: what a certificate claims, which independent code has verified."""
    limited = problem.with_memory(memory)
    begun = time.monotonic()
    certificate = certify(limited, time_limit=options.time_limit, workers=options.workers)
    seconds = time.monotonic() - begun
    result = certificate.result
    begun = time.monotonic()
    verification = verify(certificate.to_json())
    assert verification.valid, verification.faults
    return {
        "network": problem.name,
        "clock": clock_of(problem),
        "operations": len(problem.trace),
        "memory": memory,
        "least_memory": problem.trace.least_memory,
        "compute_time": problem.trace.compute_time,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "gap": None if result.objective is None else result.gap,
        "status": str(result.status),
        "evidence": str(verification.evidence),
        "seconds": result.runtime,
        "wall_seconds": seconds,
        "verify_seconds": time.monotonic() - begun,
        "bounds": {bound.method: bound.value for bound in result.bounds},
        **({} if len(options.clock) > 1 else heuristics(limited, certificate)),
    }


def heuristics(problem: Problem, certificate: Certificate) -> dict[str, float | None]:
    """Return the heuristics' ratios to the makespan of the certificate, or None without a plan."""
    best = certificate.result.objective
    assert best is not None
    ratios: dict[str, float | None] = {}
    for name in HEURISTICS:
        try:
            found = solve(problem, name).result.objective
        except MethodError:
            found = None
        ratios[name] = None if found is None else found / best
    return ratios


def clock_of(problem: Problem) -> str:
    """Return the clock of a profile."""
    return str((problem.source or {}).get("clock", "stages"))


def batch_bytes(problem: Problem) -> int:
    """Return the bytes of the batch if the trace does not count them."""
    return int((problem.source or {}).get("uncounted", {}).get("batch", 0))


def table(rows: list[dict[str, Any]], problem: Problem) -> str:
    """Return the rows of one clock as a Markdown table."""
    lines = [
        "| memory | step | of computing | gap | evidence | found in | GREEDY | DYNPROG |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        ratios = [f"{row[name]:.3f}" if row[name] else "no plan" for name in HEURISTICS]
        lines.append(
            f"| {row['limit']} = {format_size(row['equal_memory'], problem.units)} "
            f"| {format_time(row['objective'], problem.units)} "
            f"| {row['objective'] / row['compute_time']:.2f} × "
            f"| {100 * row['gap']:.2g} % | {row['evidence']} | {row['seconds']:.1f} s "
            f"| {' | '.join(ratios)} |"
        )
    return "\n".join(lines)


def clock_table(rows: list[dict[str, Any]], problems: list[Problem]) -> str:
    """Return the rows of several clocks side by side: step and gap at equal memory."""
    units = problems[0].units
    lines = [
        f"| memory | {' | '.join(map(clock_of, problems))} |",
        f"| --- |{' ---: |' * len(problems)}",
        f"| operations | {' | '.join(str(len(p.trace)) for p in problems)} |",
    ]
    least = (p.trace.least_memory + batch_bytes(p) for p in problems)
    lines.append(f"| least memory | {' | '.join(format_size(size, units) for size in least)} |")
    limits = dict.fromkeys((row["limit"], row["equal_memory"]) for row in rows)
    for limit, memory in limits:
        cells = [cell(row, problems[0]) for row in rows if row["limit"] == limit]
        size = format_size(memory, units)
        lines.append(f"| {size if limit == size else f'{limit} = {size}'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(row: dict[str, Any], problem: Problem) -> str:
    """Return the step and the gap of one row."""
    if row["objective"] is None:
        return "does not fit" if row["status"] == "INFEASIBLE" else "no plan found"
    step = format_time(row["objective"], problem.units)
    return f"{step} ({100 * row['gap']:.2g} %)" if row["gap"] else f"{step} (optimal)"


def equal_memory(text: str, problem: Problem) -> tuple[str, int]:
    """Return the name of a limit and its bytes, with the batch."""
    if not text.replace(".", "").isdigit():
        return text, parse_memory(text, problem)
    return f"{text} %", problem.memory_at(Fraction(text) / 100) + batch_bytes(problem)


def run(network: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Certify one network with every clock at every limit, print its table and return the rows."""
    card = hardware(options.hardware, peak=True)
    # With other clocks what is trained is the network of blocks.
    dense = {"stages": options.dense} if zoo.stage_options(network) else {}
    problems = [
        stage_problem(network, options.input, card, options=dense)
        if clock == "stages"
        else profile(network, options.input, clock=clock, hardware=card, recompute="none")
        for clock in options.clock
    ]
    rows = []
    for text in options.memory.split(","):
        limit, memory = equal_memory(text, problems[0])
        for problem in problems:
            row = measure(problem, memory - batch_bytes(problem), options)
            row |= {"limit": limit, "equal_memory": memory}
            print(json.dumps(row), file=sys.stderr)
            rows.append(row)
    made = clock_table(rows, problems) if len(problems) > 1 else table(rows, problems[0])
    print(f"\n{problems[0].name}\n\n{made}")
    return rows


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--input", default="32x3x224x224")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument(
        "--clock",
        type=lambda text: text.split(","),
        default=["stages"],
        help="stages (default), modules, operators, or several of them, separated by commas",
    )
    parser.add_argument(
        "--dense",
        choices=("layers", "blocks"),
        default="layers",
        help="what of a DenseNet is a stage: a dense layer (default), or a whole block",
    )
    parser.add_argument("--memory", default="0,5,10,25,50,75", help="per cent, or sizes")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for network in options.networks:
        rows += run(network, options)
        if options.output is not None:
            write_json(options.output, rows)


if __name__ == "__main__":
    main()
