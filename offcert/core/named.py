"""Functions that data names, so that a row of a table can say who does something in a room above.

Whoever reads the row knows and loads nothing of that room until the function is called.

Packages can be called, too: ``offcert.certify(problem)``, although ``offcert.certify`` is one.
Importing a submodule makes its package an attribute of ``offcert``, whatever stood there before. So
a package that shares its name with the function that people want from it answers for it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from offcert.core.errors import InputError


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
        """The function's, for `help`."""
        return _function(self).__doc__


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
