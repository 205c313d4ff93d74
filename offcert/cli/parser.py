"""What every command's parser is made of, and the exit codes.

A command is a module of this folder with one function ``add(commands)``, listed in
`offcert.cli.program.COMMANDS`. It calls `add_command` (or `add_group`, for a command with actions
of its own), adds arguments to the parser that this returns, and gives the function to run:
``run(options) -> exit code``. A module imports at its top what is light, and all else inside `run`,
so that ``offcert --help`` answers at once and people who only solve and verify never load torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

EXIT_INVALID = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130

Commands = Any  # argparse does not name the type that add_subparsers returns
Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all else here does."""

    def error(self, message: str) -> NoReturn:
        """Print the line and end with the exit code for bad input."""
        print(f"offcert: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(EXIT_INPUT)


def add_command(commands: Commands, name: str, summary: str, run: Run) -> argparse.ArgumentParser:
    """Add one command and return its parser.

    Parameters
    ----------
    commands : object
        What ``add_subparsers`` returned.
    name, summary : str
        As they stand in the list of commands.
    run : callable
        Takes the parsed options, prints the result with `offcert.cli.output.show`, returns the
        exit code.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def add_group(commands: Commands, name: str, summary: str, metavar: str) -> Commands:
    """Add a command with commands of its own, such as ``library list``; return what takes them."""
    parser = commands.add_parser(name, help=summary, description=summary)
    return parser.add_subparsers(metavar=metavar, required=True)
