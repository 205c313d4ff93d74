"""Functions that data names, so that a row of a table can say who does something in a room above.

Whoever reads the row knows and loads nothing of that room until the function is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from offcert.core.errors import InputError


@cache
def named(room: str, name: str) -> Callable[..., Any]:
    """Return the function, or what else can be called, that a table names.

    Parameters
    ----------
    room : str
        Package below which it is: ``"verify"``.
    name : str
        Module below that package and name in it, as ``"heads.check:atomic_heads"``.
    """
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"offcert.{room}.{module}"), attribute)
    return found


def users_function(spec: str, what: str) -> Callable[..., Any]:
    """Return the function in the user's own code that ``"package.module:callable"`` names.

    Parameters
    ----------
    spec : str
        The module and the name in it. A module may lie in the working directory.
    what : str
        Kind of the object, as the first word of messages: ``"model"``.

    Raises
    ------
    InputError
        If the module cannot be imported, has no such name, or it names nothing that can be called.
    """
    path, _, name = spec.partition(":")
    # As with `python -m`; an installed command's path does not contain the working directory.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = import_module(path)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        # Importing runs the user's module, which may raise anything.
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise InputError(f"{what} {spec} cannot be imported: {said}") from error
    if not callable(found):
        raise InputError(f"{what} {spec} must name something that can be called")
    function: Callable[..., Any] = found
    return function
