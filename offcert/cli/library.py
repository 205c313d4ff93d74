"""The command `library`: problems with the best schedules and bounds known."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import source
from offcert.cli.output import add_target, put_problem, show
from offcert.cli.parser import Commands, Run, add_command, add_group
from offcert.core.documents import make_folder, naming, read_json
from offcert.core.errors import InputError
from offcert.core.units import format_size
from offcert.questions.schedule.problem import Minimise, Problem, format_objective

if TYPE_CHECKING:
    from offcert.instances.library import Entry, Family, Library


# Where the library is if the command does not say it.
ENVIRONMENT = "OFFCERT_LIBRARY"
_EXAMPLES = (
    "offcert library list --group 'networks-*'",
    "offcert library --path mine list",
)


def add(commands: Commands) -> None:
    """Add the command and its actions."""
    summary = "problems with the best schedules and bounds known"
    metavar = "list|show|get|add|init"
    actions = add_group(commands, "library", summary, metavar, examples=_EXAMPLES)
    _add_path(actions.container)

    def action(name: str, text: str, run: Run, *examples: str) -> argparse.ArgumentParser:
        parser = add_command(actions, name, text, run, examples=examples)
        _add_path(parser)
        return parser

    example = "offcert library list --family 'resnet50-*' --open"
    lister = action("list", "list problems and what is known of them", _list, example)
    lister.add_argument(
        "--group", help="pattern of groups, for example networks-* or cnn-24 (default: all)"
    )
    lister.add_argument(
        "--family", help="pattern of families, for example resnet50-* (default: all)"
    )
    lister.add_argument("--open", action="store_true", help="only what is not solved to optimality")
    example = "offcert library show cnn-24-0-m5"
    shower = action("show", "show all that is known of a problem", _show, example)
    shower.add_argument("name", metavar="NAME", help="as library list prints it")
    example = "offcert library get cnn-24-0-m5 -o problem.json"
    getter = action("get", "write a problem to a file", _get, example)
    getter.add_argument("name", metavar="NAME", help="as library list prints it")
    add_target(getter)
    _add_adder(action)
    example = "offcert library init --path mine"
    action("init", "make the folder of a library of your own", _init, example)


def _add_adder(action: Callable[..., argparse.ArgumentParser]) -> None:
    adder = action(
        "add",
        "take a certificate in if it verifies and improves a record",
        _add,
        "offcert library add certificate.json",
        "offcert library add --path mine --new certificate.json problem.json",
    )
    adder.add_argument(
        "certificates",
        type=source,
        metavar="CERTIFICATE",
        nargs="+",
        help="file that certify or solve has written; with --new also a problem file",
    )
    adder.add_argument(
        "--new",
        action="store_true",
        help="take in problems that the library does not hold yet; needs a library of your own",
    )
    adder.add_argument(
        "--group",
        default="own",
        metavar="NAME",
        help="group that new problems belong to",
    )
    adder.add_argument(
        "--hardware",
        metavar="TEXT",
        help="what the certificates were found on, such as '2 cores of a Xeon', for the record "
        "(default: not recorded)",
    )


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path",
        "--folder",
        # A subcommand without it must not forget what stood before the subcommand.
        default=argparse.SUPPRESS,
        metavar="FOLDER",
        help=f"folder of a library of your own (default: ${ENVIRONMENT}, or what comes with "
        "offcert)",
    )


def library_folder(options: argparse.Namespace) -> str | None:
    """Return the folder of the library that is meant, or None for the one that is installed."""
    return getattr(options, "path", None) or os.environ.get(ENVIRONMENT) or None


def _open(options: argparse.Namespace) -> Library:
    from offcert.instances.library import Library

    return Library(library_folder(options))


def _init(options: argparse.Namespace) -> int:
    folder = library_folder(options)
    if folder is None:
        raise InputError(f"a new library needs --path FOLDER, or ${ENVIRONMENT}")
    make_folder(Path(folder))
    families = len(list(_open(options).families()))
    text = f"{folder} is a library of {families} families"
    show(options, {"folder": folder, "families": families}, text)
    return 0


def _list(options: argparse.Namespace) -> int:
    from offcert.core.result import SolveStatus

    library = _open(options)
    found = [
        (family, entry)
        for family in library.families(group=options.group, family=options.family)
        for entry in family.entries
        if not (options.open and entry.record.status is SolveStatus.OPTIMAL)
    ]
    rows = [_summary(family, entry) for family, entry in found]
    width = max((len(row["name"]) for row in rows), default=0)
    lines = [_line(family, entry, width) for family, entry in found]
    optimal = sum(row["status"] == "OPTIMAL" for row in rows)
    claimed = sum(row["status"] == "OPTIMAL" and row["evidence"] != "proved" for row in rows)
    total = f"{len(rows)} problems, {optimal} of them with a value known to be optimal"
    lines.append(f"{total}, of {claimed} only by solvers' word" if claimed else total)
    show(options, {"problems": rows}, "\n".join(lines))
    return 0


def _line(family: Family, entry: Entry, width: int) -> str:
    row, problem = _summary(family, entry), entry.problem
    memory = "least"
    if problem.minimise is Minimise.TIME:
        memory = format_size(row["memory"], problem.units)
    return (
        f"{row['name']:{width}}  {row['operations']:4} operations  "
        f"memory {memory:>10}  value {_value(row['value'], problem):>12}  "
        f"bound {_value(row['lower_bound'], problem):>12}  {row['status']:8}  "
        f"{row['evidence'] or '-'}"
    )


def _value(value: int | None, problem: Problem) -> str:
    """Return a time, or a size where memory is minimised."""
    return "-" if value is None else format_objective(value, problem)


def _summary(family: Family, entry: Entry) -> dict[str, Any]:
    from offcert.report.execution import choices_summary

    best = entry.record.best
    return {
        "name": entry.name,
        "family": family.name,
        "group": family.group,
        "operations": len(family.problem.trace),
        "memory": entry.problem.platform.memory,
        "value": entry.record.value,
        "lower_bound": entry.record.lower_bound,
        "gap": entry.record.gap,
        "status": str(entry.record.status),
        "evidence": None if best is None else str(best.bound.evidence),
        **choices_summary(entry.problem),
    }


def _show(options: argparse.Namespace) -> int:
    from offcert.instances.records import record_to_json
    from offcert.report.text import describe_problem

    library = _open(options)
    family, entry = library.family_of(options.name), library.entry(options.name)
    record = record_to_json(entry.record)
    details = {
        "origin": family.origin,
        "source": dict(entry.problem.source or {}),
        "sha256": entry.digest,
        "record": record,
    }
    lines = [describe_problem(entry.problem), f"  origin         {family.origin}"]
    lines.append(f"  value          {_value(entry.record.value, entry.problem)}")
    if entry.record.value_by is not None:
        lines[-1] += f" by {entry.record.value_by}"
    lines += [
        f"  bound          {_value(known.bound.value, entry.problem)} by {known.bound.method}, "
        f"{known.bound.evidence} ({known.by})"
        for known in entry.record.bounds
    ]
    show(options, _summary(family, entry) | details, "\n".join(lines))
    return 0


def _get(options: argparse.Namespace) -> int:
    problem = _open(options).load(options.name)
    if not put_problem(problem, options.target_file):
        return 0
    show(options, {"written": options.target_file}, f"wrote {options.target_file}")
    return 0


def _add(options: argparse.Namespace) -> int:
    from offcert.certification.records import add

    if options.new and library_folder(options) is None:
        raise InputError(
            f"new problems need a library of your own: --path FOLDER or ${ENVIRONMENT}"
        )
    library = _open(options)
    rows, lines = [], []
    for path in options.certificates:
        document = read_json(path)
        with naming(path):
            entry = add(
                library,
                document,
                new=options.new,
                group=options.group,
                hardware=options.hardware,
            )
        row = _summary(library.family_of(entry.name), entry)
        rows.append(row)
        value, bound = (_value(row[name], entry.problem) for name in ("value", "lower_bound"))
        lines.append(
            f"{row['name']}: value {value}, bound {bound} ({row['evidence'] or '-'}), "
            f"{row['status']}"
        )
    show(options, {"improved": rows}, "\n".join(lines))
    return 0
