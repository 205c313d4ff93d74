"""Contents of Python objects: taken down, compared, and put back.

One class a kind of object that can change. Each takes down only what the object itself holds, not
what is held by that in turn: whoever wants more takes down all objects that can be reached
(`offcert.runtime.segments.reachable`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any

from torch import nn


class Missing:
    """A mark for an attribute or a variable that does not exist."""


MISSING = Missing()

# Attributes that every module has, for PyTorch's own use.
OF_MODULES = frozenset(nn.Module().__dict__) - {"training"}
_PARTS = "_parameters", "_buffers", "_modules"


class Content:
    """The contents of one object.

    Parameters
    ----------
    thing : object
        The object whose content it is.
    name : str
        For people: how the object was reached.

    Attributes
    ----------
    restorable : bool
        Whether `put` works.
    """

    __slots__ = ("name", "thing")
    restorable = True

    def __init__(self, thing: Any, name: str) -> None:
        self.thing = thing
        self.name = name

    def take(self) -> Any:
        """Return a copy of the object's content, to be compared or put back."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        raise NotImplementedError

    def transparent(self, value: Any) -> bool:
        """Whether a segment that began with this may find something else when it runs again."""
        return False

    def same(self, one: Any, other: Any) -> bool:
        """Whether two results of `take` are the same."""
        return bool(one == other)

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ()

    def swapped(self, value: Any, swap: Mapping[int, Any]) -> Any:
        """Return a taken content with other objects in the place of some, given by their `id`."""
        return value


class _Keyed(Content):
    """Objects that hold others by keys."""

    __slots__ = ()

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`."""
        return _same_entries(one, other)

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ((_short(key), held) for key, held in value.items())

    def swapped(self, value: Any, swap: Mapping[int, Any]) -> Any:
        """Return a taken dictionary with other objects in the place of some values."""
        return {key: swapped_in(held, swap) for key, held in value.items()}


class Entries(_Keyed):
    """A dictionary."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a copy of the dictionary."""
        return dict(self.thing)

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        refill(self.thing, value)


class Attributes(_Keyed):
    """An object with a `__dict__`."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a copy of the object's attributes."""
        return self.thing.__dict__.copy()

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        refill(self.thing.__dict__, value)


class OfModule(Content):
    """A module: its attributes, parameters, buffers and children."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a copy of the module's attributes, and of its dictionaries."""
        held = self.thing.__dict__
        return held.copy(), *(dict(held[part]) for part in _PARTS)

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        held = self.thing.__dict__
        refill(held, value[0])
        for part, items in zip(_PARTS, value[1:], strict=True):
            refill(held[part], items)

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`."""
        return all(map(_same_entries, one, other))

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return (each for part in value for each in part.items() if each[0] not in OF_MODULES)

    def swapped(self, value: Any, swap: Mapping[int, Any]) -> Any:
        """Return taken attributes of a module with other objects in the place of some."""
        return tuple({k: swapped_in(held, swap) for k, held in part.items()} for part in value)


class Named(_Keyed):
    """Some attributes of an object: its slots, or what a class says itself.

    Parameters
    ----------
    names : sequence of str
        The names of the attributes.
    """

    __slots__ = ("names",)

    def __init__(self, thing: Any, name: str, names: Iterable[str]) -> None:
        super().__init__(thing, name)
        self.names = tuple(names)

    def take(self) -> Any:
        """Return the attributes that have the given names; `MISSING` where there is none."""
        thing = self.thing
        held = vars(thing) if isinstance(thing, type) else None
        if held is not None:
            return {name: held.get(name, MISSING) for name in self.names}
        return {name: getattr(thing, name, MISSING) for name in self.names}

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        now = self.take()
        for name, held in value.items():
            if held is now[name]:
                continue
            if held is MISSING:
                delattr(self.thing, name)
            else:
                setattr(self.thing, name, held)


class Globals(_Keyed):
    """The global names that functions of a file refer to.

    Parameters
    ----------
    names : sequence of str
        Names of attributes, which need not exist.
    """

    __slots__ = ("names",)

    def __init__(self, thing: dict[str, Any], name: str, names: Iterable[str]) -> None:
        super().__init__(thing, name)
        self.names = tuple(names)

    def take(self) -> Any:
        """Return the globals that have the given names; `MISSING` where there is none."""
        held = self.thing
        return {name: held.get(name, MISSING) for name in self.names}

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        for name, held in value.items():
            if held is MISSING:
                self.thing.pop(name, None)
            elif self.thing.get(name, MISSING) is not held:
                self.thing[name] = held


class Elements(Content):
    """A list or a deque."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the elements."""
        return list(self.thing)

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        if not self.same(self.take(), value):
            kind: Any = list if isinstance(self.thing, list) else deque
            kind.clear(self.thing)
            kind.extend(self.thing, value)

    def same(self, one: Any, other: Any) -> bool:
        """Compare two results of `take`."""
        return len(one) == len(other) and all(map(is_, one, other))

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return ((str(index), held) for index, held in enumerate(value))

    def swapped(self, value: Any, swap: Mapping[int, Any]) -> Any:
        """Return taken elements with other objects in the place of some."""
        return [swapped_in(held, swap) for held in value]


class Members(Content):
    """A set."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a copy of the set."""
        return set(self.thing)

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        if self.thing != value:
            set.clear(self.thing)
            set.update(self.thing, value)

    def items(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the objects in a taken content, each with a name for people."""
        return (("member", held) for held in value)


class Closed(Elements):
    """A variable that functions share: the cell of a closure."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the cell's content; empty if the cell is."""
        try:
            return [self.thing.cell_contents]
        except ValueError:
            return []

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        if value:
            self.thing.cell_contents = value[0]
        elif self.take():
            del self.thing.cell_contents


class Variable(Elements):
    """A context variable."""

    __slots__ = ()

    def take(self) -> Any:
        """Return a list of the context variable's value; `MISSING` if it has none."""
        return [self.thing.get(MISSING)]

    def put(self, value: Any) -> None:
        """Let it hold what `take` has returned before."""
        if value[0] is not MISSING:
            self.thing.set(value[0])
        elif self.take()[0] is not MISSING:
            raise ValueError("a context variable cannot be made empty again")


def swapped_in(held: Any, swap: Mapping[int, Any]) -> Any:
    """Return the replacement of an object by its `id`, or a tuple with its objects replaced."""
    if not isinstance(held, tuple) or not held:
        return swap.get(id(held), held)
    new = [swapped_in(each, swap) for each in held]
    if all(map(is_, new, held)):
        return held
    return type(held)(*new) if hasattr(held, "_fields") else tuple(new)


def refill(thing: dict[Any, Any], items: Mapping[Any, Any]) -> None:
    """Let a dictionary hold these items, in this order, and no others."""
    if _same_entries(thing, items):
        return
    # Methods of subclasses do other things: those of a `Counter` add.
    kind: Any = OrderedDict if isinstance(thing, OrderedDict) else dict
    if len(thing) != len(items) or not all(map(is_, thing, items)):
        kind.clear(thing)
    for key, held in items.items():
        kind.__setitem__(thing, key, held)


def _same_entries(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    return (
        len(one) == len(other)
        and all(map(is_, one.values(), other.values()))
        and all(map(is_, one, other))
    )


def _short(key: Any) -> str:
    text = key if isinstance(key, str) else repr(key)
    return text if len(text) <= 40 else text[:37] + "..."
