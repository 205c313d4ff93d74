"""`EvictionRule`: a step that nothing is known of yet keeps to a limit, without a plan.

Before an operator runs for which there would be no room, what autograd has saved leaves the device,
what it has saved first before all else: the backward pass needs that last. It comes back when
autograd asks for it. Copies are waited for, so it takes longer than any plan; it is for the steps
from which a plan is made.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from offcert.runtime.torch_private import (
    FakeTensorMode,
    tree_map,
    undispatched,
    without_modes,
)
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.guard import quiet
from offcert.runtime.watch.operators import foreign_name, strided_tensors
from offcert.runtime.watch.tracker import LiveBytes, StorageRecord


@dataclass(slots=True)
class _Away:
    """Bytes of an entry on the host, and what counts them."""

    entry: weakref.ref[StorageEntry]
    host: torch.Tensor
    record: StorageRecord


class EvictionRule:
    """Keeps the bytes that a tracker counts on the device within a limit.

    What it cannot do, as operators need their operands, it does not. Copies may take `host` bytes
    of the host; None for any number. `bytes_moved` have left.
    """

    def __init__(self, tracker: LiveBytes, limit: int, host: int | None = None) -> None:
        self.limit, self.bytes_moved = limit, 0
        self._tracker, self._host = tracker, host
        self._saved: list[weakref.ref[StorageEntry]] = []
        self._away: dict[int, _Away] = {}
        self._known: dict[str, int] = {}

    def note(self, entry: StorageEntry) -> None:
        """Take note that autograd has saved a storage."""
        self._saved.append(weakref.ref(entry))

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """Make room for what an operator is going to make."""
        # Results are foreseen only where they may matter: that takes longer than most operators.
        # Collectives make nothing, and none may be tried out that other processes do not join in.
        if self._saved and func.namespace != "c10d":
            self._make_room(self._made_bytes(func, args, kwargs))

    def _make_room(self, size: int) -> None:
        tracker, waiting = self._tracker, []
        for number, reference in enumerate(self._saved):
            if tracker.live - tracker.away + size <= self.limit:
                waiting += self._saved[number:]
                break
            entry = reference()
            if entry is not None and not self._leave(entry):
                waiting.append(reference)
        self._saved = waiting

    def _leave(self, entry: StorageEntry) -> bool:
        """Let a storage leave; return whether it has, or is on no device."""
        if entry.away:
            return True
        full = self._host is not None and self._tracker.away + entry.size > self._host
        if full or entry.held_elsewhere:
            return False
        storage = entry.device_storage()
        record = self._tracker.leave(storage)
        if record is None:
            # The storage is older than the step.
            return True
        with undispatched():
            device = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            host = device.to("cpu", copy=True)
            del device
        entry.drop()
        key = id(entry)

        def died(_: object) -> None:
            lost = self._away.pop(key, None)
            if lost is not None:
                self._tracker.lose(lost.record)

        self._away[key] = _Away(weakref.ref(entry, died), host, record)
        self.bytes_moved += entry.size
        return True

    def bring_back(self, entry: StorageEntry, device: str) -> None:
        """Bring back a storage that has left, if it has."""
        away = self._away.pop(id(entry), None)
        if away is None:
            return
        self._make_room(entry.size)
        with undispatched():
            data = away.host.to(device, copy=True)
        self._tracker.come_back(data.untyped_storage(), away.record)
        entry.put(data)
        self._saved.append(weakref.ref(entry))

    def _made_bytes(self, func: Any, args: Any, kwargs: Any) -> int:
        """Return how many bytes an operator makes, by running it on tensors without data."""
        key = repr((func, tree_map(_described, (args, kwargs))))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _bytes_made(func, args, kwargs)
        return known


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    strides = leaf.stride() if leaf.layout is torch.strided else None
    return str(leaf.dtype), str(leaf.device), tuple(leaf.shape), strides


def _bytes_made(func: Any, args: Any, kwargs: Any) -> int:
    most = sum(each.untyped_storage().nbytes() for each in strided_tensors((args, kwargs)))
    if foreign_name(func) is not None:
        # To run what a user has written in Python may change anything.
        return most
    mode = FakeTensorMode()

    def twin(leaf: Any) -> Any:
        return mode.from_tensor(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf

    try:
        with quiet(), without_modes():
            fakes, named = tree_map(twin, (args, kwargs))
            with mode:
                out = func(*fakes, **named)
    except Exception:
        # The results' size shows only in data. Most operators make no more than they are given.
        return most
    given = {each.untyped_storage()._cdata for each in strided_tensors((fakes, named))}
    made = [each.untyped_storage() for each in strided_tensors(out)]
    return sum({each._cdata: each.nbytes() for each in made if each._cdata not in given}.values())
