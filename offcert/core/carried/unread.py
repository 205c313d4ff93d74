"""Results of a segment that are kept, and those that are never read again.

That a computation does not run again does not mean that anybody asks for what it made: where all
that reads the query of an attention is kept as well, the query itself is of no use any more. Such
results are *unread*. They are not stored. When the segment runs again, a *stand-in* is handed out
in their place: a tensor of their shape, whose contents mean nothing. All stand-ins of a segment lie
in one storage, as large as the largest of them needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from offcert.core.carried.record import Sight, StepRecord
from offcert.core.carried.unroll import Span
from offcert.core.network import Network
from offcert.core.program import Program, Segment

# Operation and tensor.
Row = tuple[int, Sight]


def entries(
    record: StepRecord,
    segments: Sequence[Segment],
    spans: Mapping[Segment, Span],
    stored: Mapping[int, Sequence[Sight]],
) -> tuple[list[Row], dict[int, tuple[int, int]]]:
    """Return the tensors passed to saved-tensor hooks, and how long autograd holds storages.

    Of the outermost segments, with the first run of each, and the results of each kept computation
    that stay. Rows are in the order in which hooks hear of them. For storages that autograd goes on
    holding, the operation and the number of the row are returned; a storage that is heard of again
    is known as long as the first of its tensors is held.
    """
    rows: list[Row] = []
    lasting: dict[int, tuple[int, int]] = {}
    until: dict[int, float] = {}
    for moment, operation, sight, end in _heard(record, segments, spans, stored):
        storage = sight.storage
        if moment > until.get(storage, -1):
            rows.append((operation, sight))
            until[storage] = end
            lasting[storage] = operation, len(rows) - 1
        until[storage] = max(until[storage], end)
    return rows, {each: found for each, found in lasting.items() if until[each] == inf}


def _heard(
    record: StepRecord,
    segments: Sequence[Segment],
    spans: Mapping[Segment, Span],
    stored: Mapping[int, Sequence[Sight]],
) -> Iterable[tuple[float, int, Sight, float]]:
    """Yield moment, operation and tensor, and until when it is held: a moment, or infinity."""
    heard: list[tuple[float, int, Sight, float]] = []
    outermost = [spans[segment] for segment in segments]
    for sight in record.saved:
        if not any(span.enter <= sight.moment < span.leave for span in outermost):
            heard.append((sight.moment, record.operation(sight.moment), sight, inf))
    for segment, span in zip(segments, outermost, strict=True):
        before = span.enter - 1
        end = inf if outlasts(record, span) else span.leave
        given = record.operation(before)
        heard += [(before + 0.5, given, each, end) for each in span.inputs]
        heard += [
            (sight.moment, computation, sight, end)
            for computation in sorted(kept_in(segment))
            for sight in stored[computation]
        ]
    heard.sort(key=lambda each: each[0])
    return (each for each in heard if each[2].storage >= 0)


def outlasts(record: StepRecord, span: Span) -> bool:
    """Whether autograd holds a segment after its forward pass, as a tensor is saved in it."""
    return any(span.enter <= sight.moment < span.leave for sight in record.saved)


@dataclass(frozen=True)
class KeptResults:
    """Results that the segments of a program keep."""

    # For each computation that is kept, its operators' results that stay, and that do not.
    stored: Mapping[int, tuple[Sight, ...]]
    unread: Mapping[int, tuple[Sight, ...]]
    # For each computation that is kept, which of all results of its operators are unread.
    places: Mapping[int, tuple[int, ...]]
    # For each outermost segment the bytes of the storage in which its stand-ins lie.
    stand_in: Mapping[Segment, int]


def kept_in(segment: Segment) -> set[int]:
    """Return the computations whose results are kept in a segment, or in those inside of it."""
    return set(segment.kept).union(*(inner.kept for inner in segment.nested()))


class Lasting:
    """Results of a recorded step that may be read again, whatever else is kept.

    That is what autograd saves, or the backward pass reads, and what takes part in changes in
    place: as an operand, as a result, or as what is changed. They are `values` of the network, and
    `storages` that are empty, or lie in none of its values.
    """

    def __init__(self, network: Network, record: StepRecord) -> None:
        saved = {sight.storage for sight in record.saved}
        changing = {
            number
            for number, each in enumerate(network.computations)
            if any(network.values[value].base is not None for value in each.writes)
        }
        makers: dict[int, set[int]] = {}
        for computation, sights in record.made_in.items():
            for sight in sights:
                makers.setdefault(sight.storage, set()).add(computation)
        self.storages = frozenset(
            storage
            for storage, (size, value) in enumerate(record.storages)
            if not size
            or (value < 0 and (storage in saved or makers.get(storage, set()) & changing))
        )
        lasting = set()
        for value, each in enumerate(network.values):
            if each.base is not None:
                lasting |= {value, each.base}
            storages = record.of_value.get(value, ())
            made = set().union(*(makers.get(storage, set()) for storage in storages))
            used = {*made, *network.readers[value]}
            again = all(network.computations[number].repeatable for number in used)
            alone = made == {network.writer[value]} and not saved.intersection(storages)
            if not (alone and again and each.size) or used & changing:
                lasting.add(value)
        self.values = frozenset(lasting)


def keeping(
    network: Network,
    record: StepRecord,
    program: Program,
    inputs: Mapping[Segment, Sequence[Sight]],
    *,
    stand_ins: bool = True,
) -> KeptResults:
    """Return the results that are kept in the segments of a program.

    `inputs` are the tensors that each segment is given, also those inside of others. Without
    `stand_ins` all that is kept stays, also what nobody needs again.
    """
    lasting = Lasting(network, record)
    stored: dict[int, tuple[Sight, ...]] = {}
    unread: dict[int, tuple[Sight, ...]] = {}
    places: dict[int, tuple[int, ...]] = {}
    stand_in: dict[Segment, int] = {}
    for segment in program.segments:
        kept = kept_in(segment)
        # What runs again later is given these once more.
        again = {sight.storage for inner in segment.nested() for sight in inputs[inner]} - {-1}
        given = {record.storages[storage][1] for storage in again} - {-1}
        largest = 0
        for computation in kept:
            sights = record.made_in.get(computation, ())
            gone = {
                sight.storage
                for sight in sights
                if stand_ins
                and record.storages[sight.storage][1] not in given
                and sight.storage not in again
                and _is_unread(network, record, lasting, segment, kept, sight.storage)
            }
            stored[computation] = tuple(each for each in sights if each.storage not in gone)
            unread[computation] = tuple(each for each in sights if each.storage in gone)
            every = record.all_made_in.get(computation, ())
            places[computation] = tuple(n for n, each in enumerate(every) if each.storage in gone)
            largest = max([largest, *(record.storages[each][0] for each in gone)])
        stand_in[segment] = largest
    return KeptResults(stored, unread, places, stand_in)


def _is_unread(
    network: Network,
    record: StepRecord,
    lasting: Lasting,
    segment: Segment,
    kept: set[int],
    storage: int,
) -> bool:
    value = record.storages[storage][1]
    if value < 0 or storage in lasting.storages:
        return storage not in lasting.storages
    readers = (each for each in network.readers[value] if each in segment)
    return value not in lasting.values and kept.issuperset(readers)
