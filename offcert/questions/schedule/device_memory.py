"""The memory of a whole device, of which a trace gets what the model itself leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.units import Units, format_size
from offcert.questions.schedule.problem import Problem

_BYTES = Units("ns", "B")


def memory_beside(device_memory: int, uncounted: Mapping[str, int]) -> int:
    """Return the memory limit of a trace on a device with so much memory.

    Parameters
    ----------
    device_memory : int
        Bytes of the device.
    uncounted : mapping of str to int
        Bytes that the trace does not count, by what they are: ``"parameters"``, ``"optimiser"``, …

    Raises
    ------
    InputError
        If that is more than there is, or it is not known how much the optimiser's state takes.
    """
    require_optimiser_counted(uncounted)
    taken = sum(uncounted.values())
    if taken > device_memory:
        raise InputError(
            f"device memory must be at least {taken} bytes, not {device_memory}: "
            f"{describe_uncounted(uncounted)} take that much before anything is computed"
        )
    return device_memory - taken


def require_optimiser_counted(uncounted: Mapping[str, int]) -> None:
    """Raise an `InputError` if it is not known how much the optimiser's state takes.

    Parameters
    ----------
    uncounted : mapping of str to int
        Bytes that the trace does not count, by what they are.
    """
    if "optimiser" not in uncounted:
        raise InputError(
            "a device's memory also holds the optimiser's state, whose size is not known: profile "
            "with an optimiser (sgd, momentum, adam or adamw)"
        )


def describe_uncounted(uncounted: Mapping[str, int]) -> str:
    """Return what the bytes are, for people."""
    parts = [f"{name} {format_size(size, _BYTES)}" for name, size in uncounted.items() if size]
    return ", ".join(parts) or "nothing"


def with_copies_of_buffers(uncounted: Mapping[str, int]) -> dict[str, int]:
    """Return bytes with those of the buffers' copies that are there where computations run again.

    Parameters
    ----------
    uncounted : mapping of str to int
        Bytes that the trace does not count, by what they are.
    """
    # One copy as they were before a segment, one for it to change while it runs again.
    buffers = uncounted.get("buffers", 0)
    return {**uncounted, "copies of buffers": 2 * buffers} if buffers else dict(uncounted)


def uncounted_bytes(problem: Problem) -> dict[str, int]:
    """Return the bytes that the trace of a problem does not count, as its source has them.

    Raises
    ------
    InputError
        If it does not say, or what it says are no sizes.
    """
    found: Any = (problem.source or {}).get("uncounted")
    if found is None:
        raise InputError(
            f"{problem.name} does not say how many bytes its trace does not count "
            "(source.uncounted): give its memory, not the device's"
        )
    if not isinstance(found, dict):
        raise InputError(f"source.uncounted must be an object, not {short_repr(found)}")
    for name, size in found.items():
        if type(size) is not int or size < 0:
            raise InputError(
                f"source.uncounted.{cut(name)} must be a number of bytes, not {short_repr(size)}"
            )
    return dict(found)
