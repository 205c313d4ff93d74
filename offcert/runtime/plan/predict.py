"""Device memory that a plan predicts: live bytes at every event. Needs no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.schedule import FluidSchedule, Schedule


class EvictionInterval(NamedTuple):
    """A stretch in which a tensor is off the device, by operations."""

    release: int  # Before it the tensor has left
    claim: int  # Before it the memory for its return is taken


@dataclass(frozen=True)
class Prediction:
    """A plan, operation by operation.

    Before an operation starts, first the tensors of its `releases` leave the device and then those
    of its `claims` come back. Live bytes are `at_begin` when it begins, after these and without
    what it is going to write, `at_end` when it has ended, and at most `peaks` while it runs,
    workspace included.
    """

    releases: tuple[tuple[int, ...], ...]
    claims: tuple[tuple[int, ...], ...]
    at_begin: tuple[int, ...]
    at_end: tuple[int, ...]
    peaks: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most live bytes at any time."""
        return max(self.peaks)

    @property
    def absences(self) -> dict[int, list[EvictionInterval]]:
        """When each tensor that moves is away, in the order in which they leave."""
        claims: dict[int, list[int]] = defaultdict(list)
        releases: dict[int, list[int]] = defaultdict(list)
        for operation, (gone, back) in enumerate(zip(self.releases, self.claims, strict=True)):
            for rows, tensors in ((releases, gone), (claims, back)):
                for tensor in tensors:
                    rows[tensor].append(operation)
        return {
            each: list(map(EvictionInterval, releases[each], claims[each])) for each in releases
        }


def predict(trace: Trace, plan: Plan | Schedule | FluidSchedule) -> Prediction:
    """Return the bytes on the device around and during each operation if `plan` is followed.

    Of a schedule only the decisions count, not the times.

    Raises
    ------
    InputError
        If the plan is a schedule that moves tensors in pieces.
    PlanError
        If it does not make sense on the trace: a transfer outside of its gap, or a tensor that
        comes back before it has left.
    """
    if isinstance(plan, FluidSchedule):
        raise InputError(
            f"the schedule moves tensors in {len(plan.pieces)} pieces, but training moves them "
            "whole: it needs a schedule for atomic transfers"
        )
    if isinstance(plan, Schedule):
        plan = plan.plan(trace)
    plan.require_consistent(trace)
    releases: dict[int, list[int]] = defaultdict(list)
    claims: dict[int, list[int]] = defaultdict(list)
    left = {move.gap: move.before for move in plan.moves if move.kind is Kind.OFFLOAD}
    for move in plan.moves:
        if move.kind is not Kind.PREFETCH:
            continue
        gap = trace.gaps[move.gap]
        # A tensor that has been offloaded before leaves again at once: the host has a copy.
        release = left.get(move.gap, gap.before + 1)
        if not gap.before < release <= move.before <= gap.after:
            raise PlanError(
                f"{trace.tensors[gap.tensor].name} is used by operations {gap.before} and "
                f"{gap.after}: it cannot leave before operation {release} and come back before "
                f"operation {move.before}"
            )
        releases[release].append(gap.tensor)
        claims[move.before].append(gap.tensor)
    moves = [
        [*((tensor, False) for tensor in releases[n]), *((tensor, True) for tensor in claims[n])]
        for n in range(len(trace))
    ]
    return predict_in_order(trace, moves)


def predict_in_order(trace: Trace, moves: Sequence[Sequence[tuple[int, bool]]]) -> Prediction:
    """Return the bytes on the device around and during each operation, for moves in order.

    For each operation, tensors leave (False) and come back (True) before it begins, in this order.
    What is on the device between two of them counts towards its peak if something has come back.
    """
    written, dying = written_and_dying(trace)
    live = trace.resident_at_start
    at_begin, at_end, peaks = [], [], []
    for index, operation in enumerate(trace.operations):
        most = 0
        for tensor, back in moves[index]:
            live += trace.tensors[tensor].size if back else -trace.tensors[tensor].size
            if back:
                most = max(most, live)
        at_begin.append(live)
        live += written[index]
        peaks.append(max(most, live + operation.workspace))
        live -= dying[index]
        at_end.append(live)
    return Prediction(
        tuple(tuple(tensor for tensor, back in each if not back) for each in moves),
        tuple(tuple(tensor for tensor, back in each if back) for each in moves),
        tuple(at_begin),
        tuple(at_end),
        tuple(peaks),
    )


def rounding(trace: Trace, storages: Iterable[tuple[int | None, int]], granule: int) -> int:
    """Return the most bytes that an allocator gives out beyond the sizes of tensors, in any plan.

    Each storage that is known, with its tensor and its bytes, is rounded up to a multiple of a
    granule: 512 bytes on a CUDA device (PyTorch's `kMinBlockSize`, c10/cuda/CUDACachingAllocator).
    Other tensors are one storage each, and so are temporaries within an operation, of which nothing
    more is known.
    """
    spare = [-each.size % granule for each in trace.tensors]
    known: dict[int, int] = defaultdict(int)
    for tensor, size in storages:
        if tensor is not None:
            known[tensor] += -size % granule
    for tensor, more in known.items():
        spare[tensor] = max(spare[tensor], more)
    live, most = 0, 0
    begins, ends = [0] * (len(trace) + 1), [0] * (len(trace) + 1)
    for each, more in zip(trace.tensors, spare, strict=True):
        begins[max(0, each.uses[0])] += more
        ends[each.uses[-1] + 1] += more
    for index, operation in enumerate(trace.operations):
        live += begins[index] - ends[index]
        most = max(most, live + -operation.workspace % granule)
    return most


def written_and_dying(trace: Trace) -> tuple[list[int], list[int]]:
    """Return, for each operation, the bytes that it writes and those that it uses last."""
    written, dying = [0] * len(trace), [0] * len(trace)
    for tensor in trace.tensors:
        if tensor.uses[0] >= 0:
            written[tensor.uses[0]] += tensor.size
        if tensor.uses[-1] >= 0:
            dying[tensor.uses[-1]] += tensor.size
    return written, dying
