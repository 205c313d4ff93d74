"""The picture of a training record: rows of operations and transfers over the memory curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.core.documents import write_atomically
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.units import format_time
from offcert.questions.schedule.training_record import Course, TrainingRecord
from offcert.report.bars import (
    AGAIN,
    BOUND,
    DEVICE,
    HELD,
    LIMIT,
    LINK,
    LINK_BACK,
    LOOKS,
    RUN_AGAIN,
    size_scale,
    time_scale,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_STALL, _STALL_COLOUR = "waits", "#d9d9d9"
_COURSES = ("planned", "measured")
# The factor by which times may differ to be compared in one picture. Arbitrary.
_ALIKE = 2
# Part of the picture's width that a letter takes: a bar too short for its name has none. Assumed.
_PART_PER_LETTER = 0.0085


def plot_training_rows(record: TrainingRecord, ax: Axes | None = None) -> Axes:
    """Draw what the device and the link do against time: as planned, and below it as measured.

    Parameters
    ----------
    record : TrainingRecord
        What is drawn.
    ax : Axes, optional
        Of matplotlib; by default new ones.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    scale, time = time_scale(record, span_of(record))
    rows = (DEVICE, LINK, LINK_BACK) if record.duplex else (DEVICE, LINK)
    heights = {
        (row, name): 2.4 * (len(rows) - 1 - number) + (1.1 if name == "planned" else 0.1)
        for number, row in enumerate(rows)
        for name in _COURSES
    }
    shown: set[str] = set()
    for name, (course, factor) in courses_of(record).items():
        bars = list(_bars(record, course))
        at = {row: heights[row, name] for row in rows}
        _plot_bars(bars, at, factor / scale, ax)
        _plot_names(bars, heights[DEVICE, name] + 0.45, factor, span_of(record), scale, ax)
        shown |= {bar.look for bar in bars}
    for look in (*LOOKS, _STALL):
        if look in shown:
            colour = _STALL_COLOUR if look == _STALL else LOOKS[look].colour
            label = look if look == _STALL else LOOKS[look].name
            ax.broken_barh([], (0, 0), facecolor=colour, label=label)
    labels = [f"{row} {name}" for row, name in heights]
    ax.set_yticks([height + 0.45 for height in heights.values()], labels)
    ax.set_xlabel(f"time ({time})")
    ax.set_xlim(left=0)
    ax.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return ax


def courses_of(record: TrainingRecord) -> dict[str, tuple[Course, float]]:
    """Return what is drawn, and how many times as long as it is.

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


@dataclass(frozen=True, slots=True)
class _Bar:
    row: str
    look: str
    start: int
    end: int
    label: str = ""


def _plot_bars(bars: list[_Bar], heights: dict[str, float], factor: float, ax: Axes) -> None:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for bar in bars:
        times = bar.start * factor, (bar.end - bar.start) * factor
        groups.setdefault((bar.row, bar.look), []).append(times)
    for (row, look), times_of in groups.items():
        colour = _STALL_COLOUR if look == _STALL else LOOKS[look].colour
        ax.broken_barh(times_of, (heights[row], 0.9), facecolor=colour, lw=0)


def _plot_names(
    bars: list[_Bar], height: float, factor: float, span: int, scale: int, ax: Axes
) -> None:
    for bar in bars:
        part = (bar.end - bar.start) * factor / span
        if bar.label and part >= _PART_PER_LETTER * (len(bar.label) + 1):
            ax.text(
                (bar.start + bar.end) / 2 * factor / scale,
                height,
                bar.label,
                color=LOOKS[bar.look].text,
                fontsize=7,
                ha="center",
                va="center",
                parse_math=False,
            )


def _bars(record: TrainingRecord, course: Course) -> Iterator[_Bar]:
    schedule = course.schedule
    rows = zip(record.operations, looks_by_name(record.operations), strict=True)
    for index, (name, look) in enumerate(islice(rows, len(course))):
        start, stall = schedule.starts[index], course.stalls[index]
        if stall > 0:
            yield _Bar(DEVICE, _STALL, start - stall, start)
        yield _Bar(DEVICE, look, start, schedule.ends[index], name)
    for transfer in schedule.transfers:
        back = record.duplex and transfer.kind is Kind.PREFETCH
        row = LINK_BACK if back else LINK
        yield _Bar(row, str(transfer.kind), transfer.start, transfer.end)


def looks_by_name(operations: tuple[str, ...]) -> list[str]:
    """Return a key of `LOOKS` for each operation: names tell what runs again, and which pass."""
    backward = (index for index, name in enumerate(operations) if name.startswith("B:"))
    turn = next(backward, len(operations) // 2)
    return [
        AGAIN if RUN_AGAIN.search(name) else "forward" if index < turn else "backward"
        for index, name in enumerate(operations)
    ]


def plot_training_memory(record: TrainingRecord, ax: Axes | None = None) -> Axes:
    """Draw the bytes on the device against time, and the limit.

    Parameters
    ----------
    record : TrainingRecord
        What is drawn; measured bytes only if they were counted.
    ax : Axes, optional
        Of matplotlib; by default new ones.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    scale, time = time_scale(record, span_of(record))
    unit, label = size_scale(record, max(record.limit, record.predicted_peak))
    for name, (course, factor) in courses_of(record).items():
        points = list(course.live())
        if not points:
            continue
        colour = HELD if name == "planned" else BOUND
        times = [at * factor / scale for at, _ in points]
        sizes = [size / unit for _, size in points]
        if name == "planned":
            ax.fill_between(times, sizes, step="post", alpha=0.25, color=colour, lw=0)
        style = "-" if name == "planned" else (0, (4, 1))
        ax.step(times, sizes, where="post", color=colour, lw=1.2, ls=style, label=name)
    ax.axhline(record.limit / unit, color=LIMIT, linestyle="--", label="limit")
    ax.set_ylabel(f"live memory ({label})")
    ax.set_xlabel(f"time ({time})")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower center", ncols=3, facecolor="white", edgecolor="none")
    return ax


_FORMATS = (".png", ".svg")


def save_training(record: TrainingRecord, path: str | Path) -> None:
    """Draw a record into a PNG or SVG file; the same record gives the same SVG, byte by byte.

    Raises
    ------
    InputError
        If the file name ends in neither ``.png`` nor ``.svg``, or it cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InputError(f"{path} must end in .png or .svg")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    # Without a salt of their own, and with a date, two SVG files of the same figure differ.
    settings: Any = {"svg.hashsalt": "offcert"}
    with mpl.rc_context(settings):
        figure, (rows, memory) = plt.subplots(
            2, 1, figsize=(11, 6.2), sharex=True, height_ratios=[3, 3], layout="constrained"
        )
        try:
            plot_training_rows(record, rows)
            plot_training_memory(record, memory)
            rows.set_xlabel("")
            figure.suptitle(f"{cut(record.name)}: {said_of_times(record)}", parse_math=False)
            metadata = {"Date": None} if suffix == ".svg" else None
            write_atomically(path, lambda part: figure.savefig(part, dpi=130, metadata=metadata))
        finally:
            plt.close(figure)


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
