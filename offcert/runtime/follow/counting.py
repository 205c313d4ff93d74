"""Memory of steps under a plan: live bytes, what the allocator has reserved, and the host's.

Live bytes are counted where a step may be another one than before: what is planned is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import torch

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.device.interface import Device, MemoryReading
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.torch_private import TorchDispatchMode
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.module_hooks import UncopiedHook
from offcert.runtime.watch.operators import enter_below, is_here, leave, sweep
from offcert.runtime.watch.signature import Signature, covers
from offcert.runtime.watch.tracker import LiveBytes

# Steps that are counted of each plan, and once the autograd graph has a shape that is new. Two, as
# in the first one segments are rehearsed, which later ones do without. Arbitrary.
_COUNTED = 2

# How often more steps are counted, since a shape is new or those like it were not planned: of a
# program that makes another graph in every step no end would come. Arbitrary.
_SHAPES = 16

# The nodes of the autograd graph that each call of the model made.
Shape = tuple[int, ...]


class _Steps:
    """First calls of steps of one shape, within the limit and beyond it, with how much it was."""

    def __init__(self) -> None:
        self.within: list[Signature] = []
        self.beyond: list[tuple[Signature, str]] = []


class CountedSteps:
    """The findings of the steps of a plan that were counted.

    They are told apart by the shape of the graph and by what the model is called with: a step that
    makes the same graph of less takes no more.
    """

    def __init__(self) -> None:
        self._of_shape: dict[Shape, _Steps] = {}
        self._calls: list[Signature] = []
        self._wanted, self._new, self._alone = _COUNTED, 0, True

    def begin(self, call: Signature, alone: bool = True) -> bool:
        """Whether a step is to be counted; `alone`: no other is under way."""
        self._alone = alone
        known = call in self._calls or any(covers(each, call) for each in self._calls)
        if known and self._wanted <= 0:
            return False
        self._wanted -= 1
        if not known:
            self._calls = [each for each in self._calls if not covers(call, each)] + [call]
        return True

    def most_nodes(self, call: int) -> int:
        """Return the most nodes that a call made within the limit; -1 if none is known."""
        kept = [shape for shape, steps in self._of_shape.items() if steps.within]
        return max((shape[call] for shape in kept if call < len(shape)), default=-1)

    def counted(self, shape: Shape, call: Signature, breach: str | None) -> None:
        """Take note of a step that was counted, and of why it was not planned, in words."""
        if breach is not None and not self._alone:
            return
        steps = self._of_shape.setdefault(shape, _Steps())
        # The latest counts: the first one may have rehearsed segments.
        if breach is None:
            steps.beyond = [each for each in steps.beyond if not covers(call, each[0])]
            steps.within.append(call)
        else:
            steps.within = [each for each in steps.within if not covers(each, call)]
            steps.beyond.append((call, breach))

    def uncounted(self, shape: Shape, call: Signature, why: str | None) -> str | None:
        """Return why a step was not planned that was like one that was not counted, or None.

        `why` it may have taken more is what is known if no step was like it.
        """
        steps = self._of_shape.get(shape)
        if steps is not None:
            if call in steps.within or any(covers(each, call) for each in steps.within):
                return None
            for less, breach in steps.beyond:
                if covers(call, less):
                    self._count_more()
                    return f"when such a step was counted, {breach}"
        self._count_more()
        return why

    def _count_more(self) -> None:
        if self._calls and self._new < _SHAPES:
            self._new += 1
            self._wanted = _COUNTED


class Counting:
    """Enters a counter's dispatch mode where a step is to be counted, and leaves it afterwards.

    Modes are left when the next step begins: in the midst of a backward pass PyTorch forgets it.
    `count`: every step or none; None for the first ones and where the graph changes. `announce` is
    told of every operator while the mode is entered.
    """

    def __init__(
        self,
        hooks: Hooks,
        announce: Callable[..., None],
        device: Device | None,
        count: bool | None,
    ) -> None:
        self._hooks, self._announce, self._device = hooks, announce, device
        self._count = count
        self._known: dict[int, CountedSteps] = {}
        self._counter: LiveBytes | None = None
        self._undo = ExitStack()
        self._thread = 0

    def enter(self) -> Callable[[], None]:
        """Count by default in the calling thread; return the function that ends it.

        A mode stays in the thread of a step until another one begins there, which in others may
        never be.
        """
        self._thread = threading.get_ident()
        return self.leave

    def known(self, step_plan: StepPlan) -> CountedSteps:
        """Return the findings of a plan's steps that were counted."""
        key = id(step_plan)
        if key not in self._known:
            self._known[key] = CountedSteps()
        return self._known[key]

    def forget(self, step_plan: StepPlan) -> None:
        """Know nothing any more of a plan that no step follows from now on."""
        self._known.pop(id(step_plan), None)

    def begin(self, step_plan: StepPlan, call: Signature, alone: bool = True) -> LiveBytes | None:
        """Return the counter for a step that begins in this thread; None to count nothing."""
        wanted = self._count
        if wanted is None:
            wanted = self.known(step_plan).begin(call, alone) and self._may_count
        if not wanted and not step_plan.by_operators:
            if self._counter is not None:
                self.leave()
            return None
        if self._counter is None or not is_here(self._counter):
            self.leave()
            self._counter = self._enter()
        return self._counter

    @property
    def _may_count(self) -> bool:
        if threading.get_ident() != self._thread:
            return False
        # Compilers of older PyTorch pass by code that they first meet under a dispatch mode.
        return not self._hooks.compiled or hasattr(TorchDispatchMode, "ignore_compile_internals")

    def _enter(self) -> LiveBytes:
        counter = LiveBytes()
        counter.guard = self._hooks.guard
        counter.kind = self._hooks.parts.device
        counter.announcer = self._announce
        # Only a simulated device does not see by itself which memory operators take.
        watch = getattr(self._device, "watch", None)
        if watch is not None:
            watch(counter)
        excluding = UncopiedHook(partial(_exclude, counter), counter.guard)
        for parameter in self._hooks.parts.parameters:
            if parameter.requires_grad and parameter.is_leaf:
                hook = parameter.register_post_accumulate_grad_hook(excluding)
                self._undo.callback(hook.remove)
        enter_below(counter)
        return counter

    def leave(self) -> None:
        """Count no operators until a step is to be counted."""
        counter, self._counter = self._counter, None
        if counter is not None:
            self._undo.close()
            counter.stop()
            counter.announcer = None
            leave(counter)
        sweep()


