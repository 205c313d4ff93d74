"""A performance profile: in which part of the problems a method is within a ratio to the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from pathlib import Path

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.report.svg import Element, drawing, element, save, ticks

# Pixels. Arbitrary.
_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 210, 44, 52
# Okabe and Ito's colours, then the same with dashes.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("", "7 3", "2 3")
# The axis ends at the largest ratio, but shows at least this one. Arbitrary.
_LEAST_END = 1.05

Ratios = Sequence[float | None]


def save_profile(methods: Mapping[str, Ratios], path: str | Path) -> None:
    """Draw a performance profile (Dolan and Moré, 2002) into an SVG or PNG file.

    `methods` holds for each method and problem its value by the best one known, None without any.
    """
    if not methods or not any(methods.values()):
        raise InputError("a profile needs a problem that all methods were given")
    save(profile_svg(methods), path)


def profile_svg(methods: Mapping[str, Ratios]) -> Element:
    """Return the picture; ratios are on a logarithmic axis."""
    count = len(next(iter(methods.values())))
    largest = max((r for ratios in methods.values() for r in ratios if r is not None), default=1.0)
    end = log2(max(largest, _LEAST_END))
    root = drawing(_WIDTH, _HEIGHT, "performance profile", 11)
    title = f"part of {count} problems in which a method is within a ratio to the best known"
    element(root, "text", title, x=_LEFT, y=22, font_size=13, font_weight="600")
    _draw_axes(root, end)
    for number, (name, ratios) in enumerate(methods.items()):
        _draw_method(root, end, name, ratios, number)
    return root


def _x(ratio: float, end: float) -> float:
    return _LEFT + log2(ratio) / end * (_WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return _TOP + (1 - part) * (_HEIGHT - _TOP - _BOTTOM)


def _draw_axes(root: Element, end: float) -> None:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for part in (0, 25, 50, 75, 100):
        y = _y(part / 100)
        element(root, "path", d=f"M{_LEFT},{y:.2f} H{right}", stroke="#e4e4e4")
        element(root, "text", f"{part} %", x=_LEFT - 8, y=y + 4, text_anchor="end")
    for step in ticks(2.0**end - 1.0, 5):
        x = _x(1.0 + step, end)
        element(root, "path", d=f"M{x:.2f},{bottom} V{bottom + 5}", stroke="#444444")
        element(root, "text", f"{1.0 + step:g}", x=x, y=bottom + 17, text_anchor="middle")
    element(root, "path", d=f"M{_LEFT},{bottom} H{right}", stroke="#444444")
    label = "value by the best value known"
    element(root, "text", label, x=right, y=bottom + 36, text_anchor="end")


def _draw_method(root: Element, end: float, name: str, ratios: Ratios, number: int) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    dashes = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    answered = sorted(ratio for ratio in ratios if ratio is not None)
    path = f"M{_x(1.0, end):.2f},{_y(0):.2f}"
    for reached, ratio in enumerate(answered, start=1):
        path += f" H{_x(max(ratio, 1.0), end):.2f} V{_y(reached / len(ratios)):.2f}"
    path += f" H{_WIDTH - _RIGHT}"
    group = element(root, "g", class_="method")
    line = element(group, "path", d=path, stroke=colour, stroke_width=2, fill="none")
    y = _TOP + 6 + 18 * number
    x = _WIDTH - _RIGHT + 14
    mark = element(group, "path", d=f"M{x},{y} h22", stroke=colour, stroke_width=3)
    for drawn in (line, mark):
        if dashes:
            drawn.set("stroke-dasharray", dashes)
    element(line, "title", f"{name}: an answer to {len(answered)} of {len(ratios)} problems")
    element(group, "text", cut(name, 26), x=x + 28, y=y + 4)
