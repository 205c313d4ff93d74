"""The command `exact`: the papers' algorithms beside the exact models and the certified bound."""

from __future__ import annotations

import argparse
from functools import partial

from offcert.cli.output import native_output_to_stderr, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress
from offcert.cli.searching import (
    add_effort,
    add_problem,
    describe_progress,
    read_problem,
    search_settings,
)

_EXAMPLES = (
    "offcert exact problem.json --memory 25% --time-limit 10",
    "offcert exact two-partition.json --json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "DYNPROG and GREEDY beside all exact models and the certified bound"
    parser = add_command(commands, "exact", summary, _run, examples=_EXAMPLES)
    add_problem(parser)
    add_effort(parser, "time_limit", "workers", "seed", each=" with each method")


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.exact import compare_exactly

    problem = read_problem(options)
    settings = search_settings(options, "time_limit", "workers", "seed")
    with (
        native_output_to_stderr(),
        progress(options, partial(describe_progress, problem)) as tell,
    ):
        found = compare_exactly(problem, progress=tell, **settings)
    show(options, found.to_json(), found.text())
    return 0
