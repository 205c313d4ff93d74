"""The command `solve`: one method by name."""

from __future__ import annotations

import argparse
from functools import partial

from offcert.cli.arguments import count
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import DEFAULTS, add_problem, add_search, search
from offcert.core.errors import InputError

_EXAMPLES = (
    "offcert solve problem.json --method greedy --memory 25%",
    "offcert solve problem.json --method dynprog:slots=2000",
    "offcert solve problem.json --method time-indexed-milp --grid 1000 --solver PULP_CBC_CMD",
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "solve", "run one method", _run, examples=_EXAMPLES)
    parser.add_argument(
        "--method",
        required=True,
        metavar="NAME",
        help="with its options behind it, if any; `offcert methods` lists both",
    )
    add_problem(parser)
    add_search(parser)
    parser.add_argument(
        "--grid",
        type=count,
        metavar="TICKS",
        help="ticks a cell of the time grid (default: so that the model stays small)",
    )
    parser.add_argument(
        "--solver",
        metavar="NAME",
        help="linear solver by its PuLP name, for example PULP_CBC_CMD, or scipy (default: the "
        "method's)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.methods import solve

    _require_uses(options)
    chosen = partial(solve, method=options.method, grid=options.grid, solver=options.solver)
    return search(options, chosen)


def _require_uses(options: argparse.Namespace) -> None:
    """Raise unless there is such a method, and it uses every option that is given."""
    from offcert.certification.methods import method_called

    chosen = method_called(options.method)
    for setting in (*DEFAULTS, "grid", "solver"):
        if getattr(options, setting) is not None and setting not in chosen.method.reads:
            name = f"--{setting.replace('_', '-')}"
            raise InputError(f"method {chosen.name} does not use {name}")
