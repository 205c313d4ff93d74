"""One training step under a plan: tensors leave and come back as its clock ticks."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from offcert.core.errors import PlanError
from offcert.runtime.events import END, OPERATOR, OUTPUT, UNPACK, Event, Session
from offcert.runtime.hooks import Hooks
from offcert.runtime.program import Program
from offcert.runtime.reports import StepReport, Unforeseen, Unfreed
from offcert.runtime.saved import Entry, Handle
from offcert.runtime.saved_storages import Owned, Place, SavedStorages
from offcert.runtime.signature import Signature
from offcert.runtime.store import HostStore
from offcert.runtime.tracker import LiveBytes


class StepRun(Session):
    """A step that follows a program as long as it is the step that was captured.

    Before an operation begins, first everything leaves that the plan wants gone by then, then
    everything comes back whose memory the plan has taken by then. Once the step does something else
    than the captured one, nothing more leaves; what is away comes back when the plan says, or when
    autograd asks for it.

    Parameters
    ----------
    hooks : Hooks
        Which tell it of events.
    program : Program
        What to follow.
    store : HostStore or None
        Where offloaded bytes go; None for a plan that moves nothing.
    owned : dict
        The model's own storages.
    counter : LiveBytes, optional
        Counts live bytes.
    strict : bool
        Raise at the first deviation.
    """

    def __init__(
        self,
        hooks: Hooks,
        program: Program,
        store: HostStore | None,
        owned: Owned,
        counter: LiveBytes | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(hooks)
        self.program = program
        self.now = -1
        self.deviation: str | None = None
        self.finished = False
        self.storages = _Storages(self, owned, counter)
        self.store = store
        self._counter = counter
        self._strict = strict
        self._by_operators = program.capture.ticks[0].kind in (OPERATOR, UNPACK)
        self._counts: dict[str, int] = {}
        self._calls_made = 0
        self._ordinals: dict[tuple[Any, ...], int] = {}
        self._entries: weakref.WeakValueDictionary[Place, Entry] = weakref.WeakValueDictionary()
        self._on_host: set[Place] = set()
        self._unfreed: list[Unfreed] = []
        self._unforeseen: list[Unforeseen] = []
        self._late_bytes = 0
        self._offloaded_bytes = 0
        self._prefetched_bytes = 0
        self._at_begin: list[int] = []
        self._at_end: list[int] = []
        self._peaks: list[int] = []

    def accepts(self, call: Signature) -> bool:
        """Take a call of the model as the next one of this step, if it is."""
        calls = self.program.capture.calls
        if self.finished or self._calls_made >= len(calls) or calls[self._calls_made] != call:
            return False
        self._calls_made += 1
        return True

    @property
    def hooks_saved(self) -> bool:
        """Whether the step must hear of what autograd saves: to move it, or for the clock."""
        return self._by_operators or not self.program.moves_nothing

    @property
    def uses_store(self) -> bool:
        """Whether bytes on the host may still be needed."""
        return any(entry.away for entry in self._entries.values())

    def report(self) -> StepReport:
        """Return what the step has done so far."""
        return StepReport(
            self.deviation,
            self.finished,
            self.program.prediction,
            self.program.limit,
            tuple(self._at_begin),
            tuple(self._at_end),
            tuple(self._peaks),
            tuple(self._unfreed),
            tuple(self._unforeseen),
            self._late_bytes,
            self._offloaded_bytes,
            self._prefetched_bytes,
        )

    # The clock.

    def wants(self, event: Event) -> bool:
        """Whether the event begins an operation, or tells that the backward pass has begun."""
        return event in self.program.operation_of or (event.kind == OUTPUT and not event.path)

    def tick(self, event: Event) -> None:
        """Begin the operation that begins with the event, if one does."""
        if self.finished:
            return
        operation = self.program.operation_of.get(event)
        if operation is not None:
            self._reach(operation)
        elif event.kind == END and event.call + 1 == self.program.capture.backward_passes:
            self._finish()

    def count(self, kind: str, name: str = "") -> None:
        """Tick at an operator or an unpacking, if the clock is one of operators."""
        if self._by_operators:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            self.tick(Event(kind, name, number))

    def deviate(self, what: str) -> None:
        """Take note that the step is not the one that was planned; only the first time counts.

        Raises
        ------
        PlanError
            If the run is strict.
        """
        if self.deviation is None:
            self.deviation = what
            if self._strict:
                raise PlanError(f"the step does not follow its plan: {what}")

    def _reach(self, operation: int) -> None:
        if operation <= self.now:
            self.deviate(f"{self._name(operation)} began again after {self._name(self.now)}")
            return
        if operation > self.now + 1:
            self.deviate(f"{self._name(self.now + 1)} never began")
        for index in range(self.now + 1, operation + 1):
            self._close()
            self.now = index
            self._transfer(index)
            if self._counter is not None:
                self._at_begin.append(self._counter.live)
                self._counter.now = index
                self._counter.start_peak()

    def _close(self) -> None:
        if self._counter is not None and self.now >= 0:
            self._at_end.append(self._counter.live)
            self._peaks.append(self._counter.peak)

    def _finish(self) -> None:
        self._close()
        if self.now + 1 != len(self.program.trace):
            self.deviate(f"{self._name(self.now + 1)} never began")
        if self._counter is not None:
            self._counter.stop()
        self.finished = True

    def _name(self, operation: int) -> str:
        return self.program.trace.operations[operation].name if operation >= 0 else "nothing"

    # Transfers.

    def _transfer(self, operation: int) -> None:
        prediction = self.program.prediction
        for tensor in prediction.releases[operation]:
            for place in self.program.parts[tensor]:
                self._release(place, tensor, operation)
        for tensor in prediction.claims[operation]:
            for place in self.program.parts[tensor]:
                entry = self._entries.get(place)
                if entry is not None and entry.away:
                    self._prefetched_bytes += entry.size
                    self._fetch(entry)

    def _release(self, place: Place, tensor: int, operation: int) -> None:
        if self.deviation is not None:
            return
        entry = self._entries.get(place)
        if entry is None:
            shape = "x".join(map(str, place.shape)) or "scalar"
            self.deviate(
                f"{self._name(place.operation)} has not saved the {place.dtype} tensor of shape "
                f"{shape} that should leave before {self._name(operation)}"
            )
            return
        reference = None
        if not entry.held_elsewhere:
            if place not in self._on_host:
                self._copy(entry, to_host=True)
                self._on_host.add(place)
                self._offloaded_bytes += entry.size
            reference = weakref.ref(entry.device_storage())
            entry.drop()
        if reference is None or reference() is not None:
            name = self.program.trace.tensors[tensor].name
            self._unfreed.append(Unfreed(name, self._name(operation), entry.size))

    def fetch_late(self, entry: Entry) -> None:
        """Bring back what autograd asks for before the plan does."""
        self.deviate(f"{entry.size} bytes were needed before the plan brought them back")
        self._late_bytes += entry.size
        self._fetch(entry)

    def _fetch(self, entry: Entry) -> None:
        with self._uncounted():
            device = torch.empty(entry.size, dtype=torch.uint8)
        if self._counter is not None:
            # A tick at an operator comes from within the counter, which then sees no operators.
            self._counter.adopt(device)
        entry.put(device.untyped_storage())
        self._copy(entry, to_host=False)

    def _copy(self, entry: Entry, *, to_host: bool) -> None:
        assert self.store is not None
        host = self.store.view(self.program.offsets[entry.key], entry.size)
        with self._uncounted():
            device = torch.empty(0, dtype=torch.uint8).set_(entry.device_storage())
            if to_host:
                host.copy_(device)
            else:
                device.copy_(host)

    def _uncounted(self) -> AbstractContextManager[None]:
        return nullcontext() if self._counter is None else self._counter.paused()

    # What the forward pass saves.

    def saved(self, size: int, tensor: torch.Tensor) -> Entry:
        """Return the entry of a storage that is saved for the first time."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        kind = (max(self.now, 0), size, dtype, shape)
        ordinal = self._ordinals.get(kind, 0)
        self._ordinals[kind] = ordinal + 1
        place = Place(*kind, ordinal)
        entry = Entry(place, size)
        self._entries[place] = entry
        if place not in self.program.places:
            self._unforeseen.append(Unforeseen(self._name(max(self.now, 0)), size, dtype, shape))
        return entry


class _Storages(SavedStorages):
    """Saved storages that tell their step."""

    def __init__(self, run: StepRun, owned: Owned, counter: LiveBytes | None) -> None:
        super().__init__(owned, counter)
        # The graph holds the handles' hooks, and they hold the step; the step must not hold them.
        self._run = run

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Entry:
        return self._run.saved(storage.nbytes(), tensor)

    def unpack(self, handle: Handle) -> torch.Tensor:
        entry = handle.entry
        if entry is not None:
            self._run.count(UNPACK)
            if entry.away:
                self._run.fetch_late(entry)
        return handle.restore()
