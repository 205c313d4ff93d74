"""Files of training steps with choices: the format ``offcert-step``, version 1.

``splits`` lists the ways to divide the batch; each has ``rounds``, with the ``images`` of a
sub-batch, how often it is repeated (``count``), its ``trace`` and its ``menu``: for each operation
that can be executed in several ways, its index and its ``alternatives``. Everything else is as in a
problem file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Integer, Record
from offcert.core.network_json import trace_from_json, trace_to_json
from offcert.core.platform import platform_from_fields, units_from_fields
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import Round, Split, SplitProblem

SPLIT_FORMAT = "offcert-step"
# The version of the format. By definition.
SPLIT_VERSION = 1


_ALTERNATIVE = Record(Alternative, name=TEXT, duration=Integer(0), workspace=Integer(0))


def split_to_json(step: SplitProblem) -> dict[str, Any]:
    """Return a step as a JSON value."""
    platform = step.platform
    # Rationals are not written as `platform_fields` does, so that old steps keep their hash.
    document: dict[str, Any] = {
        "format": SPLIT_FORMAT,
        "version": SPLIT_VERSION,
        "name": step.name,
        "splits": [{"rounds": [_round_to_json(each) for each in s.rounds]} for s in step.splits],
        "memory": platform.memory,
        "bandwidth": str(platform.bandwidth),
        "link": str(platform.link),
        "transfers": str(step.transfers),
        "units": {"time": step.units.time, "size": step.units.size},
    }
    if platform.prefetch_bandwidth is not None:
        document["prefetch_bandwidth"] = str(platform.prefetch_bandwidth)
    if platform.sharing > 1:
        document["sharing"] = platform.sharing
    if step.source is not None:
        document["source"] = dict(step.source)
    return document


def _round_to_json(each: Round) -> dict[str, Any]:
    return {
        "images": each.images,
        "count": each.count,
        "trace": trace_to_json(each.trace),
        "menu": menu_to_json(each.menu),
    }


def menu_to_json(menu: Menu) -> list[dict[str, Any]]:
    """Return a menu as a JSON value."""
    return [
        {
            "operation": operation,
            "alternatives": list(map(_ALTERNATIVE.write, row)),
        }
        for operation, row in menu.offers
    ]


def menu_from_json(fields: Fields, name: str) -> Menu:
    """Return the menu in a field.

    Raises
    ------
    InputError
        One sentence that names what is missing, wrong, unknown or given twice.
    """
    offers: dict[int, list[Alternative]] = {}
    for item in fields.each(name):
        operation = item.integer("operation", 0)
        if operation in offers:
            raise InputError(f"{item.path('operation')} must not be {operation} again")
        offers[operation] = _ALTERNATIVE.read_all(item, "alternatives")
        item.finish()
    return Menu(offers)


def split_from_json(document: Any, place: str = "") -> SplitProblem:
    """Return the step that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document, place)
    require_format(fields, SPLIT_FORMAT, SPLIT_VERSION)
    step = SplitProblem(
        fields.get("name", str),
        tuple(_split_from_json(item) for item in fields.each("splits")),
        platform_from_fields(fields),
        fields.get("transfers", str),
        units_from_fields(fields),
        fields.optional("source", dict),
    )
    fields.finish()
    return step


def _split_from_json(fields: Fields) -> Split:
    rounds = []
    for item in fields.each("rounds"):
        trace = trace_from_json(item.get("trace", dict), item.path("trace"))
        menu = menu_from_json(item, "menu")
        rounds.append(Round(item.integer("images", 1), item.integer("count", 1), trace, menu))
        item.finish()
    fields.finish()
    return Split(rounds)


def split_digest(step: SplitProblem) -> str:
    """Return the SHA-256, in hexadecimal, of a step's canonical JSON."""
    return canonical_digest(split_to_json(step))


def read_split(path: str | Path) -> SplitProblem:
    """Return the step in a file.

    Raises
    ------
    InputError
        If the file cannot be read or describes no step.
    """
    return read_document(path, split_from_json)


def write_split(path: str | Path, step: SplitProblem) -> None:
    """Write a step to a file, through a temporary one."""
    write_json(path, split_to_json(step))
