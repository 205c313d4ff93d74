"""Events within the operations of a step, as far as they matter once parts of it run again.

A trace knows of an operation what it takes at most. Two things lie deeper:

- Something may die in the midst of an operation, before the operation takes the most. Where a
  segment does not save it, or keeps it for longer, it is not there, or still there: then the
  operation takes more beside what the trace counts.
- A segment runs again when a backward computation asks for something saved in it. What that
  computation has made by then waits meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import Integer, Integers, Record, RefusedError
from offcert.core.list_forms import Each, InOrder


@dataclass(frozen=True, slots=True)
class Making:
    """A computation that has room for what it makes because something else dies in its midst.

    Attributes
    ----------
    computation : int
        Number of the computation.
    more : int
        Bytes that it takes beside its workspace if one of the values does not die then.
    values : tuple of int
        Values that die.
    """

    computation: int
    more: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: a backward computation asks for a result that another has saved, the first time.

    Attributes
    ----------
    computation, saver : int
        Who asks for what who has saved.
    left : int
        Bytes by which more is alive then than when the computation began.
    most : int
        The same at any time until then.
    left_otherwise, most_otherwise : int
        The same if one of the values does not die on the way.
    values : tuple of int
        Values that die on the way.
    """

    computation: int
    saver: int
    left: int
    most: int
    left_otherwise: int
    most_otherwise: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Within:
    """The events within operations that a record notes.

    Attributes
    ----------
    makings : tuple of Making
        At most one for each computation.
    asks : tuple of Ask
        Of each computation in the order in which it asks, as often as it asks for what somebody
        else has saved; none of computations that have made nothing by the last of them.
    """

    makings: tuple[Making, ...] = ()
    asks: tuple[Ask, ...] = ()

    @cached_property
    def making_of(self) -> dict[int, Making]:
        """The entry of each computation that has one."""
        return {each.computation: each for each in self.makings}

    @cached_property
    def asks_of(self) -> dict[int, tuple[Ask, ...]]:
        """The requests of each computation that has any."""
        found: dict[int, tuple[Ask, ...]] = {}
        for each in self.asks:
            found[each.computation] = (*found.get(each.computation, ()), each)
        return found

    def first_ask(self, computation: int, first: int, last: int) -> Ask | None:
        """Return a computation's first ask for values saved by a range of others, or None."""
        for each in self.asks_of.get(computation, ()):
            if first <= each.saver <= last:
                return each
        return None


# Of what was profiled before anything was recorded of that.
NOTHING_WITHIN = Within()


class _Ask(InOrder):
    """An `Ask`, of which more is never alive for something that dies on the way."""

    def read(self, fields: Fields, name: str) -> Ask:
        ask: Ask = super().read(fields, name)
        if _too_little(ask):
            raise InputError(
                f"{fields.path(name)} must not have less alive where a value does not die on the "
                f"way: {ask.left_otherwise} and {ask.most_otherwise}, not {ask.left} and {ask.most}"
            )
        return ask

    def quickly(self, value: Any) -> Ask:
        ask: Ask = super().quickly(value)
        if _too_little(ask):
            raise RefusedError
        return ask


def _too_little(ask: Ask) -> bool:
    return ask.left_otherwise < ask.left or ask.most_otherwise < ask.most


WITHIN = Record(
    Within,
    makings=Each(InOrder(Making, Integer(0), Integer(0), Integers(0))),
    asks=Each(_Ask(Ask, *[Integer(0)] * 6, Integers(0))),
)
