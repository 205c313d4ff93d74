"""The checker as it is defined: every prefetch is looked at for every operation and tensor.

`offcert.questions.schedule.check` must find the same faults, in the same words; it shares no code
with this.

Only three kinds of event take memory: the start of the step, the start of an operation (its
outputs and workspace) and the start of a prefetch. Everything else releases it. So memory is within
its limit always if it is right after each of those events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

_START = -1


def check(problem: Problem, schedule: Schedule) -> list[str]:
    """Return every reason why `schedule` is not a schedule of `problem`.

    Parameters
    ----------
    problem : Problem
        With any kind of transfers: what is valid for atomic transfers is valid for the others.
    schedule : Schedule
        Claimed times, in ticks.

    Returns
    -------
    list of str
        One sentence a violation; empty if the schedule is valid.
    """
    return _Checker(problem, schedule).run()


def operation_faults(trace: Trace, starts: Sequence[int], ends: Sequence[int]) -> list[str]:
    """Return every reason why the operations cannot run, one after the other, at these times."""
    faults = []
    free = 0
    for index, (operation, start, end) in enumerate(
        zip(trace.operations, starts, ends, strict=True)
    ):
        label = f"operation {index} ({operation.name})"
        if start < free:
            before = "the schedule begins" if index == 0 else f"operation {index - 1} ends"
            faults.append(f"{label} starts at {start}, before {before} at {free}")
        if end - start != operation.duration:
            faults.append(f"{label} lasts {end - start} ticks instead of {operation.duration}")
        free = max(free, end)
    return faults


class _Checker:
    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem = problem
        self.trace = problem.trace
        self.schedule = schedule
        self.faults: list[str] = []
        self.offload_of: dict[int, Transfer] = {}
        self.prefetch_of: dict[int, Transfer] = {}

    def run(self) -> list[str]:
        # Later checks index by operation and gap, so they need the earlier ones to have passed.
        for stage in (
            self._check_shape,
            self._check_operations,
            self._collect_transfers,
            self._check_transfers,
            self._check_link,
            self._check_memory,
        ):
            stage()
            if self.faults and stage in (self._check_shape, self._collect_transfers):
                break
        return self.faults

    def _check_shape(self) -> None:
        count = len(self.trace.operations)
        for name, values in (("starts", self.schedule.starts), ("ends", self.schedule.ends)):
            if len(values) != count:
                self.faults.append(
                    f"the schedule has {len(values)} operation {name} for {count} operations"
                )
            self.faults += [
                f"operation {index}: {name} holds {value!r}, which is no integer"
                for index, value in enumerate(values)
                if type(value) is not int
            ]
        for transfer in self.schedule.transfers:
            if type(transfer.start) is not int or type(transfer.end) is not int:
                self.faults.append(f"{self._label(transfer)} has times that are no integers")

    def _check_operations(self) -> None:
        self.faults += operation_faults(self.trace, self.schedule.starts, self.schedule.ends)

    def _collect_transfers(self) -> None:
        for transfer in self.schedule.transfers:
            if not 0 <= transfer.gap < len(self.trace.gaps):
                self.faults.append(f"a transfer names gap {transfer.gap}, which does not exist")
                continue
            if transfer.kind is Kind.PREFETCH:
                if transfer.gap in self.prefetch_of:
                    self.faults.append(f"{self._label(transfer)} happens twice")
                self.prefetch_of[transfer.gap] = transfer
            else:
                tensor = self.trace.gaps[transfer.gap].tensor
                if tensor in self.offload_of:
                    self.faults.append(f"{self._label(transfer)}: its tensor leaves twice")
                self.offload_of[tensor] = transfer
        first_gap: dict[int, int] = {}
        for gap in sorted(self.prefetch_of):
            first_gap.setdefault(self.trace.gaps[gap].tensor, gap)
        for tensor, gap in first_gap.items():
            if tensor not in self.offload_of:
                self.faults.append(f"{self._label(self.prefetch_of[gap])} has no offload")
        for tensor, transfer in self.offload_of.items():
            if first_gap.get(tensor) != transfer.gap:
                self.faults.append(
                    f"{self._label(transfer)} does not name its tensor's first evicted gap"
                )

    def _check_transfers(self) -> None:
        for transfer in self.schedule.transfers:
            tensor = self.trace.gaps[transfer.gap].tensor
            length = self._exact_duration(self.trace.tensors[tensor].size, transfer.kind)
            if transfer.end - transfer.start != length:
                self.faults.append(
                    f"{self._label(transfer)} lasts {transfer.end - transfer.start} ticks "
                    f"instead of {length}"
                )
        for tensor, transfer in self.offload_of.items():
            written = self._end(self.trace.tensors[tensor].uses[0])
            if transfer.start < written:
                self.faults.append(
                    f"{self._label(transfer)} starts at {transfer.start}, before its tensor is "
                    f"written at {written}"
                )
        for gap, transfer in self.prefetch_of.items():
            released = self._released(gap)
            if transfer.start < released:
                self.faults.append(
                    f"{self._label(transfer)} starts at {transfer.start}, before its tensor has "
                    f"left at {released}"
                )
            needed = self.schedule.starts[self.trace.gaps[gap].after]
            if transfer.end > needed:
                self.faults.append(
                    f"{self._label(transfer)} ends at {transfer.end}, after its tensor is needed "
                    f"at {needed}"
                )

    def _check_link(self) -> None:
        directions = [[kind] for kind in Kind] if self.problem.platform.duplex else [list(Kind)]
        for kinds in directions:
            queue = sorted(
                (t for t in self.schedule.transfers if t.kind in kinds), key=lambda t: t.start
            )
            for first, second in pairwise(queue):
                if second.start < first.end:
                    self.faults.append(
                        f"{self._label(second)} starts at {second.start} while "
                        f"{self._label(first)} uses the link until {first.end}"
                    )

    def _check_memory(self) -> None:
        self._check_limit("the start of the step", self._occupied_after(_START, 0, None))
        for index, operation in enumerate(self.trace.operations):
            start, end = self.schedule.starts[index], self.schedule.ends[index]
            occupied = self._occupied_during(index, start, None if end > start else start)
            self._check_limit(f"operation {index} ({operation.name}) at {start}", occupied)
        for transfer in self.prefetch_of.values():
            time = transfer.start
            running = next(
                (
                    index
                    for index, (start, end) in enumerate(
                        zip(self.schedule.starts, self.schedule.ends, strict=True)
                    )
                    if start <= time < end
                ),
                None,
            )
            if running is None:
                last = sum(1 for end in self.schedule.ends if end <= time) - 1
                occupied = self._occupied_after(last, time, None)
            else:
                occupied = self._occupied_during(running, time, None)
            self._check_limit(f"{self._label(transfer)} at {time}", occupied)

    def _check_limit(self, place: str, occupied: int) -> None:
        limit = self.problem.platform.memory
        if occupied > limit:
            self.faults.append(
                f"memory at {place} holds {occupied}, {occupied - limit} over the limit of {limit}"
            )

    def _occupied_during(self, operation: int, time: int, unseen_from: int | None) -> int:
        """Bytes while `operation` runs, at `time`; prefetches from `unseen_from` on do not count.

        An operation of no duration is over before a prefetch that starts at the same time takes
        anything.
        """
        occupied = self.trace.operations[operation].workspace
        for index, tensor in enumerate(self.trace.tensors):
            if tensor.uses[0] <= operation <= tensor.uses[-1]:
                opened = max((use for use in tensor.uses if use < operation), default=None)
                in_use = operation in tensor.uses
                if in_use or not self._absent(index, opened, time, unseen_from):
                    occupied += tensor.size
        return occupied

    def _occupied_after(self, operation: int, time: int, unseen_from: int | None) -> int:
        """Bytes between `operation` (-1: the start) and the next one, at `time`."""
        occupied = 0
        for index, tensor in enumerate(self.trace.tensors):
            if tensor.uses[0] <= operation < tensor.uses[-1]:
                opened = max(use for use in tensor.uses if use <= operation)
                if not self._absent(index, opened, time, unseen_from):
                    occupied += tensor.size
        return occupied

    def _absent(self, tensor: int, opened: int | None, time: int, unseen_from: int | None) -> bool:
        """Whether `tensor` is off the device at `time`, in the gap that use `opened` opens."""
        for gap, transfer in self.prefetch_of.items():
            candidate = self.trace.gaps[gap]
            if candidate.tensor == tensor and candidate.before == opened:
                back = (
                    transfer.start < unseen_from
                    if unseen_from is not None
                    else (transfer.start <= time)
                )
                return self._released(gap) <= time and not back
        return False

    def _released(self, gap: int) -> int:
        opened = self.trace.gaps[gap]
        return max(self.offload_of[opened.tensor].end, self._end(opened.before))

    def _end(self, operation: int) -> int:
        return 0 if operation == _START else self.schedule.ends[operation]

    def _exact_duration(self, size: int, kind: Kind) -> int:
        rate = self.problem.platform.rate(kind)
        whole, rest = divmod(size * rate.denominator, rate.numerator)
        return whole + (rest > 0)

    def _label(self, transfer: Transfer) -> str:
        if not 0 <= transfer.gap < len(self.trace.gaps):
            return f"the {transfer.kind} of gap {transfer.gap}"
        tensor = self.trace.tensors[self.trace.gaps[transfer.gap].tensor]
        return f"the {transfer.kind} of {tensor.name} (gap {transfer.gap})"
