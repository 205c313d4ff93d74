"""Forms of a document's fields: how a value is read, written, limited and described.

A table of them, a `Record`, is reader and writer of a JSON object in one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from offcert.core.documents import RATIONAL, Fields, parse_rational, rational_text, show
from offcert.core.errors import InputError
from offcert.core.trace import require_integer

Made = TypeVar("Made")

# The field's form stands in its metadata under this name.
FORM = "form"


class RefusedError(Exception):
    """Signal that a value may not be of a form; `Form.read` then says where and why."""


class Form(Protocol):
    """How the value of a field is read and written, and what it may be."""

    @property
    def rule(self) -> str:
        """The rule for values, in words for the documentation."""

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value of a field that is there; raise `InputError` if it is not allowed."""

    def quickly(self, value: Any) -> Any:
        """Return a right value of a long list; raise `RefusedError` at others, or at all."""
        raise RefusedError

    def write(self, value: Any) -> Any:
        """Return the value as JSON."""


@dataclass(frozen=True)
class Integer(Form):
    """An integer of at least `minimum`, or any."""

    minimum: int | None = None

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return "an integer" if self.minimum is None else f"an integer of at least {self.minimum}"

    def read(self, fields: Fields, name: str) -> int:
        """Return the integer."""
        return fields.integer(name, self.minimum)

    def quickly(self, value: Any) -> int:
        """Return the integer, or raise `RefusedError`."""
        if type(value) is int and (self.minimum is None or value >= self.minimum):
            return value
        raise RefusedError

    def write(self, value: int) -> int:
        """Return the integer."""
        return int(value)


@dataclass(frozen=True)
class Integers(Form):
    """A list of integers of at least `minimum`, or any."""

    minimum: int | None = None

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        least = "" if self.minimum is None else f" of at least {self.minimum}"
        return f"a list of integers{least}"

    def read(self, fields: Fields, name: str) -> tuple[int, ...]:
        """Return the integers."""
        return fields.integers(name, self.minimum)

    def quickly(self, value: Any) -> tuple[int, ...]:
        """Return the integers, or raise `RefusedError`."""
        right = type(value) is list and {*map(type, value)} <= {int}
        if right and (self.minimum is None or min(value, default=self.minimum) >= self.minimum):
            return tuple(value)
        raise RefusedError

    def write(self, value: tuple[int, ...]) -> list[int]:
        """Return the integers."""
        return list(map(int, value))


@dataclass(frozen=True)
class OrNull(Form):
    """A value of another form, whose JSON type is `kind`, or null for None."""

    form: Form
    kind: type

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"{self.form.rule}, or null"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value, or None."""
        found = fields.get(name, (self.kind, type(None)))
        return None if found is None else self.form.read(fields, name)

    def quickly(self, value: Any) -> Any:
        """Return the value or None, or raise `RefusedError`."""
        return None if value is None else self.form.quickly(value)

    def write(self, value: Any) -> Any:
        """Return the value as JSON, or None."""
        return None if value is None else self.form.write(value)


@dataclass(frozen=True)
class Plain(Form):
    """A JSON value of one type, or of several."""

    kind: type | tuple[type, ...]
    rule: str = "a value"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value."""
        return fields.get(name, self.kind)

    def quickly(self, value: Any) -> Any:
        """Return the value, or raise `RefusedError`."""
        if type(value) is self.kind:
            return value
        raise RefusedError

    def write(self, value: Any) -> Any:
        """Return the value; a copy of an object."""
        return dict(value) if self.kind is dict else value


FLAG, TEXT = Plain(bool, "true or false"), Plain(str, "text")
OBJECT, LIST, NUMBER = (
    Plain(dict, "an object"),
    Plain(list, "a list"),
    Plain((int, float), "a number"),
)


@dataclass(frozen=True)
class Rational(Form):
    """A rational as text; `pattern` says how long its numbers may be."""

    pattern: re.Pattern[str] = RATIONAL
    rule: str = 'a rational as text, such as "3/2"'

    def read(self, fields: Fields, name: str) -> Fraction:
        """Return the rational."""
        return parse_rational(fields.get(name, str), fields.path(name), self.pattern)

    def write(self, value: Fraction) -> str:
        """Return the rational as text."""
        return rational_text(value)


