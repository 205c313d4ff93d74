"""Makers of movers for the steps of a training loop; they keep the host's memory between steps."""

from __future__ import annotations

import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Generic, Protocol, TypeVar

from offcert.runtime.device.host import HostStore
from offcert.runtime.device.interface import Arena, Device
from offcert.runtime.device.pinned import SplitArena
from offcert.runtime.device.registration import RegistrationError
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.timetable import Act
from offcert.runtime.streaming.copies import StreamCopies
from offcert.runtime.streaming.staging import Staged, Staging
from offcert.runtime.streaming.step_events import StepEvents, Stopwatch
from offcert.runtime.streaming.stream_mover import StreamMover
from offcert.runtime.streaming.synchronous import Mover, SynchronousMover
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.watch.saved_hooks import SavedPlace

Room = TypeVar("Room")
Made = TypeVar("Made")


class User(Protocol):
    """A step that uses room on the host."""

    @property
    def uses_store(self) -> bool:
        """Whether bytes on the host may still be written or needed."""


class MoverMaker(ABC, Generic[Room]):
    """Makes a mover for every step.

    Steps with the same plan use the same room on the host, one after the other; one that begins
    while another still needs the room gets room of its own. Of room that nobody needs any more,
    what one step takes is kept. `record` has the times of the latest step, if they are taken note
    of.
    """

    def __init__(self) -> None:
        self.record: StepEvents | None = None
        self._rooms: dict[int, list[tuple[Room, weakref.ref[User]]]] = {}
        # The rooms in which something has gone wrong, by identity: they are used no more.
        self._distrusted: set[int] = set()

    @abstractmethod
    def mover(self, step_plan: StepPlan) -> tuple[Mover | None, Room | None]:
        """Return a mover for a step, and the room that it uses; None if nothing moves."""

    def took(self, step_plan: StepPlan, room: Room | None, step: User) -> None:
        """Take note of the step that uses a room."""
        if room is not None:
            self._rooms.setdefault(id(step_plan), []).append((room, weakref.ref(step)))

    def forget(self, step_plan: StepPlan, instead: StepPlan | None = None) -> None:
        """Give back the rooms of a plan that no step follows any more.

        What a step still needs is kept until all are closed; the plan that is followed `instead`
        may have the rest.
        """
        again = instead is not None and not instead.moves_nothing
        for room, reference in self._rooms.pop(id(step_plan), []):
            user = reference()
            if user is not None and user.uses_store:
                self._rooms.setdefault(0, []).append((room, reference))
            else:
                self._give_back(room, again=again)

    def distrust(self, step: User) -> None:
        """Let no other step use the room of one in which something has gone wrong."""
        for rooms in self._rooms.values():
            self._distrusted.update(id(room) for room, user in rooms if user() is step)

    def _free_room(self, step_plan: StepPlan) -> Room | None:
        """Return room that no other step needs any more, if there is some; it must be taken."""
        free, taken = [], []
        for room, reference in self._rooms.get(id(step_plan), []):
            user = reference()
            if user is not None and user.uses_store:
                taken.append((room, reference))
            else:
                free.append(room)
        self._rooms[id(step_plan)] = taken
        good = [room for room in free if id(room) not in self._distrusted]
        for room in [room for room in free if room not in good[:1]]:
            self._distrusted.discard(id(room))
            self._give_back(room)
        return good[0] if good else None

    def _give_back(self, room: Room, *, again: bool = False) -> None:
        """Give room back that no step needs, unless it is to be used `again`."""

    def close(self) -> None:
        """Give all memory of the host back."""
        self._rooms.clear()
        self._distrusted.clear()


class SynchronousMoverMaker(MoverMaker[HostStore]):
    """Makes movers that copy at once, into a memory-mapped file in a directory.

    A file in another one (`spill`) is for what is not to be in the host's memory.
    """

    def __init__(
        self, directory: str | None = None, *, timed: bool = False, spill: str | None = None
    ) -> None:
        super().__init__()
        self._directory, self._timed, self._spill = directory, timed, spill

    def mover(self, step_plan: StepPlan) -> tuple[Mover | None, HostStore | None]:
        """Return a mover for a step, and where it copies to; None if nothing moves."""
        if step_plan.moves_nothing and not self._timed:
            return None, None
        # All of it is in files, and what has no room in memory decides in which folder.
        folder = self._spill if step_plan.host.in_file and self._spill else self._directory
        store = self._free_room(step_plan) or HostStore(step_plan.host.pool, folder)
        self.record = StepEvents(Stopwatch(None)) if self._timed else None
        return SynchronousMover(step_plan, store, self.record), store


