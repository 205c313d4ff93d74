"""The command `certify`: a schedule, and a proof of how good it is."""

from __future__ import annotations

import argparse

from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_limits, search


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "certify", "find a schedule and prove how good it is", _run)
    add_limits(parser)


def _run(options: argparse.Namespace) -> int:
    from offcert.certify.ladder import certify

    return search(options, certify)
