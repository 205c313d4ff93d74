"""Movers of tensors for a step: at once, between two operations, or by the streams of a device."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Container, Iterable
from operator import attrgetter
from typing import Protocol

import torch

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.runtime.device.host import HostStore
from offcert.runtime.device.interface import Pinning
from offcert.runtime.plan.predict import Prediction
from offcert.runtime.plan.reports import Unfreed
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.streaming.copies import HostCopies, StreamCopies
from offcert.runtime.streaming.step_events import Mark, StepEvents
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.saved_hooks import SavedPlace
from offcert.runtime.watch.tracker import LiveBytes

# The gap of copies that no operation waits for. By definition.
LATE = -1


class FollowedStep(Protocol):
    """The part of a step that its mover needs (`offcert.runtime.follow.run.StepRun`)."""

    step_plan: StepPlan
    counter: LiveBytes | None
    deviation: str | None

    by_place: dict[SavedPlace, weakref.ref[StorageEntry]]

    @property
    def left_out(self) -> Container[int]:
        """The operations that it does not do."""

    def entry(self, place: SavedPlace) -> StorageEntry | None:
        """Return the entry that the step saved at a place, if autograd still needs it, or None."""

    def deviate(self, what: str) -> None:
        """Take note that the step is not the one that was planned."""

    def stays(self, tensor: int, operation: int, size: int) -> None:
        """Take note of bytes that could not leave before an operation."""

    def comes_early(self, entry: StorageEntry) -> None:
        """Take note of bytes that autograd asks for before the plan brings them back."""

    def name(self, operation: int) -> str:
        """Return the name of an operation."""


class Mover(ABC):
    """Carries a plan out, operation by operation; counts bytes that it has copied.

    Of those, `late_bytes` came back only when they were asked for. `unfreed` are storages that
    should have left, but are held by someone besides autograd. If it moves `in_streams`, it is
    asked of all that autograd saves and asks for.
    """

    in_streams = False

    def __init__(self, copies: HostCopies[SavedPlace] | StreamCopies[SavedPlace]) -> None:
        self.offloaded_bytes, self.prefetched_bytes, self.late_bytes = 0, 0, 0
        self.unfreed: list[Unfreed] = []
        self._counted = copies
        self._before = copies.outside_entries, copies.outside_bytes

    @property
    def outside_entries(self) -> int:
        """Copies that were made outside of the arena."""
        return self._counted.outside_entries - self._before[0]

    @property
    def outside_bytes(self) -> int:
        """Bytes of these copies."""
        return self._counted.outside_bytes - self._before[1]

    @property
    def pinning(self) -> Pinning | None:
        """How far the arena has been registered; None without a device."""
        return None

    @property
    def is_here(self) -> bool:
        """Whether the calling thread's operators come after those of the step, and before more."""
        return True

    @abstractmethod
    def reach(self, step: FollowedStep, operation: int) -> None:
        """Make the plan's moves before an operation begins."""

    @abstractmethod
    def fetch_late(self, step: FollowedStep, entry: StorageEntry) -> None:
        """Bring back what autograd asks for before the plan does."""

    @abstractmethod
    def asked_for(self, entry: StorageEntry) -> None:
        """Take note that autograd asks for a storage that has come back, or is about to."""

    @abstractmethod
    def end(self, step: FollowedStep, *, complete: bool) -> None:
        """Take note that nothing more will move; a step that is `complete` ran all operations."""


def lacking(step: FollowedStep, place: SavedPlace, operation: int, here: str = "cpu") -> None:
    """Tell a step that it has not saved a tensor that is to leave, unless it does less.

    The step runs on a device `here`, and its plan may be for another one.
    """
    if place.operation in step.left_out:
        return
    shape = "x".join(map(str, place.shape)) or "scalar"
    captured = step.step_plan.capture.device
    why = ""
    if captured != here:
        why = (
            f"; it was captured from a model on {captured}, whose kernels may keep other tensors, "
            f"such as masks of dropout: profile the model where it is trained, on {here}"
        )
    elif (attention := step.step_plan.said_of_attention(here)) is not None:
        why = f"; {attention}: profile it with measure=True where it is trained"
    step.deviate(
        f"{step.name(place.operation)} has not saved the {place.dtype} tensor of shape {shape} "
        f"that should leave before {step.name(operation)}{why}"
    )


def unfreed(step: FollowedStep, tensor: int, operation: int, size: int) -> Unfreed:
    """Return a report of bytes that could not be freed; the step takes note of them."""
    step.stays(tensor, operation, size)
    return Unfreed(step.step_plan.trace.tensors[tensor].name, step.name(operation), size)


