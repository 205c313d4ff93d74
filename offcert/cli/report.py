"""The command `report`: one page about certificates and training, to be opened without network."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offcert.cli.arguments import source
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress
from offcert.core.documents import naming, read_json
from offcert.core.errors import InputError

if TYPE_CHECKING:
    from offcert.report.page import PageDocument

_EXAMPLES = (
    "offcert report certificate.json -o report.html",
    "offcert report certificate.json training.json -o report.html",
    "offcert report sizes/ -o report.html",
    "offcert report -o viewer.html",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "write one page of HTML about certificates, curves over memory, training and sizes"
    parser = add_command(commands, "report", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "documents",
        type=source,
        metavar="CERTIFICATE",
        nargs="*",
        help="certificates of schedules, folders of them (curves over memory, sizes of doctor), "
        "reports of train, and what doctor --json printed; without any, the page waits for a "
        "certificate or a problem to be dropped into it",
    )
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not verify the certificates: the page says so (default: each is verified)",
    )
    parser.add_argument(
        "--docs",
        metavar="ADDRESS",
        default="",
        help="address of this documentation, such as out/docs, to which kinds of proofs are to be "
        "linked (default: no links; the page says what each kind is)",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PAGE",
        help="file for the page, an HTML file",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.report.page import require_page, write_page

    require_page(options.output)
    with progress(options, str, "reading") as tell:
        shown = []
        for path in _paths([Path(name) for name in options.documents]):
            if tell is not None:
                tell(f"verifying {path}" if options.verify else f"reading {path}")
            shown.append(_read(path, options.verify))
    document = {"written": options.output, "documents": [each.name for each in shown]}
    write_page(shown, options.output, options.docs)
    show(options, document, f"wrote {options.output}")
    return 0


def _paths(given: list[Path]) -> Iterator[Path]:
    for path in given:
        if not path.is_dir():
            yield path
            continue
        # Beside the certificates of a curve may lie its problem and its table.
        found = sorted(path.glob("memory-*.json")) or sorted(path.glob("*.json"))
        # The answer about all sizes stands before the plan of each.
        found.sort(key=lambda each: each.name != "doctor.json")
        if not found:
            raise InputError(f"{path} holds no certificates, as certify and doctor write them")
        yield from found


def _read(path: Path, verify: bool) -> PageDocument:
    from offcert.proofs.certificate import certificate_from_json
    from offcert.questions.schedule.training_files import TRAINING_FORMAT, training_from_json
    from offcert.report.doctor import DOCTOR_FORMAT
    from offcert.report.page import PageDocument
    from offcert.verification.document import verify as verified

    document = read_json(path)
    said = document.get("format") if isinstance(document, dict) else None
    with naming(path):
        if said == TRAINING_FORMAT:
            return PageDocument(path.name, training_from_json(document))
        if said == DOCTOR_FORMAT:
            return PageDocument(path.name, document)
        certificate = certificate_from_json(document)
        return PageDocument(path.name, certificate, verified(document) if verify else None)
