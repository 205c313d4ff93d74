"""`StreamMover`: carries a timetable out on the streams of a device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import torch

from offcert.core.errors import OffcertError
from offcert.core.platform import Kind
from offcert.runtime.device.interface import Device, DeviceEvent, Pinning, Stream
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.timetable import Act, Action
from offcert.runtime.streaming.copies import StreamCopies
from offcert.runtime.streaming.step_events import StepEvents
from offcert.runtime.streaming.synchronous import (
    LATE,
    FollowedStep,
    Mover,
    away,
    lacking,
    unfreed,
)
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.saved_hooks import SavedPlace


class Flight:
    """A transfer from when it is about to be handed over.

    The bytes of storages, and who copies them. The memory is that of the stream in which the
    calling thread's operators run. `done` is the event after the copy; None until it has been
    handed over.
    """

    __slots__ = ("_compute", "_data", "_stream", "done")

    def __init__(self, device: Device, stream: Stream, data: Sequence[torch.Tensor]) -> None:
        self.done: DeviceEvent | None = None
        self._compute, self._stream = device.compute, stream
        self._data = tuple(data)

    def land(self) -> None:
        """Let ``compute`` wait for the copy; the bytes are not held any more."""
        if self._data:
            # Interrupted, it may have been handed over or not.
            self._compute.wait(self._stream.record() if self.done is None else self.done)
            self._data = ()

    def __del__(self) -> None:
        # Nobody hears of an error here, and the device of an interpreter that ends may be gone.
        with suppress(Exception):
            self.land()


@dataclass
class _Sent:
    """A tensor on its way to the host, held by a flight, with its versions by then."""

    flight: Flight
    versions: dict[SavedPlace, dict[int, int]]


class StreamMover(Mover):
    """Moves tensors by the streams of a device, as a timetable says.

    The order of work is that of the timetable (`offcert.runtime.plan.timetable`). What it relies
    on, so that no byte is read or given away too early:

    1. A copy to the host begins after ``compute`` has done all operations before the present one.
    2. The bytes of a tensor that leaves are held until ``compute`` has waited for its copy.
    3. A copy back begins after the point of ``compute`` at which its memory was taken. By then
       ``compute`` has waited for the copy to the host that it reads (2).
    4. Whatever autograd asks for, ``compute`` has waited for.
    5. Nothing under way is forgotten: a step that ends lets ``compute`` wait for every copy, and
       one that is given up does so when nobody has it any more (`Flight`).

    ``compute`` is the stream in which the step began. A program that runs operators in others, too,
    is not followed: what they read could not be told from what is free.
    """

    in_streams = True

    def __init__(
        self,
        step_plan: StepPlan,
        device: Device,
        copies: StreamCopies[SavedPlace],
        record: StepEvents | None = None,
    ) -> None:
        super().__init__(copies)
        assert step_plan.timetable is not None
        self._device, self._copies = device, copies
        self._record, self._timetable = record, step_plan.timetable
        self._durations, self._compute = step_plan.trace.durations, device.compute
        # How many operations have ended.
        self._ran = 0
        self._sent: dict[int, _Sent] = {}
        self._coming: dict[int, Flight] = {}
        # For each storage that has come back but was not waited for, the gap that it came for.
        self._unawaited: dict[SavedPlace, int] = {}
        self._last: DeviceEvent | None = None
        self._ended: DeviceEvent | None = None

    @property
    def pinning(self) -> Pinning | None:
        """How far the arena has been registered."""
        return self._copies.arena.pinning

    @property
    def is_here(self) -> bool:
        """Whether the calling thread's operators run in the stream of the step."""
        return self._device.compute == self._compute

    def reach(self, step: FollowedStep, operation: int) -> None:
        """Hand over what the timetable says before an operation begins."""
        self._operations_ended(step, operation)
        for action in self._timetable.actions[operation]:
            # No table of bound methods: it would keep this object until garbage is collected.
            if action.act is Act.COPY_OUT:
                self._copy_out(step, action, operation)
            elif action.act is Act.RELEASE:
                self._release(step, action, operation)
            elif action.act is Act.CLAIM:
                self._claim(step, action, operation)
            else:
                self._await(step, action, operation)
        if self._record is not None:
            self._record.began(self._device.compute.record())

    def _operations_ended(self, step: FollowedStep, now: int) -> None:
        """Take note that all operations before one have ended; not of each is anybody told."""
        ended = range(self._ran, now)
        self._device.ran(*(self._durations[each] for each in ended if each not in step.left_out))
        self._ran = max(self._ran, now)
        self._ended = None
        if self._record is not None:
            self._ended = self._device.compute.record()
            self._record.ended(self._ended)

    # To the host.

    def _copy_out(self, step: FollowedStep, action: Action, operation: int) -> None:
        tensor = step.step_plan.trace.gaps[action.gap].tensor
        entries = self._leaving(step, tensor, operation)
        if entries:
            self._send(step, action.gap, tensor, entries)

    def _leaving(self, step: FollowedStep, tensor: int, operation: int) -> list[StorageEntry]:
        """Return the storages of a tensor that is to leave; none if the step has gone astray."""
        if self._copies.closed and step.deviation is None:
            step.deviate("the context ended before its backward pass")
        found = []
        for place in step.step_plan.parts[tensor]:
            entry = None if step.deviation is not None else step.entry(place)
            if entry is not None:
                found.append(entry)
            elif step.deviation is None:
                lacking(step, place, operation, self._device.tensors.type)
        return [] if step.deviation is not None else found

    def _send(
        self, step: FollowedStep, gap: int, tensor: int, entries: Sequence[StorageEntry]
    ) -> bool:
        """Let ``out`` copy a tensor; return whether the host has room."""
        device = self._device
        device.require_movable()
        try:
            self._copies.make_room(entries)
        except OffcertError as error:
            step.deviate(str(error))
            return False
        rows = []
        for entry in entries:
            storage = entry.device_storage()
            entry.sending = torch.empty(0, dtype=torch.uint8, device=device.tensors).set_(storage)
            rows.append((entry, entry.sending))
        versions = {entry.key: entry.versions() for entry in entries}
        if self._ended is None:
            self._ended = device.compute.record()
        device.out.wait(self._ended)
        self._follow_the_link(device.out)
        begin = self._begin(device.out)
        # Held before it is handed over: an interrupt may come at any time.
        flight = Flight(device, device.out, [data for _, data in rows])
        self._sent[tensor] = _Sent(flight, versions)
        self._copies.send(rows)
        flight.done = self._last = device.out.record()
        self._transferred(Kind.OFFLOAD, gap, begin, flight.done)
        self.offloaded_bytes += sum(entry.size for entry in entries)
        return True

    def _release(self, step: FollowedStep, action: Action, operation: int) -> None:
        tensor = step.step_plan.trace.gaps[action.gap].tensor
        entries = self._leaving(step, tensor, operation)
        held = [entry for entry in entries if entry.held_elsewhere]
        leaving = [entry for entry in entries if entry not in held]
        stale = leaving and self._is_stale(tensor, leaving)
        # Changed after it was complete, as the capture saw it: what is on its way is no use.
        if stale and not self._send(step, action.gap, tensor, leaving):
            return
        self._await_sent(tensor)
        for entry in leaving:
            reference = weakref.ref(entry.device_storage())
            entry.drop()
            if reference() is not None:
                held.append(entry)
        self.unfreed += [unfreed(step, tensor, operation, entry.size) for entry in held]

    def _is_stale(self, tensor: int, entries: Iterable[StorageEntry]) -> bool:
        """Whether the host has no copy of some storage, or one from before a change in place."""
        sent = self._sent.get(tensor)
        for entry in entries:
            if not self._copies.has(entry):
                return True
            if sent is None:
                # The storage has come back as it had left; one that never left was not sent lately.
                if entry.data is None or entry.changed:
                    return True
                continue
            then, now = sent.versions.get(entry.key), entry.versions()
            if then is None or any(now.get(who, v) != v for who, v in then.items()):
                return True
            if max(now.values(), default=0) > max(then.values(), default=0):
                return True
        return False

    def _await_sent(self, tensor: int) -> None:
        """Let ``compute`` wait until a tensor is on the host; nothing is held for it any more."""
        sent = self._sent.pop(tensor, None)
        if sent is not None:
            sent.flight.land()

    # From the host.

    def _claim(self, step: FollowedStep, action: Action, operation: int) -> None:
        tensor = step.step_plan.trace.gaps[action.gap].tensor
        entries = away(step, step.step_plan.parts[tensor])
        # In another stream it is not claimed, but waits until it is asked for.
        if entries and self.is_here:
            try:
                self._bring(step, action.gap, entries)
            except torch.OutOfMemoryError:
                # The copy on the host is not lost: whoever asks for the tensor tries again.
                size = sum(entry.size for entry in entries)
                name = step.name(operation)
                step.deviate(f"the device has no {size} bytes for what comes back before {name}")

    def _bring(self, step: FollowedStep, gap: int, entries: Iterable[StorageEntry]) -> None:
        device, rows = self._device, []
        device.require_movable()
        with nullcontext() if step.counter is None else step.counter.paused():
            for entry in entries:
                data = device.allocate(entry.size)
                if step.counter is not None:
                    step.counter.adopt(data)
                rows.append((entry, data))
        device.back.wait(device.compute.record())
        self._follow_the_link(device.back)
        begin = self._begin(device.back)
        flight = self._coming[gap] = Flight(device, device.back, [data for _, data in rows])
        self._copies.bring(rows)
        flight.done = self._last = device.back.record()
        self._transferred(Kind.PREFETCH, gap, begin, flight.done)
        self.prefetched_bytes += sum(entry.size for entry, _ in rows)
        for entry, data in rows:
            self._unawaited[entry.key] = gap
            entry.put(data)

    def _await(self, step: FollowedStep, action: Action, operation: int) -> None:
        self._await_coming(action.gap)

    def _await_coming(self, gap: int) -> None:
        coming = self._coming.pop(gap, None)
        if coming is not None:
            coming.land()
            self._unawaited = {key: of for key, of in self._unawaited.items() if of != gap}

    def fetch_late(self, step: FollowedStep, entry: StorageEntry) -> None:
        """Bring back what autograd asks for before the plan does."""
        step.comes_early(entry)
        self.late_bytes += entry.size
        # Of no gap of the plan: it is waited for at once.
        self._bring(step, LATE, [entry])
        self._await_coming(LATE)

    def asked_for(self, entry: StorageEntry) -> None:
        """Let ``compute`` wait for a storage that autograd asks for before its operation began."""
        gap = self._unawaited.get(entry.key)
        if gap is not None:
            self.late_bytes += entry.size
            done = self._coming[gap].done
            self._await_coming(gap)
            if done is not None and not self.is_here:
                # A backward pass may do some of its work in a stream that waited for ours before.
                self._device.compute.wait(done)

    # The end, and what both directions share.

    def end(self, step: FollowedStep, *, complete: bool) -> None:
        """Let ``compute`` wait for every copy under way; nothing is held for them any more."""
        if complete:
            self._operations_ended(step, len(self._durations))
        for tensor in tuple(self._sent):
            self._await_sent(tensor)
        for gap in tuple(self._coming):
            self._await_coming(gap)

    def _follow_the_link(self, stream: Stream) -> None:
        if self._timetable.simplex and self._last is not None:
            stream.wait(self._last)

    def _begin(self, stream: Stream) -> DeviceEvent | None:
        return None if self._record is None else stream.record()

    def _transferred(
        self, kind: Kind, gap: int, begin: DeviceEvent | None, end: DeviceEvent
    ) -> None:
        if self._record is not None and begin is not None:
            self._record.transferred(kind, gap, begin, end)
