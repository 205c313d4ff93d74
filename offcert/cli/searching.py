"""What `certify` and `solve` share: which problem, how long, and how the search is shown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, gap, seconds, seed
from offcert.cli.output import native_output_to_stderr, show

if TYPE_CHECKING:
    from offcert.certify.search import Progress
    from offcert.core.problem import Problem
    from offcert.proofs.certificate import Certificate


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say what to solve and for how long."""
    parser.add_argument("problem", metavar="PROBLEM", help="problem file")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--memory", help="limit, for example 40%% or 6GiB; the file's by default")
    limits.add_argument(
        "--device-memory", help="limit with what the trace does not count: parameters and so on"
    )
    parser.add_argument("--bandwidth", help="both ways, for example 12.2GB/s")
    parser.add_argument(
        "--prefetch-bandwidth",
        help="from host to device, if not the same as the other way",
    )
    parser.add_argument("--transfers", help="atomic, interruptible or fractional; default: file's")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S")
    parser.add_argument("--workers", type=count, default=2, metavar="N")
    parser.add_argument("--target-gap", type=gap, default=0.0, metavar="G")
    parser.add_argument("--seed", type=seed, default=0, metavar="N")
    parser.add_argument("-o", "--output", metavar="CERTIFICATE")


def _read_problem(options: argparse.Namespace) -> Problem:
    from dataclasses import replace

    from offcert.core.device_memory import memory_beside, uncounted_bytes
    from offcert.core.files import read_problem
    from offcert.core.plan import Kind
    from offcert.core.units import parse_bandwidth, parse_memory, parse_size

    problem = read_problem(options.problem)
    if options.transfers is not None:
        problem = replace(problem, transfers=options.transfers)
    if options.bandwidth is not None:
        problem = problem.with_bandwidth(parse_bandwidth(options.bandwidth, problem.units))
    if options.prefetch_bandwidth is not None:
        back = parse_bandwidth(options.prefetch_bandwidth, problem.units, "prefetch bandwidth")
        problem = problem.with_bandwidth(problem.platform.rate(Kind.OFFLOAD), back)
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    if options.device_memory is not None:
        size = parse_size(options.device_memory, "device memory")
        problem = problem.with_memory(memory_beside(size, uncounted_bytes(problem)))
    return problem


def search(options: argparse.Namespace, find: Callable[..., Certificate]) -> int:
    """Let `find` search as the options say, write what it returns, and say what that is."""
    from offcert.certify.interrupts import terminating_interrupts
    from offcert.report.text import certificate_summary, describe_certificate

    problem = _read_problem(options)
    with native_output_to_stderr(), terminating_interrupts():
        certificate = find(
            problem,
            time_limit=options.time_limit,
            workers=options.workers,
            target_gap=options.target_gap,
            seed=options.seed,
            progress=_show_progress if sys.stderr.isatty() else None,
            # However this process ends, the file holds the best that was known.
            keep=None if options.output is None else lambda known: known.write(options.output),
        )
    if options.output is not None:
        certificate.write(options.output)
    show(options, certificate_summary(certificate), describe_certificate(certificate))
    return 0


def _show_progress(progress: Progress) -> None:
    gap = ""
    if progress.objective:
        gap = f"  gap {100 * (1 - progress.lower_bound / progress.objective):.3f} %"
    print(
        f"{progress.seconds:7.1f} s  bound {progress.lower_bound}  "
        f"best {progress.objective if progress.objective is not None else '-'}{gap}"
        f"  {progress.step}",
        file=sys.stderr,
    )
