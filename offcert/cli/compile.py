"""The command `compile`: all kernels once, so that no search has to wait for them."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from offcert.cli.arguments import count
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.certification.compile import CompiledGroup

_EXAMPLES = ("offcert compile", "offcert compile --workers 8 --json")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "compile all kernels once, so that no search has to"
    parser = add_command(commands, "compile", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "--workers",
        metavar="COUNT",
        type=count,
        help="processes (default: one for each core)",
    )


def _describe(group: CompiledGroup) -> str:
    seconds = f" in {group.cpu_seconds:.1f} s of a core" if group.compiled else ""
    return f"{group.name}: {group.compiled} compiled{seconds}, {group.found} on disk already"


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.compile import compile_all

    workers = options.workers or os.cpu_count() or 1
    with progress(options, _describe, "compiling") as tell:
        done = compile_all(workers, tell)
    document = {
        "compiled": done.compiled,
        "found": done.found,
        "cpu_seconds": round(done.cpu_seconds, 3),
        "wall_seconds": round(done.wall_seconds, 3),
        "groups": [vars(group) for group in done.groups],
    }
    text = (
        f"{done.compiled} kernels compiled, {done.found} were on disk already; "
        f"{done.cpu_seconds:.1f} s of processor time, {done.wall_seconds:.1f} s"
    )
    show(options, document, text)
    return 0
