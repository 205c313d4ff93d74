"""The commands about instances: `generate`, `partition` and `library`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from offcert.cli_adversarial import add_adversarial_command
from offcert.cli_arguments import integer
from offcert.cli_core import add_core_command
from offcert.cli_output import STDOUT, print_problem

if TYPE_CHECKING:
    from offcert.core.problem import Problem
    from offcert.instances.library import Entry, Family, Library

Command = Callable[..., argparse.ArgumentParser]
Print = Callable[[argparse.Namespace, dict[str, Any], str], None]


def add_instance_commands(commands: Any, command: Command, show: Print) -> None:
    """Add the commands to a parser.

    Parameters
    ----------
    commands : what `add_subparsers` returns
        Of the main parser.
    command : callable
        Adds one command: ``(commands, name, summary, run)``.
    show : callable
        Prints a result as JSON or text, as the options ask.
    """
    _add_generate(commands, command, show)
    _add_partition(commands, command, show)
    _add_library(commands, command, show)


def _add_generate(commands: Any, command: Command, show: Print) -> None:
    from offcert.instances.kinds import KINDS

    summary = "make a problem of some kind from a seed"
    kinds = commands.add_parser("generate", help=summary, description=summary).add_subparsers(
        metavar="KIND", required=True
    )
    for kind, cls in KINDS.items():
        parser = command(
            kinds, kind, cls.summary, lambda options, kind=kind: _generate(options, kind, show)
        )
        for item in fields(cls):
            _add_knob(parser, item)
        parser.add_argument("--seed", type=integer, default=0, metavar="N", help="(%(default)s)")
        if cls.takes_memory:
            parser.add_argument("--memory", default="0%", help="limit, for example 40%% (0%%)")
        else:
            parser.add_argument(
                "--values", type=_integers, metavar="A,B,…", help="instead of drawing them"
            )
        parser.add_argument(
            "-o", dest="target_file", metavar="PROBLEM", default=STDOUT, help="- (default): stdout"
        )
    add_adversarial_command(kinds, command, show)
    add_core_command(kinds, command, show)


def _add_knob(parser: argparse.ArgumentParser, item: Any) -> None:
    text = f"{item.metadata['help']} ({item.default})"
    options: dict[str, Any] = {"dest": f"knob_{item.name}", "default": item.default, "help": text}
    if isinstance(item.default, bool):
        options["action"] = argparse.BooleanOptionalAction
    elif isinstance(item.default, Fraction):
        options |= {"type": _rational, "metavar": "A/B"}
    elif isinstance(item.default, int):
        options |= {"type": integer, "metavar": "N"}
    else:
        options["choices"] = item.metadata["choices"]
    parser.add_argument(f"--{item.name}", **options)


def _integers(text: str) -> list[int]:
    return [integer(part) for part in text.split(",")]


def _rational(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f'must look like "3/2" or "1.5", not {text}') from None


def _generate(options: argparse.Namespace, kind: str, show: Print) -> int:
    from offcert.core.documents import require_writable
    from offcert.core.files import write_problem

    if options.target_file != STDOUT:
        require_writable(options.target_file)
    problem = _generated(options, kind)
    if options.target_file == STDOUT:
        print_problem(problem)
        return 0
    write_problem(options.target_file, problem)
    from offcert.report.text import describe_problem, problem_summary

    solution = (problem.source or {}).get("solution")
    text = describe_problem(problem)
    if solution is not None:
        there = "a" if solution["answer"] == "yes" else "no"
        text += f"\n  answer         {solution['answer']}: {there} schedule of length "
        text += f"{solution['makespan']} exists"
    summary = problem_summary(problem) | ({"solution": solution} if solution else {})
    show(options, summary, text)
    return 0


def _generated(options: argparse.Namespace, kind: str) -> Problem:
    from offcert.core.units import parse_memory
    from offcert.instances.kinds import generator
    from offcert.instances.three_partition import three_partition
    from offcert.instances.two_partition import TwoPartition, two_partition

    if getattr(options, "values", None) is not None:
        if kind == TwoPartition.kind:
            return two_partition(options.values, options.knob_transfers)
        return three_partition(options.values)
    prefix = "knob_"
    knobs = {
        name.removeprefix(prefix): value
        for name, value in vars(options).items()
        if name.startswith(prefix)
    }
    problem = generator(kind, knobs).problem(options.seed)
    if hasattr(options, "memory"):
        problem = problem.with_memory(parse_memory(options.memory, problem))
    return problem


def _add_partition(commands: Any, command: Command, show: Print) -> None:
    summary = "turn a certified schedule of a reduction back into the partition"
    parser = command(commands, "partition", summary, lambda options: _partition(options, show))
    parser.add_argument("certificate", metavar="CERTIFICATE")


def _partition(options: argparse.Namespace, show: Print) -> int:
    from offcert.core.errors import InputError
    from offcert.core.fluid_schedule import FluidSchedule
    from offcert.instances.three_partition import triples_of
    from offcert.instances.two_partition import TwoPartition, half_of
    from offcert.proofs.certificate import read_certificate

    certificate = read_certificate(options.certificate)
    problem, schedule = certificate.problem, certificate.result.schedule
    if schedule is None:
        raise InputError(f"{options.certificate} holds no schedule")
    values = (problem.source or {}).get("values", [])
    if (problem.source or {}).get("generator") == TwoPartition.kind:
        part = half_of(problem, schedule)
        sets = [part, tuple(index for index in range(len(values)) if index not in part)]
    elif isinstance(schedule, FluidSchedule):
        raise InputError(f"{options.certificate} holds a schedule whose transfers pause")
    else:
        sets = list(triples_of(problem, schedule))
    lines = [" + ".join(str(values[index]) for index in members) for members in sets]
    show(options, {"partition": [list(members) for members in sets]}, "\n".join(lines))
    return 0


def _add_library(commands: Any, command: Command, show: Print) -> None:
    summary = "problems with the best schedules and bounds known"
    actions = commands.add_parser("library", help=summary, description=summary).add_subparsers(
        metavar="list|show|get|add", required=True
    )

    def add(name: str, text: str, run: Callable[..., int]) -> argparse.ArgumentParser:
        parser = command(actions, name, text, lambda options: run(options, show))
        parser.add_argument("--folder", help="another library than the one that comes with offcert")
        return parser

    lister = add("list", "list problems and what is known of them", _list)
    lister.add_argument("--group", help="a pattern, for example networks-* or cnn-24")
    lister.add_argument("--family", help="a pattern, for example resnet50-*")
    lister.add_argument("--open", action="store_true", help="only what is not solved to optimality")
    add("show", "show all that is known of a problem", _show).add_argument("name", metavar="NAME")
    getter = add("get", "write a problem to a file", _get)
    getter.add_argument("name", metavar="NAME")
    getter.add_argument(
        "-o", dest="target_file", metavar="PROBLEM", default=STDOUT, help="- (default): stdout"
    )
    adder = add("add", "take a certificate in if it verifies and improves a record", _add)
    adder.add_argument("certificates", metavar="CERTIFICATE", nargs="+")


def _open(options: argparse.Namespace) -> Library:
    from offcert.instances.library import Library

    return Library(options.folder)


def _list(options: argparse.Namespace, show: Print) -> int:
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


def _show(options: argparse.Namespace, show: Print) -> int:
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


def _get(options: argparse.Namespace, show: Print) -> int:
    from offcert.core.files import write_problem

    problem = _open(options).load(options.name)
    if options.target_file == STDOUT:
        print_problem(problem)
        return 0
    write_problem(options.target_file, problem)
    show(options, {"written": options.target_file}, f"wrote {options.target_file}")
    return 0


def _add(options: argparse.Namespace, show: Print) -> int:
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
