"""Space over time: a rectangle for every residence, at its addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.units import format_size
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.questions.placement.problem import Placement
from offcert.report.bars import BOUND, LIMIT, Look, size_scale
from offcert.report.gantt import (
    draw_legend,
    draw_level,
    draw_sizes,
    draw_time_axis,
    fill_of,
    picture,
    time_labels,
)
from offcert.report.svg import Axes, Element, element, save

# Letters of the longest name, and pixels of the picture and of the margin above. Arbitrary.
_LONGEST_NAME = 80
_WIDTH, _HEIGHT, _TOP = 1100, 440, 64
# Rectangles up to which they have white lines around them: on more, these would hide them.
# Arbitrary.
MOST_OUTLINED = 400

# Looks of residences, by what they are of, where that is known.
SPACES = {
    "residence": Look("residence", "#56b4e9", "#000000", ""),
    "stays": Look("stays", "#56b4e9", "#000000", ""),
    "leaves": Look("will leave", "#e69f00", "#000000", "/"),
    "returned": Look("has returned", "#009e73", "#ffffff", "\\"),
    "workspace": Look("workspace", "#f0e442", "#000000", "x"),
}


@dataclass(frozen=True, slots=True)
class Space:
    """A residence as a rectangle."""

    kind: str  # A key of `SPACES`.
    # Moments.
    start: int
    end: int
    # Bytes.
    low: int
    high: int
    title: str  # Everything about it.


def spaces_of(placed: PlacementCertificate) -> list[Space]:
    """Return a rectangle for every residence that takes anything."""
    problem = placed.problem
    placement = _placement(placed)
    rows = zip(problem.residences, placement.addresses, problem.sizes, _kinds(placed), strict=True)
    return [
        Space(
            kind,
            residence.start,
            residence.end,
            address,
            address + size,
            f"{cut(residence.name, _LONGEST_NAME)}: {residence.start} to {residence.end}, "
            f"{format_size(size, problem.units)} at {address}",
        )
        for residence, address, size, kind in rows
        if size
    ]


def _placement(placed: PlacementCertificate) -> Placement:
    if placed.result.placement is None:
        raise InputError("the document holds no addresses to draw")
    return placed.result.placement


def _kinds(placed: PlacementCertificate) -> list[str]:
    """Return a key of `SPACES` for each residence."""
    if placed.occupants is None:
        return ["residence"] * len(placed.problem.residences)
    kinds = []
    left: Counter[int] = Counter(of.index for of in placed.occupants if of.kind == "tensor")
    seen: Counter[int] = Counter()
    for of in placed.occupants:
        if of.kind == "workspace":
            kinds.append("workspace")
            continue
        last = left[of.index] == seen[of.index] + 1
        kinds.append(("returned" if seen[of.index] else "stays") if last else "leaves")
        seen[of.index] += 1
    return kinds


def shown_spaces(spaces: Sequence[Space]) -> dict[str, Look]:
    """Return the looks for a legend: of the kinds of spaces that are there."""
    there = {space.kind for space in spaces}
    return {kind: look for kind, look in SPACES.items() if kind in there}


def lines_of(placed: PlacementCertificate) -> list[tuple[int, str, str]]:
    """Return the lines across a picture, as bytes, text and colour: the bound, and the capacity."""
    problem, result = placed.problem, placed.result
    least = format_size(result.lower_bound, problem.units)
    lines = []
    if result.bounds:
        lines.append((result.lower_bound, f"lower bound {least} ({result.evidence})", BOUND))
    if problem.capacity is not None:
        said = f"capacity {format_size(problem.capacity, problem.units)}"
        lines.append((problem.capacity, said, LIMIT))
    return lines


def save_space(placed: PlacementCertificate, path: str | Path) -> None:
    """Draw addresses against time into a PNG or SVG file.

    In an SVG file every rectangle says what it is when the mouse rests on it.
    """
    save(space_svg(placed, spaces_of(placed)), path)


def title_of(placed: PlacementCertificate) -> str:
    """Return a picture's heading."""
    return f"{cut(placed.problem.name, 48)}: {placed.result.summary(placed.problem.units)}"


def largest_of(placed: PlacementCertificate) -> int:
    """Return the most bytes that a picture shows."""
    result, capacity = placed.result, placed.problem.capacity or 0
    return max(1, result.pool or 0, result.lower_bound, capacity)


def space_svg(
    placed: PlacementCertificate, spaces: Sequence[Space], *, width: int = _WIDTH
) -> Element:
    """Draw the rectangles of a certificate with addresses against time, so many pixels wide."""
    residences = placed.problem.residences
    begin = min(0, min((residence.start for residence in residences), default=0))
    end = max((residence.end for residence in residences), default=1)
    end = max(end, begin + 1)
    frame = Axes(width, end, largest_of(placed) * 31 // 30 + 1, _TOP, _HEIGHT, begin)
    root = picture(frame, title_of(placed), SPACES)
    draw_legend(root, shown_spaces(spaces))
    sizes = element(root, "g", class_="sizes")
    draw_sizes(sizes, frame, size_scale(placed.problem, frame.largest), 6)
    group = element(root, "g", class_="spaces")
    outlined = len(spaces) <= MOST_OUTLINED
    for space in spaces:
        _draw_space(group, frame, space, outlined)
    labels, unit = time_labels(placed.problem, frame.end)
    draw_time_axis(root, frame, labels, f"time ({unit})")
    for size, text, colour in lines_of(placed):
        draw_level(root, frame.width, frame.y(size), -4, text, colour, ("line", 1.4, "7 4"))
    return root


def _draw_space(group: Element, frame: Axes, space: Space, outlined: bool) -> None:
    left, right = frame.x(space.start), frame.x(space.end)
    top, bottom = frame.y(space.high), frame.y(space.low)
    width, height = max(right - left, 0.4), max(bottom - top, 0.4)
    fill = fill_of(space.kind, min(width, height), SPACES)
    rect = element(group, "rect", x=left, y=top, width=width, height=height, fill=fill)
    if outlined:
        rect.set("stroke", "#ffffff")
        rect.set("stroke-width", "0.6")
    element(rect, "title", space.title)
