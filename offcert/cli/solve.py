"""The command `solve`: one method by name."""

from __future__ import annotations

import argparse

from offcert.cli.arguments import count
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_limits, search


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "solve", "run one method", _run)
    parser.add_argument("--method", required=True, metavar="NAME", help="?: list them")
    add_limits(parser)
    parser.add_argument("--grid", type=count, metavar="TICKS", help="for time-indexed models")
    parser.add_argument("--solver", metavar="NAME", help="linear solver, for example PULP_CBC_CMD")


def _run(options: argparse.Namespace) -> int:
    from functools import partial

    from offcert.certify.methods import solve

    chosen = partial(solve, method=options.method, grid=options.grid, solver=options.solver)
    return search(options, chosen)
