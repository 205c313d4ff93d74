"""Orders in which a machine may carry out what it was given, and the values to which they lead.

The book of an audit is run again on bytes of its own: all lives of the device lie in one space of
addresses, as the allocator gave them out, so that memory that is used again is overwritten. An
order is legal if each work comes after those that its stream and its events put before it, and
after all that the host did before it handed the work over. Where nothing races, all of them lead to
the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_iter

from offcert.runtime.simulated.arena import BYTE
from offcert_lab.engines.machine import STREAMS, Machine
from offcert_lab.engines.memory import HOST, Reference, Stay, Work

# How often another stream than the most urgent one goes on, in orders by chance. Arbitrary.
_CHANCE = 0.3


class Values(NamedTuple):
    """Values that a program got in an order of its works, and the bytes that are there at the end.

    By the numbers of works, and by the numbers of lives.
    """

    got: dict[int, Any]
    bytes: dict[int, torch.Tensor]


class Orders:
    """The orders of a machine's works.

    Parameters
    ----------
    machine : Machine
        After the run.
    left : sequence of Stay
        Lives that had not ended.

    Attributes
    ----------
    queues : list of list of int
        The numbers of works by stream, in the order in which each does them; the host's are last.
    """

    def __init__(self, machine: Machine, left: Sequence[Stay]) -> None:
        self.machine = machine
        self.works = machine.works
        self._left = left
        self._bases, self._end = machine.bases()
        self.queues: list[list[int]] = [[] for _ in range(STREAMS + 1)]
        for number, work in enumerate(self.works):
            self.queues[work.stream].append(number)
        # Counts of works in other streams that come before each work.
        self._before = [
            [(other, n) for other, n in enumerate(work.knows) if n and other != work.stream]
            for work in self.works
        ]
        places = [*range(STREAMS), HOST]
        self._active = [stream for stream in places if self.queues[stream]]

    def as_given(self) -> list[int]:
        """Return the order in which the program handed all over."""
        return list(range(len(self.works)))

    def at_random(self, seed: int) -> list[int]:
        """Return an order by chance, one of two extremes for the first two seeds."""
        coins = random.Random(seed)
        # Streams that run on, each until it must wait for another.
        urgency = [0.0] * (STREAMS + 1)
        for stream in range(STREAMS + 1):
            urgency[stream] = coins.random() if seed > 1 else float(stream * (1 - 2 * seed))
        urgency[HOST] = 2.0 if seed == 0 else urgency[HOST]
        done = [0] * (STREAMS + 1)
        order: list[int] = []
        while len(order) < len(self.works):
            ready = self.ready(done)
            chosen = max(ready, key=urgency.__getitem__)
            if seed > 1 and coins.random() < _CHANCE:
                chosen = coins.choice(ready)
            order.append(self.queues[chosen][done[chosen]])
            done[chosen] += 1
        return order

    def ready(self, done: Sequence[int]) -> list[int]:
        """Return the streams whose next work may run, the host's number for the host's.

        Parameters
        ----------
        done : sequence of int
            How many works each stream has done; the host's are last.
        """
        return [stream for stream in self._active if self._is_ready(stream, done)]

    def _is_ready(self, stream: int, done: Sequence[int]) -> bool:
        queue = self.queues[stream]
        if done[stream] == len(queue):
            return False
        work = self.works[queue[done[stream]]]
        if done[HOST] < work.issued:
            return False
        return all(done[other] >= count for other, count in self._before[queue[done[stream]]])

    def with_first(self, number: int) -> list[int]:
        """Return an order in which a work runs as early as it may."""
        needed = [0] * (STREAMS + 1)
        goals = [self.works[number]]
        while goals:
            work = goals.pop()
            before = [*work.knows, work.issued]
            if work.stream != HOST:
                before[work.stream] = work.number - 1
            for stream, count in enumerate(before):
                for place in range(needed[stream], count):
                    goals.append(self.works[self.queues[stream][place]])
                needed[stream] = max(needed[stream], count)
        first = {
            each for queue, count in zip(self.queues, needed, strict=True) for each in queue[:count]
        }
        rest = [each for each in self.as_given() if each not in first and each != number]
        return [*sorted(first), number, *rest]

    def with_last(self, number: int) -> list[int]:
        """Return an order in which a work runs as late as it may."""
        # By stream, how many works it does without that one.
        free = [len(queue) for queue in self.queues]
        late = []
        for each in range(number, len(self.works)):
            work = self.works[each]
            needs = [*work.knows, work.issued]
            if work.stream != HOST:
                needs[work.stream] = work.number - 1
            if each == number or any(need > has for need, has in zip(needs, free, strict=True)):
                free[work.stream] = min(free[work.stream], work.number - 1)
                late.append(each)
        behind = set(late)
        return [each for each in self.as_given() if each not in behind] + late

    def run(self, order: Sequence[int]) -> Values:
        """Carry out all works in an order."""
        bytes_of = _Memory(self.machine, self._bases, self._end)
        state = torch.get_rng_state()
        got: dict[int, Any] = {}
        try:
            for number in order:
                work = self.works[number]
                value = _carry_out(work, bytes_of)
                if work.observed:
                    got[number] = value
        finally:
            torch.set_rng_state(state)
        left = {life.number: bytes_of.whole(life).clone() for life in self._left}
        return Values(got, left)

    def differences(self, one: Values, other: Values, among: _Same) -> Iterator[str]:
        """Yield the differences between two orders in the values that a program sees."""
        for number, value in one.got.items():
            if number in among.got and not _equal(value, other.got[number]):
                work = self.works[number]
                yield (
                    f"{work.operation} at {work.place} gives {_shown(other.got[number])} "
                    f"and not {_shown(value)}"
                )
        for number, data in one.bytes.items():
            if number in among.bytes and not torch.equal(data, other.bytes[number]):
                wrong = int((data != other.bytes[number]).sum())
                life = self.machine.lives[number]
                yield (
                    f"{wrong} of {life.size} bytes that are in use at the end are wrong"
                    f"{self._writer(life)}"
                )

    def _writer(self, life: Stay) -> str:
        for work in reversed(self.works):
            found = [*tree_iter((work.args, work.kwargs)), *work.results]
            if any(isinstance(each, Reference) and each.life is life for each in found):
                return f" ({work.operation} at {work.place} used them last)"
        return ""


class _Same:
    """The values that do not depend on anything but the order."""

    def __init__(self, one: Values, other: Values) -> None:
        self.got = {key for key, value in one.got.items() if _equal(value, other.got.get(key))}
        self.bytes = {key for key, data in one.bytes.items() if torch.equal(data, other.bytes[key])}


def comparable(orders: Orders, as_given: Values, contents: dict[int, torch.Tensor]) -> _Same:
    """Return the values that two runs in the order as given and the program have in common.

    Memory that nobody writes, or that the program writes past PyTorch, is left out.
    """
    again = orders.run(orders.as_given())
    found = _Same(as_given, again)
    found.bytes = {key for key in found.bytes if torch.equal(as_given.bytes[key], contents[key])}
    return found


class _Memory:
    """Bytes of a run: the device's, pinned ones, and others by their lives."""

    def __init__(self, machine: Machine, bases: dict[tuple[int, bool], int], end: int) -> None:
        self._machine = machine
        self._bases = bases
        self._spaces = {
            "device": torch.full((end,), BYTE, dtype=torch.uint8),
            "pinned": torch.full((machine.pinned.end,), BYTE, dtype=torch.uint8),
        }
        self._own: dict[int, torch.Tensor] = {}

    def tensor(self, reference: Reference) -> torch.Tensor:
        """Return a tensor over the bytes of a life."""
        life, geometry = reference.life, reference.geometry
        address = self._machine.address(life, self._bases)
        if address is None:
            data, begin = self._alone(life), 0
        else:
            data, begin = self._spaces[life.where], address
        if life.size == 0:
            return torch.empty(geometry.shape, dtype=reference.dtype)
        made = torch.empty(0, dtype=reference.dtype)
        offset = begin // geometry.itemsize + geometry.offset
        return made.set_(data.untyped_storage(), offset, geometry.shape, geometry.strides)

    def _alone(self, life: Stay) -> torch.Tensor:
        data = self._own.get(life.number)
        if data is None:
            data = torch.full((life.size,), BYTE, dtype=torch.uint8)
            if life.initial is not None:
                data.copy_(life.initial)
            self._own[life.number] = data
        return data

    def whole(self, life: Stay) -> torch.Tensor:
        """Return all bytes of a life."""
        address = self._machine.address(life, self._bases)
        if address is None:
            return self._alone(life)
        return self._spaces[life.where][address : address + life.size]


