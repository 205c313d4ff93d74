"""Copies on the host of a certificate's schedules: a problem to be placed by itself."""

from __future__ import annotations

from offcert.certification.placing import checked_schedule
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.trace import require_integer
from offcert.proofs.any_certificate import AnyCertificate
from offcert.proofs.certificate import Certificate
from offcert.proofs.split_certificate import SplitCertificate
from offcert.questions.placement.problem import PlacementProblem, Residence
from offcert.questions.schedule.residences import HOST_ALIGNMENT, host_placement_problem


def host_problem(
    what: Certificate | SplitCertificate, alignment: int = HOST_ALIGNMENT
) -> PlacementProblem:
    """Return the problem of finding addresses on the host for tensors that have left the device.

    Times are ticks of the schedule, for whoever carries out its transfers in their order; see
    `offcert.questions.schedule.residences`. The rounds of a step follow each other, each
    counted once: no copy is of use after its round.

    Parameters
    ----------
    what : Certificate or SplitCertificate
        With schedules of whole transfers.
    alignment : int
        Bytes of which every address is a multiple.
    """
    require_integer(alignment, "alignment", 1)
    says = what.question.host if isinstance(what, AnyCertificate) else None
    if says is None:
        raise InputError(
            f"what leaves a device is said by certificates of schedules or steps, not by "
            f"{short_repr(what)}"
        )
    return says.load()(what, alignment)


def of_schedule(certificate: Certificate, alignment: int) -> PlacementProblem:
    """Return the problem of the copies that one schedule makes; see `host_problem`."""
    return host_placement_problem(*checked_schedule(certificate), alignment)


def of_rounds(what: SplitCertificate, alignment: int) -> PlacementProblem:
    """Return the problem of the copies that the rounds of a step make; see `host_problem`."""
    if what.split is None:
        raise InputError("the certificate holds no schedule, so there is nothing to be placed")
    rows: list[Residence] = []
    begin = 0
    for number, each in enumerate(what.rounds, start=1):
        executed, schedule = checked_schedule(each.certificate)
        rows += [
            Residence(f"{row.name}, round {number}", row.size, begin + row.start, begin + row.end)
            for row in host_placement_problem(executed, schedule).residences
        ]
        begin += schedule.makespan
    name = f"{what.problem.name} on the host"
    return PlacementProblem(name, rows, None, alignment, what.problem.units)
