"""A certificate whose schedule keeps everything for as short as possible, to be placed."""

from __future__ import annotations

from dataclasses import replace

from offcert.certify.running import UnsoundError
from offcert.core.check import check
from offcert.core.schedule import Schedule
from offcert.formulations.placement.shortening import shortened
from offcert.proofs.certificate import Certificate


def with_short_residences(certificate: Certificate, time_limit: float) -> Certificate:
    """Return the certificate with a schedule of the same step time that is easier to place.

    Parameters
    ----------
    certificate : Certificate
        Its schedule is a valid one, of whole transfers.
    time_limit : float
        Seconds.

    Returns
    -------
    Certificate
        Without addresses, if its schedule is another one; else the very same.

    Raises
    ------
    UnsoundError
        If the checker refuses the new schedule.
    """
    given, executed = certificate.result.schedule, certificate.executed
    assert isinstance(given, Schedule)
    found = shortened(executed, given, time_limit=time_limit)
    if found == given:
        return certificate
    faults = check(executed, found)
    if found.makespan != given.makespan:
        faults.append(f"its makespan is {found.makespan} instead of {given.makespan}")
    if faults:
        raise UnsoundError(f"shortening returned an invalid schedule: {faults[0]}")
    return replace(certificate, result=replace(certificate.result, schedule=found), placement=None)
