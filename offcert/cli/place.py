"""The command `place`: addresses for what a schedule uses, or for a problem of its own."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import source
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_effort, progress_line, search_and_say, search_settings
from offcert.core.documents import naming, read_json
from offcert.core.errors import InputError
from offcert.core.messages import show as shown
from offcert.core.units import Units, format_size, parse_capacity

if TYPE_CHECKING:
    from offcert.proofs.any_certificate import AnyCertificate
    from offcert.questions.placement.problem import PlacementProblem

_EXAMPLES = (
    "offcert place certificate.json -o placed.json",
    "offcert place certificate.json --shorten -o placed.json",
    "offcert place step-certificate.json --alignment 512 -o placed-step.json",
    "offcert place certificate.json --host -o arena.csv",
    "offcert place buffers.csv --capacity 1048576 --time-limit 10 -o offsets.csv",
    "offcert place buffers.csv --method first-fit --json",
)
# Settings of a search for addresses; `certify` has more.
_SETTINGS = ("time_limit", "workers", "seed")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "find an address for everything that is in memory, in as small a pool as possible"
    parser = add_command(commands, "place", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "file",
        type=source,
        metavar="FILE",
        help="certificate of a schedule, which gets addresses, or of a step, whose rounds get "
        "them; placement problem or document; or table of buffers (.csv), as MiniMalloc reads them",
    )
    parser.add_argument(
        "--capacity",
        metavar="SIZE",
        help="of the pool, such as 6GiB or 1048576: any addresses within it will do (default: as "
        "small a pool as possible)",
    )
    parser.add_argument(
        "--alignment",
        metavar="SIZE",
        help="of which addresses are multiples, such as 512 (default: the file's, or 1; on the "
        "host 64)",
    )
    parser.add_argument(
        "--shorten",
        action="store_true",
        help="let a schedule be replaced by one of the same step time that keeps everything for as "
        "short as possible, which is far easier to place (default: addresses are for the schedule "
        "as it is)",
    )
    parser.add_argument(
        "--host",
        action="store_true",
        help="find addresses on the host instead, for the copies of what has left the device, in "
        "the order of the schedule; what is written is a placement document or a table (default: "
        "on the device)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="one method; `offcert methods` lists them (default: all, the quick ones first)",
    )
    add_effort(parser, *_SETTINGS)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PLACED",
        help="file for the certificate with addresses, or for the placement document, kept up to "
        "date during the search; for a table with offsets if it ends in .csv (default: none is "
        "written)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.placing import place

    what, units = _read(options.file)
    settings = _settings(options, units)
    if options.host:
        what = _on_host(what, settings, options.file)
    else:
        _require_place(what, options.output)
    return search_and_say(
        options,
        partial(place, what, options.method, **settings),
        _said,
        lambda news: progress_line(news, lambda size: format_size(size, units), "pool"),
        _write,
    )


def _read(path: str) -> tuple[Any, Units]:
    """Return a problem or a certificate of either kind, to be placed, and its units."""
    from offcert.proofs.questions import QUESTIONS
    from offcert.questions.placement.files import (
        PLACEMENT_PROBLEM_FORMAT,
        is_table,
        placement_problem_from_json,
        read_placement_csv,
    )

    if is_table(path):
        problem: PlacementProblem = read_placement_csv(path)[0]
        return problem, problem.units
    document = read_json(path)
    named = document.get("format") if isinstance(document, dict) else None
    placeable = {name: each for name, each in QUESTIONS.items() if each.placed}
    with naming(path):
        if named == PLACEMENT_PROBLEM_FORMAT:
            problem = placement_problem_from_json(document)
        elif named in placeable:
            certificate = placeable[named].certificate.load().from_json(document)
            return certificate, certificate.problem.units
        else:
            known = sorted([*placeable, PLACEMENT_PROBLEM_FORMAT])
            raise InputError(f"format must be one of {', '.join(known)}, not {shown(named)}")
    return problem, problem.units


def _on_host(what: Any, settings: dict[str, Any], path: str) -> PlacementProblem:
    """Return the problem of placing the host copies of a certificate's schedules."""
    from offcert.certification.placing import host_problem
    from offcert.questions.schedule.residences import HOST_ALIGNMENT

    if not (hasattr(what, "question") and what.question.host):
        raise InputError(f"--host is for certificates of schedules: nothing in {path} leaves")
    return host_problem(what, settings.pop("alignment") or HOST_ALIGNMENT)


def _require_place(what: Any, path: str | None) -> None:
    """Refuse a table for a step of several rounds."""
    from offcert.questions.placement.files import is_table

    rounds = hasattr(what, "question") and "rounds" in what.question.fields
    if rounds and path is not None and is_table(path):
        raise InputError(f"{path} would be a table, which has no place for the rounds of a step")


def _settings(options: argparse.Namespace, units: Units) -> dict[str, Any]:
    """Return the settings in the options, checked; one that the method does not use is an error."""
    from offcert.certification.placement_methods import placement_method_called

    if options.method is not None:
        reads = placement_method_called(options.method).reads
        for setting in _SETTINGS:
            if getattr(options, setting) is not None and setting not in reads:
                name = f"--{setting.replace('_', '-')}"
                raise InputError(f"method {options.method} does not use {name}")
    found = search_settings(options, *_SETTINGS)
    for name in ("capacity", "alignment"):
        text = getattr(options, name)
        found[name] = None if text is None else parse_capacity(text, units, name)
    if options.shorten:
        found["shorten"] = True
    return found


def _write(placed: AnyCertificate[Any], path: str | Path) -> None:
    """Write a certificate or a document, or a table if the file is to be one."""
    from offcert.questions.placement.files import is_table, write_placement_csv

    pool = placed.pool
    if is_table(path) and pool is not None:
        write_placement_csv(path, pool.problem, pool.result.placement)
    else:
        placed.write(path)


def _said(placed: AnyCertificate[Any]) -> tuple[dict[str, Any], str]:
    assert placed.question.placed is not None
    return placed.question.placed.load().said(placed)
