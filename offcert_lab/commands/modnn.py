"""The command `generate modnn`: steps of the moDNN paper's networks, for `choose` and `devices`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import count, integer
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.core.units import format_size, parse_size

if TYPE_CHECKING:
    from offcert.questions.devices.problem import DevicesProblem
    from offcert.questions.split.problem import SplitProblem

_EXAMPLES = (
    "offcert generate modnn vgg16 -o step.json",
    "offcert generate modnn resnet34 --batch 32 --sub-batches 32,16,8 -o step.json",
    "offcert generate modnn vgg16 --devices 4 --sub-batches 32 -o devices.json",
)


def add(kinds: Commands) -> None:
    """Add the command to those of ``offcert generate``."""
    summary = "a training step of a network of the moDNN paper on K40s, with its choices"
    parser = add_command(kinds, "modnn", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "network", metavar="NETWORK", help="vgg16, vgg19, vgg101, resnet34, resnet152 or fcn"
    )
    parser.add_argument("--memory", metavar="SIZE", help="of a device (default: 12GiB)")
    parser.add_argument(
        "--batch", type=integer, metavar="N", help="images (default: as many as in the paper)"
    )
    parser.add_argument(
        "--sub-batches",
        type=_integers,
        metavar="A,B,…",
        help="sizes to choose from, or the one that each of several devices computes at a time "
        "(default: multiples of 64 and powers of two, or all that a device has)",
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
        "--devices",
        type=count,
        metavar="N",
        help="on so many devices, with the fastest algorithms, for `offcert devices` (default: on "
        "one, with all choices, for `offcert choose`)",
    )
    parser.add_argument(
        "-o", dest="target_file", metavar="FILE", required=True, help="file for the step"
    )


def _integers(text: str) -> list[int]:
    return [integer(part) for part in text.split(",")]


def _run(options: argparse.Namespace) -> int:
    from offcert.questions.devices.problem import write_devices_problem
    from offcert.questions.split.problem import write_split

    if options.devices is not None:
        problem = _on_devices(options)
        write_devices_problem(options.target_file, problem)
        show(options, {"name": problem.name, "devices": problem.devices}, problem.name)
        return 0
    step = _with_choices(options)
    write_split(options.target_file, step)
    summary = {"name": step.name, "batch": step.batch, "sub_batches": list(step.sizes)}
    show(options, summary, _described(step))
    return 0


def _described(step: SplitProblem) -> str:
    """Return the choices that a step leaves open, for people."""
    lines = [f"{step.name}: batch {step.batch}"]
    for split in step.splits:
        first = split.rounds[0]
        least = format_size(first.chosen(first.menu.leanest()).least_memory, step.units)
        offered = f"{len(first.menu)} operations with alternatives"
        lines.append(f"  sub-batch {split.size:>5}  {offered}, from {least}")
    return "\n".join(lines)


def _memory(options: argparse.Namespace) -> dict[str, Any]:
    return {} if options.memory is None else {"memory": parse_size(options.memory, "memory")}


def _with_choices(options: argparse.Namespace) -> SplitProblem:
    from offcert_lab.modnn.problems import modnn_step

    return modnn_step(
        options.network,
        options.batch,
        options.sub_batches,
        apart=options.apart,
        weights_leave=options.weights_leave,
        **_memory(options),
    )


def _on_devices(options: argparse.Namespace) -> DevicesProblem:
    from offcert.core.errors import InputError
    from offcert_lab.modnn.problems import modnn_devices

    sizes = options.sub_batches or [None]
    if len(sizes) > 1 or options.apart or options.weights_leave:
        raise InputError("on several devices there is one sub-batch, and weights stay")
    return modnn_devices(
        options.network,
        options.devices,
        batch=options.batch,
        sub_batch=sizes[0],
        **_memory(options),
    )
