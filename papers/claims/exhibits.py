"""The certificates that are published with claims: one for every claim that fails somewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert_lab.comparisons.points import CERTIFY, Point
from papers.claims.judge import Finding, Verdict
from papers.claims.theory import Experiment

EXHIBITS_FORMAT = "offcert-exhibits"
EXHIBITS_VERSION = 1
LARGEST = 64 * 1024


@dataclass(frozen=True)
class Exhibit:
    """A certificate that shows where a claim fails.

    Attributes
    ----------
    claim : str
        Its key.
    source : Path
        The certificate among the campaign's.
    name : str
        Name of the published file.
    makespans : mapping of str to int
        What methods take on the certificate's problem, by the table: the methods that the claim
        is about are among them. Empty for an experiment.
    """

    claim: str
    source: Path
    name: str
    makespans: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the exhibit as a JSON value."""
        makespans = dict(sorted(self.makespans.items()))
        return {"claim": self.claim, "certificate": self.name, "makespans": makespans}


def exhibit_of(claim: str, findings: Sequence[Finding], folder: Path) -> Exhibit | None:
    """Return the certificate of the worst failure that has a small one, or None.

    Parameters
    ----------
    claim : str
        Its key.
    findings : sequence of Finding
        The first that is refuted, or partly, counts.
    folder : Path
        The table's, where its certificates are.
    """
    for finding in findings:
        if finding.verdict in (Verdict.REFUTED, Verdict.PARTLY):
            for case in finding.failures:
                path = None if case.point is None else certificate_path(case.point, folder)
                if case.point is not None and path is not None:
                    name = _file_name(f"{case.point.problem}-m{case.point.percent:g}")
                    return Exhibit(claim, path, name, _makespans(case.point))
    return None


def experiment_exhibit(
    claim: str, finding: Finding, experiments: Sequence[Experiment], folder: Path
) -> Exhibit | None:
    """Return the certificate of the worst experiment in which a theorem fails, or None."""
    known = {e.instance: e.certificate for e in experiments if e.claim == claim and e.certificate}
    for case in finding.failures:
        path = folder / known[case.label] if case.label in known else None
        if path is not None and _small(path):
            return Exhibit(claim, path, _file_name(f"theory-{case.label}"), {})
    return None


def certificate_path(point: Point, folder: Path) -> Path | None:
    """Return where a point's certificate is, if it is there and small; of several, the tightest."""
    cells = point.cells.get(CERTIFY, ())
    for cell in sorted(cells, key=lambda cell: cell.lower_bound or 0, reverse=True):
        if cell.certificate is not None and _small(folder / cell.certificate):
            return folder / cell.certificate
    return None


def _small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= LARGEST


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text) + ".json"


def _makespans(point: Point) -> dict[str, int]:
    found = {name: point.makespan(name) for name in point.cells}
    return {name: makespan for name, makespan in found.items() if makespan is not None}


def exhibits_to_json(exhibits: Sequence[Exhibit]) -> dict[str, Any]:
    """Return the index of the published certificates as a JSON value."""
    return {
        "format": EXHIBITS_FORMAT,
        "version": EXHIBITS_VERSION,
        "exhibits": [exhibit.to_json() for exhibit in exhibits],
    }
