"""The figures of `offcert_lab.comparisons.curves`: one a problem, and grids of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.report.svg import LETTER, Element, drawing, element, require_picture, save, ticks
from offcert_lab.comparisons.curves import Curves, Quantity

# Okabe and Ito's colours, which people tell apart however they see colours; dashes differ too.
# Points become smaller in the order of drawing, so that methods with the same schedule all show.
_STYLES = {
    "dynprog": ("#0072b2", "", 4.5),
    "greedy": ("#d55e00", "7 3", 3.6),
    "vdnn": ("#009e73", "2 3", 3.3),
    "autoswap": ("#cc79a7", "9 3 2 3", 2.4),
    "tflms": ("#e69f00", "4 2", 2.4),
}
_SPARE_STYLES = (
    ("#56b4e9", "", 2.4),
    ("#8c6d31", "7 3", 2.4),
    ("#7f3c8d", "2 3", 2.4),
    ("#5f6f52", "9 3 2 3", 2.4),
)
Style = tuple[str, str, float]
_BLACK, _BAND, _SHADE, _FRAME = "#000000", "#9a9a9a", "#eeeeee", "#444444"
# Columns of panels, and panels of a picture. Arbitrary.
_MOST_COLUMNS = 4
MOST_PANELS = 40
# Bytes of a GiB. By definition.
_GIB = 2**30
# Pixels: of the one panel's axes and of those of several; left of axes, above them, below them,
# and right of them; of a line of the legend. Arbitrary.
_ONE, _SEVERAL = (540, 330), (222, 150)
_LEFT, _TOP, _BOTTOM, _RIGHT = 58, 26, 40, 12
_LEGEND = 18
_AXES = {
    Quantity.MAKESPAN: "makespan / bound of Prop. 3",
    Quantity.THROUGHPUT: "images per second",
    Quantity.SLOWDOWN: "makespan / computing time",
}
_OPTIMUM, _OPEN = "certified optimum", "best schedule, optimality open"
_BAND_NAME = "between best schedule and proved bound"
_INFEASIBLE = "infeasible"

Corner = tuple[float, float]


def save_grid(panels: Sequence[Curves], path: str | Path) -> None:
    """Draw problems into an SVG or PNG file, a panel each, with one legend below.

    The same curves give the same SVG, byte by byte.

    Raises
    ------
    InputError
        If the file name ends in neither ``.svg`` nor ``.png``, or it cannot be written, and if
        there are no panels or more than can be read.
    """
    require_picture(path)
    save(grid_svg(panels), path)


def grid_svg(panels: Sequence[Curves]) -> Element:
    """Return the picture with one panel a problem.

    Raises
    ------
    InputError
        If there are no panels or more than can be read.
    """
    if not 0 < len(panels) <= MOST_PANELS:
        raise InputError(f"a figure holds 1 to {MOST_PANELS} problems, not {len(panels)}")
    single = len(panels) == 1
    columns = min(len(panels), _MOST_COLUMNS)
    wide, high = _ONE if single else _SEVERAL
    top = _TOP + (36 if single else 0)
    across, down = _LEFT + wide + _RIGHT, top + high + _BOTTOM
    rows = math.ceil(len(panels) / columns)
    styles = styles_of(panels)
    entries = list(_legend(panels, styles))
    width = max(across * columns, 620)
    beside = min(len(entries), 2 if width < 900 else 4)
    lines = math.ceil(len(entries) / max(beside, 1))
    name = cut(panels[0].problem, 80) if single else f"{len(panels)} problems"
    root = drawing(width, down * rows + _LEGEND * lines + 10, f"{name}: methods by memory", 11)
    for number, curves in enumerate(panels):
        left, above = across * (number % columns) + _LEFT, down * (number // columns) + top
        panel = Panel(curves, (left, above, wide, high), styles)
        group = element(root, "g", class_="panel")
        panel.draw(group)
        panel.draw_axes(group, number % columns == 0, number + columns >= len(panels), single)
    for number, (label, colour, mark) in enumerate(entries):
        x = 20 + (number % beside) * (width - 20) / beside
        y = down * rows + _LEGEND * (number // beside) + 6
        group = element(root, "g", class_="legend")
        _draw_sample(group, x, y, label, colour, mark)
        element(group, "text", cut(label, int((width / beside - 50) / LETTER)), x=x + 34, y=y + 4)
    return root


def styles_of(panels: Iterable[Curves]) -> dict[str, Style]:
    """Return colour, dashes and radius of every method, the same in all panels."""
    names = dict.fromkeys(name for curves in panels for name in (*curves.methods, *curves.failed))
    others = [name for name in names if name not in _STYLES]
    spare = {name: _SPARE_STYLES[i % len(_SPARE_STYLES)] for i, name in enumerate(others)}
    return {name: _STYLES.get(name) or spare[name] for name in names}


class Panel:
    """The axes of one problem: where percents and levels are, and what is drawn there.

    Parameters
    ----------
    curves : Curves
        The problem's.
    box : (float, float, float, float)
        Left and upper end of the axes, their width and their height, in pixels.
    styles : dict of str to Style
        Of all methods.
    """

    def __init__(
        self, curves: Curves, box: tuple[float, float, float, float], styles: dict[str, Style]
    ) -> None:
        self.curves, self.box, self._styles = curves, box, styles
        self.first = min((*curves.percents, *curves.infeasible, 0.0)) - 3
        self.last = max((*curves.percents, *curves.infeasible, 100.0)) + 3
        low, high = curves.lowest_level, curves.visible_top
        self.empty = math.isnan(low)
        if self.empty:
            self.low, self.high = 0.0, 1.0
        elif curves.what is Quantity.THROUGHPUT:
            self.low, self.high = 0.0, 1.06 * high
        else:
            room = max(high - 1.0, 0.05)
            self.low, self.high = 1.0 - 0.06 * room, high + 0.06 * room

    def x(self, percent: float) -> float:
        """Return the horizontal coordinate of a memory limit."""
        left, _, width, _ = self.box
        return left + (percent - self.first) / (self.last - self.first) * width

    def y(self, level: float) -> float:
        """Return the vertical coordinate of a level; one off the scale is outside of the axes."""
        _, top, _, height = self.box
        part = (level - self.low) / (self.high - self.low)
        return top + (1 - part) * height

    def draw(self, root: Element) -> None:
        """Draw shading, band, optimum, methods, and crosses where a method died."""
        curves, (left, top, width, height) = self.curves, self.box
        if curves.infeasible:
            # Exactly what is below the least memory is infeasible, whichever limits were asked for.
            x = self.x(min(curves.infeasible))
            element(
                root,
                "rect",
                class_="infeasible",
                x=x,
                y=float(top),
                width=self.x(0) - x,
                height=float(height),
                fill=_SHADE,
            )
        box: dict[str, Any] = {"x": left, "y": top, "width": width, "height": height}
        element(root, "rect", **box, fill="none", stroke=_FRAME, stroke_width=0.8)
        name = f"axes-{left:g}-{top:g}"
        element(element(root, "clipPath", id=name), "rect", **box)
        inside = element(root, "g", clip_path=f"url(#{name})")
        self._draw_known(inside)
        for name, line in curves.methods.items():
            self._draw_method(inside, name, line)
        for number, (name, percents) in enumerate(curves.failed.items()):
            colour = self._styles[name][0] if name in self._styles else _BLACK
            group = element(root, "g", class_="failed")
            for percent in percents:
                # Above the axis' lower end, each method on a line of its own.
                _cross(group, self.x(percent), top + height * (0.97 - 0.04 * number), colour)

    def _draw_known(self, root: Element) -> None:
        """Draw the best schedules, full where they are certified, and the band to the bound."""
        curves = self.curves
        # A gap in either ends the band.
        for upper, lower in zip(
            self._runs(curves.best, curves.proved),
            self._runs(curves.proved, curves.best),
            strict=True,
        ):
            path = f"M{_joined((*upper, *reversed(lower)))} Z"
            element(root, "path", class_="band", d=path, fill=_BAND, fill_opacity=0.5)
        known = element(root, "g", class_="known", stroke=_BLACK, fill="none")
        for run in self._runs(curves.best):
            element(known, "path", d=f"M{_joined(run)}", stroke_width=1.4, stroke_dasharray="5 2")
        for percent, best, optimum in zip(
            curves.percents, curves.best, curves.optimum, strict=True
        ):
            if not math.isnan(best):
                fill = "#ffffff" if math.isnan(optimum) else _BLACK
                element(known, "circle", cx=self.x(percent), cy=self.y(best), r=2.2, fill=fill)

    def _draw_method(self, root: Element, name: str, line: Sequence[float]) -> None:
        colour = self._styles[name][0]
        group = element(root, "g", class_="method")
        element(group, "title", _title(name))
        _, top, _, _ = self.box
        for run in self._runs(line):
            _line(group, f"M{_joined(run)}", run, self._styles[name])
        for percent, level in zip(self.curves.percents, line, strict=True):
            if level > self.curves.visible_top:
                # The value of what is off the scale, at its upper end.
                anchor = "end" if percent > 50 else "start"
                at = {"x": self.x(percent), "y": top + 11.0, "text_anchor": anchor}
                element(group, "text", f"{level:.2g} ↑", **at, fill=colour, font_size=10)

    def _runs(
        self, line: Sequence[float], other: Sequence[float] | None = None
    ) -> Iterator[list[Corner]]:
        """Yield the stretches of a line between its gaps, and those of another one."""
        run: list[Corner] = []
        others = line if other is None else other
        for percent, level, beside in zip(self.curves.percents, line, others, strict=True):
            if not math.isnan(level + beside):
                run.append((self.x(percent), self.y(level)))
            elif run:
                yield run
                run = []
        if run:
            yield run

    def draw_axes(self, root: Element, names_levels: bool, names_memory: bool, one: bool) -> None:
        """Draw numbers beside and below the axes, their names where asked, and the title."""
        left, top, width, height = self.box
        bottom, right = top + height, left + width
        if not self.empty:
            base = 0.0 if self.curves.what is Quantity.THROUGHPUT else 1.0
            for value in ticks(self.high - base, 6 if one else 4):
                y = self.y(base + value)
                line = f"M{left},{y:.2f} H{right}"
                element(root, "path", d=line, stroke="#dddddd", stroke_width=0.5)
                element(root, "text", f"{base + value:g}", x=left - 6, y=y + 4, text_anchor="end")
        for value in ticks(self.last, 6 if one else 3):
            x = self.x(value)
            element(root, "path", d=f"M{x:.2f},{bottom} V{bottom + 4}", stroke=_FRAME)
            element(root, "text", f"{value:g}", x=x, y=bottom + 16, text_anchor="middle")
        if names_levels:
            turned = f"rotate(-90 {left - 42} {top + height / 2:g})"
            at = {"x": left - 42, "y": top + height / 2, "text_anchor": "middle"}
            element(root, "text", _AXES[self.curves.what], **at, transform=turned)
        if names_memory:
            name = "memory (% of the way from least to peak)" if one else "memory (%)"
            element(root, "text", name, x=left + width / 2, y=bottom + 32, text_anchor="middle")
        title = cut(self.curves.problem, int(width / LETTER))
        at = {"x": left + width / 2, "y": top - (44 if one else 8), "text_anchor": "middle"}
        element(root, "text", title, **at, font_size=12 if one else 11, font_weight="600")
        if one:
            self._draw_sizes(root)

    def _draw_sizes(self, root: Element) -> None:
        """Draw an axis with the memory in GiB or MiB, or in the problem's units if it is tiny."""
        least, peak = self.curves.ends
        left, top, width, _ = self.box
        if peak <= least:
            return
        sizes = ((_GIB, "GiB"), (_GIB >> 10, "MiB"))
        unit, name = next((known for known in sizes if peak > known[0]), (1, "size units"))
        for value in ticks(peak * 1.2 / unit, 10):
            percent = (value * unit - least) / (peak - least) * 100
            if self.first <= percent <= self.last:
                x = self.x(percent)
                element(root, "path", d=f"M{x:.2f},{top} V{top - 4}", stroke=_FRAME)
                element(root, "text", f"{value:g}", x=x, y=top - 8, text_anchor="middle")
        at = {"x": left + width / 2, "y": top - 24, "text_anchor": "middle"}
        element(root, "text", f"memory ({name})", **at)


