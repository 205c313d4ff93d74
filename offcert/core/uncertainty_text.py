"""Boxes of uncertain times as people write them: ``"10%,conv*=5%,link=11GB/s:13GB/s"``."""

from __future__ import annotations

from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.platform import Platform
from offcert.core.uncertainty import Rates, Spread, Uncertainty
from offcert.core.units import Units, parse_bandwidth, parse_percent, parse_size

_LINKS = {"link": "bandwidth", "prefetch": "prefetch_bandwidth"}


def parse_uncertainty(text: str, platform: Platform, units: Units) -> Uncertainty | None:
    """Return the box that a text describes; None for ``"none"``.

    Parameters
    ----------
    text : str
        Parts with commas between them. ``10%``: all durations, and the rates of the link, are
        within a tenth of what the problem says. ``PATTERN=5%``: the durations of operations with
        such names, whatever is said of all. ``link=5%`` or ``link=11GB/s:13GB/s``: the rate of the
        link; ``prefetch=…``: from the host to the device, where that differs. ``memory=SIZE``: the
        most memory; the least is the problem's.
    platform : Platform
        Of the problem that lies in the box.
    units : Units
        Its units.

    Raises
    ------
    InputError
        One sentence that names the part.
    """
    if text.strip() == "none":
        return None
    spreads: list[Spread] = []
    everything: Fraction | None = None
    rates: dict[str, Rates] = {}
    memory = None
    for part in text.split(","):
        name, equals, value = part.strip().rpartition("=")
        if not equals:
            everything = _part(value, "uncertainty")
        elif name in _LINKS:
            rates[_LINKS[name]] = _range(value, platform, units, name)
        elif name == "memory":
            memory = parse_size(value, "uncertainty memory")
        elif name:
            less = _part(value, f"uncertainty of {cut(name)}")
            spreads.append(Spread(less, less, name))
        else:
            raise InputError(f'uncertainty "{cut(part)}" names nothing before its "="')
    if everything is not None:
        spreads.append(Spread(everything, everything))
        for name, field in _LINKS.items():
            if field not in rates and getattr(platform, field) is not None:
                rates[field] = _range("", platform, units, name, everything)
    return Uncertainty(tuple(spreads), None, memory=memory, **rates)


def _part(text: str, field: str) -> Fraction:
    part = parse_percent(text, field)
    if part >= 1:
        raise InputError(f'{field} must be less than 100%, not "{cut(text)}"')
    return part


def _range(
    text: str, platform: Platform, units: Units, name: str, known: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """Return the least and the highest rate of the link in a direction."""
    field = f"uncertainty {name}"
    exact = getattr(platform, _LINKS[name])
    if exact is None:
        raise InputError(f"{field} is for links with two rates; this has one")
    low, colon, high = text.partition(":")
    if colon:
        rates = (parse_bandwidth(end, units, field) for end in (low, high))
        least, most = rates
        return least, most
    part = _part(text, field) if known is None else known
    return (1 - part) * exact, (1 + part) * exact
