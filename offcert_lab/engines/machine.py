"""The simulated machine that an engine runs on: a host, streams, memory, and a book of all work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offcert.core.errors import InputError
from offcert.runtime.simulated.streams import (
    Adversary,
    Host,
    Knowledge,
    SimulatedEvent,
    SimulatedStream,
)
from offcert_lab.engines.findings import CodePlace, Fault, Finding, Use
from offcert_lab.engines.memory import HOST, Access, Geometry, PinnedPool, Pool, Stay, Work, most

# Streams that PyTorch hands out for each of two priorities before it begins anew, and the default
# one. Given by PyTorch.
OF_A_PRIORITY = 32
STREAMS = 1 + 2 * OF_A_PRIORITY
# Bytes a nanosecond of a link and of the device's memory, for events that take times. Assumed.
LINK_RATE, MEMORY_RATE = 25, 1000
# The size from which on blocks of the device's memory come from another pool. Given by PyTorch.
_LARGEST_SMALL = 2**20
# How often somebody is told that an event has not happened yet: who asks in a loop gets on.
# Arbitrary.
_MOST_DENIALS = 8
# Pairs of accesses that are kept of a finding. Arbitrary.
_MOST_PAIRS = 4


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most bytes that a run took."""

    device: int  # Of the device, in blocks as the allocator rounds them, if all copies are prompt.
    # The same, if blocks for which ``record_stream`` was called come back only once the host has
    # waited for those streams.
    device_late: int
    reserved: int  # Bytes that the allocator has taken for them.
    # Pinned bytes of the host, in powers of two, as PyTorch takes them, and registered ones.
    pinned: int


@dataclass(slots=True)
class Found:
    """A finding, and pairs of accesses between its lines, a few of them."""

    finding: Finding
    pairs: list[tuple[Access, Access]]
    times: int = 1  # How many pairs there were.


class UnseenError(InputError):
    """An engine uses something that the simulated machine does not see."""


