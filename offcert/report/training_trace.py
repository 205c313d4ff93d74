"""A training record as a trace for Perfetto (ui.perfetto.dev) or Chrome (chrome://tracing).

Two processes, "planned" and "measured", have a track each for the operators and for the copies to
the host and back, and a counter of live bytes. What the operators wait for is a slice as well. The
format is the JSON of Chrome's trace events, whose times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.core.platform import Kind
from offcert.questions.schedule.training_record import Course, TrainingRecord

Event = dict[str, Any]

# Nanoseconds in a microsecond, and the numbers of the tracks. By definition.
_MICROSECOND = 1000
_COMPUTE = 1
_TRACKS = {Kind.OFFLOAD: 2, Kind.PREFETCH: 3}
_TRACK_NAMES = {_COMPUTE: "compute", 2: "to host", 3: "to device"}


def write_trace(path: str | Path, record: TrainingRecord) -> None:
    """Write a trace, through a temporary file."""
    write_json(path, trace_of(record))


def trace_of(record: TrainingRecord) -> dict[str, Any]:
    """Return a trace as a JSON value."""
    courses = {"planned": record.planned, "measured": record.measured}
    events: list[Event] = []
    for number, (name, course) in enumerate(courses.items(), 1):
        if course is not None:
            events += _names(name, number)
            events += _process(record, course, number)
    errors = {name: value for name, value in record.errors().items() if value is not None}
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "name": record.name,
            "problem_sha256": record.problem,
            "device": record.device_name,
            "limit": record.limit,
            **dict(record.versions),
            **{f"error: {name}": value for name, value in errors.items()},
        },
    }


def _names(name: str, process: int) -> Iterator[Event]:
    yield _meta("process_name", process, name=name)
    yield _meta("process_sort_index", process, sort_index=process)
    for track, title in _TRACK_NAMES.items():
        yield _meta("thread_name", process, track, name=title)
        yield _meta("thread_sort_index", process, track, sort_index=track)


def _meta(kind: str, process: int, track: int = 0, **values: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": values}


def _process(record: TrainingRecord, course: Course, process: int) -> Iterator[Event]:
    schedule = course.schedule
    out, back = (course.moved(kind, record.sizes) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    # A step that has gone astray may have run what was not to run.
    names = [*record.operations, *["?"] * len(course)]
    for index, name in enumerate(names[: len(course)]):
        start, end, stall = schedule.starts[index], schedule.ends[index], course.stalls[index]
        if stall > 0:
            yield _slice("stall", "stall", process, _COMPUTE, start - stall, start, before=name)
        numbers = {"operation": index, "out bytes": out[index], "back bytes": back[index]}
        if course.peaks:
            numbers |= {
                "live at begin": course.at_begin[index],
                "live at end": course.at_end[index],
                "peak": course.peaks[index],
            }
        yield _slice(name, "operation", process, _COMPUTE, start, end, **numbers)
    for transfer in schedule.transfers:
        moved = record.moved.get(transfer.gap)
        yield _slice(
            "late" if moved is None else moved.tensor,
            str(transfer.kind),
            process,
            _TRACKS[transfer.kind],
            transfer.start,
            transfer.end,
            gap=transfer.gap,
            bytes=None if moved is None else moved.size,
        )
    for time, size in course.live():
        yield {
            "ph": "C",
            "name": "live bytes",
            "pid": process,
            "ts": time / _MICROSECOND,
            "args": {"bytes": size},
        }


def _slice(
    name: str, category: str, process: int, track: int, start: int, end: int, **values: Any
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": track,
        "ts": start / _MICROSECOND,
        "dur": (end - start) / _MICROSECOND,
        "args": values,
    }
