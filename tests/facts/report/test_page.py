"""The report page as text: what it says of bounds, and that nothing in a document rules it."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert.report.memory_curve import memory_curve
from offcert.report.page import PageDocument, page
from offcert.verification.document import verify
from support.docs.docs_pages import DOCS
from support.problems.training_records import made

CHAIN = Chain([30, 40], [40, 20], [10, 2, 1], [0, 0, 0], [0, 8])
PROBLEM = Problem("p", CHAIN, Platform(13, Fraction(1, 5)))


def data(*shown: PageDocument) -> dict[str, Any]:
    """Return what the page is made of, as the browser reads it."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page(shown))
    loaded: dict[str, Any] = json.loads(found)
    return loaded


def with_bounds(*bounds: Bound) -> Certificate:
    certificate = solve(PROBLEM, "sequential")
    return replace(certificate, result=replace(certificate.result, bounds=bounds))


@pytest.mark.parametrize("evidence", [Evidence.ATTESTED, Evidence.CROSS_ATTESTED])
def test_what_a_solver_says_never_reads_as_proved(evidence: Evidence) -> None:
    bounds = Bound("time-indexed", 150, evidence), Bound("prop3", 130, Evidence.PROVED)
    certificate = with_bounds(*bounds)
    for verification in (None, verify(certificate)):
        (plan,) = data(PageDocument("c", certificate, verification))["plans"]
        claimed, proved = plan["bounds"]
        assert (claimed["proved"], claimed["value"]) == (False, "150")
        assert claimed["said"].endswith("not proved")
        assert "not proved" not in proved["said"] or verification is not None
        assert plan["known"] == (
            "Proved: no schedule is shorter than 130. "
            "Claimed by solvers, and not proved: none is shorter than 150."
        )
        assert "optimal" not in plan["known"].lower()


def test_what_is_not_valid_is_not_proved_either() -> None:
    forged = with_bounds(Bound("prop3", 179, Evidence.PROVED))
    (plan,) = data(PageDocument("c", forged, verify(forged)))["plans"]
    assert plan["status"]["said"] == "This document does not prove what it says"
    assert (plan["status"]["tone"], plan["status"]["mark"]) == ("bad", "bad")
    assert plan["status"]["checked"].startswith("INVALID: ")
    (bound,) = plan["bounds"]
    assert (bound["proved"], bound["said"]) == (False, "not proved: the document is not valid")


@pytest.mark.parametrize(
    ("bounds", "infeasible", "tone", "said"),
    [
        ((180,), False, "good", "The fastest plan there is: proved"),
        ((175,), False, "good", "The best plan found; at most 2.8 % from the best possible"),
        ((90,), False, "open", "The best plan found; at most 50 % from the best possible"),
        ((), False, "open", "The best plan found; how far from the best possible is not known"),
        ((), True, "bad", "There is no plan: F0 needs 12 even when all else has left, 2 more than"),
    ],
)
def test_what_is_known_of_a_plan_is_said_in_words(
    bounds: tuple[int, ...], infeasible: bool, tone: str, said: str
) -> None:
    certificate = with_bounds(*(Bound("prop3", each, Evidence.PROVED) for each in bounds))
    if infeasible:
        certificate = solve(PROBLEM.with_memory(10), "sequential")
    (plan,) = data(PageDocument("c", certificate))["plans"]
    assert plan["status"]["said"].startswith(said)
    # Nothing has been verified here.
    assert plan["status"]["said"].endswith("(says the file)")
    assert plan["status"]["tone"] == tone


def test_a_claim_never_makes_a_plan_the_fastest_there_is() -> None:
    claimed = with_bounds(
        Bound("time-indexed", 180, Evidence.ATTESTED), Bound("prop3", 130, Evidence.PROVED)
    )
    (plan,) = data(PageDocument("c", claimed))["plans"]
    assert plan["status"]["said"].startswith(
        "The best plan found; at most 28 % from the best possible; solvers say that none is "
        "better, which is not proved"
    )


def test_kinds_of_proofs_are_explained_and_linked_where_the_documentation_is() -> None:
    certificate = with_bounds(Bound("prop3", 130, Evidence.PROVED))
    found = data(PageDocument("c", certificate))
    assert found["docs"] == ""
    for name in ("prop3", *(bound["method"] for bound in found["plans"][0]["bounds"])):
        about, where = found["kinds"][name]
        assert about
        assert (DOCS / "theory" / f"{where}.md").is_file()
    (text,) = re.findall(r'id="data">(.*?)</script>', page([], "out/docs"))
    assert json.loads(text)["docs"] == "out/docs/"


