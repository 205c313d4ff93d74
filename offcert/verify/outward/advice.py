"""The divisions that the walk is advised to make: whether they make sense, and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offcert.verify.outward.sets import SetLimits
from offcert.verify.outward.tables import Cut

# No part is divided into more.
_MOST_PARTS = 40_000


class FaultError(Exception):
    """The advice does not establish the claim."""


def order_fault(name: str, values: Sequence[int]) -> str | None:
    """Return None if values are positive and decrease, or what is wrong with such a list."""
    if not values or min(values) < 1 or list(values) != sorted(set(values), reverse=True):
        return f"details.{name} must be positive and decrease, not {list(values)}"
    return None


def is_empty(limits: SetLimits) -> bool:
    """Return whether nothing can be within the limits."""
    crossing = limits.crossing
    return limits.least > limits.most or (crossing is not None and crossing.least > crossing.most)


def by_class(
    cut: Cut, limits: SetLimits, size: int, count: int, place: str
) -> tuple[SetLimits, SetLimits]:
    """Return the limits with at least so many tensors of a size, and with fewer."""
    if size not in cut.sizes:
        raise FaultError(f"{place} names tensors of {size} bytes, but there are none")
    c = cut.sizes.index(size)
    low, high = list(limits.low), list(limits.high)
    low[c], high[c] = max(low[c], count), min(high[c], count - 1)
    return replace(limits, low=tuple(low)), replace(limits, high=tuple(high))


def places_of(splits: Sequence[Sequence[Any]], roots: int) -> tuple[list[int], list[list[int]]]:
    """Return where the advice on each of some parts is, and on what each part is divided into.

    Raises
    ------
    FaultError
        If advice is missing, or left over, or a division makes no sense.
    """
    children: list[list[int]] = [[] for _ in splits]
    # The advice on a part comes before that on what it is divided into, so it is read backwards.
    begun: list[int] = []
    for index in range(len(splits) - 1, -1, -1):
        count = parts_of(splits[index], f"details.splits[{index}]")
        first = len(begun) - count
        if first < 0:
            raise FaultError(_ends_early(-first))
        children[index] = begun[first:][::-1]
        del begun[first:]
        begun.append(index)
    begun.reverse()
    if len(begun) < roots:
        raise FaultError(_ends_early(roots - len(begun)))
    if len(begun) > roots:
        place = f"details.splits[{begun[roots]}]"
        raise FaultError(f"{place} divides nothing, as all has been divided before it")
    return begun, children


def _ends_early(missing: int) -> str:
    return f"details.splits ends where {missing} parts are still to come"


def parts_of(split: Sequence[Any], place: str) -> int:
    """Return into how many parts a division leads; raise if it makes no sense."""
    if not split:
        return 0
    kind, *values = split
    numbers = {"class": 2, "bytes": 1, "ticks": 1, "window": 0, "detail": 1}
    if kind == "sets":
        well = all(_all_integers(counts) for counts in values)
    else:
        well = isinstance(kind, str) and numbers.get(kind) == len(values) and _all_integers(values)
    if not well:
        raise FaultError(f"{place} is no division: {list(split)!r:.100}")
    if kind == "detail":
        if not 1 <= values[0] <= _MOST_PARTS:
            raise FaultError(f"{place} must have 1 to {_MOST_PARTS} parts, not {values[0]}")
        return int(values[0])
    return {"window": 1, "sets": len(values)}.get(kind, 2)


def _all_integers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(value, int) and not isinstance(value, bool) for value in values
    )
