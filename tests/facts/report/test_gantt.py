import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.report.bars import BOUND, LOOKS, Bar, bars_of, joined, turn
from offcert.report.gantt import gantt_svg, save_gantt, thinned
from offcert.report.memory_curve import fluid_memory_curve, memory_curve
from offcert.report.svg import ticks
from support.problems.long_schedules import long_certificate
from support.problems.random_instances import mixed_problem, random_problem
from support.seeds import by_seeds

SVG = "{http://www.w3.org/2000/svg}"


def test_the_memory_curve_of_a_hand_computed_schedule() -> None:
    chain = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
    problem = Problem("p", chain, Platform(12, Fraction(2)))
    times, held = memory_curve(problem, simulate(problem, sequential(problem)))
    # x0 leaves from 0 to 5; F_1 (x1, x2, workspace 8) runs from 5 to 9 and B_1 (x1, x2) from 9 to
    # 11; only then is there room for x0, which is back at 16 for B_0.
    curve = {0: 12, 3: 12, 5: 11, 9: 3, 11: 12, 16: 12, 20: 0}
    assert dict(zip(times, held, strict=True)) == curve


@by_seeds(0, 80, 27)
def test_the_curve_never_exceeds_the_limit_and_ends_empty(seeds: range) -> None:
    for seed in seeds:
        problem = mixed_problem(seed, 6)
        problem = problem.with_memory(problem.trace.least_memory)
        if 0 in problem.trace.durations:
            continue
        times, held = memory_curve(problem, simulate(problem, sequential(problem)))
        assert times == sorted(set(times))
        assert max(held) <= problem.platform.memory
        assert held[-1] == 0


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    certificate = solve(random_problem(5), "sequential")
    with pytest.raises(InputError, match=r"must end in \.png or \.svg"):
        save_gantt(certificate, tmp_path / "plan.pdf")
    empty = Certificate(certificate.problem, Result(SolveStatus.UNKNOWN, None), method="none")
    with pytest.raises(InputError, match="no schedule to draw"):
        save_gantt(empty, tmp_path / "plan.png")
    assert list(tmp_path.iterdir()) == []
    save_gantt(certificate, tmp_path / "plan.svg")
    assert "</svg>" in (tmp_path / "plan.svg").read_text()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_backward_pass_begins_where_an_operation_is_named_so() -> None:
    def problem(*names: str) -> Problem:
        trace = Trace([Operation(name, 1) for name in names], [Tensor("x", 1, (0, 1))])
        return Problem("p", trace, Platform(5, Fraction(1)))

    assert turn(problem("F:a", "F:loss", "R:a", "B:loss", "B:a")) == 3
    assert turn(problem("a", "b", "c", "d")) == 2


def certificate_of(seed: int) -> Certificate:
    """Return certificates with whole transfers and with pieces, on both kinds of links."""
    problem = mixed_problem(seed, 5)
    limit = problem.memory_at(Fraction(1, 3))
    problem = replace(problem, platform=replace(problem.platform, memory=limit))
    if seed % 3:
        return solve(problem, "sequential")
    return solve(replace(problem, transfers=Transfers.INTERRUPTIBLE), "fluid-exact", time_limit=5)


def bars_in(root: ElementTree.Element) -> list[ElementTree.Element]:
    rows = [group for group in root.iter(f"{SVG}g") if "row" in group.get("class", "")]
    return [rect for group in rows for rect in group.findall(f"{SVG}rect")]


def number(item: ElementTree.Element, name: str) -> float:
    return float(item.get(name, "nan"))


