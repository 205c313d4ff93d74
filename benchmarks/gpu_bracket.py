"""A part of `make gpu`: whether what a machine did is between what is proved and what is forecast.

The machine is a folder of documents: certificates of problems that were measured on it, and
``measured.json`` with what their plans took there, as `measured_machine` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_part import Part
from gpu_rows import SUMS, Row, outside
from measured_machine import reading_of, row_of

from offcert.core.documents import read_json
from offcert.proofs.certificate import read_certificate

DOCUMENT = "document"


def bracket(part: Part) -> None:
    """Certify the documents' problems at the measured rates of the link, and compare."""
    if part.documents is None:
        print("no documents; --documents names their folder", flush=True)
        return
    measured = read_json(part.documents / "measured.json")["rows"]
    took = {row["way"]: row for row in measured if row["way"].endswith(".json")}
    certificates = {name: read_certificate(part.documents / name) for name in took}
    readings = [reading_of(each.problem.source or {}) for each in certificates.values()]
    for name, certificate in certificates.items():
        if not part.missing(name, (DOCUMENT,)):
            continue
        with part.row(name, DOCUMENT) as found:
            row = row_of(certificate, readings, took[name]["ms"], part.search_seconds)
            found["device"] = certificate.problem.source["hardware"]
            found["limit"] = certificate.problem.platform.memory
            found |= {f"{key}_ms": row[key] for key in ("bound", "forecast", "measured")}
            found["host_ms"] = took[name].get("host_ms")
            found["peak_allocated"] = took[name].get("peak")
            faults = outside(Row(part.name, name, DOCUMENT, **found))
            operations = certificate.problem.trace.compute_time / 1e6
            faults += _sums(operations, plain_ms(measured, took[name]["network"]))
            found["note"] = "; ".join(faults) or "holds"


def plain_ms(rows: Iterable[Mapping[str, Any]], network: str) -> float | None:
    """Return the milliseconds of a plain step of a network, if that was measured."""
    found = (row["ms"] for row in rows if row["network"] == network and row["way"] == "plain")
    return next(found, None)


def _sums(operations: float, plain: float | None) -> list[str]:
    """Return that a profile does not add up to the plain step, within 2 %, if it does not."""
    if plain is None or abs(operations / plain - 1) <= SUMS:
        return []
    return [f"the profile adds up to {operations:.1f} ms, a plain step took {plain:.1f}"]
