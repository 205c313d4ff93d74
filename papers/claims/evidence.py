"""Evidence of verdicts: a file a section of the page, with a row for every case that is judged.

A row has the case's figures and names the certificate that shows them by its digest. Small
certificates are in the file; large ones are made again on request. The file is compressed JSON
lines: a header, documents, rows.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from offcert.core.documents import Fields, require_format, write_atomically
from offcert.core.errors import InputError

EVIDENCE_FORMAT, EVIDENCE_VERSION = "offcert-evidence", 1
EVIDENCE_FOLDER = "evidence"
_SUFFIX = ".jsonl.xz"
Figure = int | float | str | None
Figures = dict[str, Figure]
HEADING = "## Evidence"

INTRODUCTION = """\
Every verdict names what it rests on: a certificate for each of its cases, or a figure that is
computed without one. Small certificates are in the repository, a file a section; larger ones are
named there by their digests. One command verifies all that is here, runs the papers' algorithms
again on the certificates' own instances, lets every verdict follow from the figures again, and
prints verdict, evidence and disagreement for each claim; it ends with exit code 1 if there is any,
and takes minutes. The other one makes everything again, the large certificates too, verifies it,
and says where it contradicts what is written here; that takes hours. For moDNN, the paragraph
*Evidence* of its section says what is certified.

```sh
make claims
make claims-again
```"""


@dataclass(frozen=True)
class EvidenceRow:
    """A case of a claim, and what shows it.

    Attributes
    ----------
    claim, case : str
        The claim's key, and the case's label.
    figures : mapping
        What the case is judged by. ``lower`` and ``best`` are what a certificate establishes:
        nothing takes less, and something takes that.
    certificate : str or None
        Digest of that certificate; None if the figures are computed, not certified.
    stated : str or None
        Digest of a certificate whose optimum is the figure ``stated``, where that is not what an
        algorithm returns.
    """

    claim: str
    case: str
    figures: Mapping[str, Figure]
    certificate: str | None = None
    stated: str | None = None

    @property
    def digests(self) -> list[str]:
        """The digests of all certificates that it names."""
        return [each for each in (self.certificate, self.stated) if each is not None]

    @property
    def lost(self) -> bool:
        """Whether its figures were certified, and the certificate was not kept."""
        return self.certificate is None and "lower" in self.figures


@dataclass(frozen=True)
class EvidenceFile:
    """The evidence of a section.

    Attributes
    ----------
    section : str
        Name of the file.
    command : str
        The command that makes all of it again.
    rows : tuple of EvidenceRow
        In the order of the cases.
    documents : mapping of str to JSON value
        By digest, the certificates that are small enough to be here.
    """

    section: str
    command: str
    rows: tuple[EvidenceRow, ...]
    documents: Mapping[str, Any]

    def of(self, claim: str) -> list[EvidenceRow]:
        """Return the rows of a claim."""
        return [row for row in self.rows if row.claim == claim]

    def write(self, folder: Path) -> None:
        """Write the file into a folder; the same evidence gives the same bytes."""
        header = {"format": EVIDENCE_FORMAT, "version": EVIDENCE_VERSION}
        header |= {"section": self.section, "command": self.command}
        lines: list[dict[str, Any]] = [header]
        lines += [{"document": self.documents[digest]} for digest in sorted(self.documents)]
        lines += [{"row": asdict(row)} for row in self.rows]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        path = evidence_path(folder, self.section)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, lambda part: _write_bytes(part, packed))


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def evidence_path(folder: Path, section: str) -> Path:
    """Return the path of a section's evidence, below the folder of the documentation."""
    return folder / EVIDENCE_FOLDER / f"{section}{_SUFFIX}"


def evidence_of(
    section: str, command: str, rows: Iterable[tuple[EvidenceRow, Iterable[Any]]]
) -> EvidenceFile:
    """Return a section's evidence from rows, each with the documents that are to be in the file."""
    listed = list(rows)
    documents = {each["digest"]: each for _, given in listed for each in given}
    return EvidenceFile(section, command, tuple(row for row, _ in listed), documents)


def read_evidence(path: Path) -> EvidenceFile:
    """Return the evidence in a file; nothing in it is verified.

    Raises
    ------
    InputError
        If the file cannot be read, or a field is missing, wrong or unknown.
    """
    try:
        lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        values = [json.loads(line) for line in lines]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (lzma.LZMAError, ValueError) as error:
        raise InputError(f"{path} is no compressed JSON lines: {error}") from None
    try:
        return _evidence(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _evidence(values: list[Any]) -> EvidenceFile:
    header = Fields(values[0] if values else None, "line 1")
    require_format(header, EVIDENCE_FORMAT, EVIDENCE_VERSION)
    section, command = header.get("section", str), header.get("command", str)
    header.finish()
    documents, rows = {}, []
    for number, value in enumerate(values[1:], 2):
        line = Fields(value, f"line {number}")
        if line.has("document"):
            document = line.get("document", dict)
            documents[Fields(document, line.path("document")).get("digest", str)] = document
        else:
            rows.append(_row(Fields(line.get("row", dict), line.path("row"))))
        line.finish()
    return EvidenceFile(section, command, tuple(rows), documents)


def _row(fields: Fields) -> EvidenceRow:
    figures = fields.get("figures", dict)
    for name, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise InputError(f"{fields.path('figures')}.{name} must be a number, a text or null")
    row = EvidenceRow(
        fields.get("claim", str),
        fields.get("case", str),
        figures,
        fields.optional("certificate", (str, type(None))),
        fields.optional("stated", (str, type(None))),
    )
    fields.finish()
    return row


def rests_on(evidence: EvidenceFile, claim: str, table: bool = False) -> str:
    """Return the line of the page that names what a verdict rests on.

    Parameters
    ----------
    evidence : EvidenceFile
        Of the claim's section.
    claim : str
        Its key.
    table : bool
        Whether the verdict follows from a table, and certificates are those that decide.
    """
    rows = evidence.of(claim)
    digests = {digest for row in rows for digest in row.digests}
    here = len(digests & evidence.documents.keys())
    link = f"[{evidence.section}{_SUFFIX}]({EVIDENCE_FOLDER}/{evidence.section}{_SUFFIX})"
    parts = [f"the table in {link}"] if table else []
    if here:
        parts.append(f"{_counted(here)} {'there' if table else f'in {link}'}")
    if elsewhere := len(digests) - here:
        parts.append(f"{_counted(elsewhere)} by digest, made again by `make claims-again`")
    if lost := sum(row.lost for row in rows):
        parts.append(f"{_counted(lost)} that {'were' if lost > 1 else 'was'} not kept")
    if computed := sum(not row.digests and not row.lost for row in rows):
        parts.append(f"{computed} figure{'s' * (computed > 1)} that `make claims` computes again")
    return f"- Rests on: {', '.join(parts) or 'nothing'}."


def _counted(number: int) -> str:
    return f"{number} certificate{'s' * (number > 1)}"
