"""Platforms and units, as all documents about schedules hold them."""

from __future__ import annotations

from offcert.core.documents import Fields, parse_rational
from offcert.core.platform import Platform
from offcert.core.problem import Units


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
    )


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
