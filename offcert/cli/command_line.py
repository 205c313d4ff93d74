"""From arguments to an exit code: the parser of all commands, and what their errors mean."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from offcert._version import __version__
from offcert.cli import (
    certify,
    choose,
    compare,
    compile,
    completion,
    devices,
    doctor,
    exact,
    export,
    generate,
    importing,
    lab,
    library,
    methods,
    partition,
    place,
    plot,
    profile,
    report,
    solve,
    train,
    verify,
)
from offcert.cli.ending import end_if_stuck, exit_code
from offcert.cli.output import require_files, require_outputs
from offcert.cli.parser import Help, Parser

# In the order of the help text. A new command is a module with `add(commands)`, and a line here.
COMMANDS = (
    doctor,
    profile,
    certify,
    solve,
    exact,
    choose,
    methods,
    verify,
    importing,
    export,
    place,
    devices,
    train,
    plot,
    report,
    compare,
    generate,
    partition,
    library,
    lab,
    compile,
    completion,
)


_EPILOG = """\
examples:
  offcert profile resnet18 --input 4x3x64x64 -o problem.json
  offcert certify problem.json --memory 25% -o certificate.json
  offcert verify certificate.json
  offcert train certificate.json

`offcert COMMAND --help` says what a command takes. Exit codes: 0 a result, 1 a claim that does
not hold, 2 bad input, 3 not verified within the limits, 130 interrupted."""


def parser() -> Parser:
    """Return the parser of all commands."""
    made = Parser(
        prog="offcert",
        description="Certified offloading plans for neural-network training under a memory limit.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    made.add_argument("--version", action="version", version=f"offcert {__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add(commands)
    return made


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        Exit code: 0 for a result (an infeasible problem is one), 1 for a certificate or a training
        run that does not hold, 2 for bad input, 3 for a certificate that could not be verified
        within the limits, 130 for an interrupt.
    """
    every = parser()
    try:
        options = every.parse_args(arguments)
    except SystemExit as ended:
        # After a help text, which may not have been written.
        told = int(ended.code or 0)
        sys.exit(exit_code(lambda: told))
    options.every_command = every
    from offcert.cli.progress import messages

    with messages(options.verbose, options.quiet):
        code = exit_code(lambda: _run(options))
    end_if_stuck(code)
    return code


def _run(options: argparse.Namespace) -> int:
    require_files(options)
    getattr(options, "prepare", require_outputs)(options)
    code: int = options.run(options)
    return code
