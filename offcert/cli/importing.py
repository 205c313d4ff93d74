"""The command `import`: a schedule that something else has made, checked and certified."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import seconds, source
from offcert.cli.library import ENVIRONMENT
from offcert.cli.output import STDOUT, native_output_to_stderr, show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.searching import add_problem, read_problem, stream
from offcert.questions.schedule.problem import Problem, format_objective

if TYPE_CHECKING:
    from offcert.certification.exchange import Imported

_EXAMPLES = (
    "offcert import problem.json schedule.csv -o certificate.json",
    "offcert import problem.json schedule.json --memory 25% --time-limit 20 --json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "check a schedule from elsewhere, say how good it is, and make a certificate"
    parser = add_command(commands, "import", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(streamed=True)
    add_problem(parser)
    parser.add_argument(
        "schedule",
        type=source,
        metavar="SCHEDULE",
        help="table, .csv or .json: kind (compute, offload, prefetch), name, start, perhaps end; "
        "or .sol: a solver's solution of a program that export has written",
    )
    parser.add_argument(
        "--decisions",
        action="store_true",
        help="of a table, take the order alone, and find times anew",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help="seconds to search for bounds (default: those that cost nothing, and the library's)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="CERTIFICATE",
        help="file for the certificate (default: none is written)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.exchange import import_schedule
    from offcert.instances.library import Library

    problem = read_problem(options)
    library = Library(os.environ.get(ENVIRONMENT))
    with native_output_to_stderr():
        found = import_schedule(
            problem,
            options.schedule,
            time_limit=options.time_limit,
            library=library,
            decisions=options.decisions,
        )
    if found.certificate is not None and options.output is not None:
        if options.output == STDOUT:
            stream(found.certificate.write)
        else:
            found.certificate.write(options.output)
    show(options, _document(found, options.output), _text(problem, found, options.output))
    return EXIT_INVALID if found.faults else 0


def _document(found: Imported, written: str | None) -> dict[str, Any]:
    from offcert.report.text import certificate_summary

    record = found.record
    document: dict[str, Any] = {"legal": not found.faults, "faults": list(found.faults)}
    document["record"] = {"value": record.value, "proved_bound": record.proved_bound}
    if found.certificate is not None:
        document |= certificate_summary(found.certificate)
        document["written"] = written
    return document


def _text(problem: Problem, found: Imported, written: str | None) -> str:
    from offcert.report.text import describe_certificate

    if found.certificate is None:
        more = len(found.faults) - 1
        after = f"\n  and {more} more faults" if more > 1 else "\n  and 1 more fault" * more
        return f"{problem.name}: not legal\n  {found.faults[0]}{after}"
    lines = [describe_certificate(found.certificate)]
    value, objective = found.record.value, found.certificate.result.objective
    if value is not None and objective is not None:
        best = format_objective(value, problem)
        lines.append(f"  record       {best}: this is {_beside(objective, value)}")
    if written is not None:
        lines.append(f"  wrote        {written}")
    return "\n".join(lines)


def _beside(objective: int, value: int) -> str:
    if objective == value:
        return "as good"
    if objective < value:
        return f"better, by {100 * (1 - objective / value):.3g} %"
    return f"{100 * (objective / max(value, 1) - 1):.3g} % above it"
