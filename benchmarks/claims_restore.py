"""Put the evidence of docs/claims.md back into a campaign's folder, so that it can be extended.

The evidence has the campaign's table, the theorems' experiments, and small certificates; of larger
ones it names the digests, which are kept beside the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from offcert.core.documents import make_folder, read_json, write_json
from papers.claims.evidence import evidence_path, read_evidence
from papers.claims.published import DIGESTS, TABLE, TABLE_SECTION, THEORY_SECTION
from papers.claims.theory import Experiment, experiments_to_json


def restore(folder: Path, docs: Path, table: str, experiments: str) -> None:
    """Write table, experiments and certificates into a folder that has no table yet.

    Parameters
    ----------
    folder : Path
        The campaign's.
    docs : Path
        Folder of the page, its evidence and its exhibits.
    table, experiments : str
        Names of their files in the folder.
    """
    if (folder / table).exists() or not evidence_path(docs, TABLE_SECTION).exists():
        return
    exhibits = [read_json(path) for path in sorted((docs / "certificates").glob("*.json"))]
    known = {each["digest"]: each for each in exhibits if "digest" in each}
    campaign, theory = (
        read_evidence(evidence_path(docs, name)) for name in (TABLE_SECTION, THEORY_SECTION)
    )
    known = {**known, **campaign.documents, **theory.documents}
    digests: dict[str, str] = {}
    rows = campaign.of(TABLE)
    for row in rows:
        _put(folder, row.figures["certificate"], row.certificate, known, digests)
    found = []
    for row in theory.rows:
        name = f"theory/{row.case}.json"
        _put(folder, name, row.certificate, known, digests)
        experiment = Experiment.of(row)
        found.append(Experiment(*(*_values(experiment), name)))
    make_folder(folder)
    write_json(folder / experiments, experiments_to_json(found))
    write_json(folder / DIGESTS, digests)
    text = "".join(json.dumps(dict(row.figures)) + "\n" for row in rows)
    (folder / table).write_text(text, encoding="utf-8")


def _values(experiment: Experiment) -> tuple[Any, ...]:
    names = ("claim", "instance", "stated", "lower", "best")
    return tuple(getattr(experiment, name) for name in names)


def _put(
    folder: Path, name: Any, digest: str | None, known: dict[str, Any], digests: dict[str, str]
) -> None:
    """Write a certificate to its path, and note its digest, as far as they are known."""
    if name is None or digest is None:
        return
    digests[name] = digest
    path = folder / name
    if digest in known and not path.exists():
        make_folder(path.parent)
        write_json(path, known[digest])