class Machine:
    """A host with one device.

    Parameters
    ----------
    adversary : callable
        Whether the host is told of an event that it asks for and that may have happened.

    Attributes
    ----------
    works : list of Work
        All that was handed over, in that order.
    findings : dict
        By their keys.
    asked : bool
        Whether the program has asked for an event without waiting for it.
    refusals : list of UnseenError
        Of what it used that is not seen.
    """

    def __init__(self, adversary: Adversary) -> None:
        self.host = Host(STREAMS, adversary)
        self.streams = [SimulatedStream(index, self.host) for index in range(STREAMS)]
        self.names = {0: "the default stream"}
        self.made: dict[str, CodePlace] = {}
        self.works: list[Work] = []
        self.lives: list[Stay] = []
        self.findings: dict[tuple[Any, ...], Found] = {}
        self.lock = threading.RLock()
        self.asked = False
        self.refusals: list[UnseenError] = []
        self.pinned = PinnedPool()
        self.registered = 0
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._issued = 0
        self._live = self._put_off = self.requested = self.peak_requested = 0
        self._peak = self._peak_late = self._peak_pinned = 0
        self._before_reset = (0, 0)
        self._counts = {0: 0, -1: 0}
        self._denied: dict[object, int] = {}

    def refusal(self, what: str, place: CodePlace) -> UnseenError:
        """Return the error for what the simulation does not see, and keep it."""
        error = UnseenError(f"the engine uses {what}, which the simulation does not see ({place})")
        # Whoever guards all that it does goes on; the audit must not.
        self.refusals.append(error)
        return error

    # Streams.

    def new_stream(self, urgent: bool, place: CodePlace) -> int:
        """Return the number of a stream, the same ones again after 32 of a priority."""
        kind = -1 if urgent else 0
        count = self._counts[kind]
        self._counts[kind] += 1
        index = 1 + count % OF_A_PRIORITY + (OF_A_PRIORITY if urgent else 0)
        if index not in self.names:
            self.names[index] = f"stream {len(self.names)}"
            self.made[self.names[index]] = place
        return index

    def name(self, stream: int) -> str:
        """Return the name of a stream, for people."""
        return "the host" if stream == HOST else self.names.get(stream, f"stream {stream}")

    def host_waits_for_all(self) -> None:
        """Let the host wait for all streams."""
        for stream in self.streams:
            if stream.given or stream.knows[stream.index]:
                stream.record().wait_here()

    def asks(self, event: SimulatedEvent, asker: object) -> bool:
        """Whether the host is told that an event has happened; who asks often is, in the end."""
        known = zip(self.host.knows, event.knows, strict=True)
        if all(have >= need for have, need in known):
            return True
        self.asked = True
        denied = self._denied.get(asker, 0)
        if denied < _MOST_DENIALS and not self.host.adversary():
            self._denied[asker] = denied + 1
            return False
        event.wait_here()
        return True

    # Memory.

    def allocate(self, where: str, size: int, stream: int) -> Stay:
        """Return a new life; that of the device is for a stream."""
        life = Stay(len(self.lives), where, size, stream)
        self.lives.append(life)
        if where == "device":
            pool = self._pool(stream, size)
            self._settle()
            pool.forgets(self.host.knows)
            life.after = dict(pool.given_back)
            life.block = pool.take(size)
            life.address, life.taken = life.block.address, life.block.size
            self._count(life.taken, 0, size)
        elif where == "pinned":
            life.address = self.pinned.take(size, self.host.knows)
            self._peak_pinned = max(self._peak_pinned, self.pinned.held + self.registered)
        return life

    def register(self, size: int) -> None:
        """Take note that bytes of the host are registered; fewer if the number is negative."""
        self.registered += size
        self._peak_pinned = max(self._peak_pinned, self.pinned.held + self.registered)

    def give_back(self, life: Stay, place: CodePlace) -> None:
        """End a life: its bytes may be given out again."""
        for access in life.accesses:
            access.dropped = place
        if life.where == "pinned" and life.address is not None:
            needed = most(life.accesses, STREAMS)
            self.pinned.give_back(life.address, life.size, needed)
        if life.where == "device" and life.block is not None:
            self._give_back(life)
        life.accesses = []

    def _give_back(self, life: Stay) -> None:
        assert life.block is not None
        pool = self._pool(life.stream, life.size)
        others = {stream for stream in life.recorded if stream != life.stream}
        for access in life.accesses:
            if access.stream in others:
                continue
            known = pool.given_back.get(access.stream)
            if known is None or known.number < access.number:
                pool.given_back[access.stream] = access
        needed = [0] * STREAMS
        for stream in others:
            needed[stream] = self.streams[stream].knows[stream]
        self._count(-life.taken, life.taken if others else 0, -life.size)
        if others:
            pool.waiting.append((life, needed))
            self._settle()
        else:
            pool.allocator.give_back(life.block)

    def _settle(self) -> None:
        for pool in self._pools.values():
            for life in pool.settle(self.host.knows):
                self._count(0, -life.taken)

    def _count(self, live: int, put_off: int, requested: int = 0) -> None:
        self._live += live
        self.requested += requested
        self.peak_requested = max(self.peak_requested, self.requested)
        self._put_off += put_off
        self._peak = max(self._peak, self._live)
        self._peak_late = max(self._peak_late, self._live + self._put_off)

    def _pool(self, stream: int, size: int) -> Pool:
        key = stream, size <= _LARGEST_SMALL
        if key not in self._pools:
            self._pools[key] = Pool(f"stream {stream}")
        return self._pools[key]

    @property
    def allocated(self) -> int:
        """Bytes of the device that are taken now."""
        return self._live

    @property
    def peaks(self) -> Peaks:
        """The most bytes so far."""
        reserved = sum(pool.allocator.read().peak_reserved for pool in self._pools.values())
        return Peaks(self._peak, self._peak_late, reserved, self._peak_pinned)

    @property
    def whole_peaks(self) -> Peaks:
        """The most bytes of the whole run, whatever the program has reset."""
        now = self.peaks
        most, late = self._before_reset
        return replace(now, device=max(now.device, most), device_late=max(now.device_late, late))

    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes of the device; the program asks for that."""
        most, late = self._before_reset
        self._before_reset = max(most, self._peak), max(late, self._peak_late)
        self._peak, self._peak_late = self._live, self._live + self._put_off
        self.peak_requested = self.requested

    def bases(self) -> tuple[dict[tuple[int, bool], int], int]:
        """Return the address at which each pool begins in one space, and the space's length."""
        found, end = {}, 0
        for key, pool in self._pools.items():
            found[key] = end
            end += pool.end
        return found, end

    def address(self, life: Stay, bases: dict[tuple[int, bool], int]) -> int | None:
        """Return the address of a life in that space, or in pinned memory; None if it has none."""
        if life.address is None or life.where != "device":
            return life.address
        return bases[life.stream, life.size <= _LARGEST_SMALL] + life.address

    # Work.

    def give(
        self,
        stream: int,
        operation: str,
        place: CodePlace,
        uses: Sequence[tuple[Stay, Geometry, bool]],
        run: Callable[..., Any],
        args: Any,
        kwargs: Any,
        **more: Any,
    ) -> Work:
        """Hand work over to a stream, or let the host do it; look for what it races."""
        number = self._number(stream, uses)
        knows = self.host.knows if stream == HOST else self.streams[stream].knows
        work = Work(
            stream, number, knows.copy(), self._issued, run, args, kwargs, [], operation, place
        )
        for name, value in more.items():
            setattr(work, name, value)
        if stream == HOST:
            self._issued += 1
            work.number = self._issued
        for life, geometry, writes in uses:
            self._use(
                Access(
                    stream, work.number, len(self.works), operation, writes, geometry, place, life
                ),
                knows,
            )
        self.works.append(work)
        return work

    def _number(self, stream: int, uses: Sequence[tuple[Stay, Geometry, bool]]) -> int:
        if stream == HOST:
            return 0
        size = sum(geometry.count * geometry.itemsize for _, geometry, _ in uses)
        places = {life.where for life, _, _ in uses}
        rate = MEMORY_RATE if places <= {"device"} else LINK_RATE
        return self.streams[stream].work(-(-size // rate))

    def _use(self, access: Access, knows: Knowledge) -> None:
        life = access.life
        missing = set()
        for other in life.conflicts(access, knows):
            missing.add(other.stream)
            self._found(_fault(other, access), other, access)
        if access.stream == HOST:
            # All that is handed over later comes after it.
            return
        for stream, other in life.after.items():
            # Said once of what was dropped; and one wait for a stream does for both.
            if knows[stream] < other.number and stream not in missing and not other.reported:
                other.reported = True
                same = stream == life.stream and access.stream != life.stream
                self._found(Fault.ALLOCATED if same else Fault.RELEASED, other, access)
        life.take(access, knows)

    def released_on_host(self, life: Stay, place: CodePlace) -> None:
        """Look for copies that the host has not waited for, of memory it takes back."""
        for other in life.accesses:
            if self.host.knows[other.stream] < other.number:
                whole = Geometry(0, (life.size,), (1,), 1)
                last = Access(HOST, 0, len(self.works), "releases", True, whole, place, life)
                self._found(Fault.HOST_RELEASED, other, last)

    def _found(self, fault: Fault, first: Access, second: Access) -> None:
        finding = Finding(
            fault,
            self._named(first),
            self._named(second),
            second.life.size,
            self._missing(fault, first, second),
            released=first.dropped if first.life is not second.life else None,
        )
        known = self.findings.get(finding.key)
        if known is None:
            self.findings[finding.key] = Found(finding, [(first, second)])
            return
        known.times += 1
        if len(known.pairs) < _MOST_PAIRS:
            known.pairs.append((first, second))

    def _named(self, access: Access) -> Use:
        return Use(self.name(access.stream), access.operation, access.writes, access.place)

    def _missing(self, fault: Fault, first: Access, second: Access) -> str:
        waits, on = self.name(second.stream), self.name(first.stream)
        after = f"line {first.place.line}"
        if first.place.file != second.place.file:
            after = str(first.place)
        before = f"line {second.place.line}"
        if second.stream == HOST:
            return (
                f"the host must wait for {on} (`synchronize` of an event recorded after {after}) "
                f"before {before}"
            )
        wait = f"{waits} must wait for {on} after {after}, before {before}"
        if fault is Fault.RELEASED and first.life is not second.life:
            if second.stream == second.life.stream:
                return f"{wait}; or `record_stream` of {on} before the tensor is dropped"
            return wait
        if fault is Fault.ALLOCATED:
            return f"{wait}: the memory was allocated for {on}, which may still be using it"
        return wait


def _fault(first: Access, second: Access) -> Fault:
    if second.stream != HOST:
        return Fault.RACE
    return Fault.HOST_READ if first.writes else Fault.HOST_CHANGED