@dataclass(frozen=True)
class Member(Form):
    """A member of an enumeration of texts."""

    kind: Any

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"one of {', '.join(map(show, self.kind))}"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the member."""
        return member(self.kind, fields.get(name, str), fields.path(name))

    def write(self, value: Any) -> str:
        """Return the member's text."""
        return str(value)


def member(kind: Any, value: str, place: str) -> Any:
    """Return the member of an enumeration that a text names."""
    if value not in tuple(kind):
        names = ", ".join(f'"{item}"' for item in kind)
        raise InputError(f"{place} must be one of {names}, not {show(value)}")
    return kind(value)


@dataclass(frozen=True)
class Table(Form):
    """An object with fields of any names: texts, or integers of at least 0."""

    integers: bool = False

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"an object of {'integers of at least 0' if self.integers else 'texts'}"

    def read(self, fields: Fields, name: str) -> dict[str, Any]:
        """Return the object."""
        found: dict[str, Any] = fields.get(name, dict)
        for key, value in found.items():
            place = f"{fields.path(name)}.{key:.60}"
            if self.integers:
                require_integer(value, place, 0)
            elif not isinstance(value, str):
                raise InputError(f"{place} must be a string, not {show(value)}")
        return found

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object."""
        return dict(value)


@dataclass(frozen=True)
class Absent(Form):
    """A value of another form, whose field may be left out: then it is `default`.

    It is written where it is that, too, if older files alone leave it out (`always`).
    """

    form: Form
    default: Any = None
    always: bool = False

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"{self.form.rule}; may be left out"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value, or `default` where the field is not there."""
        return self.form.read(fields, name) if fields.has(name) else self.default

    def write(self, value: Any) -> Any:
        """Return the value as JSON."""
        return self.form.write(value)


class Record(Generic[Made]):
    """Reader and writer of objects of one type, by the forms of their fields.

    Parameters
    ----------
    kind : callable
        The type; it is called with a value for each field.
    forms : Form
        Of each attribute that is a field of the document, in the document's order.
    """

    def __init__(self, kind: Callable[..., Made], /, **forms: Form) -> None:
        self.kind = kind
        self.forms = forms

    def values(self, fields: Fields) -> dict[str, Any]:
        """Return the values of all fields of this record; the object may have others."""
        return {name: form.read(fields, name) for name, form in self.forms.items()}

    def read(self, fields: Fields) -> Made:
        """Return the object that a JSON object describes; raise `InputError` at other fields."""
        made = self.kind(**self.values(fields))
        fields.finish()
        return made

    def read_all(self, fields: Fields, name: str) -> list[Made]:
        """Return the objects that the JSON objects of a list describe."""
        return [self.read(item) for item in fields.each(name)]

    def read_in(self, fields: Fields, name: str) -> Made:
        """Return the object that the JSON object in a field describes."""
        return self.read(Fields(fields.get(name, dict), fields.path(name)))

    def write(self, value: Made) -> dict[str, Any]:
        """Return an object of the type as JSON."""
        document = {}
        for name, form in self.forms.items():
            found = getattr(value, name)
            if not (isinstance(form, Absent) and not form.always and found == form.default):
                document[name] = form.write(found)
        return document


@dataclass(frozen=True)
class Object(Form):
    """An object that a record reads and writes."""

    record: Record[Any]

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"an object with the fields of {self.record.kind.__name__}"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the value that the object describes."""
        return self.record.read_in(fields, name)

    def write(self, value: Any) -> dict[str, Any]:
        """Return the object."""
        return self.record.write(value)


def formed(form: Form, default: Any = MISSING) -> Any:
    """Return a dataclass field of a form; one with a default may be absent from a document.

    It is written all the same, but for None where that is not written as null.
    """
    if default is MISSING:
        return field(metadata={FORM: form})
    always = default is not None or isinstance(form, OrNull)
    return field(default=default, metadata={FORM: Absent(form, default, always)})


def integer(minimum: int | None = None, default: Any = MISSING) -> Any:
    """Return a field that holds an integer."""
    return formed(Integer(minimum), default)


def integers(minimum: int, default: Any = MISSING) -> Any:
    """Return a field that holds a list of integers."""
    return formed(Integers(minimum), default)
