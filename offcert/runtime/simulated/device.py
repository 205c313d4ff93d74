"""The simulated device itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction
from functools import partial

import torch

from offcert.core.errors import OffcertError
from offcert.core.platform import Kind, Link, Platform
from offcert.runtime.device.interface import CopiedStorage, DeviceEvent, MemoryReading
from offcert.runtime.device.pinned import CHUNK, FileArena, PageableArena, PinnedArena
from offcert.runtime.simulated.allocator import Allocator, Ledger
from offcert.runtime.simulated.arena import (
    KnownStorage,
    PendingCopy,
    PinnedBudget,
    SimulatedArena,
    SimulatedClerk,
    Storages,
    poisoned,
)
from offcert.runtime.simulated.host import HostClock, apart
from offcert.runtime.simulated.races import DataRace, RaceError, RaceKind
from offcert.runtime.simulated.streams import (
    Adversary,
    ComputeStream,
    Host,
    SimulatedEvent,
    SimulatedStream,
    TimedWork,
    Timeline,
    carry_out,
    late,
)
from offcert.runtime.watch.tracker import LiveBytes

_STREAMS = ("compute", "out", "back", "to a file", "from a file")
# The platform of a device of which nobody says more. Arbitrary.
_UNIT = Platform(0, Fraction(1), Link.DUPLEX)
# The number of the stream that computes. By definition.
_COMPUTE = 0


class SimulatedDevice:
    """A device on the CPU; `offcert.runtime.simulated` has its rules.

    Parameters
    ----------
    platform : Platform, optional
        The rates per nanosecond, and the link; on a simplex one copies are made one at a time, in
        the order in which they are handed over. By default a byte each way, duplex. Its memory is
        left out: what a problem counts is not all that a device holds.
    memory : int, optional
        Bytes of the device that may be reserved; by default any number.
    allocator : Allocator, optional
        What gives the device's memory out, in place of one with the limit `memory`.
    pinned : int, optional
        Bytes of the host that may be registered; by default any number.
    chunk : int
        Bytes of the host that are registered by one call, and no copy goes from one to the next.
    name : str
        Name for people.
    adversary : callable
        When copies run that may run now or later.
    strict : bool
        Raise races where the device is synchronised.
    host : HostClock, optional
        How long the host works, such as a `RealHost`; by default it takes no time.
    size_of : callable, optional
        The bytes that a transfer takes as long as, given its direction and the bytes that it moves;
        by default these.

    Attributes
    ----------
    out, back : SimulatedStream
        Of copies.
    tensors : torch.device
        The CPU.
    races : list of Race
        All that were found.
    crossings : int
        Copies on a simplex link that no event orders after the one before, of the other direction:
        they wait for the link here, but a real one would let both go on, at half the rate.
    """

    def __init__(
        self,
        platform: Platform = _UNIT,
        *,
        memory: int | None = None,
        allocator: Allocator | None = None,
        pinned: int | None = None,
        chunk: int = CHUNK,
        name: str = "simulated",
        adversary: Adversary = late,
        strict: bool = False,
        host: HostClock | None = None,
        size_of: Callable[[Kind, int], int] | None = None,
    ) -> None:
        self._platform, self.name = platform, name
        self.tensors = torch.device("cpu")
        self.races: list[DataRace] = []
        self._strict = strict
        self._raised = 0
        self._host = Host(len(_STREAMS), adversary, host, Timeline(self._platform))
        self.host_clock = self._host.clock
        self.host_clock.reads = self._host_reads
        self._compute = ComputeStream(_COMPUTE, self._host)
        self.out = SimulatedStream(1, self._host)
        self.back = SimulatedStream(2, self._host)
        self._clerks = {
            Kind.OFFLOAD: SimulatedStream(3, self._host),
            Kind.PREFETCH: SimulatedStream(4, self._host),
        }
        self.crossings = 0
        self._link_free: TimedWork | None = None
        self._size_of = size_of
        # The stream that used it last, and the number of that copy in the stream's work.
        self._link_used = (_COMPUTE, 0)
        self._budget = PinnedBudget(pinned, name)
        self._chunk = chunk
        # Held until they are closed: one that was forgotten is to be seen.
        self._arenas: set[SimulatedArena] = set()
        self._ledger = Ledger(allocator or Allocator(memory, name))
        self._storages = Storages(len(_STREAMS), self._died)

    @property
    def compute(self) -> ComputeStream:
        """The stream of operators."""
        return self._compute

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the host that arenas hold which have not been closed."""
        return self._budget.held

    # Memory.

    @apart(1)
    def allocate(self, size: int) -> torch.Tensor:
        """Return poisoned bytes, given out in the order of ``compute``.

        Raises
        ------
        torch.OutOfMemoryError
            If the memory has not so many left, or only in pieces.
        """
        data = poisoned(size)
        storage = data.untyped_storage()
        self._ledger.give_out(storage._cdata, size)
        self._storages.know(storage, self._compute.work(0))
        return data

    def watch(self, tracker: LiveBytes) -> None:
        """Let every storage that a tracker counts take memory of the device, as long as it does.

        An operator whose output has no room raises `torch.OutOfMemoryError`.
        """
        self._ledger.watch(tracker)

    @apart()
    def arena(self, size: int, order: Sequence[tuple[int, int]] | None = None) -> SimulatedArena:
        """Return exactly so many poisoned bytes of the host, registered at once."""
        memory = PinnedArena(size, self._budget, chunk=self._chunk)
        arena = SimulatedArena(memory, len(_STREAMS), self._closing)
        self._arenas.add(arena)
        return arena

    @apart()
    def pageable(self, size: int) -> SimulatedArena:
        """Return poisoned bytes that are not registered; they take nothing of what may be."""
        return SimulatedArena(PageableArena(size), len(_STREAMS), self._closing)

    @apart()
    def file(self, size: int, directory: str | None = None) -> SimulatedArena:
        """Return poisoned bytes in a file; they take nothing of what may be registered."""
        return SimulatedArena(FileArena(size, directory), len(_STREAMS), self._closing)

    @apart()
    def clerk(self, kind: Kind) -> SimulatedClerk:
        """Return who copies between memory of the host and files."""
        stream = self._clerks[kind]
        return SimulatedClerk(stream, partial(self._note_host, stream))

    @apart()
    def memory(self) -> MemoryReading:
        """Return the bytes of the device's memory that are taken, now and at their peak."""
        return self._ledger.allocator.read()

    @apart()
    def release(self) -> None:
        """Give segments back of which nothing is used."""
        self._ledger.allocator.release()

    @apart()
    def reset_peaks(self) -> None:
        """Begin anew to look for the most bytes."""
        self._ledger.allocator.reset_peaks()

    def require_movable(self) -> None:
        """Do nothing: here anything can be moved at any time."""

    @apart(1)
    def copy_out(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``out`` copy storages to the host, as one transfer."""
        self._copy(self.out, Kind.OFFLOAD, parts)

    @apart(1)
    def copy_back(self, parts: Sequence[CopiedStorage]) -> None:
        """Let ``back`` copy storages from the host, as one transfer."""
        self._copy(self.back, Kind.PREFETCH, parts)

    def _copy(self, stream: SimulatedStream, kind: Kind, parts: Sequence[CopiedStorage]) -> None:
        jobs = [job for part in parts for job in self._jobs(part, kind)]
        free = None
        if not self._platform.duplex:
            free = self._link_free
            last, number = self._link_used
            self.crossings += stream.knows[last] < number
        size = sum(part.data.numel() for part in parts)
        stream.copy(kind, size if self._size_of is None else self._size_of(kind, size), free)
        self._link_free = stream.latest
        self._link_used = stream.index, stream.knows[stream.index]
        for job in jobs:
            self._note(stream, job)

        def carried_out() -> None:
            for job in jobs:
                job.run()

        held = [each for each in (job.arena.pending(job.offset) for job in jobs) if each]
        with ExitStack() as stack:
            for each in held:
                stack.enter_context(each)
            stream.enqueue(carried_out)
            if held or not all(part.arena.registered for part in parts):
                # The driver copies through memory of its own, and lets the host wait.
                stream.record().wait_here()

    def _jobs(self, part: CopiedStorage, kind: Kind) -> Iterator[PendingCopy]:
        """Yield the pieces of a copy, each of which is one call of CUDA's."""
        size, arena = part.data.numel(), part.arena
        assert isinstance(arena, SimulatedArena)
        assert part.data.dtype == torch.uint8
        if arena.closed or part.offset < 0 or part.offset + size > arena.size:
            raise OffcertError(
                f"{size} bytes at {part.offset} are to be copied, but the arena has "
                f"{0 if arena.closed else arena.size} bytes"
            )
        storage = part.data.untyped_storage()
        begin = part.data.data_ptr() - storage.data_ptr() - part.offset
        known = self._storages.know(storage)
        for offset, piece in arena.pieces(part.offset, size):
            yield PendingCopy(kind == Kind.OFFLOAD, known, begin + offset, arena, offset, piece)

    def hold(self, duration: int) -> None:
        """Let ``compute`` do nothing for some nanoseconds."""
        self._compute.work(duration)

    def ran(self, *durations: int) -> None:
        """Take note that operations have run, and let them have taken so many nanoseconds."""
        self._compute.ran(*durations)

    def _host_reads(self) -> None:
        """Let the host wait for all operations of which it has told, to read what they computed."""
        self._host.learns(self._compute.record())

    def nanoseconds(self, begin: DeviceEvent, end: DeviceEvent) -> int:
        """Return the time between two events; an `OffcertError` if the host cannot know it yet."""
        assert isinstance(begin, SimulatedEvent)
        assert isinstance(end, SimulatedEvent)
        if not (begin.reached and end.reached):
            raise OffcertError("the time of an event is known only once it has been reached")
        return end.time - begin.time

    @apart()
    def synchronise(self) -> None:
        """Carry out all that has been handed over.

        A strict device raises a `RaceError` if one has been found since this was last said.
        """
        for stream in (self.out, self.back):
            carry_out(stream, stream.given)
        for stream in (self._compute, self.out, self.back):
            self._host.learns(stream.record())
        if self._strict and len(self.races) > self._raised:
            found, self._raised = self.races[self._raised :], len(self.races)
            raise RaceError("; ".join(race.what for race in found))

    def close(self) -> None:
        """Wait for all work; what has been allocated stays as it is."""
        self.synchronise()

    def _note(self, stream: SimulatedStream, job: PendingCopy) -> None:
        """Take note of what a copy uses, which has just been given to a stream."""
        knows, known, number = stream.knows, job.known, stream.knows[stream.index]
        does = f"a copy {_STREAMS[stream.index]} of {job.size} bytes"
        if knows[_COMPUTE] < known.born:
            self._found(RaceKind.ALLOCATION, job.size, f"{does} may begin before its allocation")
        elif (job.outwards or not known.born) and knows[_COMPUTE] < self._compute.operated:
            self._found(
                RaceKind.OPERATORS, job.size, f"{does} may begin before operators have ended"
            )
        other = known.uses.unordered(knows, not job.outwards)
        if other is not None:
            self._found(
                RaceKind.COPY,
                job.size,
                f"{does} may run at the same time as one {_STREAMS[other]} of the same storage",
            )
        known.uses.add(stream.index, number, not job.outwards)
        self._note_host(stream, job.arena, job.offset, job.size, job.outwards)

    def _note_host(
        self, stream: SimulatedStream, arena: SimulatedArena, offset: int, size: int, writes: bool
    ) -> None:
        """Take note of what of the host is used by work that has just been given to a stream."""
        other = arena.ranges.use(offset, size, stream.index, stream.knows, writes)
        if other is not None:
            self._found(
                RaceKind.HOST,
                size,
                f"a copy {_STREAMS[stream.index]} of {size} bytes at {offset} of the host may run "
                f"at the same time as one {_STREAMS[other]} there",
            )

    @apart()
    def _died(self, key: int, known: KnownStorage) -> None:
        self._ledger.died(key)
        self._compute.heed_host()
        other = known.uses.unordered(self._compute.knows, True)
        if other is not None:
            self._found(
                RaceKind.FREE,
                known.size,
                f"a storage of {known.size} bytes was dropped before compute had waited for its "
                f"copy {_STREAMS[other]}",
            )

    def _closing(self, arena: SimulatedArena) -> None:
        self._arenas.discard(arena)
        other = arena.ranges.unknown(self._host.knows)
        if other is not None:
            self._found(
                RaceKind.CLOSE,
                arena.size,
                f"an arena of {arena.size} bytes was given back before the host had waited for a "
                f"copy {_STREAMS[other]}",
            )

    def _found(self, kind: RaceKind, size: int, what: str) -> None:
        self.races.append(DataRace(kind, size, f"{self.name}: {what}"))
