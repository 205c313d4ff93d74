"""The command `train`: plain training beside training by a certificate's plan."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, seed
from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate


_EXAMPLES = ("offcert train certificate.json --steps 2",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "train plainly and by the plan, side by side, and compare"
    parser = add_command(commands, "train", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate", metavar="CERTIFICATE", help="as certify writes it for a profiled network"
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
    from offcert.report.training import describe_training

    require_torch("offcert train")
    certificate = _read(options.certificate)
    schedule = certificate.result.schedule
    assert schedule is not None
    from offcert.runtime.train import train

    with (
        progress(options, _describe_progress) as tell,
        redirect_stdout(sys.stderr),
    ):
        report = train(
            certificate.problem,
            schedule,
            steps=options.steps,
            seed=options.seed,
            progress=None if tell is None else lambda done, total: tell((done, total)),
            count=options.count,
        )
    units = certificate.problem.units
    show(options, report.to_dict(), describe_training(report.to_dict(), units))
    return 0 if report.ok else EXIT_INVALID


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
