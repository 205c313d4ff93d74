"""Parts of a recording: moments, their cut into operations, the lives of storages, tensors seen.

`RecordedStorages` has those that autograd saves in a step that is recorded.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.capture.capture import Clock
from offcert.runtime.segments.arguments import Handed
from offcert.runtime.watch.entries import Handle, StorageEntry
from offcert.runtime.watch.events import (
    AGAIN,
    END,
    ENTER,
    INPUT,
    LEAVE,
    OPERATOR,
    OUTPUT,
    RESUME,
    UNPACK,
    Event,
)
from offcert.runtime.watch.saved_hooks import Owned, SavedStorages
from offcert.runtime.watch.sharded import local
from offcert.runtime.watch.tracker import StorageRecord


class RecordedStorages(SavedStorages):
    """Saved storages that tell the recorder."""

    def __init__(self, recorder: Any) -> None:
        hooks = recorder.hooks
        super().__init__(Owned(hooks.parts), hooks.parts.device, recorder.tracker, hooks.guard)
        self._recorder = recorder
        # At which moment each was saved.
        self._moments: weakref.WeakKeyDictionary[Handle, int] = weakref.WeakKeyDictionary()

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> StorageEntry:
        """Return the entry of a storage that is saved for the first time."""
        entry = StorageEntry(len(self._recorder.saved), storage.nbytes())
        self._recorder.note_saved(entry, tensor)
        return entry

    def saved_again(self, entry: StorageEntry) -> None:
        """Tell the recorder that a storage has been saved once more."""
        self._recorder.note_needed(entry)

    def _pack(self, tensor: torch.Tensor) -> Handle:
        handle = super()._pack(tensor)
        part = local(tensor)
        self._recorder.packed.append(self._recorder.see(part))
        self._moments[handle] = self._recorder.moment_of_saving(part)
        return handle

    def bring_back(self, handle: Handle) -> None:
        """Bring back what the recorder's rule has let leave."""
        entry, rule = handle.entry, self._recorder.rule
        if entry is not None and entry.away and rule is not None:
            rule.bring_back(entry, self.device)
            self.know(entry)

    def asked_for(self, handle: Handle) -> None:
        """Tell the recorder what autograd asks for."""
        recorder = self._recorder
        if handle.entry is not None:
            recorder.note_unpacked(handle.entry)
        recorder.unpacked.append((recorder.tracker.now, self._moments[handle]))


@dataclass(slots=True)
class Moment:
    """An event or an operator, and what happened from there to the next moment."""

    event: Event  # The event of this moment; operators are events too
    backward: bool  # Whether a backward pass was under way
    live: int  # Live bytes when it began
    module: str  # Path of the module that an operator was called in
    peak: int = 0  # The most live bytes until the next moment
    launches: bool = False  # Whether an operator did any work: views and allocations do not
    duration: int = 0  # Of that work, in ticks


@dataclass(slots=True)
class Life:
    """The life of one storage during a recorded step."""

    record: StorageRecord  # Its bytes, and the moments of its birth and death
    # Moments at which an operator or autograd needed it.
    touched: set[int] = field(default_factory=set)
    # First and last moments of the stretches in which someone besides autograd held it.
    held: list[tuple[int, int]] = field(default_factory=list)
    saved_at: int | None = None  # The moment at which autograd saved it first
    entry: weakref.ref[StorageEntry] | None = None  # The entry that autograd holds since then
    # Moments at which an operator changed it in place.
    changed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Seen:
    """A tensor at a moment."""

    moment: int  # When
    # Of the tensor: its life if it is counted; None if the model holds it, or what is saved is not
    # counted.
    storage: Any
    size: int  # Bytes of the storage
    dtype: str  # Data type of the tensor
    shape: tuple[int, ...]  # Shape of the tensor


