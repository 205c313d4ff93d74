"""The command `compare`: many methods at many limits, beside the certified optimum."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from offcert.cli.arguments import RECOMPUTE, count, seconds, seed
from offcert.cli.library import ENVIRONMENT
from offcert.cli.output import require_outputs, show
from offcert.cli.parser import EXIT_INTERRUPTED, EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress
from offcert.core.errors import InputError
from offcert.core.units import parse_size
from offcert.questions.schedule.problem import Recompute

if TYPE_CHECKING:
    from offcert.campaign.cells import Cell
    from offcert.campaign.run import CampaignProgress


_EXAMPLES = (
    "offcert compare chain.json --methods greedy,vdnn --memory 0:100:25 -o table.parquet",
    "offcert compare 'library:cnn-24-*' --methods greedy,dynprog --time-limit 10",
    "offcert compare chain.json --methods dynprog,dynprog:slots=2000,tflms:lb=3",
    "offcert compare 'library:*' --methods my.module:function,greedy --no-certify --time-limit 5",
    "offcert compare problem.json --methods certify --allow offload,both --memory 0:100:25",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "run methods at many memory limits, beside the certified optimum"
    parser = add_command(commands, "compare", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(prepare=_require_outputs)
    parser.add_argument(
        "problems",
        metavar="PROBLEM",
        nargs="+",
        help="problem file, or library:PATTERN for families of the library",
    )
    parser.add_argument(
        "--methods",
        required=True,
        metavar="A,B,…",
        help="methods separated by commas, with their options behind them; `offcert methods` "
        "lists both; or functions of your own, package.module:function",
    )
    parser.add_argument(
        "--memory",
        metavar="LIMITS",
        help="0:100:5 (percent: first, last, step), 4GiB:16GiB:2GiB, or limits such as 25%%,4GiB "
        "(default: each problem's own)",
    )
    parser.add_argument(
        "--allow",
        metavar="A,B,…",
        help="of offload, recompute, both: each problem with each of these, at the same limits; "
        "percentages count from what recomputation needs at least (default: what each file says)",
    )
    parser.add_argument(
        "--recompute",
        choices=RECOMPUTE[1:],
        help="what may run again with --allow (default: what each file says, or any)",
    )
    parser.add_argument("--no-certify", action="store_true", help="leave the optimum out")
    parser.add_argument(
        "--time-limit", type=seconds, default=60.0, metavar="S", help="seconds for each cell"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of every method")
    parser.add_argument(
        "--again",
        choices=("no", "failed", "all"),
        default="no",
        help="which rows of an existing table to compute again",
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="processes at a time (default: one for each core)"
    )
    parser.add_argument(
        "--process-memory",
        metavar="SIZE",
        help="address space of each process, for example 8GiB (default: no limit)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster that computes instead (default: this machine)",
    )
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        help="folder for the certificates that certify finds (default: none are kept)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="TABLE",
        help="file for the table: .parquet, .csv, .json or .jsonl; rows that it holds already are "
        "not computed again (default: the rows are printed)",
    )
    parser.add_argument(
        "--profile",
        metavar="PICTURE",
        help="file for a picture: for each method, in which part of the problems it is within a "
        "ratio to the best value known (default: none is drawn)",
    )


def _require_outputs(options: argparse.Namespace) -> None:
    from offcert.report.svg import require_picture

    if options.profile is not None:
        require_picture(options.profile)
    require_outputs(options)


def _run(options: argparse.Namespace) -> int:
    from offcert.campaign.run import run
    from offcert.campaign.standing import (
        describe_outcome,
        describe_rows,
        describe_standings,
        measured_of,
        profile,
        standings,
        summary_to_json,
    )
    from offcert.campaign.table import CampaignTable
    from offcert.instances.library import Library

    cells = _cells(options)
    most = 0 if options.process_memory is None else parse_size(options.process_memory)
    # Compiling for the first time takes a minute, in which nothing else is seen.
    begin = "loading, and compiling what is not compiled yet"
    with CampaignTable(options.output) as table:
        try:
            with progress(options, _CampaignLine(), begin) as tell:
                summary = run(
                    cells,
                    table,
                    jobs=options.jobs,
                    scheduler=options.scheduler,
                    again=options.again,
                    certificates=options.certificates,
                    most_bytes=most,
                    progress=tell,
                )
        except KeyboardInterrupt:
            kept = sum(cell.key in table.rows for cell in cells)
            where = "" if options.output is None else f" in {options.output}"
            print(f"offcert: interrupted; {kept} of {len(cells)} rows{where}", file=sys.stderr)
            return EXIT_INTERRUPTED
    measured = measured_of(summary.rows, Library(os.environ.get(ENVIRONMENT)))
    found = standings(measured)
    document = summary_to_json(summary) | {"written": options.output}
    document["standings"] = [each.to_json() for each in found]
    text = f"{describe_standings(found)}\n\n{describe_outcome(summary)}"
    if options.profile is not None:
        from offcert.report.profile_svg import save_profile

        save_profile(profile(measured), options.profile)
        text += f"\nwrote {options.profile}"
    if options.output is None:
        document["rows"] = list(summary.rows)
        units = {cell.point.digest: cell.point.problem.units for cell in cells}
        text = f"{describe_rows(summary.rows, units)}\n\n{text}"
    else:
        text += f"\nwrote {options.output}"
    show(options, document, text)
    return EXIT_INVALID if summary.failed else 0


def _cells(options: argparse.Namespace) -> list[Cell]:
    from offcert.campaign.cells import CERTIFY, CellSettings, grid
    from offcert.campaign.selection import find_subjects, parse_limits, parse_means

    methods = list(dict.fromkeys(name.strip() for name in options.methods.split(",")))
    if CERTIFY not in methods and not options.no_certify:
        methods.append(CERTIFY)
    limits = None if options.memory is None else parse_limits(options.memory)
    settings = CellSettings(time_limit=options.time_limit, seed=options.seed)
    subjects = find_subjects(options.problems, os.environ.get(ENVIRONMENT))
    if options.allow is None and options.recompute is not None:
        raise InputError("--recompute says what --allow means, and is nothing without it")
    means = None if options.allow is None else parse_means(options.allow)
    recompute = None if options.recompute is None else Recompute(options.recompute)
    return grid(subjects, methods, limits, settings, means, recompute)


class _CampaignLine:
    """The line of a campaign: how much is done, how much failed, how long it will take."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._failed = 0

    def __call__(self, step: CampaignProgress) -> str:
        self._failed += step.row["status"] == "FAILED"
        left = (time.monotonic() - self._begun) / step.done * (step.missing - step.done)
        failed = f", {self._failed} failed" if self._failed else ""
        return (
            f"{step.done}/{step.missing}{failed}, about {left:.0f} s left: "
            f"{step.row['problem']} {step.row['method']} {step.row['status']}"
        )