def test_every_operation_and_transfer_is_where_it_happens_and_says_what_it_is(
    tmp_path: Path,
) -> None:
    kinds = set()
    for seed in range(12):
        certificate = certificate_of(seed)
        problem, schedule = certificate.problem, certificate.result.schedule
        assert schedule is not None
        kinds.add((type(schedule), problem.platform.duplex))
        save_gantt(certificate, tmp_path / "plan.svg")
        root = ElementTree.parse(tmp_path / "plan.svg").getroot()
        found = bars_in(root)
        whole = isinstance(schedule, Schedule)
        moves = schedule.transfers if whole else schedule.pieces
        assert len(found) == len(problem.trace) + len(moves)
        titles = [rect.findtext(f"{SVG}title", "") for rect in found]
        for index, operation in enumerate(problem.trace.operations):
            assert titles[index].startswith(f"{operation.name}: {schedule.starts[index]} to ")
            assert operation.workspace == 0 or str(operation.workspace) in titles[index]
        expected = sorted(
            f"{move.kind} {problem.trace.tensors[problem.trace.gaps[move.gap].tensor].name}:"
            for move in moves
        )
        assert sorted(f"{t.split(':')[0]}:" for t in titles[len(problem.trace) :]) == expected
        # From two ends to pixels and back: the bound's mark is where the bound is.
        left, right = 84.0, 1100 - 28.0
        result = certificate.result
        span = max(schedule.makespan, result.lower_bound)
        for rect, start in zip(found, schedule.starts, strict=False):
            assert number(rect, "x") == pytest.approx(
                left + start / span * (right - left), abs=0.01
            )
        (mark,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "bound")
        assert mark.get("d", "").startswith(
            f"M{left + result.lower_bound / span * (right - left):.2f},"
        )
        assert str(result.lower_bound) in mark.findtext(f"{SVG}title", "")
    assert len(kinds) == 4


def test_the_curve_in_the_picture_is_the_memory_curve() -> None:
    for seed in range(12):
        certificate = certificate_of(seed)
        problem, schedule = certificate.problem, certificate.result.schedule
        assert schedule is not None
        root = ElementTree.fromstring(ElementTree.tostring(gantt_svg(certificate)))
        (memory,) = (g for g in root.iter(f"{SVG}g") if g.get("class") == "memory")
        paths = {path.findtext(f"{SVG}title"): path.get("d", "") for path in memory}
        limit = next(name for name in paths if name and name.startswith("limit"))
        assert limit == f"limit {problem.platform.memory}"
        corners = [pair.split(",") for pair in paths["on the device"][1:].split("L")]
        heights = [float(y) for _, y in corners]
        at_limit = float(paths[limit].split(",")[1].split()[0])
        (axis,) = (g for g in root.iter(f"{SVG}g") if g.get("class") == "axis")
        at_zero = float(axis[0].get("d", "").split(",")[1].split()[0])
        if isinstance(schedule, Schedule):
            peak = max(memory_curve(problem, schedule)[1])
        else:
            peak = max(size for _, size in fluid_memory_curve(problem, schedule))
        unit = (at_zero - at_limit) / problem.platform.memory
        assert min(heights) == pytest.approx(at_zero - float(peak) * unit, abs=0.05)
        assert max(heights) <= at_zero + 0.01


