"""Certify joint plans of networks: time at parts of their peak, or least memory at some overhead.

    python benchmarks/certify_joint.py resnet50 gpt --memory 1/4,1/6 --time-limit 60 -o out/j.json
    python benchmarks/certify_joint.py resnet50 vgg19 --overhead 20% --means offload recompute both

Prints a Markdown table and writes everything as JSON. Every certificate is verified. Limits are
parts of the peak of the step in which everything runs once.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.core.units import parse_percent
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, format_objective
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert.verification.document import verify

INPUTS = {"gpt": "8x256", "inception_v3": "32x3x299x299"}
DEFAULT_INPUT = "32x3x224x224"
# What may run again, and whether anything may leave.
MEANS = {
    "offload": (Recompute.NONE, True),
    "recompute": (Recompute.ANY, False),
    "both": (Recompute.ANY, True),
}


def allowed(problem: Problem, means: str) -> Problem:
    """Return the problem with some means."""
    recompute, offload = MEANS[means]
    return replace(problem, recompute=recompute, offload=offload)


def problems(problem: Problem, options: argparse.Namespace) -> list[tuple[str, str, Problem]]:
    """Return limit, means and problem of each row."""
    if options.overhead is not None:
        overhead = parse_percent(options.overhead, "--overhead")
        deadline = int(problem.trace.compute_time * (1 + overhead))
        asked = [(options.overhead, replace(problem, minimise=Minimise.MEMORY, deadline=deadline))]
    else:
        peak = problem.trace.peak_memory
        parts = options.memory.split(",")
        asked = [(part, problem.with_memory(int(peak * Fraction(part)))) for part in parts]
    return [
        (limit, means, allowed(limited, means))
        for limit, limited in asked
        for means in options.means
    ]


def measure(problem: Problem, options: argparse.Namespace) -> dict[str, Any]:
    """Return the claims of a problem's certificate, which is verified, with seconds."""
    begun, cpu = time.monotonic(), time.process_time()
    certificate = certify(
        problem, time_limit=options.time_limit, workers=options.workers, seed=options.seed
    )
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    begun = time.monotonic()
    verification = verify(certificate.to_json())
    assert verification.valid, verification.faults + verification.unverified
    if options.certificates is not None:
        options.certificates.mkdir(parents=True, exist_ok=True)
        name = f"{problem.name} {problem.means} {problem.objective_summary}".replace("/", "-")
        certificate.write(options.certificates / f"{'-'.join(name.split())}.json")
    return outcome(problem, certificate) | {
        "time_limit": options.time_limit,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "verify_seconds": time.monotonic() - begun,
    }


def least_memory_problem(name: str, means: str, overhead: str) -> Problem:
    """Return the problem of a network's least memory, given its name with its input.

    As a row names it: ``resnet50 16x3x500x500``.
    """
    network, _, given = name.partition(" ")
    problem = profile(
        network,
        given,
        clock="modules",
        hardware=hardware("v100-pcie", peak=True),
        recompute="none",
    )
    deadline = int(problem.trace.compute_time * (1 + parse_percent(overhead, "--overhead")))
    return allowed(replace(problem, minimise=Minimise.MEMORY, deadline=deadline), means)


def outcome(problem: Problem, certificate: Certificate) -> dict[str, Any]:
    """Return the figures of a certificate."""
    result = certificate.result
    found: dict[str, Any] = {
        "network": problem.name,
        "status": str(result.status),
        "compute_time": problem.trace.compute_time,
        "peak": problem.trace.peak_memory,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "evidence": None if result.evidence is None else str(result.evidence),
        "gap": None if result.objective is None else result.gap,
        "makespan": None if result.schedule is None else result.schedule.makespan,
        "bounds": {bound.method: bound.value for bound in result.bounds},
    }
    if result.execution is not None:
        trace = certificate.executed.trace
        found["recomputed"] = trace.compute_time - problem.trace.compute_time
    return found


def line(row: dict[str, Any], problem: Problem) -> str:
    """Return a row as a line of a Markdown table."""
    cells = [row["network"], row["limit"], row["means"]]
    if row["objective"] is None:
        return f"| {' | '.join(cells)} | {row['status'].lower()} | | | |"
    whole = row["peak"] if problem.minimise is Minimise.MEMORY else row["compute_time"]
    ratio = row["objective"] / whole
    bound = row["lower_bound"] / whole
    cells += [
        format_objective(row["objective"], problem),
        f"{ratio:.3f}",
        f"{bound:.3f} ({row['evidence'] or 'none'})",
        f"{100 * row['gap']:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--input", help="by default what suits the network")
    parser.add_argument("--hardware", default="v100-pcie")
    parser.add_argument("--clock", default="modules", choices=("modules", "operators"))
    parser.add_argument("--memory", default="1/4,1/6", help="parts of the peak")
    parser.add_argument("--overhead", help="minimise memory within so much more time, as 20%%")
    parser.add_argument("--means", nargs="+", default=["both"], choices=list(MEANS))
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--certificates", type=Path, help="folder for all certificates")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    what = "peak" if options.overhead is not None else "computing"
    print(f"| network | limit | means | found | of {what} | bound | gap |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    rows = []
    for network in options.networks:
        given = options.input or INPUTS.get(network, DEFAULT_INPUT)
        problem = profile(
            network,
            given,
            clock=options.clock,
            hardware=hardware(options.hardware, peak=True),
            recompute="none",
        )
        for limit, means, asked in problems(problem, options):
            rows.append(measure(asked, options) | {"limit": limit, "means": means})
            print(line(rows[-1], asked), flush=True)
            if options.output is not None:
                write_json(options.output, rows)


if __name__ == "__main__":
    main()
