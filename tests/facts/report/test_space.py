"""Space over time: which rectangles there are, what they say, and what does not fit."""

from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

from offcert.certification.placing import place
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    PlacementResult,
    Residence,
)
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.report.space import lines_of, save_space, shown_spaces, spaces_of


def placed() -> PlacementCertificate:
    """Return addresses for a tensor that leaves twice, one that stays, and a workspace."""
    operations = [Operation(f"o{i}", 5, 3 if i == 1 else 0) for i in range(5)]
    trace = Trace(operations, [Tensor("a", 2, (0, 2, 4)), Tensor("b", 1, (0, 4))])
    problem = Problem("p", trace, Platform(9, Fraction(2)))
    moves = [
        Transfer(Kind.OFFLOAD, 0, 5, 6),
        Transfer(Kind.PREFETCH, 0, 9, 10),
        Transfer(Kind.PREFETCH, 1, 19, 20),
    ]
    schedule = Schedule((0, 5, 10, 15, 20), (5, 10, 15, 20, 25), moves)
    certificate = Certificate(problem, Result(SolveStatus.FEASIBLE, schedule), method="test")
    found = place(certificate, "first-fit").placement
    assert found is not None
    return found


def test_every_residence_is_a_rectangle_of_its_kind() -> None:
    spaces = spaces_of(placed())
    assert [(s.kind, s.start, s.end, s.high - s.low) for s in spaces] == [
        ("leaves", 0, 6, 2),
        ("leaves", 9, 15, 2),
        ("returned", 19, 25, 2),
        ("stays", 0, 25, 1),
        ("workspace", 5, 10, 3),
    ]
    assert spaces[1].title.startswith("a (back 1): 9 to 15, 2 at ")
    assert list(shown_spaces(spaces)) == ["stays", "leaves", "returned", "workspace"]


def rectangles(path: Path) -> list[tuple[float, ...]]:
    found = []
    for group in ElementTree.parse(path).iter():
        if group.get("class") == "spaces":
            names = ("x", "y", "width", "height")
            found += [tuple(float(rect.get(name, "")) for name in names) for rect in group]
    return found


def test_rectangles_of_a_placement_do_not_overlap_in_the_picture(tmp_path: Path) -> None:
    save_space(placed(), tmp_path / "p.svg")
    found = rectangles(tmp_path / "p.svg")
    assert len(found) == 5
    for number, (x, y, width, height) in enumerate(found):
        for left, top, wide, high in found[:number]:
            apart = x >= left + wide - 0.05 or left >= x + width - 0.05
            assert apart or y >= top + high - 0.05 or top >= y + height - 0.05
    # Later is to the right, and higher addresses are higher up.
    assert found[0][0] < found[1][0] < found[2][0]


def test_times_below_0_and_names_of_any_kind_are_drawn(tmp_path: Path) -> None:
    rows = [Residence("<&>\x00" * 50, 5, -30, -10), Residence("empty", 0, 0, 1)]
    found = place(PlacementProblem("<&>", rows, 8))
    save_space(found, tmp_path / "p.svg")
    ((x, *_),) = rectangles(tmp_path / "p.svg")
    assert x >= 0
    assert [text for _, text, _ in lines_of(found)] == ["lower bound 5 B (proved)", "capacity 8 B"]
    save_space(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_at_all_is_drawn_too(tmp_path: Path) -> None:
    save_space(place(PlacementProblem("none", [])), tmp_path / "p.svg")
    save_space(place(PlacementProblem("none", [])), tmp_path / "p.png")
    assert rectangles(tmp_path / "p.svg") == []


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png or \.svg"):
        save_space(placed(), tmp_path / "p.pdf")
    none = place(PlacementProblem("p", [Residence("a", 5, 0, 1)], 4))
    with pytest.raises(InputError, match="holds no addresses to draw"):
        save_space(none, tmp_path / "p.svg")


def test_a_notebook_shows_addresses_of_any_number() -> None:
    rows = [Residence(f"r{i}<", 1 + i % 7, i, i + 3) for i in range(4000)]
    problem = PlacementProblem("many <b>", rows, 99, 2)
    result = PlacementResult.of(problem, Placement(8 * (i % 3) for i in range(4000)))
    found = PlacementCertificate(problem, result, method="hand")
    text = found._repr_html_()
    root = ElementTree.fromstring(text)
    said = "".join(root.itertext())
    assert "the largest 1500 of 4000 are drawn" in said
    assert "many <b>" in said
    assert "capacity" in said
    assert len(text) < 600_000
    none = place(PlacementProblem("p", [Residence("a", 5, 0, 1)], 4))
    assert "INFEASIBLE" in none._repr_html_()
    assert "svg" not in none._repr_html_()
