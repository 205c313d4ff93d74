"""Memory of the simulated machine: who has it, which work used it, who may get it next.

A `Stay` is one stay of a storage in memory: from its allocation until its bytes are given
back, by its death or by ``resize_(0)``. PyTorch gives the bytes of the device out and takes them
back in the order in which the host asks, for the stream that was current at the allocation: the
next allocation for that stream may get them at once. So a new life must come after all accesses to
lives of the same stream's memory that were given back before it; only ``record_stream`` puts off
the giving back. Which bytes really come back depends on sizes; here any that were given back may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from offcert.runtime.simulated.streams import Knowledge
from offcert_lab.engines.allocator import CachingAllocator, MemoryBlock
from offcert_lab.engines.findings import CodePlace

# The number of the host, which is no stream. By definition.
HOST = -1
# Elements of a strided access that are looked at one by one; of more, the stretch counts that they
# lie in. Arbitrary.
_MOST_ELEMENTS = 2**20


@dataclass(frozen=True, slots=True)
class Geometry:
    """The bytes of a storage that a tensor uses."""

    offset: int  # Of its first element, in elements.
    # In elements.
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int  # Bytes of an element.

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Geometry:
        """Return that of a tensor."""
        return cls(
            int(tensor.storage_offset()),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.element_size(),
        )

    @property
    def count(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stretch(self) -> tuple[int, int]:
        """The first byte, and the one after the last."""
        if self.count == 0:
            return (0, 0)
        pairs = list(zip(self.shape, self.strides, strict=True))
        last = self.offset + sum((size - 1) * stride for size, stride in pairs)
        return self.offset * self.itemsize, (last + 1) * self.itemsize

    def is_dense(self) -> bool:
        """Whether it uses each byte of its stretch."""
        begin, end = self.stretch
        used = [size for size, stride in zip(self.shape, self.strides, strict=True) if stride]
        return int(np.prod(used, dtype=np.int64)) * self.itemsize == end - begin

    def bytes_used(self) -> np.ndarray:
        """Return the number of each byte it uses, once or more often."""
        found = np.array([self.offset], dtype=np.int64)
        for size, stride in zip(self.shape, self.strides, strict=True):
            if stride:
                found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
        found = found[:, None] * self.itemsize + np.arange(self.itemsize, dtype=np.int64)
        return found.ravel()

    def meets(self, other: Geometry) -> bool:
        """Whether two tensors over a storage share a byte."""
        (begin, end), (first, last) = self.stretch, other.stretch
        if begin >= last or first >= end:
            return False
        if self.is_dense() and other.is_dense():
            return True
        if max(self.count, other.count) > _MOST_ELEMENTS:
            return True
        return bool(np.isin(self.bytes_used(), other.bytes_used()).any())

    def covers(self, other: Geometry) -> bool:
        """Whether each byte of another tensor is one of this one's; never wrongly yes."""
        if self == other:
            return True
        (begin, end), (first, last) = self.stretch, other.stretch
        return begin <= first and last <= end and self.is_dense()


@dataclass(slots=True, eq=False)
class Access:
    """One use of memory by a piece of work."""

    # The stream, and the number of the work in it.
    stream: int
    number: int
    item: int  # The number of the work in all that was recorded.
    operation: str
    writes: bool
    geometry: Geometry
    place: CodePlace
    life: Stay
    dropped: CodePlace | None = None  # Where its memory was given back.
    reported: bool = False  # Whether a use of that memory after that was found.