class SynchronousMover(Mover):
    """Moves tensors at once, where there are no streams.

    Before an operation begins, first everything leaves that the plan wants gone by then, then
    everything comes back whose memory the plan has taken by then. A `record` gets the times.
    """

    def __init__(
        self, step_plan: StepPlan, store: HostStore, record: StepEvents | None = None
    ) -> None:
        self._copies = HostCopies(step_plan.host, store)
        super().__init__(self._copies)
        self._releases = step_plan.prediction.releases
        self._claims, self._parts = step_plan.prediction.claims, step_plan.parts
        self._record = record

    def reach(self, step: FollowedStep, operation: int) -> None:
        """Make the plan's moves before an operation begins."""
        record = self._record
        if record is not None:
            record.ended(record.watch.mark())
        for tensor in self._releases[operation]:
            self._leave(step, tensor, operation)
        for tensor in self._claims[operation]:
            self._return(step, tensor, operation)
        if record is not None:
            record.began(record.watch.mark())

    def _leave(self, step: FollowedStep, tensor: int, operation: int) -> None:
        begin = None if self._record is None else self._record.watch.mark()
        before = self.offloaded_bytes
        for place in self._parts[tensor]:
            self._release(step, place, tensor, operation)
        if begin is not None and self.offloaded_bytes > before:
            self._transferred(Kind.OFFLOAD, gap_at(step.step_plan.trace, tensor, operation), begin)

    def _return(self, step: FollowedStep, tensor: int, operation: int) -> None:
        begin = None if self._record is None else self._record.watch.mark()
        before, by_place = self.prefetched_bytes, step.by_place
        for place in self._parts[tensor]:
            entry = by_place[place]() if place in by_place else None
            if entry is not None and not entry.address and entry.data is None:
                self.prefetched_bytes += entry.size
                self._fetch(step, entry)
        if begin is not None and self.prefetched_bytes > before:
            self._transferred(Kind.PREFETCH, gap_at(step.step_plan.trace, tensor, operation), begin)

    def _release(self, step: FollowedStep, place: SavedPlace, tensor: int, operation: int) -> None:
        if step.deviation is not None:
            return
        by_place = step.by_place
        entry = by_place[place]() if place in by_place else None
        if entry is None:
            lacking(step, place, operation)
            return
        storage, reference = entry.alone(), None
        if storage is not None:
            if step.counter is None:
                copied = self._copies.keep(entry, storage)
            else:
                with step.counter.paused():
                    copied = self._copies.keep(entry, storage)
            if copied:
                self.offloaded_bytes += entry.size
            reference = weakref.ref(storage)
            del storage
            entry.drop()
        if reference is None or reference() is not None:
            self.unfreed.append(unfreed(step, tensor, operation, entry.size))

    def fetch_late(self, step: FollowedStep, entry: StorageEntry) -> None:
        """Bring back what autograd asks for before the plan does."""
        begin = None if self._record is None else self._record.watch.mark()
        step.comes_early(entry)
        self.late_bytes += entry.size
        self._fetch(step, entry)
        if begin is not None:
            self._transferred(Kind.PREFETCH, LATE, begin)

    def asked_for(self, entry: StorageEntry) -> None:
        """Do nothing: what has come back is there."""

    def end(self, step: FollowedStep, *, complete: bool) -> None:
        """Take note of the end of the last operation."""
        if complete and self._record is not None:
            self._record.ended(self._record.watch.mark())

    def _transferred(self, kind: Kind, gap: int, begin: Mark) -> None:
        if self._record is not None:
            self._record.transferred(kind, gap, begin, self._record.watch.mark())

    def _fetch(self, step: FollowedStep, entry: StorageEntry) -> None:
        if step.counter is None:
            device = torch.empty(entry.size, dtype=torch.uint8, device="cpu")
            self._copies.read(entry, device)
        else:
            with step.counter.paused():
                device = torch.empty(entry.size, dtype=torch.uint8, device="cpu")
                # A tick at an operator comes from within the counter, which sees none then.
                step.counter.adopt(device)
                self._copies.read(entry, device)
        entry.data, entry.version = device, device._version


def away(step: FollowedStep, places: Iterable[SavedPlace]) -> list[StorageEntry]:
    """Return the storages of a tensor that are not on the device, and still needed."""
    entries = [step.entry(place) for place in places]
    return [entry for entry in entries if entry is not None and entry.away]


def gap_at(trace: Trace, tensor: int, operation: int) -> int:
    """Return the gap in which a tensor is absent that moves before an operation."""
    return bisect_left(trace.gaps, (tensor, operation), key=attrgetter("tensor", "after"))


def forecast_at_once(problem: Problem, prediction: Prediction) -> Schedule:
    """Return the times of a plan whose transfers all happen between two operations.

    Before each operation, everything that is to leave is copied first, the first time that it
    leaves, and then what is to come back, one after the other. Nothing overlaps.
    """
    trace, platform = problem.trace, problem.platform
    now, copied = 0, set()
    starts, ends, transfers = [], [], []
    for index, duration in enumerate(trace.durations):
        leaving = [each for each in prediction.releases[index] if each not in copied]
        copied.update(leaving)
        moves = [(Kind.OFFLOAD, each) for each in leaving]
        moves += [(Kind.PREFETCH, each) for each in prediction.claims[index]]
        for kind, tensor in moves:
            begin, size = now, trace.tensors[tensor].size
            now += platform.transfer_time(size, kind)
            transfers.append(Transfer(kind, gap_at(trace, tensor, index), begin, now))
        starts.append(now)
        now += duration
        ends.append(now)
    return Schedule(starts, ends, transfers)
