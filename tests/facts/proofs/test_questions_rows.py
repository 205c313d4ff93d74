"""Rows of the registry of questions name what is there, and problems are known by their class."""

from __future__ import annotations

import subprocess
import sys

import pytest

from offcert.core.later import Later
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Trace
from offcert.proofs.questions import PLACEMENT, QUESTIONS, SCHEDULE, asked_by
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.problem import Problem
from offcert.report.findings import Text

ROOMS = {
    "certificate": "proofs",
    "checker": "verification",
    "text": "report",
    "picture": "report",
    "snapshot": "report",
    "placed": "report",
    "problem": "questions",
    "answers": "questions",
    "reader": "questions",
    "writer": "questions",
    "ladder": "certification",
    "placer": "certification",
    "host": "certification",
    "measured": "campaign",
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda row: row.format)
def test_whatever_a_row_names_is_there(question):
    rows = {field: row for field, row in vars(question).items() if isinstance(row, Later)}
    assert rows.keys() <= ROOMS.keys()
    assert rows.keys() >= {"certificate", "checker", "text"}
    for field, row in rows.items():
        assert row.name.startswith(f"offcert.{ROOMS[field]}.")
        assert isinstance(row.load(), Text) or callable(row.load())
    assert callable(question.certificate.load().from_json)


def test_a_row_loads_nothing_before_it_is_asked():
    """Also if a module and what is named in it have the same name, or its folder."""
    code = (
        "import sys\nfrom offcert.core.later import Later\n"
        "row = Later(lambda: offcert.questions.schedule.check.check)\n"
        "print(row.name, row.name in sys.modules, 'offcert.questions' in sys.modules)\n"
        "from offcert.questions.schedule.check import check\n"
        "print(row.load() is check)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *("offcert.questions.schedule.check.check", "False", "False", "True")
    ]


def test_a_problem_says_by_its_class_what_it_asks():
    class Own(Problem):
        """A user's own subclass."""

    trace = Trace([Operation("o", 1)], [])
    assert asked_by(Own("p", trace, Platform(1, 1))) is SCHEDULE
    assert asked_by(PlacementProblem("p", [])) is PLACEMENT
    # Files and patterns of the library are texts.
    assert asked_by("library:*") is None
    assert asked_by(trace) is None
