"""Options on a problem beside its limits: whether it may run again or move, and the objective."""

from __future__ import annotations

import argparse
import os.path
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.options import require_count, require_gap, require_seconds, require_seed
from offcert.core.units import parse_percent, parse_size, parse_time
from offcert.questions.schedule.device_memory import named_optimiser
from offcert.questions.schedule.problem import Minimise, Problem, Recompute

Number = TypeVar("Number", int, float)


class Source(str):
    """The name of a file that a command reads."""


def source(text: str) -> Source:
    """Return the name of a file to be read; ``-`` means the standard input."""
    return Source("/dev/stdin" if text == "-" else text)


def source_or_name(text: str) -> str:
    """Return the name of a file to be read if there is such a file; else what it is, a name."""
    return source(text) if text == "-" or os.path.isfile(text) else text


def integer(text: str) -> int:
    """Read an integer."""
    return _read(text, int, "an integer")


def seed(text: str) -> int:
    """Read the seed of a search."""
    return _checked(require_seed, _read(text, int, "an integer"))


def count(text: str) -> int:
    """Read how many, at least 1."""
    return _checked(require_count, _read(text, int, "an integer"))


def counts(text: str) -> list[int]:
    """Read several such numbers, with commas between them."""
    return [count(part.strip()) for part in text.split(",")]


def counts_or_auto(text: str) -> list[int] | str:
    """Read several such numbers, or that they are to be found."""
    return text if text == "auto" else counts(text)


def seconds(text: str) -> float:
    """Read a positive time."""
    return _checked(require_seconds, _read(text, float, "a number of seconds, such as 2.5"))


def gap(text: str) -> float:
    """Read a gap below 1, or below 100 %."""
    part = 100 if text.endswith("%") else 1
    value = _read(text.rstrip("% "), float, 'a number or a percentage, such as "0.1%"')
    return _checked(require_gap, value / part)


def size(text: str) -> int:
    """Read a size in bytes, which needs its unit."""
    try:
        return parse_size(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("size ")) from None


def _read(text: str, kind: Callable[[str], Number], name: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {name}, not {cut(text)}") from None


def _checked(require: Callable[[object], Number], value: Number) -> Number:
    try:
        return require(value)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


RECOMPUTE, MINIMISE = tuple(map(str, Recompute)), tuple(map(str, Minimise))


def add_optimiser(
    parser: argparse._ActionsContainer, names: Sequence[str], what: str, default: str
) -> None:
    """Add the argument that names an optimiser, in either spelling, one of some."""
    parser.add_argument(
        "--optimiser",
        "--optimizer",
        type=_optimiser,
        choices=names,
        help=f"{what} (default: {default})",
    )


def _optimiser(text: str) -> str:
    try:
        return named_optimiser(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("optimiser ")) from None


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is open and what is to be least."""
    parser.add_argument(
        "--recompute",
        choices=RECOMPUTE,
        help="what may run again: nothing; stages of a chain, each stored tensor staying until its "
        "backward operation; or any computation that can, whenever its inputs are there; a "
        "percentage of --memory counts from the least memory of what is chosen (default: the "
        "file's; profiles say any, generated chains none)",
    )
    parser.add_argument(
        "--offload",
        choices=("yes", "no"),
        help="whether tensors may leave the device (default: the file's)",
    )
    parser.add_argument(
        "--minimise",
        choices=MINIMISE,
        help="time: of a step, within the memory limit; memory: of the device, within the deadline "
        "(default: the file's)",
    )
    deadlines = parser.add_mutually_exclusive_group()
    deadlines.add_argument(
        "--deadline",
        metavar="TIME",
        help="most time of a step where memory is minimised: 80ms, or ticks where these have no "
        "length (default: the file's, or none)",
    )
    deadlines.add_argument(
        "--overhead",
        metavar="PERCENT",
        help="the same as a part of the computing time: 20%% allows 1.2 times as much (default: as "
        "--deadline)",
    )


def chosen(problem: Problem, options: argparse.Namespace) -> Problem:
    """Return the problem with what the options choose."""
    changes: dict[str, Any] = {}
    for name in ("recompute", "minimise"):
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    if options.offload is not None:
        changes["offload"] = options.offload == "yes"
    minimise = changes.get("minimise", problem.minimise)
    deadline = _deadline(problem, options, minimise)
    if deadline is not None:
        changes["deadline"] = deadline
    elif minimise == "time":
        # Where time is the objective, the file's deadline has no meaning any more.
        changes["deadline"] = None
    changed = replace(problem, **changes)
    # Where memory is the objective a limit means nothing: so that a problem has one document.
    return changed.with_memory(changed.peak_memory) if options.minimise == "memory" else changed


def _deadline(problem: Problem, options: argparse.Namespace, minimise: str) -> int | None:
    """Return the deadline that is asked for in ticks, or None."""
    given = next((n for n in ("deadline", "overhead") if getattr(options, n) is not None), None)
    if given is None:
        return None
    if minimise == "time":
        raise InputError(f"--{given} is for --minimise memory alone: time is the objective here")
    if given == "deadline":
        return parse_time(options.deadline, problem.units, "deadline")
    part = 1 + parse_percent(options.overhead, "overhead")
    # Whole ticks are at most this exactly if they are at most what it is rounded down to.
    return problem.trace.compute_time * part.numerator // part.denominator


def require_no_limit(problem: Problem, options: argparse.Namespace) -> None:
    """Refuse a memory limit where memory is the objective: it would change nothing."""
    if problem.minimise is Minimise.MEMORY:
        for name in ("memory", "device_memory"):
            if getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} is for --minimise time: memory is the objective here")
