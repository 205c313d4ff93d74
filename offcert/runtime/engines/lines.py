"""The line of a program that is running, past this package and PyTorch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from offcert.runtime.engines.findings import Place

_SKIPPED = (
    str(Path(__file__).parent) + os.sep,
    str(Path(torch.__file__).parent) + os.sep,
)
_LIBRARY = (str(Path(os.__file__).parent) + os.sep, "<frozen ")


def place() -> Place:
    """Return where the program is that is being audited."""
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
    return Place(_short(last.f_code.co_filename), last.f_lineno, last.f_code.co_name)


def raised_at(error: BaseException) -> Place:
    """Return the innermost line of the program that an error has come through."""
    found, step = None, error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if found is None or not (
            code.co_filename.startswith(_SKIPPED) or _is_library(code.co_filename)
        ):
            found = Place(_short(code.co_filename), step.tb_lineno, code.co_name)
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
