"""The command `partition`: what a schedule of a reduction says about the numbers it came from."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from offcert.cli.arguments import source
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.core.errors import InputError
from offcert.questions.schedule.schedule import FluidSchedule

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate

_EXAMPLES = ("offcert partition certificate.json",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "turn a certified schedule of a reduction back into the partition"
    parser = add_command(commands, "partition", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate",
        type=source,
        metavar="CERTIFICATE",
        help="of a problem that generate two-partition, three-partition or recompute-partition "
        "has made",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.instances.three_partition import triples_of
    from offcert.instances.two_partition import RecomputePartition, TwoPartition, half_of, part_of
    from offcert.proofs.certificate import read_certificate

    certificate = read_certificate(options.certificate)
    problem, schedule = certificate.problem, certificate.result.schedule
    if schedule is None:
        raise InputError(f"{options.certificate} holds no schedule")
    source = problem.source or {}
    values, kind = source.get("values", []), source.get("generator")
    if kind in (TwoPartition.kind, RecomputePartition.kind):
        if kind == TwoPartition.kind:
            part = half_of(problem, schedule)
        else:
            _require_valid(certificate)
            part = part_of(problem, certificate.result.execution, schedule.makespan)
        sets = [part, tuple(index for index in range(len(values)) if index not in part)]
    elif isinstance(schedule, FluidSchedule):
        raise InputError(f"{options.certificate} holds a schedule whose transfers pause")
    else:
        sets = list(triples_of(problem, schedule))
    lines = [" + ".join(str(values[index]) for index in members) for members in sets]
    show(options, {"partition": [list(members) for members in sets]}, "\n".join(lines))
    return 0


def _require_valid(certificate: Certificate) -> None:
    """Refuse a certificate whose execution or schedule is none of its problem's."""
    from offcert.verification.document import verify

    verification = verify(certificate.to_json())
    if not verification.valid:
        raise InputError(f"the certificate does not verify: {verification.reason}")
