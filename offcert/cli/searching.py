"""Common parts of commands that search: which problem, how long, and how the search is shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import (
    add_choices,
    add_optimiser,
    chosen,
    count,
    gap,
    require_no_limit,
    seconds,
    seed,
    source,
)
from offcert.cli.ending import ending_anyhow
from offcert.cli.output import STDOUT, native_output_to_stderr, show
from offcert.cli.progress import progress
from offcert.core.errors import InputError
from offcert.core.units import format_gap, parse_bandwidth
from offcert.questions.schedule.device_memory import OPTIMISER_COPIES
from offcert.questions.schedule.problem import (
    Problem,
    Recompute,
    Transfers,
    format_objective,
    parse_memory,
)

if TYPE_CHECKING:
    from offcert.certification.search import SearchProgress
    from offcert.proofs.certificate import Certificate

TRANSFERS = tuple(map(str, Transfers))
# Settings of a search that the command does not give: seconds, threads, gap, seed. The parser must
# be able to tell. Arbitrary.
DEFAULTS: dict[str, Any] = {"time_limit": 60.0, "workers": 2, "target_gap": 0.0, "seed": 0}


# Text added to help texts where several limits make a curve.
_FOLDER = (
    "; for a curve a folder for certificates, table and picture: limits that it has already are "
    "not searched again"
)
_SEVERAL = "; several make a curve: 5%%:100%%:5%% (first, last, step), 4GiB:16GiB:2GiB, 25%%,6GiB"


def add_problem(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add the arguments that say what to solve, at one limit or, if `several`, at many."""
    parser.add_argument(
        "problem", type=source, metavar="PROBLEM", help="problem file; -: standard input"
    )
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--memory",
        metavar="LIMIT",
        help="memory for what the trace counts: a size such as 6GiB, or 40%% of the way from the "
        "least that is feasible (where computations may run again: what the largest of them takes "
        "alone) to what is used if everything runs once and stays"
        f"{_SEVERAL if several else ''} (default: the file's)",
    )
    limits.add_argument(
        "--device-memory",
        metavar="SIZE",
        help="memory of the whole device, such as 16GiB; parameters, gradients and all else that "
        "the trace does not count are subtracted (default: the file's limit)",
    )
    what = "whose state --device-memory counts"
    add_optimiser(parser, tuple(OPTIMISER_COPIES), what, "that which the profile has counted")
    parser.add_argument(
        "--bandwidth",
        metavar="RATE",
        help="of the link, each way: 12.2GB/s, or size units per tick such as 3/2 (default: the "
        "file's)",
    )
    parser.add_argument(
        "--prefetch-bandwidth",
        metavar="RATE",
        help="from host to device, where the two directions differ (default: as --bandwidth)",
    )
    parser.add_argument(
        "--sharing",
        type=count,
        metavar="N",
        help="devices that share the link, all busy at a time; each has its part of the bandwidth "
        "(default: the file's, or else 1)",
    )
    parser.add_argument(
        "--transfers",
        choices=TRANSFERS,
        help="atomic: each tensor in one go; interruptible: whole tensors, with pauses; "
        "fractional: any part of a tensor; with the last two, nothing of a profile runs again "
        "unless --recompute says so (default: the file's)",
    )
    add_choices(parser)


def add_search(parser: argparse.ArgumentParser, *names: str, several: bool = False) -> None:
    """Add settings of a search, by default all, and where the certificate goes."""
    add_effort(parser, *(names or DEFAULTS), each=", for each limit" if several else "")
    parser.add_argument(
        "-o",
        "--output",
        metavar="CERTIFICATE",
        help="file for the certificate, kept up to date during the search"
        f"{_FOLDER if several else ''} (default: none is written)",
    )


def add_effort(parser: argparse.ArgumentParser, *names: str, each: str = "") -> None:
    """Add the named settings of `DEFAULTS`; `each` is the part that the time limit is for."""
    known: dict[str, tuple[Callable[[str], Any], str, str]] = {
        "time_limit": (seconds, "S", f"seconds to search{each}"),
        "workers": (count, "N", "threads"),
        "target_gap": (
            gap,
            "G",
            "stop when value and bound are this close, for example 0.1%% or 0.001",
        ),
        "seed": (seed, "N", "of the random choices"),
    }
    parser.set_defaults(streamed=True)
    for name in names:
        kind, metavar, text = known[name]
        until = ", until optimality is proved" if name == "target_gap" else ""
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar=metavar,
            help=f"{text} (default: {DEFAULTS[name]:g}{until})",
        )


