"""Space over time as SVG: every rectangle says what it is when the mouse rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcert.proofs.placement.certificate import PlacementCertificate
from offcert.report.gantt_svg import LEFT, RIGHT, draw_time_axis, picture
from offcert.report.scales import size_scale, time_scale
from offcert.report.space import (
    MOST_OUTLINED,
    SPACES,
    Space,
    largest_of,
    lines_of,
    shown_spaces,
    title_of,
)
from offcert.report.svg import Element, element, ticks, write

_WIDTH, _HEIGHT, _TOP = 1100, 440, 64
# Of a letter, on the average.
_LETTER = 6.3
# Narrower or lower rectangles are drawn without stripes, which nobody would see.
_STRIPED = 5.0


@dataclass(frozen=True)
class _Frame:
    """Where moments and bytes are on the picture."""

    begin: int
    end: int
    largest: int
    width: int

    def x(self, moment: float) -> float:
        part = (float(moment) - self.begin) / (self.end - self.begin)
        return LEFT + part * (self.width - LEFT - RIGHT)

    def y(self, size: float) -> float:
        return _TOP + _HEIGHT * (1 - float(size) / self.largest)

    @property
    def bottom(self) -> float:
        return _TOP + _HEIGHT


def space_svg(
    placed: PlacementCertificate, spaces: Sequence[Space], *, width: int = _WIDTH
) -> Element:
    """Draw addresses against time.

    Parameters
    ----------
    placed : PlacementCertificate
        With addresses.
    spaces : sequence of Space
        Its rectangles, or some of them.
    width : int
        Pixels.
    """
    residences = placed.problem.residences
    begin = min(0, min((residence.start for residence in residences), default=0))
    end = max((residence.end for residence in residences), default=1)
    frame = _Frame(begin, max(end, begin + 1), largest_of(placed) * 31 // 30 + 1, width)
    root = picture(frame, title_of(placed), SPACES)
    _draw_legend(root, spaces)
    _draw_sizes(root, frame, placed)
    group = element(root, "g", class_="spaces")
    outlined = len(spaces) <= MOST_OUTLINED
    for space in spaces:
        _draw_space(group, frame, space, outlined)
    scale, unit = time_scale(placed.problem, frame.end)
    labels = [(value * scale, f"{value:g}") for value in ticks(frame.end / scale)]
    draw_time_axis(root, frame, labels, f"time ({unit})")
    for size, text, colour in lines_of(placed):
        _draw_line(root, frame, size, text, colour)
    return root


def _fill(kind: str, width: float, height: float) -> str:
    striped = SPACES[kind].hatch and min(width, height) >= _STRIPED
    return f"url(#offcert-{kind})" if striped else SPACES[kind].colour


def _draw_legend(root: Element, spaces: Sequence[Space]) -> None:
    x = float(LEFT)
    for kind, look in shown_spaces(spaces).items():
        element(root, "rect", x=x, y=31, width=22, height=12, fill=_fill(kind, 22, 12))
        element(root, "text", look.name, x=x + 28, y=41)
        x += 28 + _LETTER * len(look.name) + 24


def _draw_sizes(root: Element, frame: _Frame, placed: PlacementCertificate) -> None:
    group = element(root, "g", class_="sizes")
    scale, unit = size_scale(placed.problem, frame.largest)
    for value in ticks(frame.largest / scale, 6):
        y = frame.y(value * scale)
        element(group, "path", d=f"M{LEFT},{y:.2f} H{frame.width - RIGHT}", stroke="#e4e4e4")
        element(group, "text", f"{value:g}", x=LEFT - 8, y=y + 4, text_anchor="end")
    element(group, "text", unit, x=LEFT - 8, y=_TOP - 5, text_anchor="end")


def _draw_space(group: Element, frame: _Frame, space: Space, outlined: bool) -> None:
    left, right = frame.x(space.start), frame.x(space.end)
    top, bottom = frame.y(space.high), frame.y(space.low)
    width, height = max(right - left, 0.4), max(bottom - top, 0.4)
    fill = _fill(space.kind, width, height)
    rect = element(group, "rect", x=left, y=top, width=width, height=height, fill=fill)
    if outlined:
        rect.set("stroke", "#ffffff")
        rect.set("stroke-width", "0.6")
    element(rect, "title", space.title)


def _draw_line(root: Element, frame: _Frame, size: int, text: str, colour: str) -> None:
    y = frame.y(size)
    mark = element(
        root,
        "path",
        class_="line",
        d=f"M{LEFT},{y:.2f} H{frame.width - RIGHT}",
        stroke=colour,
        stroke_width=1.4,
        stroke_dasharray="7 4",
    )
    element(mark, "title", text)
    halo = {"stroke": "#ffffff", "stroke_width": 3, "paint_order": "stroke"}
    x = frame.width - RIGHT - 6
    element(root, "text", text, x=x, y=y - 4, fill=colour, text_anchor="end", **halo)


def space_text(placed: PlacementCertificate, spaces: Sequence[Space]) -> str:
    """Return the drawing as the text of an SVG file."""
    root = space_svg(placed, spaces)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + write(root) + "\n"
