"""Counters that only an unusual way leads to, or that Python does not hold itself."""

from __future__ import annotations

import builtins
import ctypes
import decimal
import functools
import hashlib
import importlib
import itertools
import logging
import mmap
import queue
import random
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import torch
from state_kinds import Counted, Kind
from torch import nn

# What is not held in Python: made, counted up, read.


def _digest(box: Any) -> int:
    box.update(b"x")
    return int(box.digest()[0])


def _steps() -> Any:
    found: queue.Queue[int] = queue.Queue()
    for each in range(200):
        found.put(each % 7)
    return found


def _rows(box: sqlite3.Connection) -> int:
    return int(box.execute("SELECT count(*) FROM calls").fetchone()[0])


def _row(box: sqlite3.Connection) -> int:
    box.execute("INSERT INTO calls VALUES (1)")
    return _rows(box)


def _database() -> sqlite3.Connection:
    box = sqlite3.connect(":memory:", isolation_level=None)
    box.execute("CREATE TABLE calls (n)")
    return box


def _file() -> Any:
    return tempfile.TemporaryFile()


def _write(box: Any) -> int:
    box.write(b".")
    return int(box.tell())


def _map_byte(box: mmap.mmap) -> int:
    box[0] = (box[0] + 1) % 200
    return box[0]


def _number(box: Any) -> int:
    box.value += 1
    return int(box.value)


def _precision(box: decimal.Context) -> int:
    box.prec += 1
    return box.prec


class Weird(dict[str, int]):
    """A dictionary that is one of its own."""

    def __init__(self) -> None:
        super().__init__(n=0)
        self.log: list[int] = []

    def __setitem__(self, key: str, value: int) -> None:
        """Write it down, too."""
        self.log.append(value)
        super().__setitem__(key, value)


def _weird(box: Weird) -> int:
    box["n"] = box["n"] + 1
    return len(box.log)


def _items(box: Weird) -> Any:
    return dict(box), box.log


Held = tuple[Callable[[], Any], Callable[[Any], int], Callable[[Any], Any]]

HELD: dict[str, Held] = {
    "hash": (hashlib.sha256, _digest, lambda box: box.hexdigest()),
    "enumerate": (
        lambda: enumerate(itertools.repeat(0)),
        lambda box: next(box)[0],
        lambda box: box.__reduce__()[1][1],
    ),
    "queue": (_steps, lambda box: box.get(), lambda box: box.qsize()),
    "semaphore": (
        lambda: threading.Semaphore(500),
        lambda box: (box.acquire(), box._value)[1],
        lambda box: box._value,
    ),
    "database": (_database, _row, _rows),
    "file": (_file, _write, lambda box: box.tell()),
    "memory map": (lambda: mmap.mmap(-1, 8), _map_byte, lambda box: box[:8]),
    "ctypes": (lambda: ctypes.c_long(0), _number, lambda box: box.value),
    "decimal context": (lambda: decimal.Context(prec=1), _precision, lambda box: box.prec),
    "subclass of dict": (Weird, _weird, _items),
}


class CountedElsewhere(Counted):
    """Counts in what Python does not hold."""

    def __init__(self, chance: random.Random, width: int, held: str) -> None:
        super().__init__(chance, width)
        make, bump, reads = HELD[held]
        box = make()
        self.put((box, bump))
        self.secret["seen"] = functools.partial(reads, box)


# Ways that no look at the code shows.


class ByName(Counted):
    """In a variable of the file that is only named in a text."""

    def put(self, box: Any) -> None:
        """Put it there."""
        globals()["_hid" + "den"] = box

    def get(self) -> Any:
        """Return it."""
        return globals()["_hid" + "den"]


