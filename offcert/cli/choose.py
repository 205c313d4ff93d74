"""The command `choose`: how to split a batch, and which algorithms to use, with a proof."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from offcert.cli.arguments import integer, source_or_name
from offcert.cli.output import require_outputs, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import (
    DEFAULTS,
    add_effort,
    progress_line,
    search_and_say,
    search_settings,
)

if TYPE_CHECKING:
    from offcert.questions.split.problem import SplitProblem

_EXAMPLES = (
    "offcert choose vgg16 --memory 6GiB -o step-certificate.json",
    "offcert choose resnet34 --batch 32 --sub-batches 32,16,8 --step step.json",
    "offcert choose step.json --memory 3GiB --time-limit 30",
)
# Options that make a step of a network, and do not apply to a file.
_OF_NETWORKS = ("batch", "sub_batches", "apart", "weights_leave")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "choose sub-batches and convolution algorithms, and prove how good the choice is"
    parser = add_command(commands, "choose", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(prepare=lambda options: require_outputs(options, "output", "step_file"))
    parser.add_argument(
        "step",
        type=source_or_name,
        metavar="STEP",
        help="file of a step with its choices, or a network of the moDNN paper: vgg16, vgg19, "
        "vgg101, resnet34, resnet152, fcn",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="on the device, such as 6GiB (default: the file's, or 12GiB)",
    )
    parser.add_argument(
        "--batch", type=integer, metavar="N", help="images (default: as many as in the paper)"
    )
    parser.add_argument(
        "--sub-batches",
        type=_integers,
        metavar="A,B,…",
        help="sizes to choose from (default: multiples of 64 and powers of two)",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="activations and normalisations are layers of their own",
    )
    parser.add_argument(
        "--weights-leave", action="store_true", help="weights are tensors that may leave"
    )
    parser.add_argument(
        "--step",
        dest="step_file",
        metavar="FILE",
        help="write the step with its choices to a file, and search no further (default: search)",
    )
    add_effort(parser, *DEFAULTS)
    parser.add_argument(
        "-o",
        "--output",
        metavar="CERTIFICATE",
        help="file for the certificate, kept up to date during the search (default: none is "
        "written)",
    )


def _integers(text: str) -> list[int]:
    return [integer(part) for part in text.split(",")]


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.splitting import certify_split
    from offcert.core.units import format_time
    from offcert.proofs.questions import SPLIT
    from offcert.questions.split.problem import write_split
    from offcert.report.question_texts import describe_split_problem

    step = _read(options)
    if options.step_file is not None:
        write_split(options.step_file, step)
        summary = {"name": step.name, "batch": step.batch, "sub_batches": list(step.sizes)}
        show(options, summary, describe_split_problem(step))
        return 0

    return search_and_say(
        options,
        partial(certify_split, step, **search_settings(options)),
        SPLIT.text.load().said,
        lambda news: progress_line(news, lambda ticks: format_time(ticks, step.units)),
    )


def _read(options: argparse.Namespace) -> SplitProblem:
    """Return the step of a file or of a network, with the memory that the options say."""
    from offcert.core.errors import InputError
    from offcert.core.units import parse_size
    from offcert.instances.modnn.networks import NETWORKS
    from offcert.instances.modnn.problems import modnn_step
    from offcert.questions.split.problem import read_split

    given = {name: getattr(options, name) for name in _OF_NETWORKS}
    if options.step in NETWORKS:
        sizes = given.pop("sub_batches")
        step = modnn_step(options.step, given.pop("batch"), sizes, **given)
    else:
        for name, value in given.items():
            if value:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} is for networks, and {options.step} is a file")
        step = read_split(options.step)
    if options.memory is not None:
        step = step.with_memory(parse_size(options.memory, "memory"))
    return step
