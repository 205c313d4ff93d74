"""Rows of the registry of questions name what is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from offcert.core.later import Later
from offcert.proofs.questions import QUESTIONS
from offcert.report.findings import Text

ROOMS = {
    "certificate": "proofs",
    "checker": "verification",
    "text": "report",
    "picture": "report",
    "snapshot": "report",
    "placed": "report",
    "answers": "questions",
    "reader": "questions",
    "writer": "questions",
    "ladder": "certification",
    "placer": "certification",
    "host": "certification",
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