@dataclass(slots=True, eq=False)
class Stay:
    """A stay of a storage in memory."""

    number: int  # Of all lives.
    where: str  # ``"device"``, ``"pinned"`` or ``"host"``, that is pageable memory.
    size: int  # Bytes.
    stream: int  # For which it was allocated.
    # By stream, the last of the accesses to lives that were given back before.
    after: dict[int, Access] = field(default_factory=dict)
    # Streams it was recorded for, by ``record_stream`` or by copies to pinned memory.
    recorded: set[int] = field(default_factory=set)
    accesses: list[Access] = field(default_factory=list)  # Accesses that a later one may race.
    block: MemoryBlock | None = None  # Of the device's memory, until it is given back.
    taken: int = 0  # Bytes that the allocator gave out.
    address: int | None = None  # In the memory of its stream, or among pinned memory.
    # Its bytes when it was first seen, if operators did not write them.
    initial: torch.Tensor | None = None

    def conflicts(self, access: Access, knows: Knowledge) -> Iterator[Access]:
        """Yield accesses before that use the same bytes, and that nothing orders."""
        for other in self.accesses:
            if not (other.writes or access.writes) or other.stream == access.stream:
                continue
            if knows[other.stream] >= other.number:
                continue
            if access.geometry.meets(other.geometry):
                yield other

    def take(self, access: Access, knows: Knowledge) -> None:
        """Add an access, and forget those that are never in the way unless it is."""
        kept = []
        for other in self.accesses:
            ordered = other.stream == access.stream or knows[other.stream] >= other.number
            as_strict = access.writes or not other.writes
            if not (ordered and as_strict and access.geometry.covers(other.geometry)):
                kept.append(other)
        kept.append(access)
        self.accesses = kept


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor, by the memory it lies in."""

    life: Stay
    dtype: torch.dtype
    geometry: Geometry

    @classmethod
    def of(cls, tensor: torch.Tensor, life: Stay) -> Reference:
        """Return that of a tensor."""
        return cls(life, tensor.dtype, Geometry.of(tensor))


@dataclass(slots=True, eq=False)
class Work:
    """An operator that runs in a stream, or on the host."""

    # Where it runs, and its number there.
    stream: int
    number: int
    knows: Knowledge  # For each stream, how many of its works come before this one.
    issued: int  # How many works of the host come before this one.
    run: Callable[..., Any]  # The operator.
    # Its arguments, with a `Reference` for each tensor that lies in known memory.
    args: Any
    kwargs: Any
    results: list[Reference | None]  # The new memory to which its results are written.
    operation: str
    place: CodePlace
    # The state of the random generator before it, if it uses that.
    random: torch.Tensor | None = None
    observed: bool = False  # Whether its result is a value that the program got.


class Pool:
    """The device's memory that was allocated for one stream.

    Attributes
    ----------
    allocator : CachingAllocator
        Addresses, and bytes that are reserved.
    given_back : dict of int to Access
        By stream, the last access to lives that were given back.
    end : int
        The first address after all blocks there ever were.
    """

    def __init__(self, name: str) -> None:
        self.allocator = CachingAllocator(None, name)
        self.given_back: dict[int, Access] = {}
        self.end = 0
        # Lives that were recorded for other streams, and what the host has to know first.
        self.waiting: list[tuple[Stay, Knowledge]] = []

    def take(self, size: int) -> MemoryBlock:
        """Return a block of at least so many bytes."""
        block = self.allocator.take(size)
        self.end = max(self.end, block.address + block.size)
        return block

    def settle(self, knows: Knowledge) -> list[Stay]:
        """Give back what was put off, if the host knows enough; return those lives."""
        ready = [each for each in self.waiting if _known(each[1], knows)]
        self.waiting = [each for each in self.waiting if not _known(each[1], knows)]
        for life, _ in ready:
            assert life.block is not None
            self.allocator.give_back(life.block)
        return [life for life, _ in ready]

    def forgets(self, knows: Knowledge) -> None:
        """Forget accesses that the host has waited for: all that comes later comes after them."""
        for stream, access in list(self.given_back.items()):
            if knows[stream] >= access.number:
                del self.given_back[stream]


def _known(needed: Knowledge, knows: Knowledge) -> bool:
    return all(have >= need for have, need in zip(knows, needed, strict=True))


class PinnedPool:
    """Pinned memory of the host, as PyTorch gives it out: powers of two, never given back.

    Attributes
    ----------
    held : int
        Bytes taken from the host.
    """

    def __init__(self) -> None:
        self.held = 0
        self.end = 0
        self._free: dict[int, list[int]] = {}
        self._waiting: list[tuple[int, int, Knowledge]] = []

    def take(self, size: int, knows: Knowledge) -> int:
        """Return the address of a block for so many bytes."""
        kept = []
        for address, whole, needed in self._waiting:
            if _known(needed, knows):
                self._free.setdefault(whole, []).append(address)
            else:
                kept.append((address, whole, needed))
        self._waiting = kept
        whole = _power_of_two(size)
        if free := self._free.get(whole):
            return free.pop()
        address = self.end
        self.end += whole
        self.held += whole
        return address

    def give_back(self, address: int, size: int, needed: Knowledge) -> None:
        """Take a block back, to be given out once the host knows enough."""
        self._waiting.append((address, _power_of_two(size), needed))


def _power_of_two(size: int) -> int:
    return 1 << max(9, (size - 1).bit_length())


def most(accesses: Sequence[Access], streams: int) -> Knowledge:
    """Return the last access of each stream that work after some accesses has to wait for."""
    needed = [0] * streams
    for access in accesses:
        needed[access.stream] = max(needed[access.stream], access.number)
    return needed
