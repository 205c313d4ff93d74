"""The memory of a whole device, of which a trace gets what the model itself leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from offcert.core.errors import InputError
from offcert.core.messages import cut, meant, short_repr
from offcert.core.units import Units, format_size

_BYTES = Units("ns", "B")
# Copies of the trained parameters that an optimiser's state holds. Given by PyTorch.
OPTIMISER_COPIES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adamw-fused": 2}
# Those whose state is known, where the shapes of the parameters are.
OPTIMISERS = (*OPTIMISER_COPIES, "adamw-8bit", "adafactor", "lion", "lion-8bit")
# What Trainer, bitsandbytes and PyTorch call them. Paged states are counted as if they stayed.
_ALSO = {
    "adamwtorch": "adamw",
    "adamwhf": "adamw",
    "adamwtorchfused": "adamw-fused",
    "adamfused": "adamw-fused",
    "adamwforeach": "adamw",
    "adamforeach": "adam",
    "sgdmomentum": "momentum",
    "adamwbnb8bit": "adamw-8bit",
    "pagedadamw8bit": "adamw-8bit",
    "adam8bit": "adamw-8bit",
    "pagedadam8bit": "adamw-8bit",
    "lion32bit": "lion",
    "pagedlion": "lion",
    "pagedlion32bit": "lion",
    "pagedlion8bit": "lion-8bit",
}


class _Sourced(Protocol):
    """A problem, which has a name and says where it is from."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def source(self) -> Mapping[str, Any] | None:
        """As the profile has written it."""


def memory_beside(device_memory: int, uncounted: Mapping[str, int]) -> int:
    """Return the memory limit of a trace on a device, without the bytes that it does not count."""
    require_optimiser_counted(uncounted)
    taken = sum(uncounted.values())
    if taken > device_memory:
        raise InputError(
            f"device memory must be at least {taken} bytes, not {device_memory}: "
            f"{describe_uncounted(uncounted)} take that much before anything is computed"
        )
    return device_memory - taken


def require_optimiser_counted(uncounted: Mapping[str, int]) -> None:
    """Raise `InputError` unless bytes by what they are include those of the optimiser's state."""
    if "optimiser" not in uncounted:
        raise InputError(
            "a device's memory also holds the optimiser's state, whose size is not known: name "
            f"the optimiser ({', '.join(OPTIMISERS[:-1])} or {OPTIMISERS[-1]})"
        )


def describe_uncounted(uncounted: Mapping[str, int]) -> str:
    """Return the names and sizes of bytes that no trace counts, in one line for people."""
    parts = [f"{name} {format_size(size, _BYTES)}" for name, size in uncounted.items() if size]
    return ", ".join(parts) or "nothing"


def with_copies_of_buffers(uncounted: Mapping[str, int]) -> dict[str, int]:
    """Return bytes by what they are, with the copies of buffers that running again needs."""
    # One copy as they were before a segment, one for it to change while it runs again.
    buffers = uncounted.get("buffers", 0)
    return {**uncounted, "copies of buffers": 2 * buffers} if buffers else dict(uncounted)


def uncounted_bytes(problem: _Sourced) -> dict[str, int]:
    """Return the bytes that the trace of a problem does not count, as its source has them."""
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


def named_optimiser(name: object) -> str:
    """Return the name in `OPTIMISERS` of an optimiser in any usual spelling."""
    plain = "".join(filter(str.isalnum, name.lower())) if isinstance(name, str) else ""
    known = {"".join(filter(str.isalnum, each)): each for each in OPTIMISERS} | _ALSO
    if plain not in known:
        hint = meant(name, OPTIMISERS) if isinstance(name, str) else ""
        raise InputError(
            f"optimiser must be one of {', '.join(OPTIMISERS)}, or one of torch.optim as an "
            f"object, not {short_repr(name)}{hint}"
        )
    return known[plain]


def with_optimiser(uncounted: Mapping[str, int], name: str) -> dict[str, int]:
    """Return bytes by what they are, with the state of an optimiser, one of `OPTIMISER_COPIES`.

    They follow from the gradients' bytes: a gradient is as large as its parameter. The counters of
    Adam's steps, 4 bytes a parameter, PyTorch keeps on the host by default; they are not in it.
    """
    copies = OPTIMISER_COPIES.get(named_optimiser(name))
    if copies is None:
        known = ", ".join(OPTIMISER_COPIES)
        raise InputError(
            f"optimiser must be one of {known} here, not {short_repr(name)}: its state depends on "
            "the shapes of the parameters, which the problem does not have"
        )
    if "gradients" not in uncounted:
        raise InputError("the problem does not say what gradients take (source.uncounted)")
    return {**uncounted, "optimiser": copies * uncounted["gradients"]}
