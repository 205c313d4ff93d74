"""Faults of an engine's synchronisation, as the audit reports them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

_SKIPPED = (
    str(Path(__file__).parent) + os.sep,
    str(Path(torch.__file__).parent) + os.sep,
)
_LIBRARY = (str(Path(os.__file__).parent) + os.sep, "<frozen ")


def place() -> CodePlace:
    """Return the source line that the audited program is at."""
    frame = sys._getframe(1)
    last = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_SKIPPED):
            last = last or frame
            if not _is_library(file):
                last = frame
                break
        if frame.f_back is None:
            break
        frame = frame.f_back
    last = last or frame
    return CodePlace(_short(last.f_code.co_filename), last.f_lineno, last.f_code.co_name)


def raised_at(error: BaseException) -> CodePlace:
    """Return the innermost line of the program that an error has come through."""
    found, step = None, error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if found is None or not (
            code.co_filename.startswith(_SKIPPED) or _is_library(code.co_filename)
        ):
            found = CodePlace(_short(code.co_filename), step.tb_lineno, code.co_name)
        step = step.tb_next
    assert found is not None
    return found


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARY) and "site-packages" not in file


def _short(file: str) -> str:
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file


def node() -> str:
    """Return the name of the node of autograd that is running; empty if none is."""
    # The only way that PyTorch offers to ask; it is used by its own tests.
    running = torch._C._current_autograd_node()
    return "" if running is None else str(running.name()).rsplit("::", 1)[-1]


class Fault(StrEnum):
    """The kind of a fault."""

    RACE = "race"
    RELEASED = "use after release"
    ALLOCATED = "use before allocation"
    HOST_CHANGED = "host memory changed before its copy ran"
    HOST_READ = "host read before its bytes arrived"
    HOST_RELEASED = "host memory released under a copy"


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of a program."""

    file: str
    line: int
    function: str  # Name of the function to which the line belongs.

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Use:
    """An access to memory."""

    stream: str  # In which it runs; ``"host"`` for the program itself.
    operation: str  # The operator, and the node of autograd that has called it, if one has.
    writes: bool  # Whether it writes; otherwise it reads.
    place: CodePlace  # The line of the program that has handed it over.

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        return f"{self.operation} {verb} on {self.stream}, {self.place}"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "stream": self.stream,
            "operation": self.operation,
            "access": "write" if self.writes else "read",
            "file": self.place.file,
            "line": self.place.line,
            "function": self.place.function,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """Two accesses to the same memory that nothing orders."""

    fault: Fault  # Its kind.
    # The accesses, as the program has handed them over.
    first: Use
    second: Use
    # Bytes of the allocation that both use, or of the later one of two that may share bytes.
    size: int
    missing: str  # The wait that is missing, in one sentence.
    times: int = 1  # How often it was found between the same two lines.
    # Where the memory of the first access was dropped, for a use after release.
    released: CodePlace | None = None
    # The wrong value to which an order of the operations leads, or why none is known.
    shown: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for findings between the same two lines, of the same kind."""
        first, second = self.first, self.second
        return self.fault, first.stream, first.place, second.stream, second.place

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        released = self.released
        return {
            "fault": str(self.fault),
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "bytes": self.size,
            "missing": self.missing,
            "times": self.times,
            "released": None if released is None else str(released),
            "shown": self.shown,
        }

    def text(self) -> str:
        """Return it in lines for people."""
        lines = [
            f"{self.second.place}: {self.fault}",
            f"  first   {self.first}",
            f"  second  {self.second}",
        ]
        if self.released is not None:
            lines.append(f"  dropped {self.released}")
        lines.append(f"  missing {self.missing}")
        if self.shown:
            lines.append(f"  shown   {self.shown}")
        if self.times > 1:
            lines.append(f"  found {self.times} times between these lines")
        return "\n".join(lines)
