"""One page of HTML for certificates, reports of training and answers of `doctor`.

It opens without network. What it shows is computed in `offcert.report.page_views`; what happens
when it is used is in ``web/page.js``, and the curves are drawn by uPlot, which is part of the page,
with its licence. Files that are dropped into it are read by ``web/read.js``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from offcert.core.documents import write_text
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Minimise
from offcert.questions.schedule.training_record import TrainingRecord
from offcert.report.bars import LOOKS
from offcert.report.doctor import doctor_view
from offcert.report.frontier import FrontierRow, frontier_rows
from offcert.report.page_views import certificate_view, training_view
from offcert.verification.findings import Verification

_PARTS = (
    *("uPlot.min.css", "page.css", "uPlot-LICENSE.txt", "uPlot.iife.min.js"),
    *("read.js", "draw.js", "doctor.js", "page.js"),
)


@dataclass(frozen=True)
class PageDocument:
    """A document of a page."""

    name: str  # Of its file.
    # The document on the page; a mapping is the JSON value of an answer of `doctor`.
    document: Certificate | TrainingRecord | Mapping[str, Any]
    # The verification of a certificate; None if it was not asked for.
    verification: Verification[Certificate] | None = None
    training: TrainingRecord | None = None  # Of a certificate: the report of training by it.

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if the document is one."""
        return self.document if isinstance(self.document, Certificate) else None


def require_page(path: str | Path) -> None:
    """Refuse a name for a page that no browser opens as one."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path} must end in .html: a report is a page for a browser")


def write_page(documents: Sequence[PageDocument], path: str | Path, docs: str = "") -> None:
    """Write a page about certificates of schedules, reports of training, and answers of `doctor`.

    Parameters
    ----------
    documents : sequence of PageDocument
        Certificates of one problem at several limits make a curve; a report of training stands
        with the certificate that it is about. Without any, the page waits for a file to be dropped.
    path : str or Path
        Path of the HTML file.
    docs : str
        Address of the documentation, to which kinds of bounds are linked; empty for no links.
    """
    require_page(path)
    write_text(path, page(documents, docs))


def page(documents: Sequence[PageDocument], docs: str = "") -> str:
    """Return the page as text; parameters as for `write_page`."""
    documents = paired(documents)
    looks = [
        {"name": look.name, "colour": look.colour, "text": look.text} for look in LOOKS.values()
    ]
    kinds = {name: [kind.summary, kind.page] for name, kind in PROOFS.items()}
    kinds |= {name: [kind.summary, kind.page] for name, kind in CLAIMS.items()}
    data = {
        "plans": [_view(shown) for shown in documents],
        "groups": list(_groups(documents)),
        "looks": looks,
        "kinds": kinds,
        "docs": docs if not docs or docs.endswith("/") else f"{docs}/",
    }
    # Whatever a name holds, it ends no script.
    written = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    web = files("offcert.report").joinpath("web")
    parts = {name: web.joinpath(name).read_text(encoding="utf-8") for name in _PARTS}
    parts["data"] = written
    whole = web.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.-]+)\}\}", lambda match: parts[match[1]], whole)


def paired(documents: Sequence[PageDocument]) -> list[PageDocument]:
    """Return the documents, with each report of training in the certificate that it is about.

    Several reports about one certificate stay documents of their own, but for the first.
    """
    records = [each for each in documents if isinstance(each.document, TrainingRecord)]
    found: list[PageDocument] = []
    for each in documents:
        if each.certificate is not None:
            digest = problem_digest(each.certificate.problem)
            mine = next((r for r in records if _trained(r) == digest), None)
            if mine is not None:
                records.remove(mine)
                assert isinstance(mine.document, TrainingRecord)
                each = replace(each, training=mine.document)
        found.append(each)
    return [e for e in found if not isinstance(e.document, TrainingRecord) or e in records]


def _trained(shown: PageDocument) -> str:
    assert isinstance(shown.document, TrainingRecord)
    return shown.document.problem


def _groups(documents: Sequence[PageDocument]) -> Iterable[dict[str, Any]]:
    """Yield the curves: certificates of one problem, by increasing memory."""
    found: dict[str, list[tuple[int, int, Certificate]]] = {}
    for number, shown in enumerate(documents):
        if shown.certificate is not None:
            problem = replace(shown.certificate.problem, name="")
            if problem.minimise is Minimise.TIME:
                same = found.setdefault(problem_digest(problem.with_memory(0)), [])
                same.append((problem.platform.memory, number, shown.certificate))
    for same in found.values():
        ordered = sorted(same, key=lambda each: each[0])
        rows = frontier_rows([certificate for *_, certificate in ordered])
        compute = max(1, ordered[0][2].problem.trace.compute_time)
        yield {
            "plans": [number for _, number, _ in ordered],
            "limits": [row.memory for row in rows],
            "best": [row.slowdown for row in rows],
            "least": [_least_of(row, compute) for row in rows],
        }


def _least_of(row: FrontierRow, compute: int) -> float | None:
    """Return the proved bound of a limit by the computing time; None without one."""
    known = not row.infeasible and row.evidence == "proved"
    return row.lower_bound / compute if known else None


def _view(shown: PageDocument) -> dict[str, Any]:
    document = shown.document
    if isinstance(document, TrainingRecord):
        return training_view(shown.name, document)
    if not isinstance(document, Certificate):
        return doctor_view(shown.name, document)
    view = certificate_view(shown.name, document, shown.verification)
    if shown.training is not None:
        view["training"] = training_view(shown.name, shown.training)
    return view
