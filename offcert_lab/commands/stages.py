"""The command `generate stages`: a network as the chain of stages that the papers' methods take."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from offcert.cli.chosen import (
    HARDWARE,
    add_hardware,
    add_network,
    add_peak,
    chosen_model,
    machine,
)
from offcert.cli.output import add_target, put_problem, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.questions.schedule.problem import Problem

_EXAMPLES = (
    "offcert generate stages resnet50 --input 32x3x224x224 -o stages.json",
    "offcert generate stages my.package:network --input 8x512 --memory 25% -o stages.json",
)


def add(kinds: Commands) -> None:
    """Add the command to those of ``offcert generate``."""
    summary = "a network as the chain of stages that the papers' methods take"
    parser = add_command(kinds, "stages", summary, _run, examples=_EXAMPLES)
    add_network(parser)
    add_hardware(parser, HARDWARE[0])
    add_peak(parser)
    parser.add_argument(
        "--memory", metavar="LIMIT", help="for example 40%% or 6GiB (default: the device's)"
    )
    parser.add_argument("--name", help="of the problem (default: network and input)")
    add_target(parser)
    # Models of transformers are no chains.
    parser.set_defaults(hf=None)


def _run(options: argparse.Namespace) -> int:
    from offcert.core.errors import InputError, require_torch
    from offcert.report.text import describe_problem, problem_summary

    require_torch("offcert generate stages")
    if options.input is None:
        raise InputError("--input is missing: the shape of a batch, for example 32x3x224x224")
    # What a network prints is not what this command says.
    with progress(options, str, f"recording {options.model}"), redirect_stdout(sys.stderr):
        problem = _problem(options)
    if not put_problem(problem, options.target_file):
        return 0
    show(options, problem_summary(problem), describe_problem(problem))
    return 0


def _problem(options: argparse.Namespace) -> Problem:
    from dataclasses import replace

    from offcert.questions.schedule.problem import parse_memory
    from offcert_lab.stages.problem import stage_problem

    model, given, _, named = chosen_model(options)
    options.hardware = options.hardware or HARDWARE[0]
    problem = stage_problem(
        model, options.input, machine(options), options=given, seed=options.seed, **named
    )
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    return problem if options.name is None else replace(problem, name=options.name)
