"""Rows of the registry of questions: what they name exists, and documents are as they say."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.placing import place
from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.core.result import Bound, Bounded, Evidence, SolveStatus
from offcert.proofs.questions import QUESTIONS, SCHEDULE, Question, question_of
from offcert.questions.placement.problem import PlacementProblem, Residence

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_row_names_a_command_that_exists(question: Question) -> None:
    command = ROOT / "offcert" / "cli" / f"{question.command}.py"
    assert command.exists() or not question.command


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_page_of_formats_lists_it_in_its_version(question: Question) -> None:
    index = (ROOT / "docs" / "formats" / "index.md").read_text()
    assert f"| `{question.format}` | {question.version} |" in index


def test_what_has_another_format_is_read_as_a_schedule_and_refused() -> None:
    for document in ({"format": "offcert-problem"}, {"format": 7}, {}, [], "offcert-placement"):
        assert question_of(document) is SCHEDULE
        with pytest.raises(InputError):
            SCHEDULE.certificate.load().from_json(document)


def test_fields_stand_in_the_order_of_the_row() -> None:
    path = sorted((ROOT / "docs" / "certificates").glob("theory-*.json"))[0]
    documents: list[dict[str, Any]] = [read_json(path)]
    problem = PlacementProblem("two", [Residence("a", 3, 0, 4), Residence("b", 2, 2, 6)])
    documents.append(place(problem, "load").to_json())
    for document in documents:
        question = question_of(document)
        written = question.certificate.load().from_json(document).to_json()
        assert json.dumps(written) == json.dumps(document)
        names = ["format", "version", *question.fields, "digest"]
        assert list(document) == [name for name in names if name in document]


class Known(Bounded):
    def __init__(self, objective: int | None, *bounds: tuple[int, Evidence]) -> None:
        self.value = objective
        self.bounds = [Bound("any", value, evidence) for value, evidence in bounds]

    @property
    def objective(self) -> int | None:
        return self.value


def test_what_follows_from_an_objective_and_bounds() -> None:
    nothing = Known(None)
    assert (nothing.lower_bound, nothing.proved_bound, nothing.evidence) == (0, 0, None)
    assert nothing.gap == float("inf")
    assert nothing.status_by(infeasible=False) is SolveStatus.UNKNOWN
    assert nothing.status_by(infeasible=True) is SolveStatus.INFEASIBLE

    proved, attested = Evidence.PROVED, Evidence.ATTESTED
    known = Known(30, (20, proved), (24, attested), (24, Evidence.CROSS_ATTESTED))
    assert (known.lower_bound, known.proved_bound) == (24, 20)
    assert known.evidence is Evidence.CROSS_ATTESTED
    assert known.gap == float(Fraction(6, 30))
    assert known.status_by(infeasible=False) is SolveStatus.FEASIBLE
    assert Known(24, (24, attested)).status_by(infeasible=False) is SolveStatus.OPTIMAL
    assert Known(0, (0, proved)).gap == 0
