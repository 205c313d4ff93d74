"""The command `library`: problems with the best schedules and bounds known."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from offcert.cli.output import STDOUT, print_problem, show
from offcert.cli.parser import Commands, Run, add_command, add_group

if TYPE_CHECKING:
    from offcert.instances.library import Entry, Family, Library


def add(commands: Commands) -> None:
    """Add the command and its actions."""
    summary = "problems with the best schedules and bounds known"
    actions = add_group(commands, "library", summary, "list|show|get|add")

    def action(name: str, text: str, run: Run) -> argparse.ArgumentParser:
        parser = add_command(actions, name, text, run)
        parser.add_argument("--folder", help="another library than the one that comes with offcert")
        return parser

    lister = action("list", "list problems and what is known of them", _list)
    lister.add_argument("--group", help="a pattern, for example networks-* or cnn-24")
    lister.add_argument("--family", help="a pattern, for example resnet50-*")
    lister.add_argument("--open", action="store_true", help="only what is not solved to optimality")
    action("show", "show all that is known of a problem", _show).add_argument(
        "name", metavar="NAME"
    )
    getter = action("get", "write a problem to a file", _get)
    getter.add_argument("name", metavar="NAME")
    getter.add_argument(
        "-o", dest="target_file", metavar="PROBLEM", default=STDOUT, help="- (default): stdout"
    )
    adder = action("add", "take a certificate in if it verifies and improves a record", _add)
    adder.add_argument("certificates", metavar="CERTIFICATE", nargs="+")


def _open(options: argparse.Namespace) -> Library:
    from offcert.instances.library import Library

    return Library(options.folder)


def _list(options: argparse.Namespace) -> int:
    from offcert.core.result import SolveStatus

    library = _open(options)
    rows = []
    for family in library.families(group=options.group, family=options.family):
        for entry in family.entries:
            if not (options.open and entry.record.status is SolveStatus.OPTIMAL):
                rows.append(_summary(family, entry))
    width = max((len(row["name"]) for row in rows), default=0)
    lines = [
        f"{row['name']:{width}}  {row['operations']:4} operations  value {_dash(row['value']):>12}"
        f"  bound {_dash(row['lower_bound']):>12}  {row['status']:8}  {_dash(row['evidence'])}"
        for row in rows
    ]
    optimal = sum(row["status"] == "OPTIMAL" for row in rows)
    lines.append(f"{len(rows)} problems, {optimal} of them with a value known to be optimal")
    show(options, {"problems": rows}, "\n".join(lines))
    return 0


def _dash(value: Any) -> str:
    return "-" if value is None else str(value)


def _summary(family: Family, entry: Entry) -> dict[str, Any]:
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
    lines.append(f"  value          {_dash(entry.record.value)}")
    if entry.record.value_by is not None:
        lines[-1] += f" by {entry.record.value_by}"
    lines += [
        f"  bound          {known.bound.value} by {known.bound.method}, {known.bound.evidence} "
        f"({known.by})"
        for known in entry.record.bounds
    ]
    show(options, _summary(family, entry) | details, "\n".join(lines))
    return 0


def _get(options: argparse.Namespace) -> int:
    from offcert.core.files import write_problem

    problem = _open(options).load(options.name)
    if options.target_file == STDOUT:
        print_problem(problem)
        return 0
    write_problem(options.target_file, problem)
    show(options, {"written": options.target_file}, f"wrote {options.target_file}")
    return 0


def _add(options: argparse.Namespace) -> int:
    from offcert.certify.records import add
    from offcert.core.documents import read_json
    from offcert.core.errors import InputError

    library = _open(options)
    rows = []
    for path in options.certificates:
        document = read_json(path)
        try:
            entry = add(library, document)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        rows.append(_summary(library.family_of(entry.name), entry))
    lines = [
        f"{row['name']}: value {_dash(row['value'])}, bound {_dash(row['lower_bound'])} "
        f"({_dash(row['evidence'])}), {row['status']}"
        for row in rows
    ]
    show(options, {"improved": rows}, "\n".join(lines))
    return 0
