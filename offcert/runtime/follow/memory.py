"""Memory of steps under a plan: live bytes, what the allocator has reserved, and the host's."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.device.interface import Device, MemoryReading
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.operators import is_here
from offcert.runtime.watch.tracker import LiveBytes


class Counts:
    """Live bytes that a counter finds at the begin and the end of operations, and the most in each.

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
        sum(each.in_file for each in step_plans),
        sum(each.staging for each in step_plans),
    )
