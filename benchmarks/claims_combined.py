"""Test the combined paper's claims about memory: a section of docs/claims.md.

    python benchmarks/claims_combined.py out/combined.json out/combined-500.json \
        --certificates out/combined
    python benchmarks/claims_combined.py

Takes what ``benchmarks/certify_joint.py --overhead 20%`` has written, keeps its figures in
``docs/claims-combined.json`` and its certificates as evidence, and writes the section; without
files, from what is there. A row whose certificate was not kept stays as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from certify_joint import least_memory_problem
from claims_sections import replace_section

from offcert.certification.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem, Recompute
from papers.claims.combined import (
    COMBINED,
    HEADING,
    MEANS,
    CombinedClaim,
    CombinedRow,
    combined_section,
    comparisons_of,
    rows_from_json,
    rows_to_json,
)
from papers.claims.evidence import (
    EvidenceFile,
    EvidenceRow,
    Figures,
    evidence_of,
    evidence_path,
    read_evidence,
)
from papers.claims.evidence_check import Again, Judge, schedule_certificate

DOCS = Path(__file__).parent.parent / "docs"
ROWS = "claims-combined.json"
SECTION, COMMAND = "combined", "python benchmarks/claims_combined.py FILE... --certificates FOLDER"
OVERHEAD = "20%"
# Larger certificates, as JSON, are named by their digests.
LARGEST = 2 * 2**20
Shown = tuple[EvidenceRow, list[Any]]


def measured(files: Sequence[Path]) -> list[CombinedRow]:
    """Return the rows that runs of the other benchmark have written; later ones replace others."""
    found = {}
    for row in (row for file in files for row in read_json(file)):
        network, means = row["network"], row["means"]
        if row["objective"] is None:
            sys.exit(f"no plan is known for {network}")
        figures = row["peak"], row["objective"], row["lower_bound"]
        found[network, means] = CombinedRow(network, means, *figures, row["time_limit"])
    return list(found.values())


def merged(known: Sequence[CombinedRow], newer: Iterable[CombinedRow]) -> list[CombinedRow]:
    """Return all rows; a newer one replaces another of the same network and means."""
    found = {(row.network, row.means): row for row in known}
    return list((found | {(row.network, row.means): row for row in newer}).values())


def means_of(problem: Problem) -> str:
    """Return which of the means a problem allows."""
    if problem.recompute is Recompute.NONE:
        return "offload"
    return "both" if problem.offload else "recompute"


def documents_in(folder: Path) -> dict[tuple[str, str, int, int], Any]:
    """Return the certificates in a folder by network, means, objective and lower bound."""
    from offcert.questions.schedule.files import problem_from_json

    found = {}
    for path in sorted(folder.glob("*.json")):
        document = read_json(path)
        problem = problem_from_json(document["problem"], "problem")
        key = problem.name, means_of(problem), document["objective"], document["lower_bound"]
        found[key] = document
    return found


def combined_evidence(
    rows: Sequence[CombinedRow],
    documents: Mapping[tuple[str, str, int, int], Any],
    known: Mapping[tuple[str, str, int, int], str],
) -> EvidenceFile:
    """Return the evidence of all claims.

    Parameters
    ----------
    rows : sequence of CombinedRow
        All figures.
    documents : mapping
        The certificates at hand, as from `documents_in`.
    known : mapping
        The digests of others.
    """

    def shown() -> Iterator[Shown]:
        for claim in COMBINED:
            for row in used(claim, rows):
                key = row.network, row.means, row.found, row.bound
                document = documents.get(key)
                digest = known.get(key) if document is None else document["digest"]
                small = document is not None and len(json.dumps(document)) <= LARGEST
                figures: Figures = {"lower": row.bound, "best": row.found, "peak": row.peak}
                figures |= {"network": row.network, "means": row.means, "seconds": row.seconds}
                case = f"{row.network}, {row.means}"
                yield EvidenceRow(claim.key, case, figures, digest), [document] if small else []

    return evidence_of(SECTION, COMMAND, shown())


def used(claim: CombinedClaim, rows: Sequence[CombinedRow]) -> Iterator[CombinedRow]:
    """Yield the rows that a claim is judged by."""
    better = claim.key == "combined-better"
    for each in comparisons_of(rows):
        if claim.published in (None, each.published) and not (
            better and any(means not in each.rows for means in MEANS)
        ):
            yield from (each.rows[means] for means in (MEANS if better else ("both",)))


def row_of(row: EvidenceRow) -> CombinedRow:
    """Return the row that evidence is about."""
    names = ("network", "means", "peak", "best", "lower", "seconds")
    return CombinedRow(*(row.figures[name] for name in names))  # type: ignore[arg-type]


def published(docs: Path) -> EvidenceFile:
    """Return figures whose certificates are not kept, where there is no file of evidence."""
    return combined_evidence(rows_from_json(read_json(docs / ROWS)), {}, {})


def known_evidence(docs: Path) -> EvidenceFile:
    """Return the evidence that is published."""
    path = evidence_path(docs, SECTION)
    return read_evidence(path) if path.exists() else published(docs)


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by its rows."""

    def of(claim: CombinedClaim) -> Judge:
        return lambda rows: [
            str(claim.judge(comparisons_of([row_of(row) for row in rows])).verdict)
        ]

    return {claim.key: of(claim) for claim in COMBINED}


