"""The evidence of the offloading section: of its theorems, and of what its table says.

The theorems' certificates are small, and all are published. Of the table's, those of the cases that
decide are named: where a claim fails worst, or comes closest to failing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from offcert.core.documents import read_json
from offcert_lab.comparisons.points import CERTIFY, Point, by_problem
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.judge import Case, Finding
from papers.claims.theory import Experiment

THEORY_SECTION, THEORY_COMMAND = "theory", "python benchmarks/claims_theory.py"
TABLE_SECTION, TABLE_COMMAND = "offloading", "python benchmarks/claims.py"
# What rows of the table have for a claim.
TABLE = "table"
# Digests of certificates that the folder no longer has, by their paths.
DIGESTS = "digests.json"
# Larger ones are named by their digests; a chain of the paper's networks takes about half of it.
_LARGEST_HERE = 16 * 1024
Shown = tuple[EvidenceRow, list[Any]]


def theory_evidence(experiments: Sequence[Experiment], folder: Path) -> EvidenceFile:
    """Return the evidence of experiments whose certificates are below a folder."""

    def rows() -> Iterator[Shown]:
        for experiment in experiments:
            document = _document(folder, experiment.certificate)
            given = [] if document is None else [document]
            yield experiment.row(_digest(folder, experiment.certificate, document)), given

    return evidence_of(THEORY_SECTION, THEORY_COMMAND, rows())


def table_evidence(
    found: Mapping[str, Sequence[Finding]], points: Sequence[Point], folder: Path
) -> EvidenceFile:
    """Return the evidence of findings about a table whose certificates are below a folder.

    The table itself is not part of it: `with_table` adds that.

    Parameters
    ----------
    found : mapping
        For each claim what each view of the table says of it.
    points : sequence of Point
        Of the table.
    folder : Path
        Where the table is.
    """
    groups = by_problem(points)

    def rows() -> Iterator[Shown]:
        for claim, findings in found.items():
            for finding in findings:
                if finding.worst is not None:
                    for point in _points_of(finding.worst, groups):
                        yield from _shown(claim, point, folder)

    return evidence_of(TABLE_SECTION, TABLE_COMMAND, rows())


def _points_of(case: Case, groups: Mapping[str, Sequence[Point]]) -> Sequence[Point]:
    """Return the points of a case: a limit, or all limits of a problem that it names."""
    return [case.point] if case.point is not None else groups.get(case.label, [])


def _shown(claim: str, point: Point, folder: Path) -> Iterator[Shown]:
    for cell in point.cells.get(CERTIFY, ()):
        document = _document(folder, cell.certificate)
        figures: Figures = {
            "problem": point.digest,
            "lower": cell.proved_bound,
            "best": cell.makespan,
        }
        for method in point.cells:
            if method != CERTIFY:
                figures[method] = point.makespan(method)
        digest = _digest(folder, cell.certificate, document)
        row = EvidenceRow(claim, point.label, figures, digest)
        small = document is not None and len(json.dumps(document)) <= _LARGEST_HERE
        yield row, [document] if small else []


def _document(folder: Path, name: str | None) -> Any:
    """Return the certificate in a folder, or None if it was not kept."""
    path = None if name is None else folder / name
    return read_json(path) if path is not None and path.is_file() else None


def _digest(folder: Path, name: str | None, document: Any) -> str | None:
    """Return the digest of a certificate, also if only that is left of it."""
    if document is not None:
        return str(document["digest"])
    return None if name is None else _left(folder).get(name)


@cache
def _left(folder: Path) -> dict[str, str]:
    path = folder / DIGESTS
    found: dict[str, str] = read_json(path) if path.is_file() else {}
    return found


def with_table(
    evidence: EvidenceFile, rows: Iterable[Mapping[str, Any]], folder: Path
) -> EvidenceFile:
    """Return evidence with the rows of its table, from which all verdicts follow again.

    Each row names its certificate by its digest, if that is below the folder.
    """
    table = []
    for row in rows:
        document = _document(folder, row["certificate"])
        digest = _digest(folder, row["certificate"], document)
        table.append(EvidenceRow(TABLE, row["key"], dict(row), digest))
    return replace(evidence, rows=(*evidence.rows, *table))