class LineFinder:
    """Finds lines of calls: it hears of the calls of modules in forward passes, and of operators.

    A call belongs to a line if no other module is called in it, and it takes one tensor and returns
    one. It continues the line if the tensor is the very object that the call before returned, not
    changed since, and no operator was called in between, not even for a view: what the program does
    between the calls of a line does not run again.
    """

    def __init__(self) -> None:
        self._lines: list[list[Event]] = []
        # The result of the last call, if a line may go on.
        self._handed: Handed | None = None
        # The innermost call that is being made, and whether it continues the line.
        self._open: tuple[Event, bool] | None = None

    @property
    def found(self) -> list[list[Event]]:
        """The beginnings of the calls of each line so far that has at least two of them."""
        return [line for line in self._lines if len(line) > 1]

    def enter(self, event: Event, values: Any) -> None:
        """Note that a module is called; its arguments are a tuple if there are no keywords."""
        self._open = None
        if isinstance(values, tuple) and len(values) == 1 and torch.is_grad_enabled():
            continues = self._handed is not None and self._handed.is_(values[0])
            if continues or isinstance(values[0], torch.Tensor):
                self._open = event, continues

    def leave(self, path: str, output: Any) -> None:
        """Note that a module returns."""
        opened, self._open = self._open, None
        # A call in which others were made is none of a line, but does not end it either.
        if opened is None or opened[0].path != path:
            return
        event, continues = opened
        if not continues:
            self._lines.append([])
        self._lines[-1].append(event)
        self._handed = Handed(output) if isinstance(output, torch.Tensor) else None

    def note_operator(self) -> None:
        """Note that an operator is called: if that is between two calls, a line ends."""
        self._handed = None

    def cut(self) -> None:
        """End the line."""
        self._handed = self._open = None


class CutStep:
    """Moments in a row, cut into operations at the ticks of a clock."""

    def __init__(self, moments: Sequence[Moment], clock: Clock) -> None:
        self.moments = moments
        self.clock = clock
        self.ticks = _operator_ticks(moments) if clock is Clock.OPERATORS else _ticks(moments)
        if not self.ticks:
            raise InputError("the model computes nothing")
        self.names = [self._name(index) for index in range(len(self.ticks))]

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.ticks)

    def _name(self, operation: int) -> str:
        if self.clock is Clock.OPERATORS:
            moments = self.moments_of(operation)
            return _operator_name(next(moment for moment in moments if moment.launches))
        return _operation_name(self.moments[self.ticks[operation]])

    def operation(self, moment: int) -> int:
        """Return the operation that a moment belongs to; what comes too early goes to the first."""
        return max(0, min(bisect_right(self.ticks, moment), len(self.ticks)) - 1)

    def moments_of(self, operation: int) -> Sequence[Moment]:
        """Return the moments of an operation."""
        first = 0 if operation == 0 else self.ticks[operation]
        last = operation + 1 == len(self.ticks)
        return self.moments[first : len(self.moments) if last else self.ticks[operation + 1]]

    def live_after(self, operation: int) -> int:
        """Return the live bytes when the next operation begins, or the step ends."""
        following = operation + 1
        moment = self.ticks[following] if following < len(self.ticks) else len(self.moments) - 1
        return self.moments[moment].live


def _operator_ticks(moments: Sequence[Moment]) -> list[int]:
    """Return the operators that do any work; one begins when autograd unpacks something for it."""
    ticks: list[int] = []
    begun: int | None = None
    for index, moment in enumerate(moments):
        if moment.event.kind == UNPACK and begun is None:
            begun = index
        elif moment.launches:
            ticks.append(index if begun is None else begun)
            begun = None
    return ticks


def _ticks(moments: Sequence[Moment]) -> list[int]:
    """Return the events after which something is computed before the next event.

    What runs again begins with the event that says so: then its inputs are needed.
    """
    ticks: list[int] = []
    event, ticked = 0, True
    again: int | None = None
    for index, moment in enumerate(moments):
        if moment.event.kind == AGAIN and again is None:
            again = index
        if moment.event.kind not in (OPERATOR, UNPACK):
            event, ticked = index, False
        elif moment.launches and not (ticked and ticks):
            ticks.append(event if again is None else again)
            ticked, again = True, None
    return ticks


def _operator_name(moment: Moment) -> str:
    side = "B" if moment.backward else "F"
    return f"{side}:{moment.module or 'model'}:{moment.event.path.split('.')[1]}"


def _operation_name(moment: Moment) -> str:
    event = moment.event
    where = event.path or "model"
    again = f" #{event.call + 1}" if event.call else ""
    # Checkpointing runs modules again in the backward pass.
    forward = "R" if moment.backward else "F"
    side = forward if event.kind in (ENTER, LEAVE, AGAIN) else "B"
    if event == Event(LEAVE, "", 0):
        return "F:loss"
    relation = {LEAVE: "after ", INPUT: "before ", OUTPUT: "", ENTER: "", END: "after "}
    relation |= {AGAIN: "", RESUME: "with "}
    return f"{side}:{relation[event.kind]}{where}{again}"


@dataclass
class StorageGroup:
    """Storages that become one tensor."""

    uses: tuple[int, ...]  # Of the tensor
    evictable: bool  # Whether it may leave
    size: int = 0  # Bytes of all of them
    lives: list[Life] = field(default_factory=list)  # The life of each storage
    name: str = ""  # Name of the tensor
