"""The page into which files are dropped: its script reads them as the report's own code does."""

import json
import shutil
import subprocess
from fractions import Fraction
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule
from offcert.report.bars import LOOKS
from offcert.report.page_views import certificate_view
from support.docs.docs_pages import DOCS
from support.problems.joint_certificates import (
    chain_problem,
    checkpointed,
    least_memory_certificate,
    network_problem,
    random_certificate,
)

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
CERTIFICATES = sorted(
    set((DOCS / "certificates").glob("*.json")) - {DOCS / "certificates/index.json"}
)
CHAIN = Chain([30, 40], [40, 20], [10, 2, 1], [0, 0, 0], [0, 8])


def read(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the page's script makes of documents, in one run of Node.js."""
    source = files("offcert.report").joinpath("web/read.js").read_text(encoding="utf-8")
    looks = json.dumps([look.name for look in LOOKS.values()])
    program = f"""{source}
const documents = JSON.parse(require("fs").readFileSync(0, "utf8"));
const shown = document => {{
  try {{ return reading.viewOf("c", document, {looks}); }}
  catch (error) {{ return {{error: error.message}}; }}
}};
console.log(JSON.stringify(documents.map(shown)));"""
    run = subprocess.run(
        ["node", "-e", program],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def both(certificates: list[Certificate]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what the script makes of certificates beside what the report does."""
    ours = [certificate_view("c", each, None) for each in certificates]
    same = json.loads(json.dumps(ours))
    return list(zip(read([each.to_json() for each in certificates]), same, strict=True))


# What says where a certificate comes from may be shorter in the viewer.
SHORTER = {"choice", "facts", "known"}


def bytes_at(line: dict[str, Any], moment: float) -> float:
    """Return the bytes of a line between its corners."""
    times, sizes = line["times"], line["sizes"]
    after = next(index for index, time in enumerate(times) if time > moment)
    part = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return float(sizes[after - 1] + part * (sizes[after] - sizes[after - 1]))


@needs_node
def test_the_script_reads_whole_transfers_and_runs_again_as_the_report_does() -> None:
    stored = [certificate_from_json(json.loads(path.read_text())) for path in CERTIFICATES]
    joint = [*map(random_certificate, range(6)), checkpointed(), least_memory_certificate()]
    whole = [each for each in stored if not isinstance(each.result.schedule, FluidSchedule)]
    assert len(whole) >= 9
    for found, expected in both([*whole, *joint]):
        for name in expected.keys() - SHORTER:
            if name == "lines":
                assert [line.pop("colour") for line in expected[name]]
            assert found[name] == expected[name], (expected["title"], name)


@needs_node
def test_the_script_reads_transfers_in_pieces_as_the_report_does() -> None:
    stored = [certificate_from_json(json.loads(path.read_text())) for path in CERTIFICATES]
    fluid = [each for each in stored if isinstance(each.result.schedule, FluidSchedule)]
    pieces = Problem("p", CHAIN, Platform(13, Fraction(1, 5)), transfers=Transfers.INTERRUPTIBLE)
    fluid.append(solve(pieces, "fluid-exact", time_limit=5))
    assert len(fluid) >= 2
    for found, expected in both(fluid):
        for name in expected.keys() - SHORTER - {"lines"}:
            assert found[name] == expected[name], name
        (ours,), (theirs,) = found["lines"], expected["lines"]
        times = sorted({*ours["times"], *theirs["times"]})
        assert times[-1] == found["span"]
        for before, after in pairwise(times):
            middle = (before + after) / 2
            assert bytes_at(ours, middle) == pytest.approx(bytes_at(theirs, middle), abs=1e-6)


@needs_node
def test_a_problem_is_shown_as_it_runs_without_a_plan() -> None:
    problems = [
        chain_problem(),
        network_problem(2),
        Problem("p", CHAIN, Platform(13, Fraction(5))),
    ]
    problems = [each.with_memory(each.trace.peak_memory - 1) for each in problems]
    fits = problems[0].with_memory(problems[0].trace.peak_memory)
    for problem, found in zip(
        [*problems, fits], read([problem_to_json(each) for each in [*problems, fits]]), strict=True
    ):
        trace = problem.trace
        assert found["span"] == trace.compute_time
        assert max(found["lines"][0]["sizes"]) == trace.peak_memory
        assert len(found["bars"][0]["start"]) == len(trace)
        said = "Fits without a plan" if problem is fits else "Needs 1 more than the limit"
        assert found["status"]["said"].startswith(said)


@needs_node
def test_what_it_cannot_show_is_said_in_a_sentence() -> None:
    valid = checkpointed().to_json()
    found = read([{}, {"format": "offcert-training", "version": 1}, valid | {"version": 2}])
    assert [each["error"] for each in found] == [
        "it has no format",
        "it is an offcert-training; offcert report makes a page of reports of training and of what "
        "doctor printed",
        "its version is 2, not 1",
    ]


@needs_node
def test_an_unverified_proof_reads_as_what_the_file_says() -> None:
    (found,) = read([json.loads(CERTIFICATES[0].read_text())])
    assert found["status"]["said"].endswith("(says the file)")
    assert found["status"]["checked"] == "Not verified for this page"
    assert {bound["said"] for bound in found["bounds"] if bound["proved"]} == {
        "proved, says the certificate"
    }


def test_the_command_writes_a_page_that_waits_for_a_file(tmp_path: Path) -> None:
    assert main(["report", "-o", str(tmp_path / "viewer.html")]) == 0
    page = (tmp_path / "viewer.html").read_text(encoding="utf-8")
    assert "Drop a certificate or a problem here" in page
    assert "default-src 'none'" in page
    assert '"plans":[]' in page
