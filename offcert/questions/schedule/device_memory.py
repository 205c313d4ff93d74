"""The memory of a whole device, of which a trace gets what the model itself leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.units import Units, format_size

_BYTES = Units("ns", "B")
# Copies of the trained parameters that an optimiser's state holds. Given by PyTorch.
OPTIMISER_COPIES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


class _Sourced(Protocol):
    """A problem, which has a name and says where it is from."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def source(self) -> Mapping[str, Any] | None:
        """As the profile has written it."""


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
            "a device's memory also holds the optimiser's state, whose size is not known: name "
            "the optimiser (sgd, momentum, adam or adamw)"
        )


def describe_uncounted(uncounted: Mapping[str, int]) -> str:
    """Return the names and sizes of bytes that no trace counts, in one line for people."""
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


def uncounted_bytes(problem: _Sourced) -> dict[str, int]:
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


def require_optimiser(name: object) -> str:
    """Return the name of an optimiser whose state's size is known.

    Raises
    ------
    InputError
        If it is none.
    """
    if not isinstance(name, str) or name not in OPTIMISER_COPIES:
        known = ", ".join(OPTIMISER_COPIES)
        raise InputError(f"optimiser must be one of {known}, not {short_repr(name)}")
    return name


def with_optimiser(uncounted: Mapping[str, int], name: str) -> dict[str, int]:
    """Return bytes with those that the state of a named optimiser takes on the device.

    They follow from the gradients' bytes: a gradient is as large as its parameter. The counters of
    Adam's steps, 4 bytes a parameter, PyTorch keeps on the host by default; they are not in it.

    Parameters
    ----------
    uncounted : mapping of str to int
        Bytes that the trace does not count, by what they are.
    name : str
        A key of `OPTIMISER_COPIES`.

    Raises
    ------
    InputError
        If no optimiser has that name, or it is not known what the gradients take.
    """
    copies = OPTIMISER_COPIES[require_optimiser(name)]
    if "gradients" not in uncounted:
        raise InputError("the problem does not say what gradients take (source.uncounted)")
    return {**uncounted, "optimiser": copies * uncounted["gradients"]}
