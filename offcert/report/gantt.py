"""The Gantt chart of a schedule: device and link over the memory curve, as SVG or PNG.

Every bar says in an SVG file what it is when the mouse rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.units import format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.problem import Minimise, Problem, format_objective
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import TrainingRecord
from offcert.report.bars import (
    BOUND,
    HELD,
    LIMIT,
    LOOKS,
    Bar,
    Look,
    bars_of,
    joined,
    looks_of,
    rows_of,
    shown_looks,
    size_scale,
    time_scale,
)
from offcert.report.forecasts import draw_band, latest_end
from offcert.report.memory_curve import fluid_memory_curve, memory_curve
from offcert.report.svg import LEFT, LETTER, RIGHT, Axes, Element, drawing, element, save, ticks

# Pixels of the rows and their bars, of the memory's curve, and of the letters. Arbitrary.
_ROWS_TOP, _ROW, _BAR = 72, 30, 24
MEMORY = 190
_FONT = 11
# Pixels below whose width bars are drawn without stripes, which nobody would see. Arbitrary.
_STRIPED = 5.0
# In a notebook and in a file: bars beyond which bars are joined, and pixels to which they are
# joined at least. Arbitrary.
_NOTEBOOK, _FILE = (400, 4.0), (20_000, 0.5)


def save_gantt(certificate: Certificate, path: str | Path) -> None:
    """Draw a certificate's schedule into a PNG or SVG file."""
    if certificate.result.schedule is None:
        raise InputError("the certificate holds no schedule to draw")
    save(gantt_svg(certificate), path)


def gantt_svg(certificate: Certificate, *, width: int = 1100, whole: bool = True) -> Element:
    """Draw a certificate's schedule.

    Parameters
    ----------
    certificate : Certificate
        A certificate with a schedule.
    width : int
        Pixels.
    whole : bool
        Draw each of up to 20,000 operations and transfers on its own, as suits a file. Otherwise,
        or beyond that, what would be too narrow to be seen is joined, so that the picture stays
        small.
    """
    problem, schedule = certificate.executed, certificate.result.schedule
    assert schedule is not None
    if isinstance(schedule, Schedule):
        curve = steps(*memory_curve(problem, schedule))
    else:
        curve = [(float(t), float(size)) for t, size in fluid_memory_curve(problem, schedule)]
    rows = rows_of(problem)
    frame = Axes(
        width,
        max(schedule.makespan, _earliest_end(certificate), latest_end(certificate), 1),
        largest_shown(problem, max(int(size) for _, size in curve)),
        _ROWS_TOP + _ROW * len(rows) + 14,
        MEMORY,
    )
    root = picture(frame, f"{cut(problem.name, 48)}: {certificate.result.summary(problem.units)}")
    draw_band(root, frame, certificate)
    bars = list(bars_of(problem, schedule, looks_of(certificate)))
    most, pixels = _FILE if whole else _NOTEBOOK
    if len(bars) > most:
        bars = joined(bars, pixels / (frame.x(frame.end) - frame.x(0)) * frame.end)
    draw_legend(root, shown_looks(bars))
    for index, row in enumerate(rows):
        _draw_row(root, frame, index, row, [bar for bar in bars if bar.row == row])
    draw_memory(
        root,
        frame,
        problem,
        problem.platform.memory,
        [(curve, HELD, "on the device")],
        step=0.25 if whole else 1.0,
    )
    labels, unit = time_labels(problem, frame.end)
    draw_time_axis(root, frame, labels, f"time ({unit})")
    _draw_bound(root, frame, certificate)
    return root