def test_names_are_escaped_and_cut(tmp_path: Path) -> None:
    name = "<script>&'\"\x00\ud800\n" + "x" * 10**5
    operations = [Operation(name, 5), Operation("b", 90), Operation("c", 5)]
    problem = Problem(name, Trace(operations, [Tensor(name, 9, (0, 2))]), Platform(9, Fraction(1)))
    certificate = solve(problem, "bounds")
    certificate = replace(
        certificate,
        result=replace(certificate.result, schedule=simulate(problem, sequential(problem))),
    )
    save_gantt(certificate, tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    assert "<script" not in text
    assert len(text) < 10**4
    titles = [rect.findtext(f"{SVG}title", "") for rect in bars_in(ElementTree.fromstring(text))]
    assert titles[0].startswith("<script>&'\"")
    save_gantt(certificate, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_long_trace_keeps_every_bar_in_the_file_and_few_in_a_notebook() -> None:
    certificate = long_certificate()
    whole = bars_in(ElementTree.fromstring(ElementTree.tostring(gantt_svg(certificate))))
    assert len(whole) == 10_000 + 2 * 2_000
    few = gantt_svg(certificate, whole=False)
    drawn = bars_in(ElementTree.fromstring(ElementTree.tostring(few)))
    assert 200 < len(drawn) < 1600


def test_joined_bars_cover_what_they_join() -> None:
    bars = list(bars_of(long_certificate().problem, long_certificate().result.schedule))
    span = max(bar.end for bar in bars)
    groups = joined(bars, span / 100)
    for key in {(bar.row, bar.look) for bar in bars}:
        chosen = [bar for bar in groups if (bar.row, bar.look) == key]
        assert len(chosen) <= 201
        assert all(b.start >= a.end for a, b in pairwise(chosen))
        for bar in bars:
            if (bar.row, bar.look) == key:
                assert any(g.start <= bar.start and bar.end <= g.end for g in chosen)
    alone = [Bar("device", "forward", 0, 50, "a", "a"), Bar("device", "forward", 50, 51, "b", "b")]
    assert joined(alone, 10) == alone


def test_thinned_lines_keep_their_extremes() -> None:
    rng = random.Random(3)
    for _ in range(200):
        points = [(index * rng.random() / 9, rng.random()) for index in range(rng.randint(2, 90))]
        points.sort()
        kept = thinned(points, 1.0)
        assert set(kept) <= set(points)
        assert kept == sorted(kept)
        assert (kept[0], kept[-1]) == (points[0], points[-1])
        for extreme in (min, max):
            assert extreme(y for _, y in kept) == extreme(y for _, y in points)
        assert len(kept) <= 4 * (int(points[-1][0]) + 1)


def test_ticks_are_round_and_not_too_many() -> None:
    assert ticks(10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0) == [0]
    for largest in (0.003, 1, 7.7, 99, 12345):
        found = ticks(largest, 5)
        assert 2 <= len(found) <= 6
        assert found[-1] <= largest * 1.000001


# What three kinds of colour blindness make of linear red, green and blue (Machado et al. 2009).
BLIND = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def lab(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    """Return a colour as somebody sees it, in CIE L*a*b*."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    red, green, blue = (
        min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0), 1) for row in matrix
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_bars_are_told_apart_by_colour_whatever_one_sees_and_by_their_stripes() -> None:
    for matrix in BLIND.values():
        for first, second in combinations([look.colour for look in LOOKS.values()] + [BOUND], 2):
            pairs = zip(lab(first, matrix), lab(second, matrix), strict=True)
            distance = sum((a - b) ** 2 for a, b in pairs) ** 0.5
            assert distance > 15, (first, second, matrix)
    assert len({look.hatch for look in LOOKS.values()}) == len(LOOKS)


def test_the_picture_has_stripes_names_and_the_bound_and_its_pixels_are_the_same_picture(
    tmp_path: Path,
) -> None:
    chain = Chain([30, 40], [40, 20], [10, 2, 1], [0, 0, 0], [0, 8])
    certificate = solve(Problem("p", chain, Platform(13, Fraction(1, 5))), "sequential")
    root = gantt_svg(certificate)
    texts = {text.text for text in root.iter("text")}
    assert {"F0", "F1", "B1", "B0", "x0"} <= texts
    # The legend is inside, above the rows.
    for look in ("forward", "backward", "offload", "prefetch"):
        (item,) = (text for text in root.iter("text") if text.text == look)
        assert 0 < float(item.get("x", "")) < 1000
        assert float(item.get("y", "")) < 60
    fills = {rect.get("fill") for rect in root.iter("rect")}
    assert {f"url(#offcert-{look})" for look in ("backward", "offload", "prefetch")} <= fills
    save_gantt(certificate, tmp_path / "p.png")
    pixels = imread(tmp_path / "p.png")
    assert pixels.shape[:2] == (float(root.get("height", "")) * 1.5, 1100 * 1.5)
    # Where the first forward operation is, the picture is in its colour.
    bar = next(rect for rect in root.iter("rect") if rect.get("fill") == LOOKS["forward"].colour)
    x, y = ((float(bar.get(at, "")) + 3) * 1.5 for at in "xy")
    found = [round(255 * float(part)) for part in pixels[int(y), int(x), :3]]
    assert found == [int(LOOKS["forward"].colour[at : at + 2], 16) for at in (1, 3, 5)]
    # Names are drawn: there are fonts.
    (label,) = (text for text in root.iter("text") if text.text == "F0")
    x, y = (float(label.get(at, "")) * 1.5 for at in "xy")
    part = pixels[int(y) - 12 : int(y), int(x) - 12 : int(x) + 12, :3]
    assert part.min() < 0.3
