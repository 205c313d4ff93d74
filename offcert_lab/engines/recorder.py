"""Operators that an engine runs, seen below autograd, and entered in the machine's book.

Tensors of the simulated device lie in memory of the CPU; which storages stand for memory of the
device, or for pinned memory, is a table here. Operators run when they are called, so that the
program goes on with right values whatever it forgot to wait for.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from offcert_lab.engines.findings import node, place
from offcert_lab.engines.machine import Machine
from offcert_lab.engines.memory import Geometry, Reference, Stay

Storage = torch.UntypedStorage
# PyTorch's own answer, whatever a program is told meanwhile.
real_device: Callable[[torch.Tensor], torch.device] = torch._C.TensorBase.device.__get__


class EngineRecorder:
    """Table of memory and of threads: which lives storages are in, which streams are current.

    Parameters
    ----------
    machine : Machine
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[int, tuple[weakref.ref[Any], Stay]] = {}
        self._local = threading.local()
        # Addresses and sizes of memory that the program has registered itself.
        self.registered: dict[int, int] = {}
        # From which sequence number of autograd on a stream was current.
        self._changes: list[tuple[int, int]] = [(0, 0)]
        # Whether the audit is over; what dies later is nobody's business.
        self.ended = False

    # Streams.

    @property
    def stream(self) -> int:
        """The number of the stream that is current in the calling thread."""
        return int(getattr(self._local, "stream", 0))

    @stream.setter
    def stream(self, index: int) -> None:
        if index != self.stream and threading.current_thread() is threading.main_thread():
            self._changes.append((torch.autograd._get_sequence_nr(), index))
        self._local.stream = index

    def stream_of(self, sequence: int) -> int:
        """Return the stream that was current when autograd made the node of a number."""
        return self._changes[bisect_right(self._changes, (sequence, 2**30)) - 1][1]

    @property
    def one_stream(self) -> bool:
        """Whether there has never been another current stream."""
        return len(self._changes) == 1

    # Memory.

    def life(self, tensor: torch.Tensor) -> Stay:
        """Return the life that a tensor's storage is in."""
        return self.life_of(tensor.untyped_storage())

    def life_of(self, storage: Storage) -> Stay:
        """Return the life that a storage is in; one that nobody knows is the host's."""
        if self.knows(storage):
            return self._known[storage._cdata][1]
        where = "registered" if self.is_registered(storage) else "host"
        life = self.enter(storage, where)
        life.initial = _bytes(storage).clone()
        return life

    def where(self, tensor: torch.Tensor) -> str:
        """Return ``"device"``, ``"pinned"`` or ``"host"``."""
        if not is_on_cpu(tensor):
            return "host"
        storage = tensor.untyped_storage()
        if self.knows(storage):
            where = self._known[storage._cdata][1].where
        else:
            where = "registered" if self.is_registered(storage) else "host"
        return "pinned" if where == "registered" else where

    def knows(self, storage: Storage) -> bool:
        """Whether a storage is in a life that has been entered."""
        known = self._known.get(storage._cdata)
        return known is not None and known[0]() is storage

    def is_registered(self, storage: Storage) -> bool:
        """Whether a storage lies in memory that the program has registered."""
        address = storage.data_ptr()
        return any(begin <= address < begin + size for begin, size in self.registered.items())

    def enter(self, storage: Storage, where: str, stream: int | None = None) -> Stay:
        """Begin a life."""
        life = self.machine.allocate(
            where, storage.nbytes(), self.stream if stream is None else stream
        )
        key = storage._cdata

        def died(_: object, key: int = key, life: Stay = life) -> None:
            if self.ended:
                return
            with self.machine.lock:
                known = self._known.get(key)
                if known is not None and known[1] is life:
                    del self._known[key]
                if life.where == "registered":
                    self.machine.released_on_host(life, place())
                self.machine.give_back(life, place())

        self._known[key] = weakref.ref(storage, died), life
        return life

    def empties(self, storage: Storage) -> None:
        """End the life of a storage whose bytes are given back while it lives on."""
        known = self._known.pop(storage._cdata, None)
        if known is not None:
            self.machine.give_back(known[1], place())

    def register(self, address: int, size: int) -> None:
        """Take note that memory is registered."""
        self.registered[address] = size
        self.machine.register(size)
        for reference, life in list(self._known.values()):
            storage = reference()
            if storage is not None and life.where == "host" and self.is_registered(storage):
                life.where = "registered"

    def unregister(self, address: int) -> None:
        """Take note that memory is registered no more."""
        size = self.registered.pop(address)
        self.machine.register(-size)
        for reference, life in list(self._known.values()):
            storage = reference()
            inside = storage is not None and address <= storage.data_ptr() < address + size
            if inside and life.where == "registered":
                self.machine.released_on_host(life, place())
                life.where = "host"

    def living(self) -> list[Stay]:
        """Return the lives that have not ended, in order."""
        found = [life for reference, life in self._known.values() if reference() is not None]
        return sorted(found, key=lambda life: life.number)

    def contents(self) -> dict[int, torch.Tensor]:
        """Return the bytes of all lives that have not ended, by their numbers."""
        found = {}
        for reference, life in list(self._known.values()):
            if (storage := reference()) is not None:
                found[life.number] = _bytes(storage).clone()
        return found

    # Operators.

    def uses(
        self, tensors: Sequence[torch.Tensor], writes: bool
    ) -> list[tuple[Stay, Geometry, bool]]:
        """Return the accesses to tensors."""
        return [(self.life(each), Geometry.of(each), writes) for each in tensors]

    def referring(self, arguments: Any, constant: set[int]) -> Any:
        """Return arguments with references for tensors, and copies of those that are constant."""

        def refer(tensor: torch.Tensor) -> Any:
            if not is_on_cpu(tensor):
                return tensor
            if id(tensor) in constant:
                return tensor.detach().clone()
            return Reference.of(tensor, self.life(tensor))

        return tree_map_only(torch.Tensor, refer, arguments)

    def called(self, name: str) -> str:
        """Return the name of an operator that runs now, with its autograd node, for people."""
        running = node()
        return f"{name} in {running}" if running else name


def is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of bytes at addresses, which PyTorch has put on the CPU."""
    return tensor.layout is torch.strided and real_device(tensor).type == "cpu"


def require_device(recorder: EngineRecorder, device: torch.device) -> None:
    """Refuse devices beside the CPU and the first of CUDA."""
    known = ("cpu", "cuda", "meta")
    if device.type not in known or (device.type == "cuda" and (device.index or 0) > 0):
        raise recorder.machine.refusal(f"device {device}", place())


def _bytes(storage: Storage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)
