"""How the moDNN section of docs/claims.md is checked: its figures, and what is certified of them.

    python benchmarks/claims_modnn_check.py

certifies the steps that the figures name again, each as long as `--time-limit` says or the figures
took, and writes their certificates as evidence; `claims_modnn.py` then names them on the page.
Without it, the verdicts follow from ``docs/claims-modnn.json``, and the certificates were not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import claims_modnn
from claims_modnn import DOCS, FIGURE, ROWS
from modnn import Case

from offcert.core.documents import read_json
from offcert.proofs.split_certificate import SplitCertificate
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, verdicts_on
from papers.claims.modnn import modnn_section
from papers.claims.modnn_rows import GB, ModnnRows, rows_from_json

SECTION, COMMAND = "modnn", "python benchmarks/claims_modnn_check.py"
# Larger certificates, as JSON, are named by their digests.
LARGEST = 256 * 1024
# The claims that rest on a network's step in a memory, and on its least memory.
_TIMES = ("modnn-over-vdnn-plus", "modnn-always-better")
_TWELVE = ("modnn-slow-down", "modnn-vdnn")
_LEAST = {"": "modnn-least", "_weights": "modnn-least-weights"}
_LEAST_OF_BOTH = ("modnn-scale", "modnn-any-budget")
Shown = tuple[EvidenceRow, list[Any]]


def figures_rows(rows: ModnnRows) -> Iterator[EvidenceRow]:
    """Yield the certified figures of the section, by claim."""
    for each in rows.times:
        figures: Figures = {"lower": each.bound, "best": each.best_time}
        figures |= {"network": each.network, "memory": each.memory}
        keys = _TIMES + (_TWELVE if each.memory == 12 * GB else ())
        for key in keys:
            yield EvidenceRow(key, f"{each.network} at {each.memory / GB:g} GB", figures)
    for least in rows.memory:
        for suffix, key in _LEAST.items():
            bound, best = (getattr(least, f"least_{name}{suffix}") for name in ("bound", "time"))
            memory = getattr(least, f"least{suffix}")
            figures = {"lower": bound, "best": best, "network": least.network, "memory": memory}
            figures["weights"] = "leave" if suffix else "stay"
            for claim in (key, *_LEAST_OF_BOTH):
                yield EvidenceRow(claim, f"{least.network} with {memory} bytes", figures)
    for device in rows.devices:
        figures = {"lower": device.lower_bound, "best": device.makespan, "case": device.case}
        for key in ("modnn-host-better",):
            yield EvidenceRow(key, f"{device.network}, {device.case}", figures)


def published(docs: Path) -> EvidenceFile:
    """Return figures whose certificates are not kept, where there is no file of evidence."""
    rows = figures_rows(rows_from_json(read_json(docs / ROWS)))
    return evidence_of(SECTION, COMMAND, ((row, []) for row in rows))


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the section, written again from figures."""
    rows = rows_from_json(read_json(DOCS / ROWS))
    found = verdicts_on(modnn_section(rows, FIGURE))
    return {key: lambda rows, verdicts=verdicts: verdicts for key, verdicts in found.items()}


def stated_again() -> dict[str, Again]:
    """Return nothing: what is not certified is in the file that the section is written from."""
    return {}


def evidence(seconds: float | None = None) -> EvidenceFile:
    """Certify the steps of all figures on one GPU again."""
    measured = rows_from_json(read_json(DOCS / ROWS))
    limit = measured.seconds if seconds is None else seconds

    @cache
    def made(network: str, memory: int, leave: bool) -> tuple[SplitCertificate, Any]:
        case = Case(network, memory, False, 224)
        found = claims_modnn.certified(case, memory, leave, limit)
        print(f"certified {network} with {memory} bytes", file=sys.stderr, flush=True)
        return found, found.to_json()

    def shown() -> Iterator[Shown]:
        for row in figures_rows(measured):
            if "memory" not in row.figures:
                yield row, []
                continue
            network, memory = str(row.figures["network"]), int(str(row.figures["memory"]))
            found, document = made(network, memory, row.figures.get("weights") == "leave")
            figures = {**row.figures, "lower": found.lower_bound, "best": found.objective}
            small = len(json.dumps(document)) <= LARGEST
            certified = EvidenceRow(row.claim, row.case, figures, document["digest"])
            yield certified, [document] if small else []

    return evidence_of(SECTION, COMMAND, shown())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, help="seconds for each certificate")
    evidence(parser.parse_args().time_limit).write(DOCS)