def test_training_stands_with_the_certificate_that_it_is_about() -> None:
    certificate = solve(PROBLEM, "sequential")
    record = made(problem=problem_digest(PROBLEM))
    other = made(name="other")
    shown = [PageDocument("t", record), PageDocument("o", other), PageDocument("c", certificate)]
    alone, both = data(*shown)["plans"]
    assert (alone["title"], both["title"]) == ("other", "p")
    assert both["training"]["rows"][:2] == ["device, planned", "device, measured"]
    assert both["training"]["status"]["said"].startswith("planned 15 ns, measured 18 ns")
    values = {tile["name"]: tile["value"] for tile in both["training"]["tiles"]}
    assert values["losses, gradients, weights"] == "no bit differs"


def test_files_say_no_seconds_so_the_page_says_the_limit_of_the_search() -> None:
    found = solve(PROBLEM, "sequential", time_limit=7)
    said = []
    for seconds in (2.5, 0.0):
        known = replace(found, result=replace(found.result, runtime=seconds))
        (plan,) = data(PageDocument("c", known))["plans"]
        said.append(dict(plan["facts"])["found by"])
    read = certificate_from_json(found.to_json())
    (plan,) = data(PageDocument("c", read))["plans"]
    assert [*said, dict(plan["facts"])["found by"]] == [
        "sequential in 2.5 s",
        *["sequential in at most 7 s"] * 2,
    ]


def test_what_is_inside_at_any_moment_is_what_the_curve_counts() -> None:
    certificate = solve(PROBLEM, "sequential")
    schedule = certificate.result.schedule
    assert isinstance(schedule, Schedule)
    (plan,) = data(PageDocument("c", certificate))["plans"]
    inside, (line,) = plan["inside"], plan["lines"]
    times, held = memory_curve(PROBLEM, schedule)
    assert (line["times"], line["sizes"]) == (times, held)
    rows = list(zip(inside["from"], inside["to"], inside["size"], strict=True))
    for time, size in zip(times, held, strict=True):
        assert sum(part for begin, end, part in rows if begin <= time < end) == size


def test_limits_of_one_problem_are_one_curve_and_others_are_not() -> None:
    certificates = [solve(PROBLEM.with_memory(memory), "sequential") for memory in (30, 13, 21)]
    other = solve(replace(PROBLEM, transfers=Transfers.INTERRUPTIBLE), "fluid-exact", time_limit=5)
    found = data(*(PageDocument("c", each) for each in (*certificates, other)))
    first, second = found["groups"]
    assert (first["plans"], first["limits"], second["plans"]) == ([1, 2, 0], [13, 21, 30], [3])
    assert first["best"] == [180 / 130, 1.0, 1.0]
    assert all(least <= best for least, best in zip(first["least"], first["best"], strict=True))
    assert found["plans"][3]["lines"][0]["slanted"]
    assert found["plans"][3]["inside"] is None


def test_no_name_ends_the_script_and_nothing_is_loaded() -> None:
    evil = "</script><script>alert(1)</script><!--\x00\u202e"
    certificate = solve(replace(PROBLEM, name=evil), "sequential")
    text = page([PageDocument(evil, certificate)])
    assert text.count("<script") == text.count("</script>") == 6
    assert "<!--" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"\b(src|href)=", text.split("<script type")[0])
    assert "Copyright (c) 2022 Leon Sorokin" in text


def test_the_command_writes_a_page_of_a_folder_or_says_what_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = solve(PROBLEM, "sequential")
    certificate.write(tmp_path / "memory-13.json")
    target = tmp_path / "r.html"
    assert main(["report", str(tmp_path), "-o", str(target)]) == 0
    assert "Verified for this page" in target.read_text()
    assert main(["report", "--no-verify", str(tmp_path / "memory-13.json"), "-o", str(target)]) == 0
    assert "Not verified for this page" in target.read_text()
    capsys.readouterr()
    before = target.read_bytes()
    (tmp_path / "empty").mkdir()
    for given, said in ((tmp_path / "empty", "holds no certificates"), (target, "not valid JSON")):
        other = tmp_path / "other.html"
        assert main(["report", str(given), "-o", str(other)]) == 2
        assert said in capsys.readouterr().err
        assert not other.exists()
    assert target.read_bytes() == before
