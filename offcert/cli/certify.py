"""The command `certify`: a schedule, and a proof of how good it is."""

from __future__ import annotations

import argparse

from offcert.cli import frontier
from offcert.cli.output import require_outputs
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_problem, add_search, search

_EXAMPLES = (
    "offcert certify problem.json --memory 25% --time-limit 30 -o certificate.json",
    "offcert certify problem.json --device-memory 16GiB --target-gap 0.1% -o certificate.json",
    "offcert certify problem.json --memory 5%:100%:5% -o curve",
    "offcert certify problem.json --recompute none --memory 25%",
    "offcert certify problem.json --minimise memory --overhead 20%",
    "offcert certify problem.json --uncertainty 10%,conv*=5%,link=20% -o certificate.json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "find a schedule and prove how good it is"
    parser = add_command(commands, "certify", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(prepare=_prepare)
    add_problem(parser, several=True)
    add_search(parser, several=True)
    parser.add_argument(
        "--uncertainty",
        metavar="BOX",
        help="certify for all times in a box as well: 10%% (durations and rates within a tenth of "
        "what the problem says), or by class, such as 10%%,conv*=5%%,link=11GB/s:13GB/s, or none "
        "(default: the file's, and for a measured profile what was measured)",
    )


def _prepare(options: argparse.Namespace) -> None:
    """Find out before any work whether the result can be written."""
    if options.output is not None and frontier.is_curve(options):
        frontier.require_curve_folder(options)
    else:
        require_outputs(options)


def _run(options: argparse.Namespace) -> int:
    if frontier.is_curve(options):
        return frontier.run(options)
    from offcert.certify.ladder import certify

    return search(options, certify)