def largest_shown(problem: Problem, peak: int) -> int:
    """Return the most bytes that a picture shows: the limit, unless it is far above everything."""
    limit = problem.platform.memory
    return max(1, (limit if peak <= limit <= 3 * peak else peak) * 16 // 15)


def steps(times: Iterable[int], held: Iterable[int]) -> list[tuple[float, float]]:
    """Return a curve that changes in steps as the corners of a line."""
    corners: list[tuple[float, float]] = []
    for time, size in zip(times, held, strict=True):
        if corners:
            corners.append((time, corners[-1][1]))
        corners.append((time, size))
    return corners


def picture(frame: Axes, title: str, looks: Mapping[str, Look] = LOOKS) -> Element:
    """Return an empty picture with a heading and what its bars are filled with."""
    height = int(frame.bottom) + 40
    attributes = {"style": "max-width:100%;height:auto"}
    root = drawing(frame.width, height, title, _FONT, **attributes)
    element(root, "text", title, x=LEFT, y=20, font_size=14, font_weight="600")
    stripes = element(root, "defs")
    lines = {"/": "M0,6 L6,0 M-1,1 L1,-1 M5,7 L7,5", "\\": "M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1"}
    lines |= {"|": "M3,0 L3,6", "-": "M0,3 L6,3", "x": "M0,0 L6,6 M6,0 L0,6"}
    for name, look in looks.items():
        if look.hatch:
            pattern = element(
                stripes,
                "pattern",
                id=f"offcert-{name}",
                width=6,
                height=6,
                patternUnits="userSpaceOnUse",
            )
            element(pattern, "rect", width=6, height=6, fill=look.colour)
            path = lines[look.hatch]
            element(pattern, "path", d=path, stroke=look.text, stroke_opacity=0.35, fill="none")
    return root


def fill_of(name: str, pixels: float, looks: Mapping[str, Look] = LOOKS) -> str:
    """Return the fill of a bar of so many pixels, by its look's name: a colour, or stripes."""
    striped = looks[name].hatch and pixels >= _STRIPED
    return f"url(#offcert-{name})" if striped else looks[name].colour


def draw_legend(root: Element, looks: Mapping[str, Look]) -> None:
    """Explain looks in a line under the heading."""
    x = float(LEFT)
    for name, look in looks.items():
        element(root, "rect", x=x, y=31, width=22, height=12, fill=fill_of(name, 12, looks))
        element(root, "text", look.name, x=x + 28, y=41)
        x += 28 + LETTER * len(look.name) + 24


def _draw_row(root: Element, frame: Axes, index: int, name: str, bars: Sequence[Bar]) -> None:
    top = _ROWS_TOP + _ROW * index
    group = element(root, "g", class_=f"row {name.replace(' ', '-')}")
    element(group, "text", name, x=LEFT - 8, y=top + 16, text_anchor="end")
    draw_bars(group, frame, bars, top, _BAR)


def draw_bars(
    group: Element, frame: Axes, bars: Iterable[Bar], top: float, height: int, before: str = ""
) -> None:
    """Draw the bars of a row, with so much before the title of each."""
    for bar in bars:
        left, right = frame.x(float(bar.start)), frame.x(float(bar.end))
        width = max(right - left, 0.4)
        rect = element(
            group, "rect", x=left, y=top, width=width, height=height, fill=fill_of(bar.look, width)
        )
        if width >= _STRIPED:
            rect.set("stroke", "#ffffff")
            rect.set("stroke-width", "0.6")
        element(rect, "title", f"{before}{bar.title}")
        _draw_label(group, bar, (left + right) / 2, top + height * 2 / 3, width)


def _draw_label(group: Element, bar: Bar, middle: float, y: float, width: float) -> None:
    """Write a bar's name on it if there is room for enough of it to be recognised."""
    letters = int((width - 6) / LETTER)
    if letters < min(len(bar.label), 8) or not bar.label:
        return
    look = LOOKS[bar.look]
    element(
        group,
        "text",
        cut(bar.label, letters),
        x=middle,
        y=y,
        text_anchor="middle",
        fill=look.text,
        # Stripes must not run through the letters.
        stroke=look.colour,
        stroke_width=3,
        paint_order="stroke",
        pointer_events="none",
    )


def draw_memory(
    root: Element,
    frame: Axes,
    problem: Problem | TrainingRecord,
    limit: int,
    curves: Sequence[tuple[Sequence[tuple[float, float]], str, str]],
    step: float,
) -> None:
    """Draw curves of bytes against time, and the limit.

    Parameters
    ----------
    problem : Problem or TrainingRecord
        The problem whose units the axis has.
    limit : int
        Bytes.
    curves : sequence of (corners, colour, name)
        The first is filled. Corners are (tick, bytes).
    step : float
        Pixels within which only the extremes of a curve are drawn.
    """
    group = element(root, "g", class_="memory")
    draw_sizes(group, frame, size_scale(problem, frame.largest), 5)
    for number, (corners, colour, name) in enumerate(curves):
        points = [(frame.x(time), frame.y(size)) for time, size in corners]
        line = "L".join(f"{x:.2f},{y:.2f}" for x, y in thinned(points, step))
        if number == 0:
            area = (
                f"M{points[0][0]:.2f},{frame.bottom} L{line} L{points[-1][0]:.2f},{frame.bottom} Z"
            )
            element(group, "path", d=area, fill=colour, fill_opacity=0.25)
        curve = element(group, "path", d=f"M{line}", stroke=colour, stroke_width=1.4, fill="none")
        element(curve, "title", name)
    height = max(frame.y(limit), frame.top)
    mark = element(
        group,
        "path",
        class_="limit",
        d=f"M{LEFT},{height:.2f} H{frame.width - RIGHT}",
        stroke=LIMIT,
        stroke_dasharray="7 4",
    )
    text = f"limit {format_size(limit, problem.units)}"
    text += ", higher than this" if limit > frame.largest else ""
    element(mark, "title", text)
    halo = {"stroke": "#ffffff", "stroke_width": 3, "paint_order": "stroke"}
    element(group, "text", text, x=LEFT + 6, y=height - 4, **halo)


def draw_sizes(group: Element, frame: Axes, unit: tuple[int, str], most: int) -> None:
    """Draw at most so many lines at round numbers of bytes, in a unit, with their texts."""
    scale, name = unit
    for value in ticks(frame.largest / scale, most):
        y = frame.y(value * scale)
        element(group, "path", d=f"M{LEFT},{y:.2f} H{frame.width - RIGHT}", stroke="#e4e4e4")
        element(group, "text", f"{value:g}", x=LEFT - 8, y=y + 4, text_anchor="end")
    element(group, "text", name, x=LEFT - 8, y=frame.top - 5, text_anchor="end")


def thinned(points: Sequence[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    """Return a line's corners with no more than four for every `step` of the first coordinate.

    What is kept of a step is the first corner, the last, and the extremes between.
    """
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0] / step), []).append(point)
    kept: list[tuple[float, float]] = []
    for column in columns.values():
        if len(column) <= 4:
            kept += column
            continue
        inner = range(1, len(column) - 1)
        low = min(inner, key=lambda index: column[index][1])
        high = max(inner, key=lambda index: column[index][1])
        kept += [column[index] for index in sorted({0, low, high, len(column) - 1})]
    return kept


