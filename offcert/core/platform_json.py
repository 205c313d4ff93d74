"""Platforms and units, as all documents about schedules hold them."""

from __future__ import annotations

from typing import Any

from offcert.core.documents import Fields, parse_rational, rational_text
from offcert.core.platform import Platform
from offcert.core.units import Units


def platform_from_fields(fields: Fields) -> Platform:
    """Return the memory and the link that the fields of a document describe.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing or wrong.
    """
    back = fields.optional("prefetch_bandwidth", str)
    return Platform(
        fields.integer("memory", 0),
        parse_rational(fields.get("bandwidth", str), fields.path("bandwidth")),
        fields.get("link", str),
        None if back is None else parse_rational(back, fields.path("prefetch_bandwidth")),
        fields.integer("sharing", 1) if fields.has("sharing") else 1,
    )


def platform_fields(platform: Platform) -> dict[str, Any]:
    """Return the fields of a document that describe a platform.

    What is as it was before there was a choice is left out, so that old documents keep their hash.
    """
    found: dict[str, Any] = {
        "memory": platform.memory,
        "bandwidth": rational_text(platform.bandwidth),
        "link": str(platform.link),
    }
    if platform.prefetch_bandwidth is not None:
        found["prefetch_bandwidth"] = rational_text(platform.prefetch_bandwidth)
    if platform.sharing > 1:
        found["sharing"] = platform.sharing
    return found


def units_from_fields(fields: Fields) -> Units:
    """Return the units that a document counts in.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    units = Fields(fields.get("units", dict), fields.path("units"))
    found = Units(units.get("time", str), units.get("size", str))
    units.finish()
    return found