def _carry_out(work: Work, memory: _Memory) -> Any:
    """Run a work on the bytes that are there; a result that cannot be is poison."""
    targets = [None if each is None else memory.tensor(each) for each in work.results]
    try:
        args, kwargs = _filled(work.args, memory), _filled(work.kwargs, memory)
        if work.random is not None:
            if (generator := kwargs.get("generator")) is not None:
                generator = torch.Generator().set_state(work.random)
                kwargs = {**kwargs, "generator": generator}
            else:
                torch.set_rng_state(work.random)
        value = work.run(*args, **kwargs)
        if not any(target is not None for target in targets):
            return value
        made = [each for each in tree_iter(value) if isinstance(each, torch.Tensor)]
        for target, each in zip(targets, made, strict=bool(targets)):
            if target is not None:
                target.copy_(each)
        return value
    except (RuntimeError, IndexError, ValueError) as error:
        # Indices that nobody wrote yet are out of bounds, and sizes that depend on values differ.
        for target in targets:
            if target is not None:
                target.view(torch.uint8).fill_(BYTE) if target.dim() else target.zero_()
        return f"{type(error).__name__}"


def _filled(arguments: Any, memory: _Memory) -> Any:
    """Return arguments with tensors for references; operators take no deeper ones than lists."""
    if isinstance(arguments, Reference):
        return memory.tensor(arguments)
    if isinstance(arguments, tuple | list):
        return [_filled(each, memory) for each in arguments]
    if isinstance(arguments, dict):
        return {name: _filled(each, memory) for name, each in arguments.items()}
    return arguments


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(_raw(one), _raw(other)))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.flatten()[:4].tolist()}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
