"""Common parts of commands that write to the terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from offcert.cli.arguments import Source
from offcert.core.documents import make_folder, require_writable
from offcert.core.errors import InputError
from offcert.core.messages import cut, plain
from offcert.questions.schedule.problem import Problem

# The file name that stands for the standard output.
STDOUT = "-"


# Where the commands keep the names of files that they write, and of what may be folders.
_FILES = (
    "output", "target_file", "report", "trace", "problem_output", "certificate", "profile",
    "save_hardware",
)  # fmt: skip
_WRITTEN = (*_FILES, "target", "certificates", "host_spill")


def require_outputs(options: argparse.Namespace) -> None:
    """Find out before any work whether results can be written to their files."""
    for name in _FILES:
        path = _target(options, name)
        if path is not None:
            require_writable(path)
    if getattr(options, "output", None) == STDOUT and not getattr(options, "streamed", False):
        raise InputError("-o - is for commands whose result is one document: give a file's name")


def _target(options: argparse.Namespace, name: str) -> str | None:
    """Return the name of a file that an option has written; None for the standard output."""
    path = getattr(options, name, None)
    written = isinstance(path, str) and not isinstance(path, Source) and path != STDOUT
    return path if written else None


def require_folder(options: argparse.Namespace, for_what: str) -> None:
    """Make the folder that `options.output` names, for files, before any work is done."""
    folder = Path(options.output)
    if options.output == STDOUT:
        raise InputError(f"{for_what} need a folder, not -")
    if folder.is_file():
        raise InputError(f"{folder} is a file: {for_what} need a folder")
    make_folder(folder)
    require_writable(folder / ".new")


def require_files(options: argparse.Namespace) -> None:
    """Find out before anything is loaded whether the files to be read are there and stay whole."""
    values = [part for value in vars(options).values() for part in _parts(value)]
    read = [value for value in values if isinstance(value, Source)]
    for path in read:
        try:
            os.stat(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no file has such a name"
            raise InputError(f"{cut(path)} cannot be read: {reason}") from None
    written: list[str] = []
    for name in _WRITTEN:
        target = _target(options, name)
        if target is None:
            continue
        if not target:
            raise InputError('"" is not the name of a file that can be written')
        for other in (*read, *written):
            if _same(target, other) and not os.path.isdir(target):
                what = "another result goes there" if other in written else "it is read as input"
                raise InputError(f"{cut(target)} cannot be written: {what}")
        written.append(target)


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _same(path: str, other: str) -> bool:
    """Whether two names are of one file, through links, too."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return os.path.abspath(path) == os.path.abspath(other)


def show(options: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    """Print a result: one JSON object if the options ask for it, else the text.

    On stderr if what the command writes into a file otherwise goes to the standard output.
    """
    file = sys.stderr if getattr(options, "output", None) == STDOUT else sys.stdout
    print(json.dumps(document, allow_nan=False) if options.json else plain(text), file=file)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says where a problem goes."""
    parser.add_argument(
        "-o",
        dest="target_file",
        metavar="PROBLEM",
        default=STDOUT,
        help="file for the problem (default: -, standard output)",
    )


def put_problem(problem: Problem, target: str) -> bool:
    """Write a problem to a file, or its document to the standard output; tell whether to a file."""
    from offcert.questions.schedule.files import problem_to_json, write_problem

    if target != STDOUT:
        write_problem(target, problem)
        return True
    json.dump(problem_to_json(problem), sys.stdout, indent=1)
    print()
    return False


@contextmanager
def native_output_to_stderr() -> Iterator[None]:
    """Keep the prints of solvers (HiGHS has some) apart from a command's output."""
    import ctypes

    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        # What C has buffered would appear later, in the wrong place.
        with suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
