"""Figures: their axes hold the curves, and the same curves give the same bytes."""

import math
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from offcert.core.errors import InputError
from offcert.report.curve_figures import MOST_PANELS, draw, save_curves, save_grid
from offcert.report.curves import Curves, Quantity, curves_of
from offcert.report.points import points_of
from support.problems.campaign_tables import rows, table

mpl.use("Agg")


def example(name: str = "a", what: Quantity = Quantity.MAKESPAN) -> Curves:
    open_ = {"makespan": 100, "lower_bound": 90, "proved_bound": 85}
    frame = table(
        rows(name, 80, certify="INFEASIBLE", greedy="NO_PLAN"),
        rows(name, 120, certify=open_, greedy=160, tflms="NO_PLAN", dynprog="FAILED"),
        rows(name, 160, certify=66, greedy="NO_PLAN", tflms="NO_PLAN", dynprog=70),
        rows(name, 200, certify=60, greedy=60, tflms=60, dynprog=60),
    )
    return curves_of(points_of(frame, Fraction(2)), what)


def lines(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    """Return the labelled lines of a figure's first panel."""
    found = {str(line.get_label()): line for line in figure.axes[0].lines}
    return {
        label: (list(line.get_xdata()), list(line.get_ydata()))
        for label, line in found.items()
        if not label.startswith("_")
    }


def test_the_axes_hold_a_line_a_method_and_the_optimum() -> None:
    curves = example()
    drawn = lines(draw([curves]))
    assert set(drawn) == {
        *("DYNPROG", "GREEDY", "TFLMS", "DYNPROG failed"),
        *("certified optimum", "best schedule, optimality open"),
    }
    expected = {"GREEDY": curves.methods["greedy"], "certified optimum": curves.optimum}
    for label, line in expected.items():
        x, y = drawn[label]
        assert x == list(curves.percents)
        np.testing.assert_array_equal(y, line)
    assert drawn["DYNPROG failed"][0] == [20]
    open_ = drawn["best schedule, optimality open"][1]
    assert open_[0] == 100 / 80
    assert all(map(math.isnan, open_[1:]))


def test_the_band_is_filled_between_proved_bound_and_best_schedule() -> None:
    figure = draw([example()])
    bands = [
        item
        for item in figure.axes[0].collections
        if isinstance(item, PolyCollection) and "proved bound" in str(item.get_label())
    ]
    (band,) = bands
    corners = {tuple(corner) for path in band.get_paths() for corner in path.vertices}
    assert {(20, 100 / 80), (20, 85 / 80), (60, 1.1), (100, 1.0)} <= corners


def test_infeasible_limits_are_shaded_up_to_the_least_memory() -> None:
    (span,) = draw([example()]).axes[0].patches
    assert (span.get_x(), span.get_x() + span.get_width()) == (-20, 0)


def test_the_legend_names_everything_once_and_lies_outside_of_the_data() -> None:
    figure = draw([example("a"), example("b")])
    figure.canvas.draw()
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[:4] == [
        "certified optimum",
        "best schedule, optimality open",
        "between best schedule and proved bound",
        "infeasible",
    ]
    assert sorted(labels[4:]) == ["DYNPROG", "DYNPROG failed", "GREEDY", "TFLMS"]
    box = legend.get_window_extent()
    for ax in figure.axes:
        assert not box.overlaps(ax.get_tightbbox())


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 9])
def test_titles_and_labels_of_panels_do_not_overlap(count: int) -> None:
    figure = draw([example(f"inception_v3-1000-b{number}-chain") for number in range(count)])
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes if ax.get_visible() and ax.axison]
    assert len(boxes) == count
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_what_is_off_the_scale_is_written_at_its_end() -> None:
    frame = table(rows("a", 120, certify=80, vdnn=100, greedy=90, tflms=400))
    ax = draw([curves_of(points_of(frame, Fraction(2)))]).axes[0]
    assert ax.get_ylim()[1] < 1.5
    assert [text.get_text() for text in ax.texts] == ["5 ↑"]
    (line,) = [line for line in ax.lines if line.get_label() == "TFLMS"]
    assert ax.texts[0].get_color() == line.get_color()
    usual = table(rows("a", 120, certify=80, vdnn=100, greedy=90))
    assert not draw([curves_of(points_of(usual, Fraction(2)))]).axes[0].texts


def test_methods_keep_their_colour_from_panel_to_panel() -> None:
    frame = table(rows("b", 120, vdnn=99, greedy=98, mine=97, yours=96))
    other = curves_of(points_of(frame, Fraction(2)))
    figure = draw([example(), other])
    colours = [
        {line.get_label(): line.get_color() for line in ax.lines if line.get_label() == "GREEDY"}
        for ax in figure.axes
    ]
    assert colours[0] == colours[1]
    own = {line.get_label(): line.get_color() for line in figure.axes[1].lines}
    assert len({own[name] for name in ("VDNN", "GREEDY", "mine", "yours")}) == 4


@pytest.mark.slow
def test_svg_files_are_the_same_byte_by_byte(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        save_grid([example(), example("b", Quantity.THROUGHPUT)], tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert first == second
    assert b"<dc:date>" not in first


def test_png_files_can_be_written_too(tmp_path: Path) -> None:
    save_curves(example(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.pdf must end in \.svg or \.png"):
        save_curves(example(), tmp_path / "a.pdf")
    with pytest.raises(InputError, match="1 to 40 problems, not 0"):
        save_grid([], tmp_path / "a.svg")
    with pytest.raises(InputError, match="not 41"):
        save_grid([example()] * (MOST_PANELS + 1), tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_a_problem_without_any_curve_is_drawn_empty() -> None:
    frame = table(rows("a", 80, certify="INFEASIBLE"))
    figure = draw([curves_of(points_of(frame, Fraction(2)))])
    assert not lines(figure)["certified optimum"][1]
