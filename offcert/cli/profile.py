"""The command `profile`: a network, or a training step, becomes a problem file."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import seed
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from offcert.core.problem import Problem


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "turn a network or a training step into a problem file"
    parser = add_command(commands, "profile", summary, _run)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="zoo name, or package.module:callable that returns a module or a TrainingStep",
    )
    parser.add_argument("--input", help="shape, for example 32x3x224x224; a TrainingStep has none")
    parser.add_argument(
        "--clock",
        default="modules",
        help="what an operation is: modules, operators or stages (%(default)s)",
    )
    times = parser.add_mutually_exclusive_group()
    times.add_argument("--hardware", default="v100-pcie", help="roofline model (%(default)s)")
    times.add_argument("--measure", action="store_true", help="measure on the device at hand")
    parser.add_argument("--loss", help="cross-entropy (default) or mean")
    parser.add_argument("--dtype", help="of parameters and inputs; float32 by default")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="keyword argument for what MODEL names; the value is JSON, or text",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of the weights")
    parser.add_argument("--name", help="of the problem; by default network and input")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--memory", help="limit for what the trace counts, for example 40%% or 6GiB"
    )
    limits.add_argument(
        "--device-memory",
        help="limit with parameters, gradients, buffers, batch and the optimiser's state",
    )
    parser.add_argument("--optimiser", help="sgd, momentum, adam or adamw")
    parser.add_argument("-o", "--output", required=True, metavar="PROBLEM")


def _run(options: argparse.Namespace) -> int:
    from offcert.core.files import write_problem
    from offcert.core.units import parse_memory
    from offcert.report.text import describe_problem, problem_summary

    # What a network prints is not what this command says.
    with redirect_stdout(sys.stderr):
        problem = _profile(options)
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    write_problem(options.output, problem)
    show(options, problem_summary(problem), describe_problem(problem))
    return 0


def _profile(options: argparse.Namespace) -> Problem:
    from offcert.core.units import parse_size
    from offcert.runtime.profile import profile

    device_memory = options.device_memory
    if device_memory is not None:
        device_memory = parse_size(device_memory, "device memory")
    named = {name: getattr(options, name) for name in ("loss", "dtype")}
    return profile(
        options.model,
        options.input,
        clock=options.clock,
        hardware=None if options.measure else options.hardware,
        measure=options.measure,
        options=_options(options.option),
        seed=options.seed,
        name=options.name,
        device_memory=device_memory,
        optimiser=options.optimiser,
        **{name: value for name, value in named.items() if value is not None},
    )


def _options(texts: list[str]) -> dict[str, Any]:
    from offcert.core.errors import InputError

    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier() or name in found:
            raise InputError(f"option must look like layers=4, once for each name, not {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
