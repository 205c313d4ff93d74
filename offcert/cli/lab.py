"""Commands of the package `offcert-lab`: added where it is installed, and named where it is not.

What only studies the field is a package of its own, whose modules of commands are called as the
commands are. Nothing else here knows it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from offcert.cli.parser import Commands
from offcert.core.errors import MissingPackageError

# Their summaries, for people who have not installed it.
COMMANDS = {
    "audit": "say how good others' plans are, and where others' engines forget to wait",
    "compare": "run methods at many memory limits, beside the certified optimum",
    "export-proof": "write a proved bound for other people's checkers",
    "hunt": "look for claims that contradict what is proved",
    "plot-table": "draw a campaign's table: makespan or throughput against memory",
}
GENERATORS = {
    "adversarial": "search for the problem on which a method or a bound does worst",
    "core": "search for the memory and bandwidth where proving takes longest",
    "modnn": "a training step of a network of the moDNN paper on K40s, with its choices",
}


def add(commands: Commands, known: Mapping[str, str] = COMMANDS, within: str = "offcert") -> None:
    """Add commands: each the lab's, or one that says how to install it."""
    for name, summary in known.items():
        if find_spec("offcert_lab"):
            import_module(module_of(name)).add(commands)
        else:
            _add_missing(commands, name, summary, f"{within} {name}")


def module_of(command: str) -> str:
    """Return the name of the module of a command."""
    return f"offcert_lab.commands.{command.replace('-', '_')}"


def _add_missing(commands: Commands, name: str, summary: str, called: str) -> None:
    """Add a command that takes whatever is said behind it, and fails."""
    # No word begins an option here, so that all of them are arguments.
    parser = commands.add_parser(
        name, help=f"{summary} (pip install offcert-lab)", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=partial(_fail, called), parser=parser, verbose=0, quiet=False)


def _fail(called: str, options: argparse.Namespace) -> int:
    raise MissingPackageError(f"{called} needs another package: pip install offcert-lab")
