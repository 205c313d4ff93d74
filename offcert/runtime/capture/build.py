"""From a recording to a trace, for a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from offcert.core.carried.ranges import NO_RANGES
from offcert.core.errors import InputError, OffcertError
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace
from offcert.runtime.capture.capture import Capture, Clock, number_places
from offcert.runtime.capture.moments import CutStep, Life, StorageGroup
from offcert.runtime.capture.network import RecordBuilder, build_network
from offcert.runtime.capture.ranges import RangeFinder
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.watch.events import END

# Bytes below which storages that are used together are one tensor: to decide about each alone gains
# nothing, and networks have hundreds of statistics of a few hundred bytes. Arbitrary.
_SMALL = 2**16


def build(recorder: Recorder, clock: Clock, tensors: str, uncounted: Mapping[str, int]) -> Capture:
    """Return the capture of the recorded step, up to the end of the last backward pass.

    `tensors` and `uncounted` are those of the capture; with the clock of modules it says how parts
    run again. A recording without a backward pass through the model is an `InputError`.
    """
    moments = recorder.moments
    if not moments:
        raise InputError("the step does not call the model where gradients are recorded")
    ends = [index for index, moment in enumerate(moments) if moment.event.kind == END]
    if not ends:
        raise InputError("no backward pass goes through the model")
    cut = CutStep(moments[: ends[-1] + 1], clock)
    groups = _groups(recorder.lives, cut)
    made, tensor_of = _tensors(groups, cut)
    trace = Trace(_operations(made, cut), made)
    # What autograd has dropped and saved again, it holds as it was saved last.
    latest = {id(saved.storage): saved for saved in recorder.saved}
    rows = (
        (
            cut.operation(saved.moment),
            saved.size,
            saved.dtype,
            saved.shape,
            tensor_of.get(id(saved.storage)) if saved is latest[id(saved.storage)] else None,
        )
        for saved in recorder.saved
    )
    ticks = tuple(cut.moments[tick].event for tick in cut.ticks)
    network: Network | None = build_network(recorder, cut, groups, trace.operations)
    again = any(each.storage and each is not latest[id(each.storage)] for each in recorder.saved)
    if network is not None and (again or network.trace() != trace):
        # A program that changes in place what may have left meanwhile, or has autograd save anew
        # what it has dropped: offloading follows it, but what runs again could not be told from it.
        network = None
    ranges, record = NO_RANGES, None
    if clock is Clock.MODULES and network is not None:
        ranges = RangeFinder(recorder, cut).ranges()
        record = RecordBuilder(recorder, cut, groups).record(trace.operations)
    return Capture(
        trace,
        clock,
        ticks,
        number_places(rows),
        tuple(recorder.calls),
        recorder.backward_passes,
        tensors,
        recorder.hooks.parts.device,
        uncounted,
        network,
        ranges,
        record,
        tuple(recorder.nodes),
        recorder.autocast,
        attention=recorder.attention,
    )


def _groups(lives: Sequence[Life], cut: CutStep) -> list[StorageGroup]:
    groups: dict[tuple[object, ...], StorageGroup] = {}
    last = len(cut.moments) - 1
    for life in lives:
        record = life.record
        if record.size == 0 or record.born > last:
            continue
        born = cut.operation(record.born)
        died = cut.operation(last if record.died is None else min(record.died, last))
        if born == died:
            continue
        uses = _uses(life, born, died, cut) if life.saved_at is not None else (born, died)
        evictable = any(after - before > 1 for before, after in pairwise(uses))
        evictable = evictable and life.saved_at is not None
        if not evictable:
            uses = (born, died)
        alone = evictable and record.size >= _SMALL
        key = (uses, evictable, id(life) if alone else None)
        group = groups.setdefault(key, StorageGroup(uses, evictable))
        group.size += record.size
        group.lives.append(life)
    return sorted(groups.values(), key=lambda group: (group.uses[0], group.uses))


def _uses(life: Life, born: int, died: int, cut: CutStep) -> tuple[int, ...]:
    assert life.saved_at is not None
    last = len(cut.moments) - 1
    uses = {born, died}
    uses.update(cut.operation(moment) for moment in life.touched if moment <= last)
    # What autograd has not saved yet cannot leave.
    uses.update(range(born, cut.operation(life.saved_at) + 1))
    for first, end in life.held:
        uses.update(range(cut.operation(first), cut.operation(min(end, last)) + 1))
    return tuple(sorted(use for use in uses if born <= use <= died))


def _tensors(groups: Sequence[StorageGroup], cut: CutStep) -> tuple[list[Tensor], dict[int, int]]:
    """Return tensors, and the number of the tensor for the `id` of each evictable life."""
    tensors = []
    tensor_of: dict[int, int] = {}
    seen: Counter[str] = Counter()
    for index, group in enumerate(groups):
        side, _, where = cut.names[group.uses[0]].partition(":")
        base = f"{'g' if side == 'B' else 'x'}:{where}"
        seen[base] += 1
        group.name = base if seen[base] == 1 else f"{base}.{seen[base]}"
        tensors.append(Tensor(group.name, group.size, group.uses, group.evictable))
        if group.evictable:
            tensor_of.update({id(life): index for life in group.lives})
    return tensors, tensor_of


def _operations(tensors: Sequence[Tensor], cut: CutStep) -> list[Operation]:
    count = len(cut)
    during, after = [0] * (count + 1), [0] * (count + 1)
    for tensor in tensors:
        first, final = tensor.uses[0], tensor.uses[-1]
        during[first] += tensor.size
        during[final + 1] -= tensor.size
        after[first] += tensor.size
        after[final] -= tensor.size
    operations = []
    held = left = 0
    for index, name in enumerate(cut.names):
        held += during[index]
        left += after[index]
        counted = cut.live_after(index)
        # What the caller keeps outlives the step; no trace can say that.
        if left != counted and index < count - 1:
            raise OffcertError(f"{counted} bytes are alive after {name}, but the trace has {left}")
        moments = cut.moments_of(index)
        peak = max(moment.peak for moment in moments)
        duration = sum(moment.duration for moment in moments)
        operations.append(Operation(name, duration, max(0, peak - held)))
    return operations
