"""The command `certify`: a schedule and a proof of how good it is, at one limit or at several."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.cli.ending import ending_anyhow
from offcert.cli.output import native_output_to_stderr, require_folder, require_outputs, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress
from offcert.cli.searching import (
    add_problem,
    add_search,
    describe_progress,
    read_problem,
    search,
    search_settings,
)
from offcert.core.documents import write_json, write_text
from offcert.core.errors import InputError
from offcert.core.units import format_size
from offcert.questions.schedule.problem import Problem, parse_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offcert.certification.ladder import FrontierProgress
    from offcert.proofs.certificate import Certificate


_EXAMPLES = (
    "offcert certify problem.json --memory 25% --time-limit 30 -o certificate.json",
    "offcert certify problem.json --device-memory 16GiB --target-gap 0.1% -o certificate.json",
    "offcert certify problem.json --memory 5%:100%:5% -o curve",
    "offcert certify problem.json --recompute none --memory 25%",
    "offcert certify problem.json --minimise memory --overhead 20%",
    "offcert certify problem.json --uncertainty 10%,conv*=5%,link=20% -o certificate.json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "find a schedule and prove how good it is"
    parser = add_command(commands, "certify", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(prepare=_prepare)
    add_problem(parser, several=True)
    add_search(parser, several=True)
    parser.add_argument(
        "--uncertainty",
        metavar="BOX",
        help="certify for all times in a box as well: 10%% (durations and rates within a tenth of "
        "what the problem says), or by class, such as 10%%,conv*=5%%,link=11GB/s:13GB/s, or none "
        "(default: the file's, and for a measured profile what was measured)",
    )


def _prepare(options: argparse.Namespace) -> None:
    """Find out before any work whether the result can be written."""
    if options.output is not None and _is_curve(options):
        _require_curve_folder(options)
    else:
        require_outputs(options)


def _run(options: argparse.Namespace) -> int:
    if _is_curve(options):
        return _run_curve(options)
    from offcert.certification.ladder import certify

    return search(options, certify)


_TABLE, _DOCUMENT, _PICTURE = "curve.md", "curve.json", "curve.svg"


def _is_curve(options: argparse.Namespace) -> bool:
    """Whether several limits are asked for: a range or a list of them."""
    memory = options.memory
    return memory is not None and any(mark in memory for mark in ":,")


def _require_curve_folder(options: argparse.Namespace) -> None:
    """Make the folder for the certificates before any work is done."""
    require_folder(options, "certificates at several limits")
    folder = Path(options.output)
    # What a curve is made from may lie in the folder, also under a name that the curve uses.
    read = Path(options.problem)
    for path in (*(folder / name for name in (_TABLE, _DOCUMENT, _PICTURE)), *found_in(folder)):
        if path.exists() and read.exists() and path.samefile(read):
            raise InputError(f"{path} cannot be written: it is read as input")


def found_in(folder: Path) -> list[Path]:
    """Return the files in a folder that are named as a curve's certificates."""
    return sorted(folder.glob("memory-*.json"))


def _run_curve(options: argparse.Namespace) -> int:
    """Certify limit after limit, keep table and certificates up to date, and say the table."""
    from offcert.campaign.selection import parse_limits
    from offcert.certification.interrupts import terminating_interrupts
    from offcert.certification.ladder import frontier

    texts = parse_limits(options.memory)
    options.memory = None
    problem = read_problem(options)
    limits = [parse_memory(text, problem) for text in texts]
    settings = search_settings(options)
    folder = None if options.output is None else _Folder(Path(options.output), settings)
    done: list[Certificate] = []

    def conclude(certificate: Certificate) -> int:
        """End with the best so far when the search at hand cannot be ended."""
        return _said(options, [*done, certificate], folder, len(limits))

    with (
        ending_anyhow(conclude),
        native_output_to_stderr(),
        terminating_interrupts(),
        progress(options, _describe) as tell,
    ):
        keep = None if folder is None else folder.write
        found = None if folder is None else folder.find
        search = partial(frontier, problem, limits, **settings)
        for certificate in search(progress=tell, keep=keep, found=found):
            done.append(certificate)
            if folder is not None:
                folder.write(certificate)
                folder.write_curve(done)
    return _said(options, done, folder, len(limits))


def _said(
    options: argparse.Namespace,
    certificates: Sequence[Certificate],
    folder: _Folder | None,
    asked: int,
) -> int:
    from offcert.report.frontier import describe_frontier, frontier_json

    document, text = frontier_json(certificates), describe_frontier(certificates, asked)
    if folder is not None:
        folder.write_curve(certificates)
        document["written"] = str(folder.path)
        text += f"\nwrote {folder.path}"
    show(options, document, text)
    return 0


def _describe(news: FrontierProgress) -> str:
    memory = format_size(news.problem.platform.memory, news.problem.units)
    said = describe_progress(news.problem, news.news)
    return f"{news.number}/{news.limits} at {memory}  {said}"


class _Folder:
    """Where the certificates of a curve are: one file a limit, beside table and picture."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self._settings = settings

    def file(self, problem: Problem) -> Path:
        """Return the path of a problem's certificate at its limit."""
        return self.path / f"memory-{problem.platform.memory}.json"

    def write(self, certificate: Certificate) -> None:
        """Write a certificate to its place."""
        certificate.write(self.file(certificate.problem))

    def find(self, problem: Problem) -> Certificate | None:
        """Return the certificate that an earlier run left, if its settings were the same."""
        from offcert.proofs.certificate import read_certificate
        from offcert.questions.schedule.files import problem_digest

        path = self.file(problem)
        if not path.is_file():
            return None
        try:
            found = read_certificate(path)
        except InputError:
            return None
        notes, asked = found.notes, found.settings
        ended = notes.unfinished is None and not notes.interrupted
        same = all(getattr(asked, name) == value for name, value in self._settings.items())
        if ended and same and problem_digest(found.problem) == problem_digest(problem):
            return found
        return None

    def write_curve(self, certificates: Sequence[Certificate]) -> None:
        """Write table, document and picture of what there is."""
        from offcert.report.frontier import describe_frontier, frontier_json, frontier_svg
        from offcert.report.svg import save

        problem = certificates[0].problem
        write_json(self.path / _DOCUMENT, frontier_json(certificates))
        write_text(self.path / _TABLE, describe_frontier(certificates) + "\n")
        save(frontier_svg({problem.means: certificates}), self.path / _PICTURE)