def read_problem(options: argparse.Namespace) -> Problem:
    """Return the problem of the file, changed as the options say."""
    from offcert.questions.schedule import files

    problem = chosen(files.read_problem(options.problem), options)
    require_no_limit(problem, options)
    if options.transfers is not None:
        problem = replace(problem, transfers=options.transfers)
        captured = "capture" in (problem.source or {})
        if captured and options.transfers != TRANSFERS[0] and options.recompute is None:
            # Transfers in pieces are a paper's problem, in which nothing runs again.
            problem = replace(problem, recompute=Recompute.NONE)
    if options.bandwidth is not None:
        problem = problem.with_bandwidth(parse_bandwidth(options.bandwidth, problem.units))
    if options.prefetch_bandwidth is not None:
        back = parse_bandwidth(options.prefetch_bandwidth, problem.units, "prefetch bandwidth")
        problem = problem.with_bandwidth(problem.platform.bandwidth, back)
    if options.sharing is not None:
        problem = replace(problem, platform=replace(problem.platform, sharing=options.sharing))
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    if options.device_memory is not None:
        problem = problem.with_device_memory(options.device_memory, options.optimiser)
    elif options.optimiser is not None:
        raise InputError("--optimiser says whose state --device-memory counts: give both")
    # Only `certify` has the option.
    box = getattr(options, "uncertainty", None)
    return problem if box is None else problem.with_uncertainty(box)


def search(options: argparse.Namespace, find: Callable[..., Certificate]) -> int:
    """Let `find` search as the options say, write what it returns, and say what that is."""
    from offcert.proofs.questions import SCHEDULE

    problem = read_problem(options)
    return search_and_say(
        options,
        partial(find, problem, **search_settings(options)),
        SCHEDULE.text.load().said,
        partial(describe_progress, problem),
    )


def search_settings(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the settings of the search (or `names`) in the options, with defaults."""
    return {
        name: DEFAULTS[name] if getattr(options, name) is None else getattr(options, name)
        for name in names or DEFAULTS
    }


def search_and_say(
    options: argparse.Namespace,
    find: Callable[..., Any],
    say: Callable[[Any], tuple[dict[str, Any], str]],
    describe: Callable[[Any], str],
    write: Callable[[Any, str | Path], None] | None = None,
) -> int:
    """Search, write the result, and describe it; however the search ends.

    Parameters
    ----------
    options : argparse.Namespace
        ``output`` is the file, if one is to be written.
    find : callable
        Given ``progress`` and ``keep``, as `offcert.certification.ladder.certify` has them;
        returns the findings.
    say : callable
        Returns what was found for programs and for people.
    describe : callable
        Returns a piece of news in one line.
    write : callable, optional
        Given what is known and a path; by default what is known has a method ``write``.
    """
    from offcert.certification.clock import loading_since
    from offcert.certification.interrupts import terminating_interrupts
    from offcert.cli import interrupts

    write = write or (lambda known, path: known.write(path))
    kept = None if options.output == STDOUT else options.output

    def conclude(found: Any) -> int:
        try:
            if options.output == STDOUT:
                stream(partial(write, found))
            elif kept is not None:
                write_or_rescue(partial(write, found), kept)
        finally:
            show(options, *say(found))
        return 0

    with (
        ending_anyhow(conclude),
        native_output_to_stderr(),
        terminating_interrupts(),
        progress(options, describe) as tell,
        loading_since(interrupts.began),
    ):
        # However this process ends, the file holds the best that was known.
        keep = None if kept is None else lambda known: write(known, kept)
        found = find(progress=tell, keep=keep)
    return conclude(found)


def stream(write: Callable[[str | Path], None]) -> None:
    """Write a document to the standard output, whole."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="offcert-") as folder:
        path = Path(folder, "found.json")
        write(path)
        sys.stdout.write(path.read_text(encoding="utf-8"))


def write_or_rescue(write: Callable[[str | Path], None], path: str) -> None:
    """Write a document where it should be, or where there is space: it may have taken hours."""
    import tempfile

    try:
        write(path)
    except InputError as error:
        rescue = Path(tempfile.gettempdir(), f"offcert-{os.getpid()}-{Path(path).name}")
        try:
            write(rescue)
        except InputError:
            raise error from None
        raise InputError(f"{error}; the certificate is in {rescue} instead") from None


def describe_progress(problem: Problem, news: SearchProgress) -> str:
    """Return in one line what a search knows; times or sizes in the problem's units."""
    return progress_line(news, lambda value: format_objective(value, problem))


def progress_line(news: SearchProgress, form: Callable[[int], str], best: str = "best") -> str:
    """Return in one line what a search knows, with values as `form` shows them."""
    parts = [f"bound {form(news.lower_bound)}"]
    if news.objective is None:
        parts.append(f"{best} -")
    else:
        parts.append(f"{best} {form(news.objective)}")
        gap = (news.objective - news.lower_bound) / max(news.objective, 1)
        parts.append(f"gap {format_gap(gap)}")
    return "  ".join([*parts, news.step])
