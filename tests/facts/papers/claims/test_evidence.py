"""Evidence of claims: files as they were written, and disagreements of every kind found."""

import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcert.core.errors import InputError
from papers.claims.evidence import (
    EvidenceFile,
    EvidenceRow,
    evidence_of,
    evidence_path,
    read_evidence,
    rests_on,
)
from papers.claims.evidence_check import ClaimCheck, check_section, verdicts_on
from papers.claims.selection_certificate import SelectionCertificate
from support.docs.docs_pages import FORMATS, READING, ROOT, fields

# Storing the middle one of three bytes takes 2 bytes, nothing less.
PATH = SelectionCertificate(
    "path", "components", (0, 1, 1, 1, 0), ((0, 1), (1, 2), (2, 3), (3, 4)), (2,), 2, 2
)
OTHER = replace(PATH, name="other", sizes=(0, 1, 1, 2, 0), objective=3, lower_bound=3)
PAGE = "# Page\n\n### least\n\nText.\n\n- A test.\n- **holds**; in all.\n\n## More\n\n- **no**\n"


def row(figures: dict[str, Any] | None = None, **changed: Any) -> EvidenceRow:
    document = PATH.to_json()
    found = {"stated": "2", "lower": 2, "best": 2} | (figures or {})
    return replace(EvidenceRow("least", "path", found, document["digest"]), **changed)


def file(*rows: EvidenceRow, documents: Iterable[Any] = (PATH.to_json(),)) -> EvidenceFile:
    return evidence_of("own", "command", [(each, documents) for each in rows])


def checked(evidence: EvidenceFile, verdict: str = "holds", **again: Any) -> ClaimCheck:
    judges = {"least": lambda rows: [verdict]}
    (check,) = check_section(evidence, PAGE, judges, {"least": again["again"]} if again else {})
    return check


def test_evidence_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = file(row(), row({"seconds": 1.5, "note": None}, certificate=None))
    made.write(tmp_path)
    path = evidence_path(tmp_path, "own")
    before = path.read_bytes()
    found = read_evidence(path)
    assert found == EvidenceFile("own", "command", made.rows, dict(made.documents))
    found.write(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "line 1 must be a JSON object"),
        ([{"format": "other"}], 'format must be "offcert-evidence"'),
        ([{"row": {"claim": "a", "case": "b", "figures": {"c": True}}}], "c must be a number"),
        ([{"row": {"claim": "a", "case": "b", "figures": {}, "more": 1}}], '"line 2.row.more"'),
        ([{"document": {}}], '"line 2.document.digest" is missing'),
    ],
)
def test_what_is_no_evidence_is_refused(tmp_path: Path, lines: list[Any], said: str) -> None:
    header = {"format": "offcert-evidence", "version": 1, "section": "s", "command": "c"}
    if lines and "format" not in lines[0]:
        lines = [header, *lines]
    path = tmp_path / "e.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))
    with pytest.raises(InputError, match=said):
        read_evidence(path)
    path.write_bytes(b"no xz")
    with pytest.raises(InputError, match="no compressed JSON lines"):
        read_evidence(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_evidence(tmp_path / "missing")


def test_the_page_names_what_a_verdict_rests_on() -> None:
    made = file(row(), row({}, certificate=None))
    made = replace(made, rows=(*made.rows, row({}, certificate="ab"), row({}, claim="x")))
    own = replace(made, rows=(*made.rows, EvidenceRow("least", "sum", {"paper": "1"})))
    assert rests_on(own, "least") == (
        "- Rests on: 1 certificate in [own.jsonl.xz](evidence/own.jsonl.xz), 1 certificate by "
        "digest, made again by `make claims-again`, 1 certificate that was not kept, 1 figure that "
        "`make claims` computes again."
    )
    assert rests_on(own, "nothing") == "- Rests on: nothing."


def test_verdicts_are_read_below_their_headings() -> None:
    page = (
        "### a\n\n- On x: **one**; y\n- On z: **two, 3**\n\n### b\n\nText\n\n### c\n- **no**: 1\n"
    )
    assert verdicts_on(page) == {"a": ["one", "two, 3"], "c": ["no"]}
    assert verdicts_on(PAGE) == {"least": ["holds"]}


def test_what_agrees_has_no_disagreement() -> None:
    check = checked(file(row()), again=lambda row, held: {"stated": str(held.objective)})
    assert (check.here, check.elsewhere, check.lost, check.computed) == (1, 0, 0, 0)
    assert check.disagreements == []
    assert check.summary == "least: holds; 1 certificate verified; no disagreements"
    # A weaker figure than its certificate shows is no disagreement.
    assert checked(file(row({"lower": 1, "best": 3}))).disagreements == []


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"lower": 3}, "path: lower is 3 in the evidence, and its certificate shows 2"),
        ({"best": 1}, "path: best is 1 in the evidence, and its certificate shows 2"),
    ],
)
def test_figures_beyond_their_certificate_are_found(figures: dict[str, Any], said: str) -> None:
    assert checked(file(row(figures))).disagreements == [said]


def test_other_disagreements_are_found() -> None:
    (said,) = checked(file(row()), "fails").disagreements
    assert said == "the page says holds, and what follows is fails"
    (said,) = checked(file(row()), again=lambda row, held: {"stated": "3"}).disagreements
    assert said == "path: stated is 2 in the evidence, and 3 computed again"
    forged = replace(PATH, objective=1, lower_bound=1).to_json()
    wrong = row({"lower": 1, "best": 1}, certificate=forged["digest"])
    (said,) = checked(file(wrong, documents=[forged])).disagreements
    assert "its certificate is not valid: objective: what is stored takes 2 bytes" in said
    other = OTHER.to_json()
    documents = [PATH.to_json(), other]
    (said,) = checked(
        file(row({"stated": "3"}, stated=other["digest"]), documents=documents)
    ).disagreements
    assert said == "path: its certificates are about different instances"
    said = checked(file(row({"stated": "2"}, stated=other["digest"]), documents=documents))
    assert "best is 2 in the evidence, and its certificate shows 3" in said.disagreements[0]
    checks = list(check_section(file(row()), PAGE, {}, {}))
    assert [(each.claim, each.disagreements) for each in checks] == [
        ("least", ["nothing judges it"])
    ]


def test_what_is_not_here_is_counted_and_not_judged_again() -> None:
    own = file(row({}, certificate="ab"), row({}, certificate=None), documents=[])
    judges = {"least": lambda rows: None}
    (check,) = check_section(own, PAGE, judges, {"least": lambda row, held: {}})
    assert check.summary == (
        "least: holds; 1 certificate by digest alone, 1 certificate not kept, not judged again; "
        "no disagreements"
    )


def test_the_page_about_the_format_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (FORMATS / "evidence.md").read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    source = (ROOT / "papers" / "claims" / "evidence.py").read_text()
    asked = set(READING.findall(source)) - {"digest"}
    assert {"figures", "stated", "document"} <= asked <= fields("evidence")
