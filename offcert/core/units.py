"""Sizes, rates, percentages and times as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.documents import RATIONAL
from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr

_NUMBER = r"([0-9]{1,40}(?:\.[0-9]{1,40})?)"
# Prefixes of units and their factors. Given by SI.
_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PREFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(rf"{_NUMBER}\s*(([kKMGT]i?)?B)?")
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_TIME = re.compile(rf"{_NUMBER}\s*(ns|us|µs|ms|s)?")
# Units of time in nanoseconds. Given by SI.
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
# Digits behind the point that tell a byte from the next in tebibytes, and more than a nanosecond
# from the next in seconds. Derived from the units.
_MOST_DIGITS = 13
# Bytes below which a number without a unit is taken for one of GiB. Arbitrary.
_FEWEST = 1024
_RATE = re.compile(rf"{_NUMBER}\s*([kKMGT]i?)?B/s")


@dataclass(frozen=True)
class Units:
    """Units of a tick and of a size: ``"ns"`` or ``"tick"``, ``"B"`` or ``"unit"``."""

    time: str = "tick"
    size: str = "unit"

    def __post_init__(self) -> None:
        if self.time not in ("ns", "tick"):
            raise InputError(f'units.time must be "ns" or "tick", not {short_repr(self.time)}')
        if self.size not in ("B", "unit"):
            raise InputError(f'units.size must be "B" or "unit", not {short_repr(self.size)}')


def _factor(prefix: str | None) -> int:
    if prefix == "K":
        prefix = "k"
    return _PREFIXES[prefix or ""]


def parse_size(text: str, field: str = "size") -> int:
    """Return bytes for text like ``"6GiB"``, ``"12.5 MB"`` or ``"4096B"``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{field} must be a size such as "6GiB" or "4096B", not "{cut(text)}"')
    if not match[2]:
        number = cut(match[1], 20)
        raise InputError(
            f'{field} "{number}" needs a unit: "{number}GiB", "{number}MB" or bytes, "{number}B"'
        )
    return _bytes(match[1], match[3], text, field)


def require_size(size: object, field: str = "size") -> int:
    """Return bytes for an integer, or for a text such as ``"6GiB"``."""
    if isinstance(size, str):
        return parse_size(size, field)
    if type(size) is not int or size < 0:
        raise InputError(f'{field} must be bytes, or a text such as "6GiB", not {short_repr(size)}')
    return size


def require_limit(limit: object, field: str) -> int:
    """Return bytes of a device as `require_size` does, but refuse a number that lacks its unit."""
    size = require_size(limit, field)
    if not isinstance(limit, str) and size < _FEWEST:
        raise InputError(
            f'{field} {size} needs a unit: "{size}GiB", "{size}MB" or bytes, "{size}B"'
        )
    return size


def parse_limit(text: str, units: Units, memory_at: Callable[[Fraction], int]) -> int:
    """Return a problem's memory limit, in its units of size, for a size or a percentage.

    ``"40%"`` means 40 % of the way from the least memory at which any schedule exists to the peak
    without offloading (where computations may run again: from what the largest of them takes
    alone). A number without a unit counts the problem's own units where these are not bytes, as in
    synthetic problems; where they are, it could mean percent as well, and is refused.

    Parameters
    ----------
    text : str
        Of a person.
    units : Units
        Of the problem.
    memory_at : callable
        Returns the limit for a part from 0 to 1 of that way.
    """
    match = _PERCENT.fullmatch(text.strip())
    if match is not None:
        part = Fraction(match[1]) / 100
        if part > 1:
            raise InputError(
                f'memory must be at most 100%, the peak without offloading, not "{cut(text)}"'
            )
        return memory_at(part)
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f'memory must look like "40%", "6GiB" or "4096B", not "{cut(text)}"')
    if not match[2] and units.size == "B":
        number = cut(match[1], 20)
        raise InputError(
            f'memory "{number}" needs a unit: "{number}%" (of the way from the least that is '
            f'feasible to the peak), "{number}MiB", "{number}GiB" or bytes, "{number}B"'
        )
    if match[2] and units.size != "B":
        number = cut(match[1], 20)
        raise InputError(
            f'memory "{cut(text)}" is in bytes, and the sizes of this problem are numbers without '
            f'a unit: "{number}", or "{number}%" of the way from the least to the peak'
        )
    return _bytes(match[1], match[3], text, "memory")


