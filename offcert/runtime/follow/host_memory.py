"""The host memory of plans that are followed together, and how they get by with less.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from offcert.core.errors import InputError
from offcert.core.units import require_size
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.plan.step_plan import StepPlan


def within_host(
    step_plans: Sequence[StepPlan], limit: int | str | None, spill: bool | str
) -> list[StepPlan]:
    """Return plans that take no more of the host's memory altogether than they may.

    Each keeps its room while others are followed, so the first gets what it needs, and the next
    what is left.

    Parameters
    ----------
    step_plans : sequence of StepPlan
        As they are with all the memory in the world.
    limit : int or str or None
        Bytes, or text like ``"8GiB"``; None for any number.
    spill : bool or str
        Whether what is too much goes into a file; a text says in which folder.

    Raises
    ------
    InputError
        If it is too much and nothing may go into a file, the limit is none, or there is no such
        folder.
    """
    if isinstance(spill, str) and not Path(spill).is_dir():
        raise InputError(f"host_spill must be a folder that exists, not {spill!r}")
    left = memory_limit(limit)
    if left is None:
        if spill is not False:
            raise InputError("host_spill needs host_memory: there is no limit to keep to")
        return list(step_plans)
    found = []
    for each in step_plans:
        within = each.within_host(left, spill is not False)
        left -= host_memory_of([within]).held
        found.append(within)
    return found


def memory_limit(limit: int | str | None, field: str = "host_memory") -> int | None:
    """Return a limit in bytes.

    Raises
    ------
    InputError
        If it is none.
    """
    return None if limit is None else require_size(limit, field)


def host_memory_of(step_plans: Sequence[StepPlan], limit: int | None = None) -> HostMemory:
    """Return the bytes of host memory that plans need together."""
    return HostMemory(
        sum(each.host.pool for each in step_plans),
        sum(each.host.load for each in step_plans),
        limit,
        sum(each.in_file for each in step_plans),
        sum(each.staging for each in step_plans),
    )
