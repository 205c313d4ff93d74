"""The table and the picture of what more memory buys."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from offcert.certification.ladder import frontier
from offcert.core.result import Bound, Evidence
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.report.frontier import (
    describe_frontier,
    frontier_json,
    frontier_rows,
    frontier_svg,
    frontier_table,
    moved_bytes,
)
from support.problems.random_instances import random_problem

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return random_problem(5, 5)


@pytest.fixture(scope="module")
def curve(problem: Problem) -> list[Certificate]:
    least, peak = problem.least_memory, problem.peak_memory
    limits = [least - 1, least, (least + peak) // 2, peak]
    return list(frontier(problem, limits, time_limit=5.0, workers=1))


def with_bound(certificate: Certificate, value: int) -> Certificate:
    bounds = (Bound("x", value, Evidence.ATTESTED),)
    return replace(certificate, result=replace(certificate.result, bounds=bounds))


def longer(certificate: Certificate, ticks: int) -> Certificate:
    schedule = certificate.result.schedule
    assert isinstance(schedule, Schedule)
    starts = tuple(start + ticks for start in schedule.starts)
    ends = tuple(end + ticks for end in schedule.ends)
    late = Schedule(starts, ends, schedule.transfers)
    return replace(certificate, result=replace(certificate.result, schedule=late))


def test_rows_say_what_certificates_say(problem: Problem, curve: list[Certificate]) -> None:
    rows = frontier_rows(curve)
    assert [row.infeasible for row in rows] == [True, False, False, False]
    assert rows[0].makespan is None
    compute = problem.trace.compute_time
    for row, certificate in zip(rows[1:], curve[1:], strict=True):
        assert row.makespan == certificate.result.objective
        assert row.slowdown == pytest.approx((row.makespan or 0) / compute)
        assert row.gap == pytest.approx(certificate.result.gap)
        assert row.evidence == certificate.result.evidence
        assert row.moved_bytes == moved_bytes(certificate)
    assert rows[0].saved_by_next is rows[-1].saved_by_next is None
    first, second = curve[1].result.objective, curve[2].result.objective
    assert first is not None
    assert second is not None
    assert rows[1].saved_by_next == first - second
    assert [row.part for row in rows[1::2]] == [0.0, 1.0]


def test_schedules_count_for_more_memory_and_bounds_for_less(curve: list[Certificate]) -> None:
    least, half, peak = curve[1:]
    objective = least.result.objective
    assert objective is not None
    worse = longer(half, 1000)
    rows = frontier_rows([with_bound(least, 3), with_bound(worse, 7), with_bound(peak, 5)])
    assert rows[1].makespan == objective
    assert rows[1].makespan_at == least.problem.platform.memory
    assert rows[1].saved_by_next == objective - (peak.result.objective or 0)
    assert [row.lower_bound for row in rows] == [7, 7, 5]
    at = half.problem.platform.memory
    assert [row.lower_bound_at for row in rows] == [at, at, peak.problem.platform.memory]
    assert [row.evidence for row in rows] == ["attested"] * 3


def test_the_table_is_aligned_markdown_with_a_line_a_limit(curve: list[Certificate]) -> None:
    lines = frontier_table(curve).splitlines()
    assert len(lines) == 2 + len(curve)
    assert len(set(map(len, lines))) == 1
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert set(lines[1]) <= set("|-: ")
    assert "infeasible" in lines[2]
    assert "again" not in lines[0], "nothing may run again in this problem"
    assert "moved" in lines[0]


def test_units_and_savings_are_for_people(curve: list[Certificate]) -> None:
    timed = [replace(each, problem=replace(each.problem, units=Units("ns", "B"))) for each in curve]
    text = describe_frontier(timed)
    assert " ns |" in text
    assert " B |" in text
    assert "The step that buys most: from " in text
    assert describe_frontier([]) == "no limits"
    flat = [with_bound(curve[-1], 1)]
    assert "buys most" not in describe_frontier(flat)
    stopped = replace(curve[-1], notes=replace(curve[-1].notes, interrupted=True))
    assert describe_frontier([stopped]).endswith("was not searched to its end.")
    assert describe_frontier([stopped], 3).endswith("its end, and 2 of 3 limits not at all.")


def test_programs_get_the_same_numbers(curve: list[Certificate], problem: Problem) -> None:
    document = json.loads(json.dumps(frontier_json(curve), allow_nan=False))
    assert document["compute_time"] == problem.trace.compute_time
    assert [each["memory"] for each in document["limits"]] == [
        each.problem.platform.memory for each in curve
    ]
    assert document["limits"][1]["makespan"] == curve[1].result.objective
    assert document["interrupted"] is False
    assert frontier_json([]) == {"limits": []}


def test_the_picture_has_a_point_a_limit_and_the_band_that_is_known(
    curve: list[Certificate],
) -> None:
    root = ElementTree.fromstring(ElementTree.tostring(frontier_svg({"offloading": curve})))
    points = list(root.iter(f"{SVG}circle"))
    assert len(points) == 3
    heights = [float(point.get("cy", "")) for point in points]
    # Less time is further down, and more memory further right.
    assert heights == sorted(heights)
    widths = [float(point.get("cx", "")) for point in points]
    assert widths == sorted(widths)
    title = points[0].findtext(f"{SVG}title")
    assert title is not None
    assert title.startswith(f"offloading, {curve[1].problem.platform.memory}: ")
    (line,) = (p for p in root.iter(f"{SVG}path") if p.findtext(f"{SVG}title") == "offloading")
    corners = [tuple(map(float, pair.split(","))) for pair in line.get("d", "")[1:].split("L")]
    # The schedule of a limit holds up to the next one.
    assert corners[0] == (widths[0], heights[0])
    assert corners[1] == (widths[1], heights[0])
    assert corners[-1] == (widths[-1], heights[-1])


def test_several_curves_are_told_apart_without_colours(curve: list[Certificate]) -> None:
    root = frontier_svg({"offload": curve, "both": curve, "none": curve[:1], "empty": []})
    lines = [each for each in root.iter("path") if each.findtext("title") in ("offload", "both")]
    assert len({each.get("stroke-dasharray") for each in lines}) == len(lines) == 2


def test_names_of_curves_are_whole_and_inside_of_the_picture(curve: list[Certificate]) -> None:
    """As long as those of a problem in which everything may be done, four of them."""
    names = [f"{number} offloading, and recomputing anything" for number in range(4)]
    root = frontier_svg(dict.fromkeys(names, curve))
    texts = {each.text: each for each in root.iter("text")}
    width, first_row = float(root.get("width", "")), 0.0
    places = []
    for name in names:
        x, y = (float(texts[name].get(side, "")) for side in "xy")
        assert x + 6.3 * len(name) < width
        places.append((x, y))
        first_row = max(first_row, y)
    assert len(set(places)) == 4
    # And above the axes.
    assert first_row < min(float(dot.get("cy", "")) for dot in root.iter("circle"))
