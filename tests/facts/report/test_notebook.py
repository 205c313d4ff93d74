"""What a notebook shows: facts, escaped, in a picture of bounded size."""

import copy
import json
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from itertools import product
from xml.etree import ElementTree

import pytest

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.proofs.certificate import certificate_from_json
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.report.notebook import _CELL
from support.problems.long_schedules import long_certificate
from support.problems.random_instances import random_problem

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
PROBLEM = Problem("p", CHAIN, Platform(13, Fraction(2)))
# What would load something from elsewhere.
LOADING = ("src", "href", "{http://www.w3.org/1999/xlink}href", "srcset", "data", "action")


class Elements(HTMLParser):
    """Counts what a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shown(value: object) -> tuple[ElementTree.Element, str]:
    """Return what a notebook shows as a tree and as text, after checking its form."""
    text: str = value._repr_html_()  # type: ignore[attr-defined]
    root = ElementTree.fromstring(text)
    browser = Elements(text)
    assert browser.open == []
    assert len(browser.seen) == sum(1 for _ in root.iter())
    for item in root.iter():
        assert not set(item.attrib) & set(LOADING)
        assert "script" not in item.tag.lower()
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#offcert-")
    return root, text


def cells(root: ElementTree.Element) -> dict[str, str]:
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    return {row[0]: row[1] for row in rows}


def test_a_problem_shows_its_numbers_and_its_memory_against_the_limit() -> None:
    root, _ = shown(PROBLEM)
    found = cells(root)
    assert found["operations"] == "4"
    assert found["tensors"] == "6, of which 1 may leave"
    assert found["compute time"] == "13"
    assert found["memory limit"] == "13 (11.11 % between 12 and 21)"
    assert found["link"] == "simplex, 2 units per tick"
    paths = {path.findtext(f"{SVG}title"): path.get("d", "") for path in root.iter(f"{SVG}path")}
    limit = float(paths["limit 13"].split(",")[1].split()[0])
    corners = [pair.split(",") for pair in paths["if nothing leaves"][1:].split("L")]
    heights = sorted({float(y) for _, y in corners}, reverse=True)
    # 12, 13 and 21 bytes: the limit is the second, and one byte is as high everywhere.
    assert len(heights) == 3
    assert limit == pytest.approx(heights[1], abs=0.02)
    assert heights[1] - heights[2] == pytest.approx(8 * (heights[0] - heights[1]), abs=0.1)


def test_a_certificate_shows_the_chart_and_the_bounds_best_first() -> None:
    certificate = solve(PROBLEM, "pivot", time_limit=5)
    root, text = shown(certificate)
    found = cells(root)
    assert found["makespan"] == "18, 1.385 times the compute time"
    assert found["gap"] == "0 %"
    assert found["offloaded"] == "1 of 6 tensors"
    (table,) = (item for item in root.iter("table") if item.get("class") == "bounds")
    rows = [tuple("".join(cell.itertext()) for cell in row) for row in table.iter("tr")][1:]
    assert sorted(rows) == sorted(
        (str(bound.value), bound.method, str(bound.evidence)) for bound in certificate.result.bounds
    )
    assert [int(row[0]) for row in rows] == sorted((int(row[0]) for row in rows), reverse=True)
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert len(bars) == 4 + 2
    assert "offcert.verify checks it" in text


def test_answers_without_a_schedule_are_shown_too() -> None:
    root, text = shown(solve(PROBLEM.with_memory(11), "bounds"))
    assert "lacks" not in text
    assert cells(root)["no schedule"] == (
        "F0 needs 12 even when all else has left, 1 more than there is"
    )
    root, _ = shown(solve(PROBLEM, "bounds"))
    assert root.find(f".//{SVG}svg") is None
    assert "makespan" not in cells(root)


def test_names_are_data() -> None:
    name = "<script>alert(1)</script>&\x00\ud800 onload='x'" + "x" * 10**5
    operations = [Operation(name, 5), Operation("b", 90), Operation("c", 5)]
    trace = Trace(operations, [Tensor(name, 9, (0, 2))])
    problem = Problem(name, trace, Platform(9, Fraction(1)))
    certificate = solve(problem, "greedy")
    bound = Bound(name, 3, Evidence.ATTESTED)
    result = replace(certificate.result, bounds=(*certificate.result.bounds, bound))
    for value in (problem, replace(certificate, result=result, method=name)):
        root, text = shown(value)
        assert "<script" not in text
        assert "<script>alert(1)</script>&" in "".join(root.itertext())
        assert len(text) < 20_000


def test_every_kind_of_problem_and_answer_is_shown() -> None:
    for seed in range(8):
        problem = random_problem(seed, 4)
        shown(problem)
        shown(replace(problem, platform=replace(problem.platform, link="duplex")))
        shown(problem.with_memory(10**9))
        shown(solve(problem, "sequential"))
        relaxed = replace(problem, transfers=Transfers.FRACTIONAL)
        shown(solve(relaxed, "fluid-exact", time_limit=5))
    idle = Trace([Operation("a", 0), Operation("b", 0)], [Tensor("t", 0, (0, 1))])
    root, _ = shown(Problem("idle", idle, Platform(0, Fraction(1))))
    assert "operation" in "".join(root.itertext())
    shown(solve(Problem("idle", idle, Platform(0, Fraction(1))), "sequential"))


def test_ten_thousand_operations_fit_into_a_notebook() -> None:
    certificate = long_certificate()
    assert len(shown(certificate)[1]) < 300_000
    assert len(shown(certificate.problem)[1]) < 200_000


def test_what_has_not_been_verified_is_drawn_as_it_claims() -> None:
    """Pictures need no valid schedule: whoever looks for a fault must see it."""
    drawn = 0
    relaxed = replace(PROBLEM, transfers=Transfers.INTERRUPTIBLE)
    for certificate in (solve(PROBLEM, "sequential"), solve(relaxed, "fluid-exact")):
        document = json.loads(json.dumps(certificate.to_json()))
        (moves,) = {"transfers", "pieces"} & set(document["schedule"])
        forged = [[], *([item] for item in document["schedule"][moves])]
        numbers = (0, -3, 10**12) if moves == "transfers" else ("0/1", "17/3", "999999/1")
        for index, name, number in product(range(2), ("start", "end"), numbers):
            changed = copy.deepcopy(document["schedule"][moves])
            changed[index][name] = number
            forged.append(changed)
        for changed in forged:
            document["schedule"][moves] = changed
            shown(certificate_from_json(document))
            drawn += 1
        for number in (-7, 0, 10**12):
            document["schedule"]["operations"][1]["start"] = number
            shown(certificate_from_json(document))
    assert drawn == 2 * (3 + 12)


@pytest.mark.slow
def test_what_has_no_picture_is_a_table() -> None:
    """A trace, a result, the library, and what verification found."""
    import offcert

    trace, certificate = PROBLEM.trace, solve(PROBLEM, "greedy")
    _, text = shown(trace)
    largest = max(trace.tensors, key=lambda tensor: tensor.size)
    assert f'<td style="{_CELL}">{largest.name}</td>' in text
    assert f"{trace.compute_time} ticks" in text
    _, text = shown(certificate.result)
    assert str(certificate.result.lower_bound) in text
    assert all(bound.method in text for bound in certificate.result.bounds)
    _, text = shown(offcert.verify(certificate))
    assert "VALID" in text
    assert "computed again" in text
    document = certificate.to_json() | {"objective": 10**6}
    _, text = shown(offcert.verify(document))
    assert ">INVALID<" in text
    assert "1000000" in text
    library = offcert.Library()
    root, text = shown(library)
    assert len(list(root.iter("tr"))) < 50
    assert f"{len(library.names()) - 30} more" in text
