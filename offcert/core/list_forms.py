"""Forms of lists: of values that are all of one form, and of values that differ by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from typing import Any

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import Form, RefusedError


@dataclass(frozen=True)
class Each(Form):
    """A list of values of one form."""

    form: Form

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"a list; of each value: {self.form.rule}"

    def read(self, fields: Fields, name: str) -> tuple[Any, ...]:
        """Return the values."""
        try:
            return self.quickly(fields.get(name, list))
        except RefusedError:
            items = fields.items(name)
            return tuple(self.form.read(items, each) for each in items)

    def quickly(self, value: Any) -> tuple[Any, ...]:
        """Return the values, or raise `RefusedError`."""
        if type(value) is not list:
            raise RefusedError
        return tuple(map(self.form.quickly, value))

    def write(self, value: Iterable[Any]) -> list[Any]:
        """Return the values as JSON."""
        return list(map(self.form.write, value))


class InOrder(Form):
    """A list that says by position what an object says by name.

    Parameters
    ----------
    kind : type
        A tuple with or without names, or a dataclass, whose first fields are those of the list.
    forms : Form
        The form of the value at each position.
    """

    def __init__(self, kind: Any, *forms: Form) -> None:
        self._forms = forms
        self._quick = [form.quickly for form in forms]
        if issubclass(kind, tuple):
            self._make: Callable[[list[Any]], Any] = getattr(kind, "_make", kind)
            self._values: Callable[[Any], Iterable[Any]] = iter
        else:
            self._make = lambda values: kind(*values)
            self._values = attrgetter(*[f.name for f in dataclass_fields(kind)][: len(forms)])

    @property
    def rule(self) -> str:
        """The rule for values, in words."""
        return f"a list of {len(self._forms)}: {', '.join(form.rule for form in self._forms)}"

    def read(self, fields: Fields, name: str) -> Any:
        """Return the object, or the tuple."""
        items = fields.items(name)
        if len(items) != len(self._forms):
            place = fields.path(name)
            raise InputError(f"{place} must have {len(self._forms)} entries, not {len(items)}")
        return self._make(
            [form.read(items, each) for form, each in zip(self._forms, items, strict=True)]
        )

    def quickly(self, value: Any) -> Any:
        """Return the object, or raise `RefusedError`."""
        if type(value) is not list or len(value) != len(self._quick):
            raise RefusedError
        return self._make([read(each) for read, each in zip(self._quick, value, strict=True)])

    def write(self, value: Any) -> list[Any]:
        """Return the values at the positions as JSON."""
        return [
            form.write(each) for form, each in zip(self._forms, self._values(value), strict=True)
        ]
