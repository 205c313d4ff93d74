"""The command `profile`: a network, or a training step, becomes a problem file."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from offcert.cli.chosen import (
    HARDWARE,
    HERE,
    add_configured,
    add_hardware,
    add_network,
    add_optimiser,
    add_peak,
    chosen_model,
    chosen_optimiser,
    machine,
)
from offcert.cli.output import put_problem, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress
from offcert.core.errors import InputError, require_torch
from offcert.core.units import format_size, require_limit
from offcert.questions.schedule.problem import Problem

if TYPE_CHECKING:
    from offcert.runtime.hardware import Hardware


CLOCKS = ("modules", "operators", "graphs")
LINKS = ("duplex", "simplex")
_EXAMPLES = (
    "offcert profile resnet50 --input 32x3x224x224 --memory 25% -o problem.json",
    "offcert profile my.package:make_step --option layers=4 --measure -o problem.json",
    "offcert profile --hf llama-3.1-8b --sequence 4096 --hardware h100-sxm -o problem.json",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "turn a network or a training step into a problem file"
    parser = add_command(commands, "profile", summary, _run, examples=_EXAMPLES)
    parser.set_defaults(streamed=True)
    add_network(parser)
    add_configured(parser)
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default=CLOCKS[0],
        help="what an operation is: what happens between two events at leaf modules, an operator, "
        "or what TorchInductor would fuse in the graphs of torch.compile (for offcert.backend)",
    )
    times = parser.add_mutually_exclusive_group()
    add_hardware(times, f"{HERE}, else {HARDWARE[0]}")
    times.add_argument(
        "--measure",
        action="store_true",
        help="measure on the device at hand: durations and, on a CUDA device, workspaces, and the "
        "rates of the link while the step runs",
    )
    parser.add_argument(
        "--save-hardware",
        metavar="FILE",
        help="with --measure: write what the device at hand reaches, by type of product, memory "
        "and link, as a TOML file for --hardware (default: none)",
    )
    add_peak(parser)
    parser.add_argument(
        "--link",
        choices=LINKS,
        help="whether a hardware model's link serves both directions at once, where it is known at "
        f"which rates (default: {LINKS[0]})",
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
        "--recompute",
        choices=("any", "none"),
        default="any",
        help="what may run again: any computation that can, or, as in the papers about offloading, "
        "nothing; percentages of --memory count from the least memory of the one or the other "
        "(default: any)",
    )
    add_optimiser(parser)
    parser.add_argument(
        "--name", help='of the problem (default: network and input, as in "resnet18 2x3x32x32")'
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PROBLEM",
        help="file for the problem; -: standard output",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.report.text import describe_problem, problem_summary

    require_torch("offcert profile")
    if not options.measure and options.hardware is None:
        options.hardware = _card(options.device_memory)
    # What a network prints is not what this command says.
    name = options.model or options.hf
    with progress(options, str, f"profiling {name}"), redirect_stdout(sys.stderr):
        problem = _profile(options)
    put_problem(problem, options.output)
    if options.save_hardware is not None:
        _save_hardware(options.save_hardware)
    short = _short_lines(options, problem)
    text = "\n".join([describe_problem(problem), *_measured_lines(problem), *short])
    show(options, problem_summary(problem) | ({"short": "device memory"} if short else {}), text)
    return 0


def _card(device_memory: str | None) -> Hardware | str:
    """Return the card here, the one that a size suggests, or the papers'."""
    from offcert.runtime.hardware.choice import at_hand
    from offcert.runtime.hardware.files import suggested

    memory = None if device_memory is None else require_limit(device_memory, "device memory")
    return at_hand() or (None if memory is None else suggested(memory)) or HARDWARE[0]


def _short_lines(options: argparse.Namespace, problem: Problem) -> list[str]:
    """Return a line if the card has less memory than the problem, whose limit nobody has named."""
    if options.measure or options.memory or options.device_memory:
        return []
    beside, available = (problem.source or {}).get("uncounted", {}), machine(options).memory
    needed = sum(beside.values()) + problem.least_memory
    if needed <= available:
        return []
    sizes = [format_size(size, problem.units) for size in (needed, available)]
    text = "  short of       device memory: {} needed, {} available; ".format(*sizes)
    most = max(beside, key=beside.__getitem__, default="")
    if beside.get(most, 0) > problem.least_memory:
        return [f"{text}of these {format_size(beside[most], problem.units)} for {most}"]
    return [
        f"{text}of these {format_size(problem.least_memory, problem.units)} for the step itself"
    ]


def _save_hardware(path: str) -> None:
    from offcert.runtime.hardware.choice import measured_card
    from offcert.runtime.hardware.files import write_hardware

    write_hardware(path, measured_card())


def _measured_lines(problem: Problem) -> list[str]:
    """Return lines about rates and storages that were measured beside durations, for people."""
    from offcert.questions.schedule.carried import launch_times, with_host

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
    launches = launch_times(problem)
    if launches is not None:
        busy = problem.trace.compute_time
        taken = with_host(problem.trace.durations, launches)
        said = f"  host           {sum(launches) / 1e6:.2f} ms to hand the step over"
        if taken > busy:
            said += f"; host-bound: {(taken - busy) / 1e6:.2f} of {taken / 1e6:.2f} ms idle"
        lines.append(said)
    unforeseen = found.get("unforeseen", {}).get("storages", 0)
    if unforeseen:
        size = format_size(found["unforeseen"]["bytes"], problem.units)
        lines.append(f"  not foreseen   {unforeseen} storages, {size}, saved on this device only")
    return lines


def _profile(options: argparse.Namespace) -> Problem:
    from offcert.runtime.profiling.profile import profile

    if options.save_hardware is not None:
        if not options.measure:
            raise InputError("--save-hardware goes with --measure: a model has nothing to save")
        if not options.save_hardware.endswith(".toml"):
            raise InputError(
                f"--save-hardware must be a file that ends in .toml, not {options.save_hardware}"
            )
    for flag in ("peak", "link", "attention"):
        if options.measure and getattr(options, flag):
            raise InputError(f"--{flag} is for hardware models, not for --measure")
    model, given, label, named = chosen_model(options)
    return profile(
        model,
        options.input,
        clock=options.clock,
        hardware=None if options.measure else machine(options),
        link=options.link or LINKS[0],
        measure=options.measure,
        options=given,
        seed=options.seed,
        name=options.name or label,
        memory=options.memory,
        device_memory=options.device_memory,
        optimiser=chosen_optimiser(options),
        recompute=options.recompute,
        **named,
    )
