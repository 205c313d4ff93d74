"""The command `audit`: how good others' plans are, and where others' engines forget to wait."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import count, seconds, source, source_or_name
from offcert.cli.output import native_output_to_stderr, show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.questions.schedule.problem import Problem
    from offcert_lab.plans.plan_audit import Audit

_EXAMPLES = (
    "offcert audit problem.json --plan policies.json --plan trainer.json --time-limit 30",
    "offcert audit my.package:make_step --hardware a100-40gb-pcie --plan plan.json --json",
    "offcert audit --engine my.package:train_two_steps --orders 20",
)
# Lines about where a plan loses. Arbitrary.
_MOST_LOSSES = 5


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "say how good others' plans are, and where others' engines forget to wait"
    parser = add_command(commands, "audit", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "problem",
        nargs="?",
        type=source_or_name,
        metavar="PROBLEM",
        help="problem file as profile writes it; or package.module:callable, for what is profiled",
    )
    parser.add_argument(
        "--plan",
        dest="plans",
        type=source,
        action="append",
        metavar="FILE",
        help="what somebody else decides, as JSON; several times for one table (default: none)",
    )
    parser.add_argument(
        "--engine",
        metavar="MODULE:FUNCTION",
        help="code that trains a step, for a simulated CUDA device (default: PROBLEM's plans)",
    )
    parser.add_argument(
        "--orders",
        type=count,
        default=8,
        metavar="N",
        help="with --engine: legal orders of its operators that are carried out and compared",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=20.0,
        metavar="S",
        help="seconds for each plan to prove what no plan can beat within its peak",
    )
    parser.add_argument("--memory", metavar="LIMIT", help="as for certify (default: the file's)")
    parser.add_argument(
        "--input", metavar="SHAPE", help="of a network that is profiled (default: its own)"
    )
    parser.add_argument(
        "--clock",
        choices=("modules", "operators"),
        default="operators",
        help="of what is profiled: policies are by operator, most plans by module",
    )
    parser.add_argument(
        "--hardware", metavar="NAME", help="of what is profiled (default: as for profile)"
    )


def _run(options: argparse.Namespace) -> int:
    from functools import partial

    from offcert.core.documents import read_document
    from offcert.core.errors import InputError
    from offcert_lab.plans.plan_audit import audit

    if options.engine is not None:
        return _engine(options)
    if options.problem is None or not options.plans:
        raise InputError("audit needs PROBLEM and --plan FILE, or --engine MODULE:FUNCTION")
    problem = _problem(options)
    found = []
    with native_output_to_stderr(), progress(options, str, "reading plans") as tell:
        for path in options.plans:
            if tell is not None:
                tell(f"auditing {path}")
            parse = partial(audit, problem, time_limit=options.time_limit)
            found.append(read_document(path, parse))
    document = {"problem": problem.name, "plans": [each.to_json() for each in found]}
    show(options, document, _text(problem, found))
    return EXIT_INVALID if any(each.faults for each in found) else 0


def _engine(options: argparse.Namespace) -> int:
    from offcert.core.errors import InputError, require_torch

    if options.problem is not None or options.plans:
        raise InputError("audit takes PROBLEM with --plan, or --engine; not both")
    require_torch("offcert audit --engine")
    from offcert_lab.engines.audit import audit_engine

    with redirect_stdout(sys.stderr):
        found = audit_engine(options.engine, orders=options.orders)
    show(options, {"engine": options.engine, **found.to_json()}, str(found))
    return 0 if found.clean else EXIT_INVALID


def _problem(options: argparse.Namespace) -> Problem:
    from offcert.cli.arguments import Source
    from offcert.questions.schedule.files import read_problem

    if isinstance(options.problem, Source):
        problem = read_problem(options.problem)
    else:
        from offcert.core.errors import require_torch

        require_torch("offcert audit of a network")
        from offcert.runtime.profiling.profile import profile

        with redirect_stdout(sys.stderr):
            problem = profile(
                options.problem,
                options.input,
                clock=options.clock,
                hardware=options.hardware,
                recompute="none",
            )
    return problem if options.memory is None else problem.with_memory(options.memory)


def _text(problem: Problem, found: list[Audit]) -> str:
    from offcert.campaign.standing import aligned
    from offcert.core.units import format_size, format_time

    units, computing = problem.units, max(1, problem.trace.compute_time)
    header = ["plan", "step", "/ computing", "peak", "fits", "host", "again", "link busy"]
    header += ["best known", "proved bound", "above it"]
    rows = [header]
    for each in found:
        if each.faults:
            rows.append([each.name, "not legal", *[""] * (len(header) - 2)])
            continue
        best = "-" if each.best is None else format_time(each.best, units)
        rows.append(
            [
                each.name,
                format_time(each.step, units),
                f"{each.step / computing:.3f}",
                format_size(each.peak, units),
                "yes" if each.fits else "no",
                format_size(each.host, units),
                str(each.again),
                f"{100 * each.link_busy:.0f} %",
                best,
                format_time(each.bound, units),
                f"{100 * each.distance:.2f} %",
            ]
        )
    lines = [f"{problem.name}, limit {format_size(problem.platform.memory, units)}", aligned(rows)]
    for each in found:
        lines += _losses(each, problem)
    return "\n".join(lines)


def _losses(found: Audit, problem: Problem) -> list[str]:
    from offcert.core.units import format_time

    if found.faults:
        return ["", f"{found.name} is not legal: {found.faults[0]}"]
    if not found.losses:
        return []
    lines: list[Any] = ["", f"{found.name} loses"]
    for loss in found.losses[:_MOST_LOSSES]:
        what = "runs again" if loss.what == "again" else f"waits for {loss.tensor or 'a copy'}"
        lines.append(f"  {format_time(loss.ticks, problem.units):>12}  {loss.name} {what}")
    rest = found.losses[_MOST_LOSSES:]
    if rest:
        ticks = sum(loss.ticks for loss in rest)
        lines.append(f"  {format_time(ticks, problem.units):>12}  in {len(rest)} further places")
    return lines
