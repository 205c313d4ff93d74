"""The command `train`: plain training beside training by a certificate's plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, seed
from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate
    from offcert.runtime.training_report import TrainReport
    from offcert.runtime.ways import Ways


_EXAMPLES = (
    "offcert train certificate.json --steps 2",
    "offcert train offloading.json recomputation.json both.json --no-count",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "train plainly and by the plan, side by side, and compare"
    parser = add_command(commands, "train", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificates",
        metavar="CERTIFICATE",
        nargs="+",
        help="as certify writes it for a profiled network; several, for one limit, are compared",
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


def _run(options: argparse.Namespace) -> int:
    from offcert.core.extras import require_torch
    from offcert.report.training import describe_training, describe_ways

    require_torch("offcert train")
    certificates = [_read(path) for path in options.certificates]
    units = certificates[0].problem.units
    with (
        progress(options, _describe_progress) as tell,
        redirect_stdout(sys.stderr),
    ):
        told = None if tell is None else lambda done, total: tell((done, total))
        report: TrainReport | Ways
        if len(certificates) == 1:
            report = _train(certificates[0], options, told)
            text = describe_training(report.to_dict(), units)
        else:
            from offcert.runtime.ways import train_ways

            report = train_ways(
                certificates,
                steps=options.steps,
                seed=options.seed,
                progress=told,
                count=options.count,
            )
            text = describe_ways(report.to_dict(), units)
    show(options, report.to_dict(), text)
    return 0 if report.ok else EXIT_INVALID


def _train(
    certificate: Certificate,
    options: argparse.Namespace,
    told: Callable[[int, int], None] | None,
) -> TrainReport:
    from offcert.runtime.train import train

    result, problem = certificate.result, certificate.problem
    assert result.schedule is not None
    return train(
        problem if result.memory is None else problem.with_memory(result.memory),
        result.schedule,
        steps=options.steps,
        seed=options.seed,
        progress=told,
        count=options.count,
        execution=result.execution,
    )


def _read(path: str) -> Certificate:
    """Return a certificate whose plan training can follow."""
    from offcert.core.errors import InputError
    from offcert.core.fluid_schedule import FluidSchedule
    from offcert.verify.document import verify_file

    verification = verify_file(path)
    if not verification.valid:
        raise InputError(f"{path} does not verify: {verification.reason}")
    certificate = verification.certificate
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