def _exclude(counter: LiveBytes, parameter: torch.Tensor) -> None:
    """Let a gradient count no more once it is the parameter's."""
    if parameter.grad is not None:
        counter.exclude([parameter.grad])


class Counts:
    """Live bytes at the begin and the end of each operation, and the most within it.

    Another step that begins ends it.
    """

    def __init__(self, counter: LiveBytes | None) -> None:
        self.at_begin: list[int] = []
        self.at_end: list[int] = []
        self.peaks: list[int] = []
        self._counter = counter
        self._seen = counter is not None

    @property
    def whole(self) -> list[int] | None:
        """The peaks of all operations; None unless the whole step was counted."""
        return self.peaks if self._seen else None

    def begin_backward(self) -> None:
        """Take note of a backward pass: in a thread where none is seen the step is not counted."""
        if self._counter is not None and not is_here(self._counter):
            self.supersede()
            self.at_begin, self.at_end, self.peaks = [], [], []

    def begin(self, operation: int) -> None:
        """Take note that an operation begins, after what the plan moves before it."""
        counter = self._counter
        if counter is None:
            return
        counter.look()
        # What comes before the first operation is a part of it.
        self.at_begin.append(counter.live if operation else 0)
        counter.now = operation
        if operation:
            counter.start_peak()

    def end(self) -> None:
        """Take note that the latest operation has ended, if one has begun."""
        if self._counter is not None and self.at_begin:
            self._counter.look()
            self.at_end.append(self._counter.live)
            self.peaks.append(self._counter.peak)

    def stop(self) -> None:
        """Count no more operators."""
        if self._counter is not None:
            self._counter.stop()

    def supersede(self) -> None:
        """Take note that another step begins: what is alive is not this one's alone then."""
        self._counter, self._seen = None, False


_BYTES = Units("ns", "B")


class Reserved:
    """Reads the memory that a device's allocator gives out and reserves in a step, `limit` at most.

    Without a limit for what is reserved it leaves peaks alone, which are the program's own as well,
    unless an older one would hide that a step takes more than its plan says.
    """

    def __init__(self, device: Device | None, limit: int | None) -> None:
        if limit is not None and device is None:
            raise InputError("reserved_memory is for devices; the model is on the CPU")
        self.limit = limit
        self.reads = device is not None
        self._device, self._begun = device, 0

    def begin(self, step_plan: StepPlan | None = None, *, fresh: bool = False) -> None:
        """Begin to look for the most bytes in a step by a plan, or the first of its kind (`fresh`).

        If there is a limit, what is reserved and not in use is given back if it is `fresh`, or
        beyond the limit: steps without a plan have reserved it.
        """
        device = self._device
        if device is None:
            return
        found = device.memory()
        if self.limit is not None:
            if fresh or found.reserved > self.limit:
                device.release()
            device.reset_peaks()
        self._begun, highest = found.asked
        if self.limit is None and step_plan is not None and highest > self._begun + step_plan.limit:
            device.reset_peaks()

    def read(self) -> MemoryReading | None:
        """Return the bytes that the allocator has given and reserved now; None without a device."""
        return None if self._device is None else self._device.memory()

    @property
    def fragments(self) -> int:
        """Bytes that were reserved at most beyond those in use; 0 without a limit."""
        found = None if self.limit is None else self.read()
        return 0 if found is None else max(0, found.peak_reserved - found.peak_allocated)

    def exceeded(
        self, reading: MemoryReading | None, step_plan: StepPlan, state: int = 0
    ) -> str | None:
        """Return in words that more was reserved than may be, or given out, or None.

        `state`: bytes of copies for segments, which no limit is about.
        """
        if reading is None:
            return None
        if self.limit is None or reading.peak_reserved <= self.limit:
            return self._beyond(reading, step_plan.limit + state)
        held, given = reading.peak_reserved, reading.peak_allocated
        return (
            f"the device's allocator has reserved {held} bytes ({format_size(held, _BYTES)}), but "
            f"may reserve {self.limit} ({format_size(self.limit, _BYTES)}); at most {given} were "
            "in use"
        )

    def _beyond(self, reading: MemoryReading, most: int) -> str | None:
        """Return in words that a step has taken more than it may, or None.

        What was there before and what stays are not the step's: gradients, the loss, memory that
        libraries keep for themselves.
        """
        now, highest = reading.asked
        taken = highest - max(now, self._begun)
        if taken <= most:
            return None
        return (
            f"the device's allocator was asked for {taken} bytes at once besides what stays, "
            f"{taken - most} more than the limit"
        )


def host_memory_of(step_plans: Sequence[StepPlan], limit: int | None = None) -> HostMemory:
    """Return the bytes of host memory that plans need together."""
    return HostMemory(
        sum(each.host.pool for each in step_plans),
        sum(each.host.load for each in step_plans),
        limit,
        sum(each.host.in_file for each in step_plans),
        sum(each.host.staging for each in step_plans),
    )
