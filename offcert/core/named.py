"""Functions of ours that are loaded when they are called, by a name or through their package.

`named` looks up what a row of a table says: who reads the row knows and loads nothing of the room
above that has the function. `stand_for` lets a package be called: ``offcert.certify(problem)``,
although ``offcert.certify`` is a package, as importing a submodule makes its package an attribute
of ``offcert``, whatever stood there before.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableRoom(ModuleType):
    """A package that stands for a function in one of its modules, loaded when it is needed."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return _function(self)(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Be handed to other processes by name, as functions are."""
        return import_module, (self.__name__,)

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's, for `inspect.signature` and notebooks."""
        return inspect.signature(_function(self))

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        """The function's, for `help`, which shows no signature of a package: it stands in it."""
        function = _function(self)
        summary, _, rest = (inspect.getdoc(function) or "").partition("\n\n")
        return f"{summary}\n\n::\n\n{_call(function)}\n\n{rest}"


def stand_for(package: str, module: str, name: str) -> None:
    """Make a package that is being imported callable.

    Parameters
    ----------
    package : str
        Its name: ``__name__`` in its ``__init__``.
    module, name : str
        Where the function is and what it is called.
    """
    room = sys.modules[package]
    room.__dict__["_stands_for"] = module, name
    room.__class__ = CallableRoom


def _function(room: ModuleType) -> Callable[..., Any]:
    module, name = room.__dict__["_stands_for"]
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _call(function: Callable[..., Any]) -> str:
    """Return how a function is called, one parameter a line, indented by four."""
    signature = inspect.signature(function)
    lines = []
    keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            lines.append("*")
        lines.append(str(parameter).replace("'", ""))
    inside = "".join(f"        {line},\n" for line in lines)
    returned = str(signature.return_annotation)
    return f"    {function.__name__}(\n{inside}    ) -> {returned}"


@cache
def named(room: str, name: str) -> Callable[..., Any]:
    """Return the function, or what else can be called, that a table names.

    Parameters
    ----------
    room : str
        Package below which it is: ``"verify"``.
    name : str
        Module below that package and name in it, as ``"ends.check:heads"``.
    """
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"offcert.{room}.{module}"), attribute)
    return found
