"""Layers that count in a container somewhere, for `benchmarks/fuzz_state.py`."""

from __future__ import annotations

import contextvars
import functools
import random
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from state_containers import HOLDERS, Hidden
from torch import nn


class Layer(nn.Module):
    """A layer whose state is to be as in plain training.

    Attributes
    ----------
    secret : dict
        What only the comparison and the loop are to know: it is taken away before the training, so
        that nothing of the layer leads there. ``"seen"`` returns its state, ``"at"`` is told by the
        loop what is about to begin (``"forward"``, ``"backward"``, ``"step"``), ``"end"`` is called
        when nobody needs the layer any more.
    """

    def __init__(self, chance: random.Random, width: int) -> None:
        super().__init__()
        self.secret: dict[str, Callable[..., Any]] = {}

    def beside(self) -> torch.Tensor | None:
        """Return a loss that is to be added to that of the loop."""
        return None


@dataclass
class Watched:
    """A layer, and what is known of it.

    Attributes
    ----------
    kind : str
        Name of its kind of state.
    layer : Layer
    seen, at, end : callable
        See `Layer`.
    """

    kind: str
    layer: Layer
    seen: Callable[[], Any]
    at: Callable[[str], None]
    end: Callable[[], None]


def watched(kind: str, layer: Layer) -> Watched:
    """Take the functions out of a layer that nothing but this driver is to know."""
    secret = layer.__dict__.pop("secret")
    return Watched(
        kind,
        layer,
        secret.get("seen", lambda: None),
        secret.get("at", lambda when: None),
        secret.get("end", lambda: None),
    )


@dataclass(frozen=True)
class Kind:
    """One kind of state.

    Attributes
    ----------
    make : callable
        Given a random generator and a width, it returns a layer.
    pure : bool
        Whether a segment with it must be allowed to run again.
    late : bool
        Whether it does not act in the first eight steps.
    """

    make: Callable[[random.Random, int], Layer]
    pure: bool = False
    late: bool = False


# Places where a container can be, seen from a layer.

_GLOBAL: Any = None
_CONTEXT: contextvars.ContextVar[Any] = contextvars.ContextVar("state")
_LOCAL = threading.local()
_WEAK: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _with_default(box: Any = None, cell: list[Any] = []) -> Any:  # noqa: B006
    if box is not None:
        cell[:] = [box]
    return cell[0]


def _with_attribute() -> Any:
    return _with_attribute.box  # type: ignore[attr-defined]


class Counted(Layer):
    """Counts its calls in some container; what it returns may depend on the count."""

    def __init__(
        self,
        chance: random.Random,
        width: int,
        holder: str | None = None,
    ) -> None:
        super().__init__(chance, width)
        make, bump = HOLDERS[
            holder or chance.choice(("dict", "growing list", "dataclass", "slots"))
        ]
        self.reads = chance.random() < 0.7
        box = make()
        # Layers that share a place share how to count.
        self.put((box, bump))
        self.secret["seen"] = lambda: box

    def put(self, box: Any) -> None:
        """Put the container somewhere."""
        self.box = box

    def get(self) -> Any:
        """Return the container."""
        return self.box

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count, and scale by the count."""
        box, bump = self.get()
        count = bump(box)
        return x * (1 + count % 16 / 16) if self.reads else x * 1.0


class InList(Counted):
    """In a list."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.boxes = [None, box]

    def get(self) -> Any:
        """Return it."""
        return self.boxes[1]


class Nested(Counted):
    """In a dictionary in a list in an object."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.owner = types.SimpleNamespace(parts=[{"deep": (box,)}])

    def get(self) -> Any:
        """Return it."""
        return self.owner.parts[0]["deep"][0]


class InClosure(Counted):
    """In a cell of a function."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.function = lambda: box

    def get(self) -> Any:
        """Return it."""
        return self.function()


class InPartial(Counted):
    """In an argument that a function has been given before."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.function = functools.partial(lambda each: each, box)

    def get(self) -> Any:
        """Return it."""
        return self.function()


class InMethod(Counted):
    """In the object of a bound method."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.function = {"box": box}.__getitem__

    def get(self) -> Any:
        """Return it."""
        return self.function("box")


class InGlobal(Counted):
    """In a variable of the file."""

    def put(self, box: Any) -> None:
        """Put it there."""
        global _GLOBAL
        _GLOBAL = box

    def get(self) -> Any:
        """Return it."""
        return _GLOBAL


class InClass(Counted):
    """In an attribute of the class."""

    shared: Any = None

    def put(self, box: Any) -> None:
        """Put it there."""
        type(self).shared = box

    def get(self) -> Any:
        """Return it."""
        return self.shared


class InDefault(Counted):
    """In the default of an argument."""

    def put(self, box: Any) -> None:
        """Put it there."""
        _with_default(box)

    def get(self) -> Any:
        """Return it."""
        return _with_default()


class InFunction(Counted):
    """In an attribute of a function."""

    def put(self, box: Any) -> None:
        """Put it there."""
        _with_attribute.box = box  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Return it."""
        return _with_attribute()


class InContext(Counted):
    """In a variable of the context."""

    def put(self, box: Any) -> None:
        """Put it there."""
        _CONTEXT.set(box)

    def get(self) -> Any:
        """Return it."""
        return _CONTEXT.get()


class InThread(Counted):
    """In a variable of the thread."""

    def put(self, box: Any) -> None:
        """Put it there."""
        _LOCAL.box = box

    def get(self) -> Any:
        """Return it."""
        return _LOCAL.box


class BehindWeak(Counted):
    """In a dictionary with weak keys, and behind a weak reference."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.key = Hidden()
        _WEAK[self.key] = box
        self.reference = weakref.ref(self.key)

    def get(self) -> Any:
        """Return it."""
        return _WEAK[self.reference()]


class OnParameter(Counted):
    """In an attribute of a parameter."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.scale = nn.Parameter(torch.ones(()))
        self.scale.box = box  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Return it."""
        return self.scale.box  # type: ignore[attr-defined]


PLACES: dict[str, type[Counted]] = {
    "in a list": InList,
    "nested": Nested,
    "closure": InClosure,
    "partial": InPartial,
    "bound method": InMethod,
    "module global": InGlobal,
    "class attribute": InClass,
    "default argument": InDefault,
    "function attribute": InFunction,
    "context variable": InContext,
    "thread local": InThread,
    "weak dictionary": BehindWeak,
    "attribute of a parameter": OnParameter,
}

KINDS: dict[str, Kind] = {
    **{f"counter: {name}": Kind(functools.partial(Counted, holder=name)) for name in HOLDERS},
    **{f"place: {name}": Kind(place) for name, place in PLACES.items()},
}
