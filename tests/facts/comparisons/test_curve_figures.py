"""Figures: their axes hold the curves, and the same curves give the same bytes."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.core.errors import InputError
from offcert.report.svg import Element, drawing, letters_are_drawn
from offcert_lab.comparisons.curve_figures import (
    MOST_PANELS,
    Panel,
    grid_svg,
    save_grid,
    styles_of,
)
from offcert_lab.comparisons.curves import Curves, Quantity, curves_of
from offcert_lab.comparisons.points import points_of
from support.problems.campaign_tables import rows, table

# A box in which a percent is 2 pixels wide: the example's axes reach from -23 to 103.
BOX = (0.0, 0.0, 252.0, 100.0)


def example(name: str = "a", what: Quantity = Quantity.MAKESPAN) -> Curves:
    open_ = {"makespan": 100, "lower_bound": 90, "proved_bound": 85}
    frame = table(
        rows(name, 80, certify="INFEASIBLE", greedy="NO_PLAN"),
        rows(name, 120, certify=open_, greedy=160, tflms="NO_PLAN", dynprog="FAILED"),
        rows(name, 160, certify=66, greedy="NO_PLAN", tflms="NO_PLAN", dynprog=70),
        rows(name, 200, certify=60, greedy=60, tflms=60, dynprog=60),
    )
    return curves_of(points_of(frame, Fraction(2)), what)


def drawn(curves: Curves) -> tuple[Panel, Element]:
    """Return axes of 252 by 100 pixels, and what is drawn on them."""
    panel, root = Panel(curves, BOX, styles_of([curves])), drawing(252, 100, "test", 11)
    panel.draw(root)
    return panel, root


def parts(root: Element, name: str) -> list[Element]:
    """Return the parts of a picture that have a class."""
    return [each for each in root.iter() if each.get("class") == name]


def corners(path: str) -> list[tuple[float, float]]:
    """Return the corners of a path whose coordinates are absolute."""
    found = re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", path)
    return [(float(x), float(y)) for x, y in found]


def method(root: Element, name: str) -> list[list[tuple[float, float]]]:
    """Return the stretches of the line of a method."""
    (group,) = [each for each in parts(root, "method") if each[0].text == name]
    paths = [each for each in group if each.tag == "path" and each.get("fill") == "none"]
    return [corners(path.get("d") or "") for path in paths]


def close(found: list[tuple[float, float]], expected: list[tuple[float, float]]) -> bool:
    return len(found) == len(expected) and all(
        math.dist(a, b) < 0.02 for a, b in zip(found, expected, strict=True)
    )


def test_the_axes_hold_a_line_a_method_and_the_optimum() -> None:
    curves = example()
    panel, root = drawn(curves)
    assert [each[0].text for each in parts(root, "method")] == ["DYNPROG", "GREEDY", "TFLMS"]
    # Worked out by hand: 60 and 100 % are 166 and 246 pixels from the left.
    (line,) = method(root, "DYNPROG")
    assert close(line, [(166, panel.y(70 / 60)), (246, panel.y(1))])
    # GREEDY has no plan in between: two stretches of one point.
    assert [len(run) for run in method(root, "GREEDY")] == [1, 1]
    # The optimum is open at 20 %, and certified further right.
    circles = [each for each in parts(root, "known")[0] if each.tag == "circle"]
    assert [each.get("fill") for each in circles] == ["#ffffff", "#000000", "#000000"]
    (failed,) = parts(root, "failed")
    assert corners(failed[0].get("d") or "")[0][0] == 86 - 3


def test_levels_are_where_the_scale_says() -> None:
    panel, _ = drawn(example())
    assert panel.y(panel.low) == 100
    assert panel.y(panel.high) == 0
    assert panel.y((panel.low + panel.high) / 2) == pytest.approx(50)
    assert panel.x(-23) == 0
    assert panel.x(103) == 252


def test_the_band_is_filled_between_proved_bound_and_best_schedule() -> None:
    panel, root = drawn(example())
    (band,) = parts(root, "band")
    upper = [(86, panel.y(100 / 80)), (166, panel.y(1.1)), (246, panel.y(1))]
    lower = [(246, panel.y(1)), (166, panel.y(1.1)), (86, panel.y(85 / 80))]
    assert close(corners(band.get("d") or ""), upper + lower)


def test_infeasible_limits_are_shaded_up_to_the_least_memory() -> None:
    _, root = drawn(example())
    (span,) = parts(root, "infeasible")
    # From -20 % to 0 %.
    assert (span.get("x"), span.get("width")) == ("6", "40")


def test_the_legend_names_everything_once_and_lies_below_the_axes() -> None:
    root = grid_svg([example("a"), example("b")])
    entries = parts(root, "legend")
    texts = [each.text for entry in entries for each in entry if each.tag == "text"]
    assert texts[:4] == [
        "certified optimum",
        "best schedule, optimality open",
        "between best schedule and proved bound",
        "infeasible",
    ]
    assert sorted(texts[4:]) == ["DYNPROG", "DYNPROG failed", "GREEDY", "TFLMS"]
    highest = min(float(each.get("y", 0)) for entry in entries for each in entry.iter("text"))
    below = [each for panel in parts(root, "panel") for each in panel.iter("text")]
    assert highest - 11 > max(float(each.get("y", 0)) for each in below)
    assert float(root.get("height", 0)) > max(float(e[-1].get("y", 0)) for e in entries)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_panels_do_not_overlap(count: int) -> None:
    root = grid_svg([example(f"inception_v3-1000-b{number}-chain") for number in range(count)])
    boxes = []
    for panel in parts(root, "panel"):
        (clip,) = panel.iter("clipPath")
        boxes.append([float(clip[0].get(name, 0)) for name in ("x", "y", "width", "height")])
    assert len(boxes) == count
    for number, (x, y, width, height) in enumerate(boxes):
        assert x + width < float(root.get("width", 0))
        for other_x, other_y, *_ in boxes[number + 1 :]:
            # Titles, numbers and names of axes need room between them.
            assert other_x >= x + width + 50 or other_y >= y + height + 50


def test_what_is_off_the_scale_is_written_at_its_end() -> None:
    frame = table(rows("a", 120, certify=80, vdnn=100, greedy=90, tflms=400))
    panel, root = drawn(curves_of(points_of(frame, Fraction(2))))
    assert panel.high < 1.5
    ((text, colour),) = [(e.text, e.get("fill")) for e in root.iter("text")]
    assert (text, colour) == ("5 ↑", "#e69f00")
    usual = table(rows("a", 120, certify=80, vdnn=100, greedy=90))
    assert not list(drawn(curves_of(points_of(usual, Fraction(2))))[1].iter("text"))


def test_methods_keep_their_colour_from_panel_to_panel() -> None:
    frame = table(rows("b", 120, vdnn=99, greedy=98, mine=97, yours=96))
    other = curves_of(points_of(frame, Fraction(2)))
    panels = parts(grid_svg([example(), other]), "panel")
    colours = [
        {each[0].text: each[1].get("stroke") for each in parts(panel, "method")} for panel in panels
    ]
    assert colours[0]["GREEDY"] == colours[1]["GREEDY"]
    assert len({colours[1][name] for name in ("VDNN", "GREEDY", "mine", "yours")}) == 4


def test_svg_files_are_the_same_byte_by_byte(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        save_grid([example(), example("b", Quantity.THROUGHPUT)], tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert first == second


def test_png_files_can_be_written_too(tmp_path: Path) -> None:
    save_grid([example()], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_machine_without_fonts_is_noticed() -> None:
    assert letters_are_drawn(str.encode)
    # Whoever has no font leaves out every text.
    assert not letters_are_drawn(lambda text: re.sub("<text.*?</text>", "", text).encode())


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.pdf must end in \.png or \.svg"):
        save_grid([example()], tmp_path / "a.pdf")
    with pytest.raises(InputError, match="1 to 40 problems, not 0"):
        save_grid([], tmp_path / "a.svg")
    with pytest.raises(InputError, match="not 41"):
        save_grid([example()] * (MOST_PANELS + 1), tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_a_problem_without_any_curve_is_drawn_empty() -> None:
    frame = table(rows("a", 80, certify="INFEASIBLE"))
    panel, root = drawn(curves_of(points_of(frame, Fraction(2))))
    assert panel.empty
    assert not parts(root, "method")
    assert not list(root.iter("circle"))
    assert grid_svg([panel.curves]) is not None
