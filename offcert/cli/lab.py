"""Commands of the package `offcert-lab`: found where it is installed, and named where it is not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from offcert.cli.parser import Commands
from offcert.core.lab import COMMANDS, GENERATORS, lab_missing, lab_points

# Their summaries, for people who have not installed it.
SUMMARIES: Mapping[str, Mapping[str, str]] = {
    COMMANDS: {
        "audit": "say how good others' plans are, and where others' engines forget to wait",
        "export-proof": "write a proved bound for other people's checkers",
        "hunt": "look for claims that contradict what is proved",
        "plot-table": "draw a campaign's table: makespan or throughput against memory",
    },
    GENERATORS: {
        "adversarial": "search for the problem on which a method or a bound does worst",
        "core": "search for the memory and bandwidth where proving takes longest",
        "modnn": "a training step of a network of the moDNN paper on K40s, with its choices",
        "stages": "a network as the chain of stages that the papers' methods take",
    },
}


def add(commands: Commands, group: str = COMMANDS, within: str = "offcert") -> None:
    """Add the commands of a group, each of the lab's or one that says how to install it."""
    found = lab_points(group)
    for name in sorted({*SUMMARIES[group], *found}):
        if name in found:
            found[name].load().add(commands)
        else:
            _add_missing(commands, name, SUMMARIES[group][name], f"{within} {name}")


def _add_missing(commands: Commands, name: str, summary: str, called: str) -> None:
    """Add a command that takes whatever is said behind it, and fails."""
    # No word begins an option here, so that all of them are arguments.
    parser = commands.add_parser(
        name, help=f"{summary} (pip install offcert-lab)", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=partial(_fail, called), parser=parser, verbose=0, quiet=False)


def _fail(called: str, options: argparse.Namespace) -> int:
    raise lab_missing(called)