class ByImport(Counted):
    """In another module, which is looked up when it is called."""

    def put(self, box: Any) -> None:
        """Put it there."""
        importlib.import_module("state_containers")._far = box  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Return it."""
        return vars(sys.modules["state_" + "containers"])["_far"]


class InBuiltins(Counted):
    """In a name that every file has."""

    def put(self, box: Any) -> None:
        """Put it there."""
        builtins._fuzzed = box  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Return it."""
        return _fuzzed  # type: ignore[name-defined]  # noqa: F821


class ByEval(Counted):
    """In a variable of the file, in code that is a text."""

    def put(self, box: Any) -> None:
        """Put it there."""
        globals()["_evaluated"] = box

    def get(self) -> Any:
        """Return it."""
        return eval("_evaluated")


class InMetaclass(Counted):
    """In an attribute of the class of a class."""

    def put(self, box: Any) -> None:
        """Put it there."""
        meta = type("Meta", (type,), {"box": box})
        self.kind = meta("Kind", (), {})

    def get(self) -> Any:
        """Return it."""
        return self.kind.box  # type: ignore[attr-defined]


class ByGetattr(Counted):
    """Behind a `__getattr__` that makes attributes up."""

    def put(self, box: Any) -> None:
        """Put it there."""

        class Proxy:
            def __getattr__(self, name: str) -> Any:
                return box

        self.proxy = Proxy()

    def get(self) -> Any:
        """Return it."""
        return self.proxy.anything


class InLogger(Counted):
    """In a handler of a logger, which has a registry of its own."""

    def put(self, box: Any) -> None:
        """Put it there."""
        handler = logging.NullHandler()
        handler.box = box  # type: ignore[attr-defined]
        logging.getLogger("fuzz").handlers[:] = [handler]

    def get(self) -> Any:
        """Return it."""
        return logging.getLogger("fuzz").handlers[0].box  # type: ignore[attr-defined]


class InFrame(Counted):
    """In a frame of a generator that waits."""

    def put(self, box: Any) -> None:
        """Put it there."""

        def waits() -> Any:
            while True:
                yield box

        self.waiting = waits()

    def get(self) -> Any:
        """Return it."""
        return next(self.waiting)


class InTensor(Counted):
    """In an attribute of a buffer."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.register_buffer("plain", torch.zeros(1))
        self.plain.box = box  # type: ignore[union-attr]

    def get(self) -> Any:
        """Return it."""
        return self.plain.box  # type: ignore[union-attr]


class InHook(Counted):
    """In a hook of a child."""

    def put(self, box: Any) -> None:
        """Put it there."""
        self.child = nn.Identity()
        self.child.register_forward_hook(functools.partial(_leave, [box]))
        self.found: list[Any] = []

    def get(self) -> Any:
        """Return it."""
        return self.child(self)


def _leave(cell: list[Any], module: Any, args: Any, output: Any) -> Any:
    return cell[0]


class InOtherThread(Counted):
    """In a thread that answers."""

    def put(self, box: Any) -> None:
        """Put it there."""
        asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def answer() -> None:
            counter, bump = box
            for _ in iter(asked.get, None):
                answers.put(bump(counter))

        threading.Thread(target=answer, daemon=True).start()
        self.ask = lambda: (asked.put(1), answers.get())[1]
        self.secret["end"] = lambda: asked.put(None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Ask for the count."""
        count = self.ask()
        return x * (1 + count % 16 / 16) if self.reads else x * 1.0


PLACES: dict[str, type[Counted]] = {
    "global by name": ByName,
    "by import": ByImport,
    "builtins": InBuiltins,
    "eval": ByEval,
    "metaclass": InMetaclass,
    "__getattr__": ByGetattr,
    "logger": InLogger,
    "frame of a generator": InFrame,
    "attribute of a buffer": InTensor,
    "hook": InHook,
    "other thread": InOtherThread,
}

KINDS: dict[str, Kind] = {
    **{f"held: {name}": Kind(functools.partial(CountedElsewhere, held=name)) for name in HELD},
    **{f"hidden: {name}": Kind(place) for name, place in PLACES.items()},
}
