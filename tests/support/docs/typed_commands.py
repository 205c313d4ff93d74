"""What readers are told to type is run, in this process wherever that needs no shell."""

import argparse
import contextlib
import importlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from offcert.cli import main
from offcert.cli.command_line import COMMANDS
from offcert.cli.parser import Parser

ROOT = Path(__file__).parents[3]
_SHELL = set("|;&<>$`*")


def command_names() -> list[str]:
    """Return the names of all commands."""
    commands = Parser().add_subparsers()
    for module in COMMANDS:
        module.add(commands)
    return list(commands.choices)


def run_command(command: str) -> str:
    """Run a command where this process is and return what it prints; fail unless it succeeds.

    What is of Python needs no process of its own: to start one and to import all again takes
    longer than most commands.
    """
    program, *arguments = shlex.split(command)
    if not _SHELL & set(command):
        if program == "offcert":
            return _called(command, lambda: main(arguments))
        if program == "python" and arguments[0].startswith("benchmarks/"):
            return _called(command, lambda: _run_benchmark(*arguments))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


class _ReadError(Exception):
    """The arguments are read, and nothing is to be measured."""


def reads_its_arguments(command: str) -> None:
    """Have a benchmark read the arguments of a command, and end before it measures."""
    real = argparse.ArgumentParser.parse_args

    def read(parser: argparse.ArgumentParser, *arguments: object) -> None:
        real(parser, *arguments)  # type: ignore[call-overload]
        raise _ReadError

    _, path, *arguments = shlex.split(command)
    with mock.patch.object(argparse.ArgumentParser, "parse_args", read):
        try:
            _run_benchmark(path, *arguments)
        except _ReadError:
            return
    raise AssertionError(f"{command}: no arguments were read")


def _called(command: str, function: Callable[[], int | None]) -> str:
    printed = io.StringIO()
    code: str | int | None
    try:
        with contextlib.redirect_stdout(printed):
            code = function()
    except SystemExit as ending:
        code = ending.code
    assert code in (0, None), f"{command}: exit code {code}\n{printed.getvalue()}"
    return printed.getvalue()


def _run_benchmark(path: str, *arguments: str) -> int | None:
    benchmark = ROOT / path
    with (
        mock.patch.object(sys, "argv", [path, *arguments]),
        mock.patch.object(sys, "path", [str(benchmark.parent), *sys.path]),
    ):
        module = importlib.import_module(benchmark.stem)
        assert module.__file__ == str(benchmark), f"{module.__file__} has the name of {benchmark}"
        return module.main()
