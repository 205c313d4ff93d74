"""How the offloading paper's evaluation is checked: its table, and the certificates that decide.

The verdicts follow from the campaign's table, which is part of the evidence; the certificates are
those of the cases that decide. Without the file, the certificates of failures in docs/certificates
are all there is, and the table is known by its digest on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import claims

from offcert.certification.methods import solve
from offcert.core.documents import read_json
from offcert.questions.schedule.files import problem_digest
from offcert_lab.comparisons.points import Point, points_of
from papers.claims.document import FOLDER
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, schedule_certificate
from papers.claims.offloading import CLAIMS
from papers.claims.published import TABLE, TABLE_COMMAND, TABLE_SECTION

COMMAND = TABLE_COMMAND
# Without random numbers, and quick.
_QUICK = ("greedy", "dynprog", "vdnn", "tflms")


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the table, if the evidence holds it."""
    table = known.of(TABLE)
    if not table:
        return {claim.key: lambda rows: None for claim in CLAIMS}
    points = table_points(table)
    found = {
        claim.key: [str(each.verdict) for each in claim.by_view(points).values()]
        for claim in CLAIMS
    }
    judged: dict[str, Judge] = {
        key: lambda rows, verdicts=verdicts: verdicts for key, verdicts in found.items()
    }
    # Its rows are no cases of a claim.
    return judged | {TABLE: lambda rows: None}


def table_points(rows: Sequence[EvidenceRow]) -> list[Point]:
    """Return the points of the table that the evidence holds."""
    import pandas

    frame = pandas.DataFrame([dict(row.figures) for row in rows]).convert_dtypes()
    return points_of(frame, claims.BANDWIDTH)


def stated_again() -> dict[str, Again]:
    """Return functions that run the heuristics again on the problem of a certificate."""

    def again(row: EvidenceRow, held: Any) -> Figures:
        if held is None:
            return {}
        problem = schedule_certificate(held).problem
        found: Figures = {
            method: solve(problem, method, workers=1).result.objective
            for method in _QUICK
            if method in row.figures
        }
        # Exhibits without a table do not say it.
        return found | ({"problem": problem_digest(problem)} if "problem" in row.figures else {})

    return {claim.key: again for claim in CLAIMS}


def evidence() -> EvidenceFile:
    """Run the whole campaign anew, in a folder of its own, and return what its page rests on."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        options = claims._parse(["--folder", folder])
        claims.measure(options)
        page, _ = claims.report(options)
        return next(each for each in page.evidence if each.section == TABLE_SECTION)


def published(docs: Path) -> EvidenceFile:
    """Return the certificates of failures that the page links to, as evidence."""
    folder = docs / FOLDER
    keys = {claim.key for claim in CLAIMS}

    def rows() -> Any:
        for item in read_json(folder / "index.json")["exhibits"]:
            if item["claim"] in keys:
                document = read_json(folder / item["certificate"])
                figures = {**item["makespans"], "best": item["makespans"].get("certify")}
                row = EvidenceRow(item["claim"], item["certificate"], figures, document["digest"])
                yield row, [document]

    return evidence_of(TABLE_SECTION, COMMAND, rows())
