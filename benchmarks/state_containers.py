"""Containers that layers count in, for `benchmarks/fuzz_state.py`: made, and counted up."""

from __future__ import annotations

import array
import io
import itertools
import random
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch


@dataclass
class Box:
    """A counter."""

    n: int = 0
    more: list[int] = field(default_factory=list)


class Slots:
    """A counter without a dictionary."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Hidden:
    """A counter behind a property and a name that is mangled."""

    __slots__ = ("__count", "__weakref__")

    def __init__(self) -> None:
        self.__count = [0]

    @property
    def n(self) -> int:
        """The count."""
        return self.__count[0]

    @n.setter
    def n(self, value: int) -> None:
        self.__count[0] = value


class Metric:
    """A metric with tensors, as libraries have them."""

    def __init__(self) -> None:
        self.total, self.count = torch.zeros(()), 0

    def update(self, value: float) -> None:
        """Take one more value."""
        self.total = self.total + value
        self.count += 1


def _attribute(box: Any) -> int:
    box.n += 1
    return int(box.n)


def _item(box: Any) -> int:
    box["n"] = box["n"] + 1
    return int(box["n"])


def _append(box: Any) -> int:
    box.append(len(box) % 7)
    return len(box)


def _add(box: Any) -> int:
    box.add(len(box))
    return len(box)


def _first(box: Any) -> int:
    box[0] += 1
    return int(box[0])


def _generator() -> Any:
    count = 0
    while True:
        count += 1
        yield count


def _write(box: io.StringIO) -> int:
    box.write(".")
    return box.tell()


def _metric(box: Metric) -> int:
    box.update(0.5)
    return box.count


def _rotate(box: deque[int]) -> int:
    box.rotate(1)
    return box[0]


def _rebind(box: dict[str, tuple[int, ...]]) -> int:
    box["t"] = (*box["t"], 1)
    return len(box["t"])


def _tensor_item(box: list[torch.Tensor]) -> int:
    box[0] = box[0] + 1
    return int(box[0])


def _tensor_in_place(box: dict[str, torch.Tensor]) -> int:
    return int(box["t"].add_(1))


def _next(box: Any) -> int:
    return int(next(box))


Holder = tuple[Callable[[], Any], Callable[[Any], int]]

HOLDERS: dict[str, Holder] = {
    "dict": (lambda: {"n": 0}, _item),
    "list": (lambda: [0], _first),
    "growing list": (list, _append),
    "dataclass": (Box, _attribute),
    "slots": (Slots, _attribute),
    "property": (Hidden, _attribute),
    "namespace": (lambda: types.SimpleNamespace(n=0), _attribute),
    "set": (set, _add),
    "deque": (lambda: deque(maxlen=5), lambda box: (box.append(len(box)), sum(box))[1]),
    "rotated deque": (lambda: deque(range(5)), _rotate),
    "Counter": (lambda: Counter(n=0), _item),
    "defaultdict": (lambda: defaultdict(int), _item),
    "OrderedDict": (lambda: OrderedDict(n=0), _item),
    "ChainMap": (lambda: ChainMap({"n": 0}), _item),
    "UserDict": (lambda: UserDict({"n": 0}), _item),
    "tuple in dict": (lambda: {"t": ()}, _rebind),
    "bytearray": (lambda: bytearray(1), _first),
    "array": (lambda: array.array("q", [0]), _first),
    "memoryview": (lambda: memoryview(bytearray(2)), _first),
    "numpy array": (lambda: numpy.zeros(2), _first),
    "tensor in list": (lambda: [torch.zeros(())], _tensor_item),
    "tensor in dict, in place": (lambda: {"t": torch.zeros(())}, _tensor_in_place),
    "metric": (Metric, _metric),
    "text stream": (io.StringIO, _write),
    "itertools.count": (lambda: itertools.count(1), _next),
    "itertools.cycle": (lambda: itertools.cycle([1, 4, 2]), _next),
    "list iterator": (lambda: iter(list(range(500))), _next),
    "generator": (_generator, _next),
    "random.Random": (lambda: random.Random(3), lambda box: box.randrange(9)),
    "numpy Generator": (lambda: numpy.random.default_rng(3), lambda box: int(box.integers(9))),
    "numpy RandomState": (lambda: numpy.random.RandomState(3), lambda box: int(box.randint(9))),
    "torch.Generator": (
        lambda: torch.Generator().manual_seed(3),
        lambda box: int(torch.randint(9, (), generator=box)),
    ),
}
