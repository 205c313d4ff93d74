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
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.core.problem import Problem


# What the runtime knows, which would load torch; a test keeps the two the same.
CLOCKS = ("modules", "operators", "stages")
HARDWARE = (
    "v100-pcie",
    "v100-sxm2",
    "a100-40gb-pcie",
    "a100-80gb-sxm",
    "h100-sxm",
    "h100-pcie",
    "h200",
    "gh200",
    "b200",
    "mi300x",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "a10",
    "l4",
    "l40s",
    "t4",
    "k40",
)
OPTIMISERS = ("sgd", "momentum", "adam", "adamw")
LOSSES = ("cross-entropy", "mean")
DTYPES = ("float32", "float64", "bfloat16", "float16")
_EXAMPLES = (
    "offcert profile resnet50 --input 32x3x224x224 --memory 25% -o problem.json",
    "offcert profile my.package:make_step --option layers=4 --measure -o problem.json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "turn a network or a training step into a problem file"
    parser = add_command(commands, "profile", summary, _run, examples=_EXAMPLES)
    _add_network(parser)
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default=CLOCKS[0],
        help="what an operation is: what happens between two events at leaf modules, an operator, "
        "or a stage between two places where a single value is live",
    )
    times = parser.add_mutually_exclusive_group()
    times.add_argument(
        "--hardware",
        type=_hardware,
        default=HARDWARE[0],
        metavar="NAME",
        help="whose roofline model says how long operations take: "
        f"{', '.join(HARDWARE)}; or a TOML file that describes another (default: {HARDWARE[0]})",
    )
    times.add_argument(
        "--measure",
        action="store_true",
        help="measure on the device at hand: durations and, on a CUDA device, workspaces, and the "
        "rates of the link while the step runs",
    )
    parser.add_argument(
        "--peak",
        action="store_true",
        help="let all operations reach the hardware's peak rates, whatever is known of what they "
        "reach",
    )
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--memory",
        metavar="LIMIT",
        help="memory for what the trace counts, for example 40%% or 6GiB (default: what the "
        "device has left beside parameters and so on)",
    )
    limits.add_argument(
        "--device-memory",
        metavar="SIZE",
        help="memory of the whole device, such as 16GiB, with parameters, gradients, buffers, "
        "batch and the optimiser's state (default: the device's)",
    )
    parser.add_argument(
        "--optimiser",
        choices=OPTIMISERS,
        help="whose state is counted (default: that of the TrainingStep, if it has one)",
    )
    parser.add_argument(
        "--name", help='of the problem (default: network and input, as in "resnet18 2x3x32x32")'
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="PROBLEM", help="file for the problem"
    )


def _add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="network of the zoo, or package.module:callable that returns a module or a "
        "TrainingStep",
    )
    parser.add_argument("--zoo", action=_Zoo, nargs=0, help="list the networks of the zoo, and end")
    parser.add_argument(
        "--input",
        metavar="SHAPE",
        help="shape with the batch size first, for example 32x3x224x224 (no default; a "
        "TrainingStep has none)",
    )
    parser.add_argument(
        "--loss",
        choices=LOSSES,
        help=f"of the output (default: {LOSSES[0]}; not for TrainingSteps)",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help=f"of parameters and inputs (default: {DTYPES[0]}; not for TrainingSteps)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="keyword argument for what MODEL names, as JSON or text; may be repeated (default: "
        "none)",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of the initial weights")


def _hardware(text: str) -> str:
    """Return the name of a hardware model, or of a file, which is read later."""
    from offcert.core.messages import meant, show

    if text in HARDWARE or text.endswith(".toml"):
        return text
    known = ", ".join(HARDWARE)
    raise argparse.ArgumentTypeError(
        f"must be one of {known}, or a file that ends in .toml, not {show(text)}"
        f"{meant(text, HARDWARE)}"
    )


class _Zoo(argparse.Action):
    """Lists what else would have to be known, as ``--help`` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from offcert.core.errors import MissingPackageError
        from offcert.core.extras import require_torch

        try:
            require_torch("offcert profile")
        except MissingPackageError as error:
            parser.error(str(error))
        from offcert.runtime import zoo

        for name in zoo.names():
            print(f"{name:16}  --input {'x'.join(map(str, zoo.default_shape(name)))}")
        parser.exit()


def _run(options: argparse.Namespace) -> int:
    from offcert.core.extras import require_torch
    from offcert.core.files import write_problem
    from offcert.core.problem import parse_memory
    from offcert.report.text import describe_problem, problem_summary

    require_torch("offcert profile")
    # What a network prints is not what this command says.
    with progress(options, str, f"profiling {options.model}"), redirect_stdout(sys.stderr):
        problem = _profile(options)
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    write_problem(options.output, problem)
    text = "\n".join([describe_problem(problem), *_measured_lines(problem)])
    show(options, problem_summary(problem), text)
    return 0


def _measured_lines(problem: Problem) -> list[str]:
    """Return what was measured beside durations, for people."""
    from offcert.core.units import format_size

    found = (problem.source or {}).get("measurement", {})
    lines = []
    names = {
        "alone": "link alone",
        "together": "both at once",
        "computing": "computing",
    }
    for name, label in names.items():
        if name in found.get("link", {}):
            out, back = (rate / 1e9 for rate in found["link"][name])
            lines.append(f"  {label:<15}{out:.2f} GB/s out, {back:.2f} GB/s back")
    unforeseen = found.get("unforeseen", {}).get("storages", 0)
    if unforeseen:
        size = format_size(found["unforeseen"]["bytes"], problem.units)
        lines.append(f"  not foreseen   {unforeseen} storages, {size}, saved on this device only")
    return lines


def _profile(options: argparse.Namespace) -> Problem:
    from offcert.core.errors import InputError
    from offcert.core.units import parse_size
    from offcert.runtime.hardware import hardware
    from offcert.runtime.profile import profile

    if options.measure and options.peak:
        raise InputError("--peak is for hardware models, not for --measure")
    device_memory = options.device_memory
    if device_memory is not None:
        device_memory = parse_size(device_memory, "device memory")
    named = {name: getattr(options, name) for name in ("loss", "dtype")}
    return profile(
        options.model,
        options.input,
        clock=options.clock,
        hardware=None if options.measure else hardware(options.hardware, peak=options.peak),
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
