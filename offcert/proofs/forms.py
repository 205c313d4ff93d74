"""Forms of a proof's fields: how a value is read, written, limited and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Protocol

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError

# The field's form stands in its metadata under this name.
FORM = "form"


class Form(Protocol):
    """How the value of a field is read and written, and what it may be."""

    @property
    def rule(self) -> str:
        """The rule for values, in words for the documentation."""

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value of a field that is there; raise `InputError` if it is not allowed."""

    def write(self, value: Any) -> Any:
        """Return the value as JSON."""


@dataclass(frozen=True)
class Integer:
    """An integer of at least `minimum`, or any."""

    minimum: int | None = None

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return "an integer" if self.minimum is None else f"an integer of at least {self.minimum}"

    def read(self, fields: Fields, name: str) -> int:
        """Return the integer."""
        return fields.integer(name, self.minimum)

    def write(self, value: int) -> int:
        """Return the integer."""
        return int(value)


@dataclass(frozen=True)
class Integers:
    """A list of integers of at least `minimum`."""

    minimum: int

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"a list of integers of at least {self.minimum}"

    def read(self, fields: Fields, name: str) -> tuple[int, ...]:
        """Return the integers."""
        return fields.integers(name, self.minimum)

    def write(self, value: tuple[int, ...]) -> list[int]:
        """Return the integers."""
        return [int(number) for number in value]


@dataclass(frozen=True)
class IntegerLists:
    """A list of lists of integers of at least `minimum`."""

    minimum: int

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"a list of lists of integers of at least {self.minimum}"

    def read(self, fields: Fields, name: str) -> tuple[tuple[int, ...], ...]:
        """Return the lists."""
        return fields.integer_lists(name, self.minimum)

    def write(self, value: tuple[tuple[int, ...], ...]) -> list[list[int]]:
        """Return the lists."""
        return [[int(number) for number in row] for row in value]


@dataclass(frozen=True)
class Lists:
    """A list of lists whose contents the verifier reads itself."""

    rule: str = "a list of lists"

    def read(self, fields: Fields, name: str) -> tuple[list[Any], ...]:
        """Return the lists."""
        values = fields.get(name, list)
        for index, value in enumerate(values):
            if not isinstance(value, list):
                place = f"{fields.path(name)}[{index}]"
                raise InputError(f"{place} must be a list, not {show(value)}")
        return tuple(values)

    def write(self, value: tuple[list[Any], ...]) -> list[list[Any]]:
        """Return the lists."""
        return [list(row) for row in value]


@dataclass(frozen=True)
class Plain:
    """A JSON value of one type."""

    kind: type
    rule: str

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value."""
        return fields.get(name, self.kind)

    def write(self, value: Any) -> Any:
        """Return the value."""
        return value


FLAG, TEXT = Plain(bool, "true or false"), Plain(str, "text")
OBJECT = Plain(dict, "an object")


@dataclass(frozen=True)
class Nested:
    """An object whose fields are those of another dataclass of ours."""

    kind: type

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"an object with the fields of {self.kind.__name__}"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the object."""
        return self.kind.read(fields.get(name, dict), fields.path(name))  # type: ignore[attr-defined]

    def write(self, value: Any) -> Mapping[str, Any]:
        """Return the object."""
        document: Mapping[str, Any] = value.write()
        return document


def formed(form: Form, default: Any = MISSING) -> Any:
    """Return a dataclass field of a form; one with a default may be absent from a document."""
    if default is MISSING:
        return field(metadata={FORM: form})
    return field(default=default, metadata={FORM: form})


def integer(minimum: int | None = None, default: Any = MISSING) -> Any:
    """Return a field that holds an integer."""
    return formed(Integer(minimum), default)


def integers(minimum: int) -> Any:
    """Return a field that holds a list of integers."""
    return formed(Integers(minimum))
