"""The command `certify`: a schedule, and a proof of how good it is."""

from __future__ import annotations

import argparse

from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_problem, add_search, search

_EXAMPLES = (
    "offcert certify problem.json --memory 25% --time-limit 30 -o certificate.json",
    "offcert certify problem.json --device-memory 16GiB --target-gap 0.1% -o certificate.json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "find a schedule and prove how good it is"
    parser = add_command(commands, "certify", summary, _run, examples=_EXAMPLES)
    add_problem(parser)
    add_search(parser)


def _run(options: argparse.Namespace) -> int:
    from offcert.certify.ladder import certify

    return search(options, certify)
