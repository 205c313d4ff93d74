"""The picture of a training record: rows of operations and transfers over the memory curves.

`write_trace` writes a record for Perfetto (ui.perfetto.dev) or Chrome (chrome://tracing). Two
processes, "planned" and "measured", have a track each for the operators and for the copies to the
host and back, and a counter of live bytes. What the operators wait for is a slice as well. The
format is the JSON of Chrome's trace events, whose times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.units import format_time
from offcert.questions.schedule.training_record import Course, TrainingRecord
from offcert.report.bars import (
    AGAIN,
    BOUND,
    DEVICE,
    HELD,
    LINK,
    LINK_BACK,
    RUN_AGAIN,
    WAITS,
    Bar,
    joined,
    shown_looks,
)
from offcert.report.gantt import (
    MEMORY,
    draw_bars,
    draw_legend,
    draw_memory,
    draw_time_axis,
    picture,
    steps,
    time_labels,
)
from offcert.report.svg import LEFT, Axes, Element, element, save

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


# The factor by which times may differ to be compared in one picture. Arbitrary.
_ALIKE = 2
# Pixels of the picture's width, from the top to the rows, and of a row and its bars. Arbitrary.
_WIDTH, _TOP, _ROW, _BAR = 1100, 62, 24, 20
# Bars of a row beyond which they are joined, and pixels to which they are joined. Arbitrary.
_MOST, _PIXELS = 5000, 0.5


def training_svg(record: TrainingRecord) -> Element:
    """Draw the work of device and link against time, planned above measured, and the memory.

    Measured bytes are drawn only if they were counted.
    """
    rows = (DEVICE, LINK, LINK_BACK) if record.duplex else (DEVICE, LINK)
    top = _TOP + 2 * _ROW * len(rows) + 30
    largest = max(record.limit, record.predicted_peak, *_measured_sizes(record), 1)
    frame = Axes(_WIDTH, span_of(record), largest * 16 // 15, top, MEMORY)
    root = picture(frame, f"{cut(record.name, 48)}: {said_of_times(record)}")
    shown: list[Bar] = []
    for number, (name, (course, factor)) in enumerate(courses_of(record).items()):
        bars = list(bars_of_course(record, course, factor))
        shown += bars
        for index, row in enumerate(rows):
            at = _TOP + _ROW * (2 * index + number)
            _draw_row(root, frame, at, row, name, [bar for bar in bars if bar.row == row])
    draw_legend(root, shown_looks(shown))
    draw_memory(root, frame, record, record.limit, list(_curves(record)), step=0.25)
    labels, unit = time_labels(record, frame.end)
    draw_time_axis(root, frame, labels, f"time ({unit})")
    return root


def _draw_row(
    root: Element, frame: Axes, top: float, row: str, name: str, bars: Sequence[Bar]
) -> None:
    group = element(root, "g", class_=f"row {row.replace(' ', '-')} {name}")
    said, colour = (row, "#000000") if name == "planned" else (name, "#666666")
    element(group, "text", said, x=LEFT - 8, y=top + 14, text_anchor="end", fill=colour)
    if len(bars) > _MOST:
        bars = joined(list(bars), _PIXELS / (frame.x(frame.end) - frame.x(0)) * frame.end)
    draw_bars(group, frame, bars, top, _BAR, f"{name}: ")


def _measured_sizes(record: TrainingRecord) -> list[int]:
    return [] if record.measured is None else [size for _, size in record.measured.live()]


def _curves(record: TrainingRecord) -> Iterator[tuple[list[tuple[float, float]], str, str]]:
    """Yield corners, colours and names of the bytes that are planned, and of those measured."""
    for name, (course, factor) in courses_of(record).items():
        points = list(course.live())
        if points:
            times, sizes = zip(*points, strict=True)
            corners = [(time * factor, size) for time, size in steps(times, sizes)]
            yield corners, HELD if name == "planned" else BOUND, name


def courses_of(record: TrainingRecord) -> dict[str, tuple[Course, float]]:
    """Return the courses to be drawn, each with the factor by which it is stretched.

    Where one step lasts more than twice as long as the other, as on another device than the one
    that was planned for, the planned one is drawn as long as the measured one.
    """
    found = {"planned": (record.planned, 1.0)}
    measured = record.measured
    if measured is not None and len(measured):
        found["measured"] = measured, 1.0
        ratio = measured.schedule.makespan / max(record.predicted_time, 1)
        if not 1 / _ALIKE <= ratio <= _ALIKE:
            found["planned"] = record.planned, ratio
    return found


def span_of(record: TrainingRecord) -> int:
    """Return the latest time that is shown."""
    ends = [factor * course.schedule.makespan for course, factor in courses_of(record).values()]
    return max(1, *map(round, ends))


def bars_of_course(record: TrainingRecord, course: Course, factor: float = 1.0) -> Iterator[Bar]:
    """Yield a bar for every wait, operation and transfer of a step, `factor` times as long."""
    schedule, units = course.schedule, record.units

    def bar(row: str, look: str, start: int, end: int, label: str, what: str) -> Bar:
        title = f"{what}: {format_time(start, units)} to {format_time(end, units)}"
        return Bar(row, look, round(start * factor), round(end * factor), label, title)

    rows = zip(record.operations, looks_by_name(record.operations), strict=True)
    for index, (name, look) in enumerate(islice(rows, len(course))):
        start, stall = schedule.starts[index], course.stalls[index]
        name = cut(name, 80)
        if stall > 0:
            yield bar(DEVICE, WAITS, start - stall, start, "", "waits")
        yield bar(DEVICE, look, start, schedule.ends[index], name, name)
    for transfer in schedule.transfers:
        back = record.duplex and transfer.kind is Kind.PREFETCH
        row = LINK_BACK if back else LINK
        yield bar(row, str(transfer.kind), transfer.start, transfer.end, "", str(transfer.kind))


def looks_by_name(operations: tuple[str, ...]) -> list[str]:
    """Return a key of `LOOKS` for each operation: names tell what runs again, and which pass."""
    backward = (index for index, name in enumerate(operations) if name.startswith("B:"))
    turn = next(backward, len(operations) // 2)
    return [
        AGAIN if RUN_AGAIN.search(name) else "forward" if index < turn else "backward"
        for index, name in enumerate(operations)
    ]


def save_training(record: TrainingRecord, path: str | Path) -> None:
    """Draw a record into a PNG or SVG file."""
    save(training_svg(record), path)


def said_of_times(record: TrainingRecord) -> str:
    """Return in words how long the step took, and how long it should have."""
    predicted = format_time(record.predicted_time, record.units)
    if record.measured_time is None:
        return f"planned {predicted}, not measured"
    measured, error = format_time(record.measured_time, record.units), record.errors()["time"]
    beyond = "" if error is None else f" ({100 * error:+.2f} %)"
    factor = courses_of(record)["planned"][1]
    if factor != 1:
        digits = ".0f" if factor >= 10 else ".2g"
        beyond, predicted = "", f"{predicted} (drawn {factor:{digits}} times as long)"
    return f"planned {predicted}, measured {measured}{beyond} on {record.device_name}"
