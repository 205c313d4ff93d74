"""How a proof of a fluid bound is written: its fields, and their packing into a line of text.

A document, as a JSON value, is an object with two fields:

``multipliers``
    A list of objects. ``over`` is the common denominator; ``available``, ``due``, ``opened``,
    ``end`` and ``start`` list pairs of an operation and a positive integer, by increasing
    operation; operations that are not listed have 0. `fluid_model` says what they weigh.
``tree``
    The nodes of the case distinction, each before those under it. ``[tensor, before, after]`` names
    a gap: in the subtree that follows it is kept, in the one after that it is evicted. An integer
    names the multipliers of a leaf. ``[operation]`` is a leaf that cannot be: everything that was
    not kept, if it were absent, would not make room for that operation.

It is packed as base64 of the zlib-compressed canonical JSON: sorted keys, no white space.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.trace import require_integer

KINDS = ("available", "due", "opened", "end", "start")

# Bytes of the longest document; longer ones are refused before they are unpacked in full.
# Arbitrary.
LARGEST = 1 << 25


class TooLongError(InputError):
    """A document is longer than what its reader is willing to unpack."""


@dataclass(frozen=True)
class Weights:
    """Multipliers as the document lists them.

    Attributes
    ----------
    over : int
        The common denominator, at least 1.
    rows : mapping of str to mapping of int to int
        For each kind, the numerators of the operations listed.
    """

    over: int
    rows: Mapping[str, Mapping[int, int]]


# A node: a gap as (tensor, before, after), an operation as a tuple of one, or a leaf's multipliers.
Node = tuple[int, ...] | int


def pack(document: Any) -> str:
    """Return a JSON value as a line of text.

    Raises
    ------
    TooLongError
        If no reader is willing to unpack it.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > LARGEST:
        raise TooLongError(f"the proof has {len(text)} characters, more than {LARGEST}")
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def unpack(text: str, place: str, longest: float = LARGEST) -> Any:
    """Return the JSON value in a line of text.

    Raises
    ------
    InputError
        If the text is not what `pack` makes.
    TooLongError
        If it holds more than `longest` characters.
    """
    try:
        packed = base64.b64decode(text, validate=True)
        stream = zlib.decompressobj()
        content = stream.decompress(packed, int(min(longest, LARGEST)))
        if stream.unconsumed_tail:
            raise TooLongError(f"{place} unpacks to more than {min(longest, LARGEST):g} characters")
        whole = stream.eof and not stream.unused_data
        document = json.loads(content) if whole else None
    except TooLongError:
        raise
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise InputError(f"{place} is not base64 of compressed JSON: {error}") from None
    if not whole:
        raise InputError(f"{place} is cut off, or holds more than one document")
    return document


def read(text: str, operations: int, longest: float = LARGEST) -> tuple[list[Weights], list[Node]]:
    """Return the multipliers and the tree of a packed proof about so many operations.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    TooLongError
        If the proof has more than `longest` characters.
    """
    fields = Fields(unpack(text, "proof", longest), "proof")
    weights = [_weights(item, operations) for item in fields.each("multipliers")]
    nodes = [
        _node(value, f"proof.tree[{index}]") for index, value in enumerate(fields.get("tree", list))
    ]
    fields.finish()
    return weights, nodes


def _weights(item: Fields, operations: int) -> Weights:
    over = item.integer("over", 1)
    rows = {kind: _row(item.get(kind, list), item.path(kind), operations) for kind in KINDS}
    item.finish()
    return Weights(over, rows)


def _row(pairs: list[Any], place: str, operations: int) -> dict[int, int]:
    row: dict[int, int] = {}
    previous = -1
    for index, pair in enumerate(pairs):
        here = f"{place}[{index}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise InputError(f"{here} must be an operation and a multiplier, not {show(pair)}")
        operation = require_integer(pair[0], f"{here}[0]", previous + 1)
        if operation >= operations:
            raise InputError(
                f"{here}[0] must be below the number of operations, {operations}, not {operation}"
            )
        row[operation] = require_integer(pair[1], f"{here}[1]", 1)
        previous = operation
    return row


def _node(value: Any, place: str) -> Node:
    if not isinstance(value, list):
        return require_integer(value, place, 0)
    if len(value) not in (1, 3):
        raise InputError(f"{place} must be a gap, an operation or a number, not {show(value)}")
    return tuple(require_integer(number, place, -1) for number in value)