class StreamMoverMaker(MoverMaker[StreamCopies[SavedPlace]]):
    """Makes movers that let the streams of a device copy; `spill` as above."""

    def __init__(self, device: Device, *, timed: bool = False, spill: str | None = None) -> None:
        super().__init__()
        self._device, self._timed, self._spill = device, timed, spill
        self._made: list[StreamCopies[SavedPlace]] = []
        # The arena of a plan that is not followed any more: to register another one takes seconds.
        self._spare: Arena | None = None
        self._told = False

    def mover(self, step_plan: StepPlan) -> tuple[Mover | None, StreamCopies[SavedPlace] | None]:
        """Return a mover for a step, and where it copies to; None if there is nothing to do."""
        if step_plan.moves_nothing and not self._timed:
            return None, None
        self.record = StepEvents(Stopwatch(self._device)) if self._timed else None
        copies = self._free_room(step_plan) or self._new(step_plan)
        copies.begin()
        pinning = copies.arena.pinning
        if pinning is not None and pinning.refused:
            size = f"{pinning.registered} of {pinning.size} bytes are registered"
            self._refused(f"{pinning.refused}; {size}, and other")
        return StreamMover(step_plan, self._device, copies, self.record), copies

    def _new(self, step_plan: StepPlan) -> StreamCopies[SavedPlace]:
        device, host = self._device, step_plan.host
        with ExitStack() as undo:
            arena = self._arena(step_plan)
            undo.callback(arena.close)
            apart, staging = self._apart, None
            if host.in_file:
                file = device.file(host.in_file, self._spill)
                undo.callback(file.close)
                if host.staging and arena.registered:
                    order = _returning(step_plan, file)
                    staging = self._registered(lambda: Staging(device, host.staging, order))
                if staging is not None:
                    undo.callback(staging.close)
                arena = SplitArena(arena, file)
                # There is no more memory to register.
                apart = partial(device.file, directory=self._spill)
            copies = StreamCopies(device, host, arena, apart, staging)
            self._made.append(copies)
            undo.pop_all()
        return copies

    def _arena(self, step_plan: StepPlan) -> Arena:
        """Return memory of the host, registered unless the device refuses that."""
        size = step_plan.host.registered
        spare = self._spare
        if spare is not None and size <= spare.size:
            self._spare = None
            return spare
        self._drop_spare()
        arena = self._registered(lambda: self._device.arena(size, _leaving(step_plan, size)))
        if arena is None:
            # What has been mapped in vain is gone by now.
            return self._device.pageable(size)
        if self._timed:
            # Steps that are timed are steps as they are later.
            arena.finish()
        return arena

    def _apart(self, size: int) -> Arena:
        """Return memory for one copy, likewise."""
        found = self._registered(lambda: self._device.arena(size))
        return self._device.pageable(size) if found is None else found

    def _registered(self, make: Callable[[], Made]) -> Made | None:
        """Make registered memory, or its user; return None and say why if the device refuses it."""
        try:
            return make()
        except RegistrationError as error:
            self._refused(f"{error};")
        return None

    def _refused(self, what: str) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"{what} copies go through other memory, and the host waits for each of them",
                OffloadWarning,
                stacklevel=2,
            )

    def _give_back(self, room: StreamCopies[SavedPlace], *, again: bool = False) -> None:
        self._made.remove(room)
        self._device.synchronise()
        keep = again and room.arena.registered and not isinstance(room.arena, SplitArena)
        arena = room.close(keep_arena=keep)
        if keep:
            self._drop_spare()
            self._spare = arena

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()

    def close(self) -> None:
        """Wait for the device, and give all memory of the host back.

        What autograd may still ask for, because a graph outlives the context, moves into ordinary
        memory.
        """
        super().close()
        made, self._made = self._made, []
        self.record = None
        with ExitStack() as stack:
            # Arenas are given back whatever the device says, and each whatever becomes of others.
            stack.callback(self._drop_spare)
            for copies in made:
                stack.callback(copies.close)
            if made:
                self._device.synchronise()


def _leaving(step_plan: StepPlan, size: int) -> list[tuple[int, int]]:
    """Return addresses and sizes in the arena in the order in which copies leave for them."""
    assert step_plan.timetable is not None
    offsets = step_plan.host.offsets
    gaps = step_plan.timetable.gaps(Act.COPY_OUT)
    places = [place for gap in gaps for place in step_plan.parts[step_plan.trace.gaps[gap].tensor]]
    found = [(offsets[place], place.size) for place in places if place.size]
    return [(begin, part) for begin, part in found if begin < size]


def _returning(step_plan: StepPlan, file: Arena) -> list[list[Staged[SavedPlace]]]:
    """Return the storages that come back from a file in a step, transfer by transfer."""
    assert step_plan.timetable is not None
    offsets, begin = step_plan.host.offsets, step_plan.host.registered
    return [
        [
            Staged(place, file, offsets[place] - begin, place.size)
            for place in step_plan.parts[step_plan.trace.gaps[gap].tensor]
            if place.size and offsets[place] >= begin
        ]
        for gap in step_plan.timetable.gaps(Act.CLAIM)
    ]