def stated_again() -> dict[str, Again]:
    """Return functions that profile a certificate's network again, and compare its problem."""

    @cache
    def asked(network: str, means: str) -> Problem:
        return least_memory_problem(network, means, OVERHEAD)

    def again(row: EvidenceRow, held: Any) -> Figures:
        if held is None:
            return {}
        problem = asked(str(row.figures["network"]), str(row.figures["means"]))
        found: Figures = {"peak": problem.trace.peak_memory}
        if problem_digest(problem) != problem_digest(schedule_certificate(held).problem):
            found["problem"] = problem.name
        return found

    return {claim.key: again for claim in COMBINED}


def evidence() -> EvidenceFile:
    """Certify all rows that are published again, with their time limits."""
    certificates: list[Any] = []
    rows = []
    for row in rows_from_json(read_json(DOCS / ROWS)):
        problem = least_memory_problem(row.network, row.means, OVERHEAD)
        made = certify(problem, time_limit=row.seconds, workers=2, seed=0)
        document = made.to_json()
        certificates.append(document)
        bounds = made.result.objective, made.result.lower_bound
        rows.append(replace(row, found=bounds[0], bound=bounds[1]))
    keys = [(row.network, row.means, row.found, row.bound) for row in rows]
    return combined_evidence(rows, dict(zip(keys, certificates, strict=True)), {})


def main(arguments: Iterable[str] | None = None) -> None:
    """Write figures, evidence and section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--certificates", type=Path, help="folder with the runs' certificates")
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    path = options.docs / ROWS
    rows = rows_from_json(read_json(path)) if path.exists() else []
    before = known_evidence(options.docs) if path.exists() else published_nothing()
    if options.files:
        rows = merged(rows, measured(options.files))
        write_json(path, rows_to_json(rows))
    documents = {} if options.certificates is None else documents_in(options.certificates)
    digests = {}
    for row in before.rows:
        if row.certificate is not None:
            each = row_of(row)
            key = each.network, each.means, each.found, each.bound
            digests[key] = row.certificate
            if row.certificate in before.documents:
                documents.setdefault(key, before.documents[row.certificate])
    found = combined_evidence(rows, documents, digests)
    found.write(options.docs)
    replace_section(options.docs / "claims.md", HEADING, combined_section(rows, found))
    print(f"wrote the section about both together of {options.docs}", file=sys.stderr)


def published_nothing() -> EvidenceFile:
    """Return a file without rows."""
    return EvidenceFile(SECTION, COMMAND, (), {})


if __name__ == "__main__":
    main()
