"""The command `train`: plain training beside training by a certificate's plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, seed, size, source
from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress
from offcert.core.errors import InputError, require_torch
from offcert.core.units import Units
from offcert.questions.schedule.schedule import FluidSchedule

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate
    from offcert.questions.schedule.training_record import HostMemory
    from offcert.runtime.pairs.training_report import TrainReport


_EXAMPLES = (
    "offcert train certificate.json --steps 2",
    "offcert train certificate.json --device simulated --report report.json --trace trace.json",
    "offcert train certificate.json --host-memory 8GiB --host-spill",
)
DEVICES = ("auto", "cpu", "simulated", "cuda")
HOSTS = ("none", "real")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "train plainly and by the plan, side by side, and compare"
    parser = add_command(commands, "train", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate",
        type=source,
        metavar="CERTIFICATE",
        help="as certify writes it for a profiled network",
    )
    parser.add_argument(
        "--steps", type=count, default=3, metavar="N", help="training steps of each kind"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of weights and batches")
    parser.add_argument(
        "--no-count",
        dest="count",
        action="store_false",
        help="do not count live bytes, which takes time at every operator",
    )
    _add_device(parser)
    parser.add_argument(
        "--report",
        metavar="REPORT",
        help="file for the plan beside what was measured, operation by operation, which plot draws "
        "(default: none is written)",
    )
    parser.add_argument(
        "--trace",
        metavar="TRACE",
        help="file for the same as a trace for ui.perfetto.dev (default: none is written)",
    )


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="where to train: the CPU moves tensors at once, a simulated device has streams, the "
        "problem's memory and virtual times; auto is where the model is",
    )
    parser.add_argument(
        "--host",
        choices=HOSTS,
        default="none",
        help="with a simulated device: real lets it wait, in further steps, for the host at hand, "
        "which takes the time that Python takes here to hand a step over",
    )
    parser.add_argument(
        "--host-memory",
        type=size,
        metavar="SIZE",
        help="of the host that offloaded tensors may take, such as 8GiB; a plan that needs more is "
        "refused (default: any)",
    )
    parser.add_argument(
        "--host-spill",
        nargs="?",
        const=True,
        default=False,
        metavar="FOLDER",
        help="put what is more into a memory-mapped file instead, in this folder or where the "
        "system puts such files (default: the plan is refused)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.report.training import describe_training

    require_torch("offcert train")
    if options.host_spill is not False and options.host_memory is None:
        raise InputError("--host-spill needs --host-memory: there is no limit to keep to")
    certificate = _read(options.certificate)
    with (
        progress(options, _describe_progress) as tell,
        redirect_stdout(sys.stderr),
    ):
        told = None if tell is None else lambda done, total: tell((done, total))
        report = _train(certificate, options, told)
        text = describe_training(report.to_dict(), certificate.problem.units)
    show(options, report.to_dict(), text)
    return 0 if report.ok else EXIT_INVALID


def _announce(host: HostMemory) -> None:
    """Say before the first step what a plan needs of the host, if it does."""
    if host.pool:
        from offcert.report.training import describe_host

        found = {
            "arena_bytes": host.pool,
            "arena_load": host.load,
            "host": {"spilled": host.spilled},
        }
        print(f"offcert: {describe_host(found, Units('ns', 'B'))}", file=sys.stderr)


def _train(
    certificate: Certificate,
    options: argparse.Namespace,
    told: Callable[[int, int], None] | None,
) -> TrainReport:
    from offcert.runtime.pairs.train import train

    result, problem = certificate.result, certificate.problem
    assert result.schedule is not None
    report = train(
        problem if result.memory is None else problem.with_memory(result.memory),
        result.schedule,
        progress=told,
        execution=result.execution,
        steps=options.steps,
        seed=options.seed,
        count=options.count,
        device=options.device,
        host=options.host,
        host_memory=options.host_memory,
        host_spill=options.host_spill,
        announce=None if options.quiet else _announce,
    )
    _write(report, options)
    return report


def _write(report: TrainReport, options: argparse.Namespace) -> None:
    from offcert.questions.schedule.training_files import write_training
    from offcert.report.training_figure import write_trace

    for name, write in (("report", write_training), ("trace", write_trace)):
        path = getattr(options, name)
        if path is not None:
            write(path, report.record)


def _read(path: str) -> Certificate:
    """Return a certificate whose plan training can follow."""
    from offcert.proofs.questions import SCHEDULE
    from offcert.verification.document import verify_file

    verification = verify_file(path)
    if not verification.valid:
        raise InputError(f"{path} does not verify: {verification.reason}")
    certificate = verification.certificate
    if certificate.question is not SCHEDULE:
        raise InputError(
            f"{path} certifies {certificate.question.name}, "
            f"but training follows {SCHEDULE.name} for one device"
        )
    schedule = certificate.result.schedule
    if schedule is None:
        status = certificate.result.status
        raise InputError(f"{path} is {status}: it holds no schedule to train with")
    if isinstance(schedule, FluidSchedule):
        raise InputError(
            f"{path} moves tensors in pieces, but training moves them whole; "
            "--transfers atomic certifies such a plan"
        )
    return certificate


def _describe_progress(news: tuple[int, int]) -> str:
    done, total = news
    return f"step {done} of {total}"
