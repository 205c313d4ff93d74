"""Tensors that the hooks around the outermost segments hear of, and who holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from offcert.core.carried.record import Sight, StepRecord
from offcert.core.carried.unread import kept_in
from offcert.core.carried.unroll import Span
from offcert.core.program import Segment

# Operation and tensor.
Row = tuple[int, Sight]


def entries(
    record: StepRecord,
    segments: Sequence[Segment],
    spans: Mapping[Segment, Span],
    stored: Mapping[int, Sequence[Sight]],
) -> tuple[list[Row], dict[int, tuple[int, int]]]:
    """Return the tensors that the hooks hear of, and the rows of storages that autograd holds on.

    A storage that is heard of again is known as long as the first of its tensors is held.

    Parameters
    ----------
    record : StepRecord
        The record of the captured step.
    segments : sequence of Segment
        The outermost segments.
    spans : mapping of Segment to Span
        The first run of each segment.
    stored : mapping of int to sequence of Sight
        The results of each kept computation that stay.

    Returns
    -------
    rows : list of (int, Sight)
        Operation and tensor, in the order in which hooks hear of them.
    lasting : dict of int to (int, int)
        For storages that autograd goes on holding, the operation and the number of the row.
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
    """Whether autograd holds a segment once it has returned: something is saved in it."""
    return any(span.enter <= sight.moment < span.leave for sight in record.saved)