def parse_capacity(text: str, units: Units, field: str = "capacity") -> int:
    """Return the size of a pool for text like ``"6GiB"`` or ``"1048576"``, in the problem's units.

    A number without a unit counts these units, bytes or others: it can mean nothing else here.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{field} must look like "6GiB" or "1048576", not "{cut(text)}"')
    if match[2] and units.size != "B":
        raise InputError(f'{field} "{cut(text)}" needs no unit: the problem\'s sizes are numbers')
    return _bytes(match[1], match[3], text, field)


def _bytes(number: str, prefix: str | None, text: str, field: str) -> int:
    size = Fraction(number) * _factor(prefix)
    if size.denominator != 1:
        raise InputError(f'{field} must be a whole number of bytes, which "{text}" is not')
    return int(size)


def parse_time(text: str, units: Units, field: str = "time") -> int:
    """Return ticks for text like ``"80ms"``, or a number where ticks have no length."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{field} must look like "80ms" or "2.5s", not "{cut(text)}"')
    timed = units.time == "ns"
    if timed != bool(match[2]):
        number = cut(match[1], 20)
        asked = f'a unit: "{number}ms" or "{number}s"' if timed else "no unit: these are ticks"
        raise InputError(f'{field} "{cut(text)}" needs {asked}')
    ticks = Fraction(match[1]) * _NANOSECONDS[match[2] or "ns"]
    if ticks.denominator != 1:
        raise InputError(f'{field} must be a whole number of ticks, which "{cut(text)}" is not')
    return int(ticks)


def parse_percent(text: str, field: str) -> Fraction:
    """Return 1/5 for the text ``"20%"``."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{field} must look like "20%", not "{cut(text)}"')
    return Fraction(match[1]) / 100


def parse_bandwidth(text: str, units: Units, field: str = "bandwidth") -> Fraction:
    """Return a bandwidth in size units per tick, for text like ``"12.2GB/s"`` or ``"3/2"``."""
    plain = RATIONAL.fullmatch(text.strip())
    if plain is not None and int(plain[2] or 1) > 0:
        rate = Fraction(int(plain[1]), int(plain[2] or 1))
    else:
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise InputError(f'{field} must look like "12.2GB/s" or "3/2", not "{cut(text)}"')
        if units.time != "ns" or units.size != "B":
            raise InputError(
                f'{field} "{text}" needs a problem in ns and B, not {units.time} and {units.size}'
            )
        rate = Fraction(match[1]) * _factor(match[2]) / 10**9
    if rate <= 0:
        raise InputError(f'{field} must be more than 0, not "{cut(text)}"')
    return rate


def format_size(size: int, units: Units, beside: int | None = None) -> str:
    """Return a size for people, with digits enough to tell it from another `beside` it."""
    if units.size != "B":
        return f"{size}"
    for prefix in ("Ti", "Gi", "Mi", "Ki"):
        if size >= _PREFIXES[prefix]:
            return f"{_decimal(size, int(_PREFIXES[prefix]), 2, beside)} {prefix}B"
    return f"{size} B"


def format_time(ticks: int, units: Units, beside: int | None = None) -> str:
    """Return a time for people, with digits enough to tell it from another `beside` it."""
    if units.time != "ns":
        return f"{ticks}"
    for name, factor in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ticks >= factor:
            return f"{_decimal(ticks, factor, 3, beside)} {name}"
    return f"{ticks} ns"


def _decimal(number: int, unit: int, digits: int, beside: int | None) -> str:
    """Return a number in units of its size, with more digits until another one looks different."""
    text = f"{number / unit:.{digits}f}"
    while beside not in (None, number) and digits < _MOST_DIGITS:
        if text != f"{beside / unit:.{digits}f}":
            break
        digits += 1
        text = f"{number / unit:.{digits}f}"
    return text


def format_rate(rate: Fraction, units: Units) -> str:
    """Return a bandwidth, in size units per tick, for people."""
    if units.time != "ns" or units.size != "B":
        short = f"{rate}" if rate.denominator < 1000 else f"{float(rate):.4g}"
        return f"{short} {'B' if units.size == 'B' else 'units'} per {units.time}"
    second = rate * 10**9
    for prefix in ("T", "G", "M", "k"):
        if second >= _PREFIXES[prefix]:
            return f"{float(second / _PREFIXES[prefix]):.2f} {prefix}B/s"
    return f"{float(second):.2f} B/s"


def format_gap(gap: float) -> str:
    """Return a relative gap as a percentage, with more digits where four would say that it is 0."""
    text = f"{100 * gap:.4f}"
    return f"{text} %" if float(text) or not gap else f"{100 * gap:.1e} %"
