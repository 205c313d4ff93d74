"""Rows of a table that name something in a room above, which is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from types import FunctionType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Later(Generic[T]):
    """A function, class or object by its name: ``Later(lambda: offcert.report.gantt.save_gantt)``.

    Who reads a row knows and loads nothing of the room that it names. Editors and type checkers
    follow the name, as rows stand below ``if TYPE_CHECKING: import offcert.report.gantt``.
    """

    # Returns what is named where ``offcert`` and its modules are imported; only its name is used.
    named: Callable[[], T]

    @cached_property
    def name(self) -> str:
        """The whole name, with its module."""
        assert isinstance(self.named, FunctionType)
        named: _Path = FunctionType(self.named.__code__, {"offcert": _Path("offcert")})()
        return named.path

    @cached_property
    def _found(self) -> T:
        found: T = resolve_name(self.name)
        return found

    def load(self) -> T:
        """Return the named object; the first time, its module is imported."""
        return self._found


class _Path:
    """A name to which the name of every attribute that is asked for is added."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Any:
        return _Path(f"{self.path}.{name}")