def time_labels(
    problem: Problem | PlacementProblem | TrainingRecord, span: int
) -> tuple[list[tuple[float, str]], str]:
    """Return marks for an axis of so many ticks with their texts, and the unit of these."""
    scale, unit = time_scale(problem, span)
    return [(value * scale, f"{value:g}") for value in ticks(span / scale)], unit


def draw_time_axis(
    root: Element, frame: Axes, labels: Sequence[tuple[float, str]], name: str
) -> None:
    """Draw the axis under everything: marks at the ticks given, with their texts."""
    group = element(root, "g", class_="axis")
    y = frame.bottom
    element(group, "path", d=f"M{LEFT},{y} H{frame.width - RIGHT}", stroke="#444444")
    for time, text in labels:
        x = frame.x(time)
        element(group, "path", d=f"M{x:.2f},{y} V{y + 5}", stroke="#444444")
        element(group, "text", text, x=x, y=y + 17, text_anchor="middle")
    element(group, "text", name, x=frame.width - RIGHT, y=y + 32, text_anchor="end")


def _earliest_end(certificate: Certificate) -> int:
    """Return the lower bound in ticks; 0 if it is one of bytes."""
    in_ticks = certificate.problem.minimise is Minimise.TIME
    return certificate.result.lower_bound if in_ticks else 0


def _draw_bound(root: Element, frame: Axes, certificate: Certificate) -> None:
    """Mark the lower bound: no schedule ends before this line, or takes less memory."""
    result = certificate.result
    if not result.bounds:
        return
    text = f"lower bound {format_objective(result.lower_bound, certificate.problem)}"
    text += f" ({result.evidence})"
    if certificate.problem.minimise is Minimise.MEMORY:
        line = ("bound", 1.6, "2 3")
        draw_level(root, frame.width, frame.y(result.lower_bound), 13, text, BOUND, line)
        return
    x = frame.x(result.lower_bound)
    mark = element(
        root,
        "path",
        class_="bound",
        d=f"M{x:.2f},{_ROWS_TOP - 8} V{frame.bottom}",
        stroke=BOUND,
        stroke_width=1.6,
        stroke_dasharray="2 3",
    )
    element(mark, "title", text)
    left = x > frame.width / 2
    side = {"x": x - 4 if left else x + 4, "text_anchor": "end" if left else "start"}
    element(root, "text", text, y=_ROWS_TOP - 12, fill=BOUND, **side)


def draw_level(
    root: Element,
    width: int,
    y: float,
    below: int,
    text: str,
    colour: str,
    line: tuple[str, float, str],
) -> None:
    """Draw a line across a picture of `width` pixels, and `below` it a text at its right end.

    The line has a class, a thickness and dashes, as SVG writes them.
    """
    kind, thickness, dashes = line
    mark = element(
        root,
        "path",
        class_=kind,
        d=f"M{LEFT},{y:.2f} H{width - RIGHT}",
        stroke=colour,
        stroke_width=thickness,
        stroke_dasharray=dashes,
    )
    element(mark, "title", text)
    halo = {"stroke": "#ffffff", "stroke_width": 3, "paint_order": "stroke"}
    x = width - RIGHT - 6
    element(root, "text", text, x=x, y=y + below, fill=colour, text_anchor="end", **halo)
