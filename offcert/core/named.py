"""Functions that data names, so that a row of a table can say who does something in a room above.

Whoever reads the row knows and loads nothing of that room until the function is called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


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
