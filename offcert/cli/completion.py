"""The command `completion`: what a shell needs to complete commands, options and choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from offcert.cli.parser import Commands, add_command

SHELLS = ("bash", "zsh", "tcsh")
_EXAMPLES = (
    "offcert completion bash > ~/.local/share/bash-completion/completions/offcert",
    "offcert completion zsh > ~/.zsh/completions/_offcert",
)
# Words that stand for a file or a folder in help texts.
_FILES = {"PROBLEM", "CERTIFICATE", "TABLE", "PICTURE", "FILE", "DIR|FILE"}
_FOLDERS = {"DIR", "FOLDER"}


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "print a script that lets a shell complete this program's arguments"
    parser = add_command(commands, "completion", summary, _run, examples=_EXAMPLES, json=False)
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))


def _run(options: argparse.Namespace) -> int:
    import shtab

    every = options.every_command
    for action in _arguments(every):
        _teach(action)
    print(shtab.complete(every, options.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the arguments of each command, at any depth."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _arguments(below)


def _teach(action: Any) -> None:
    """Give a completion to an argument whose choices its parser does not know."""
    import shtab

    from offcert.certification.methods import METHODS

    if action.dest == "method":
        action.choices = tuple(METHODS)
    elif action.metavar in _FILES:
        action.complete = shtab.FILE
    elif action.metavar in _FOLDERS:
        action.complete = shtab.DIRECTORY