def _legend(panels: Sequence[Curves], styles: dict[str, Style]) -> Iterator[tuple[str, str, str]]:
    """Yield label, colour, and mark or dashes of all that is in some panel, each once."""
    pairs = [pair for c in panels for pair in zip(c.best, c.optimum, strict=True)]
    yield _OPTIMUM, _BLACK, "o"
    if any(math.isnan(optimum) and not math.isnan(best) for best, optimum in pairs):
        yield _OPEN, _BLACK, "open"
    if any(abs(a - b) > 0 for c in panels for a, b in zip(c.best, c.proved, strict=True)):
        yield _BAND_NAME, _BAND, "area"
    if any(c.infeasible for c in panels):
        yield _INFEASIBLE, _SHADE, "area"
    methods = dict.fromkeys(name for c in panels for name in c.methods)
    yield from ((_title(name), styles[name][0], styles[name][1]) for name in methods)
    failed = dict.fromkeys(name for c in panels for name in c.failed)
    yield from ((f"{_title(name)} failed", styles[name][0], "x") for name in failed)


def _draw_sample(root: Element, x: float, y: float, label: str, colour: str, mark: str) -> None:
    if mark == "area":
        element(root, "rect", x=x, y=y - 5.0, width=26, height=10, fill=colour)
    elif mark == "x":
        _cross(root, x + 13, y, colour)
    elif label in (_OPTIMUM, _OPEN):
        fill = colour if mark == "o" else "#ffffff"
        element(root, "circle", cx=x + 13, cy=float(y), r=2.2, fill=fill, stroke=colour)
    else:
        _line(root, f"M{x:.2f},{y} h26", [(x + 13, y)], (colour, mark, 3.2))


def _line(root: Element, path: str, points: Iterable[Corner], style: Style) -> None:
    colour, dashes, radius = style
    lines: dict[str, Any] = {
        "stroke": colour,
        "stroke_width": 1.4,
        "stroke_dasharray": dashes or "none",
    }
    element(root, "path", d=path, **lines, fill="none")
    for x, y in points:
        element(root, "circle", cx=float(x), cy=float(y), r=radius, fill=colour)


def _cross(root: Element, x: float, y: float, colour: str) -> None:
    path = f"M{x - 3:.2f},{y - 3:.2f} l6,6 m-6,0 l6,-6"
    element(root, "path", d=path, stroke=colour, stroke_width=1.6)


def _joined(corners: Iterable[Corner]) -> str:
    return "L".join(f"{x:.2f},{y:.2f}" for x, y in corners)


def _title(name: str) -> str:
    return name.upper() if name in _STYLES else name
