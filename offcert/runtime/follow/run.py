"""One training step under a plan: tensors leave and come back as its clock ticks."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable

import torch

from offcert.core.errors import PlanError
from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.follow.clock import StepClock
from offcert.runtime.follow.counting import CountedSteps, Counts, Reserved
from offcert.runtime.follow.excess import AS_ONE, Excess, LeftOut, Stayed, StepEntries, sizes_of
from offcert.runtime.plan.reports import StepReport, Unforeseen
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.step_table import SavedKind
from offcert.runtime.segments.settings import HELD
from offcert.runtime.streaming.synchronous import Mover
from offcert.runtime.torch_private import undispatched
from offcert.runtime.watch.entries import StorageEntry
from offcert.runtime.watch.events import Event
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.saved_hooks import SavedPlace, dtype_name
from offcert.runtime.watch.signature import Signature, as_if_on, covers
from offcert.runtime.watch.tracker import LiveBytes


class StepRun(StepClock):
    """A step that follows a plan as long as it is the step that was captured.

    Before an operation begins, a mover does what the plan wants done by then; `mover` is None for a
    plan that moves nothing. Once the step does something else than the captured one, nothing more
    leaves; what is away comes back when the plan says, or when autograd asks for it. `full`: it
    hears of every operation, not only of those before which something moves. `ended` is called with
    it when its last backward pass has ended.
    """

    # Whether steps of this class need to hear of every operation.
    hears_all = False

    def __init__(
        self,
        hooks: Hooks,
        step_plan: StepPlan,
        mover: Mover | None,
        counter: LiveBytes | None = None,
        strict: bool = False,
        ended: Callable[[StepRun], None] | None = None,
        reserved: Reserved | None = None,
        full: bool = False,
        known: CountedSteps | None = None,
    ) -> None:
        counted = counter is not None
        full = full or self.hears_all or counted or step_plan.by_operators
        super().__init__(hooks, step_plan, full=full, counted=counted)
        self._reserved = Reserved(None, None) if reserved is None else reserved
        self._memory: MemoryReading | None = None
        self._state_bytes = 0
        HELD.start()
        # The first thing in which it was not the planned step, or took more memory than planned, or
        # may have. In the latter case the plan is still followed: tensors that stay take yet more.
        self.deviation: str | None = None
        self.exceeded: str | None = None
        self.superseded: str | None = None  # By an earlier event than its end
        self.counted_as: str | None = None  # As what kind of step
        # Whether an error of ours is why it does not follow its plan.
        self.counter, self.broken = counter, False
        # The plans that the plan was chosen from, if there were several: modules tell them apart.
        self.alternatives: tuple[StepPlan, ...] = ()
        self._mover, self._strict, self._ended = mover, strict, ended
        self._calls_made = 0
        self.left_out = LeftOut(step_plan)
        # Operators are told apart by numbers alone, and not all operations are heard of.
        self._tells_less = full and not self.by_operators
        self._entries = StepEntries(self.table, self.left_out)
        self.by_place: dict[SavedPlace, weakref.ref[StorageEntry]] = self._entries.by_place
        self._saved: defaultdict[SavedKind, int] = defaultdict(int)
        self._unforeseen: list[Unforeseen] = []
        self._excess = Excess(step_plan, hooks.parts, known)
        self._counts = Counts(counter)
        self._disordered = False
        # Bytes that may be on the device beside all that the plan puts there.
        self.room = step_plan.limit - max(step_plan.prediction.peaks, default=0)
        self._beside, self._beside_bytes = set[int](), 0  # Left on the device by a rehearsal.

    def accepts(self, call: Signature) -> bool:
        """Take a call of the model as the next one of this step, if it is, or is covered by it."""
        captured, made = self.step_plan.capture, self._calls_made
        calls, call = captured.calls, as_if_on(call, captured.device, self.hooks.parts.device)
        if self.finished or made >= len(calls) or not covers(calls[made], call):
            return False
        # A step that was given up: this call begins the next one.
        if self.failed or (self.deviation is not None and self.backward_passes > 0):
            return False
        if self.smaller is None and (captured.interpolated or calls[made] != call):
            self._entries.smaller = call
        self._calls_made += 1
        self._excess.begin_call(call)
        return True

    @property
    def sizes(self) -> str:
        """Shapes of what the model is called with, where they are not those that were captured."""
        return sizes_of(self.smaller)

    @property
    def smaller(self) -> Signature | None:
        """The first call that is not as captured but covered by that; None if there is none."""
        return self._entries.smaller

    @property
    def calls_are_over(self) -> bool:
        """Whether all calls of the step were made, and no other step has begun."""
        return self.superseded is None and self._calls_made == len(self.step_plan.capture.calls)

    def begin_beside(self, earlier: StepRun | None) -> None:
        """Know of bytes on the device that autograd still needs of the step before."""
        if earlier is None:
            return
        entries = [reference() for reference in earlier.by_place.values()]
        size = sum(entry.size for entry in entries if entry is not None and not entry.away)
        if size > self.room:
            self.exceed(
                f"{size} bytes that the step before has saved are still there, which no plan "
                "counts: run the backward pass of a call of the model before the next step begins"
            )
        self.room -= size

    def supersede(self, what: str) -> None:
        """Take note of what has happened before the backward pass has ended."""
        if not self.finished:
            self.superseded = what
            self._counts.supersede()
            if self._mover is not None:
                self._mover.end(self, complete=False)

    def begin_backward(self) -> None:
        """Two steps at once take more memory than one."""
        if self.superseded is not None:
            self.deviate(f"{self.superseded} before its backward pass: {AS_ONE}")
        self._counts.begin_backward()
        self._excess.begin_backward()

    @property
    def hooks_saved(self) -> bool:
        """Whether the step must hear of what autograd saves: to move it, for the clock, to sum."""
        return self.by_operators or not self.step_plan.is_idle

    @property
    def uses_store(self) -> bool:
        """Whether bytes on the host may still be written or needed."""
        return not self.finished or any(entry.away for entry in self._entries.alive())

    @property
    def offloaded_bytes(self) -> int:
        """Bytes that were copied to the host."""
        return 0 if self._mover is None else self._mover.offloaded_bytes

    def report(self) -> StepReport:
        """Return the report of the step so far: breaches, bytes that moved, and memory."""
        mover = self._mover
        return StepReport(
            self.breach,
            self.finished,
            self.step_plan.prediction,
            self.step_plan.limit,
            tuple(self._counts.at_begin),
            tuple(self._counts.at_end),
            tuple(self._counts.peaks),
            () if mover is None else tuple(mover.unfreed),
            tuple(self._unforeseen),
            0 if mover is None else mover.late_bytes,
            self.offloaded_bytes,
            0 if mover is None else mover.prefetched_bytes,
            self.step_plan.host.pool,
            self.step_plan.host.load,
            0 if mover is None else mover.outside_entries,
            0 if mover is None else mover.outside_bytes,
            self.step_plan.segments.segments,
            state_bytes=self._state_bytes,
            beside_bytes=self._beside_bytes,
            memory=self._memory,
            reserved_limit=self._reserved.limit,
            pinning=None if mover is None else mover.pinning,
        )

    # The clock, of which `StepClock` tells.

    def _is_last(self, end: Event) -> bool:
        # A pass inside of the forward pass may go unnoticed: the recorder watched more.
        passes = self.step_plan.capture.backward_passes
        return end.call + 1 >= passes or self.now + 1 == len(self.step_plan.trace)

    def deviate(self, what: str) -> None:
        """Take note that the step is not the one that was planned; only the first time counts.

        A strict run raises a `PlanError`.
        """
        if self.deviation is None:
            self.deviation = what
            if self._strict:
                raise PlanError(f"the step does not follow its plan: {what}")

    def exceed(self, what: str | None) -> None:
        """Take note that the step takes more than was planned, as `deviate` does."""
        if what is not None and self.breach is None:
            self.exceeded = what
            if self._strict:
                raise PlanError(f"the step takes more than its plan says: {what}")

    @property
    def breach(self) -> str | None:
        """The reason why the step did not follow its plan, or took more; None if there is none."""
        return self.deviation or self.exceeded

    def stays(self, tensor: int, operation: int, size: int) -> None:
        """Take note of bytes that could not leave before an operation."""
        self._excess.stayed.append(Stayed(tensor, operation, size))

    def comes_early(self, entry: StorageEntry) -> None:
        """Take note of bytes that autograd asks for before the plan brings them back."""
        tensor = self.step_plan.places.get(entry.key)
        if self.left_out and tensor is not None:
            self.stays(tensor, self.now, entry.size)
        else:
            self.deviate(f"{entry.size} bytes were needed before the plan brought them back")

    def returned(self) -> None:
        """Look whether the call of the model has done more than the captured one."""
        self._excess.end_call(self._calls_made - 1)
        if self._unforeseen:
            self._excess.of_bytes(self._entries)

    def fail(self, what: str) -> None:
        """Take note that we have failed, not the step."""
        self.broken = True
        if self.deviation is None:
            self.deviation = what

    def has_room(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage may stay on the device beside all that the plan puts there."""
        if storage._cdata in self._beside:
            return True
        if storage.nbytes() > self.room:
            return False
        self.room -= storage.nbytes()
        self._beside_bytes += storage.nbytes()
        self._beside.add(storage._cdata)
        return True

    def strayed(self, what: str) -> None:
        """Take note that less runs again than was planned."""
        self.deviate(what)

    def _out_of_turn(self, what: str) -> None:
        """Take note of what steps that do not hear of every operation may not see."""
        self._disordered = self._disordered or self.deviation is None
        self.deviate(what)

    def _leave_out(self, end: int) -> None:
        """Take note that the operations before one do not run: less is done, or something else."""
        something = self._unforeseen or not self._tells_less
        more = self.left_out.leave(self._next, end, self._entries.alive(), something=something)
        if more is not None:
            self._out_of_turn(more)

    def _move(self, operation: int) -> None:
        if self._mover is None:
            return
        try:
            with undispatched():
                self._mover.reach(self, operation)
        except BaseException as error:
            # The program may catch it and go on; what was left undone is not known.
            if self.deviation is None:
                self.deviation = f"{type(error).__name__} before {self.name(operation)}: {error}"
            raise

    def _close(self) -> None:
        if self.now >= 0:
            self._counts.end()

    def _opened(self) -> None:
        self._counts.begin(self.now)

    def _finish(self) -> None:
        self._close()
        self._counts.stop()
        self.finished = True
        if self._mover is not None:
            self._mover.end(self, complete=self.now + 1 == len(self.step_plan.trace))
        self._memory = self._reserved.read()
        self._state_bytes = HELD.peak if self.step_plan.segments else 0
        try:
            if self.now + 1 != len(self.step_plan.trace):
                self._leave_out(len(self.step_plan.trace))
            if self._excess.stayed or self.left_out:
                self._excess.of_bytes(self._entries)
            if self.deviation is None or self._disordered:
                self.exceed(self._excess.at_end(self._counts.whole, self.deviation))
            self.exceed(self._reserved.exceeded(self._memory, self.step_plan, self._state_bytes))
        finally:
            if self._ended is not None:
                self._ended(self)

    # Tensors that the forward pass saves.

    def entry(self, place: SavedPlace) -> StorageEntry | None:
        """Return the entry that was saved at a place, if autograd still needs it, or None."""
        reference = self.by_place.get(place)
        return None if reference is None else reference()

    @property
    def in_streams(self) -> bool:
        """Whether streams move tensors."""
        return self._mover is not None and self._mover.in_streams

    def asked_for(self, entry: StorageEntry) -> None:
        """Bring back what autograd asks for, if the plan has not."""
        if self._mover is not None:
            if entry.away:
                with undispatched():
                    self._mover.fetch_late(self, entry)
            self._mover.asked_for(entry)

    def saves(self) -> None:
        """Take note that autograd saves something in the calling thread."""
        if self._mover is not None and not self._mover.is_here:
            self.deviate("operators run in several streams, and plans are followed in one")

    def saved(self, size: int, tensor: torch.Tensor) -> StorageEntry:
        """Return the entry of a storage that is saved for the first time."""
        stretch = self.now if self.now > 0 else 0
        if self._entries.smaller is None:
            kind = stretch, size, tensor.dtype, tensor.shape
            number = self._saved[kind]
            self._saved[kind] = number + 1
            try:
                place = self.table.places[kind][number]
            except LookupError:
                pass
            else:
                entry = StorageEntry(place, size)
                self.by_place[place] = weakref.ref(entry)
                return entry
            shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
            entry = self._entries.put(SavedPlace(stretch, size, dtype, shape, number), size)
        else:
            entry = self._entries.add(stretch, size, tensor)
        place = entry.key
        if place not in self.step_plan.places:
            instead = self._entries.instead(place)
            if instead is not None:
                self._excess.stayed += self.left_out.stayed(instead.key, self.now)
                return instead
            name = self.name(place.operation)
            self._unforeseen.append(Unforeseen(name, size, place.dtype, place.shape))
            if self.left_out:
                self.deviate(self.left_out.never)
        return entry
