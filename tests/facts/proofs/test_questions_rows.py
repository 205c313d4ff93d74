"""Rows of the registry of questions name what is there, and problems are known by their class."""

from __future__ import annotations

from importlib import import_module

import pytest

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Trace
from offcert.proofs.questions import PLACEMENT, QUESTIONS, SCHEDULE
from offcert.proofs.reading import asked_by
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.problem import Problem

ROOMS = {
    "certificate": "proofs",
    "checker": "verify",
    "text": "report",
    "picture": "report",
    "snapshot": "report",
    "placed": "report",
    "problem": "questions",
    "answers": "questions",
    "reader": "questions",
    "writer": "questions",
    "ladder": "certify",
    "placer": "certify",
    "host": "certify",
    "measured": "campaign",
}


@pytest.mark.parametrize("row", QUESTIONS.values(), ids=lambda row: row.format)
def test_whatever_a_row_names_is_there(row):
    for field, room in ROOMS.items():
        name = getattr(row, field)
        if name:
            module, _, attribute = name.partition(":")
            assert hasattr(import_module(f"offcert.{room}.{module}"), attribute), (field, name)


def test_a_problem_says_by_its_class_what_it_asks():
    class Own(Problem):
        """A user's own subclass."""

    trace = Trace([Operation("o", 1)], [])
    assert asked_by(Own("p", trace, Platform(1, 1))) is SCHEDULE
    assert asked_by(PlacementProblem("p", [])) is PLACEMENT
    # Files and patterns of the library are texts.
    assert asked_by("library:*") is None
    assert asked_by(trace) is None
