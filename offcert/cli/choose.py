"""The command `choose`: how to split a batch, and which algorithms to use, with a proof."""

from __future__ import annotations

import argparse
from functools import partial

from offcert.cli.arguments import source
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import (
    add_search,
    progress_line,
    search_and_say,
    search_settings,
)
from offcert.core.units import format_time, parse_size

_EXAMPLES = ("offcert choose step.json --memory 3GiB --time-limit 30 -o step-certificate.json",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "choose sub-batches and convolution algorithms, and prove how good the choice is"
    parser = add_command(commands, "choose", summary, _run, examples=_EXAMPLES)
    parser.add_argument("step", type=source, metavar="STEP", help="file of a step with its choices")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="on the device, such as 6GiB (default: the file's)",
    )
    add_search(parser)


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.splitting import certify_split
    from offcert.proofs.questions import SPLIT
    from offcert.questions.split.problem import read_split

    step = read_split(options.step)
    if options.memory is not None:
        step = step.with_memory(parse_size(options.memory, "memory"))
    return search_and_say(
        options,
        partial(certify_split, step, **search_settings(options)),
        SPLIT.text.load().said,
        lambda news: progress_line(news, lambda ticks: format_time(ticks, step.units)),
    )
