"""Documents of proofs of joint bounds: multipliers of the facts about an execution, packed.

A document, as a JSON value, is an object. ``over`` is the common denominator of all multipliers.
Every other field is the name of a family of facts, with a list of multipliers, by increasing place:
each is a list of integers, first the fact's place (see `PLACES`), last the numerator, above 0. A
family that is not named has none. Multipliers are in ticks, those of ``memory`` and ``outputs`` for
as many bytes as the limit has, those of ``link``, ``out`` and ``in`` a number from 0 to 1: how much
of a window's length the link stands for.

A proof by cases has other fields: ``multipliers``, a list of such objects, and ``tree``, the nodes
of the case distinction, each before those under it. ``[span, computation]`` is about a run again:
in the subtree that follows the computation does not run again in that span, in the one after that
it does. ``[span, most, computation, computation, ...]`` is about several: in the subtree that
follows at most so many of them run again in that span, in the one after that more do. An integer
names the multipliers of a leaf.

It is packed into a line of text: base64 of compressed JSON with sorted keys and no white space.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.trace import require_integer

# Bytes of the longest document; longer ones are refused before they are unpacked in full.
# Arbitrary.
LARGEST = 1 << 25


class TooLongError(InputError):
    """A document is longer than what its reader is willing to unpack."""


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


# Parts of the place of a fact, by its family.
PLACES: dict[str, tuple[str, ...]] = {
    "available": ("span", "value"),
    "inputs": ("span", "computation", "value"),
    "origin": ("span", "value"),
    "kept": ("span", "value"),
    "left": ("span", "value"),
    "returned": ("span", "value"),
    "runs": ("span", "computation"),
    "returns": ("span", "value"),
    "memory": ("boundary",),
    "outputs": ("boundary",),
    "link": ("window",),
    "out": ("window",),
    "in": ("window",),
}

Place = tuple[int, ...]


@dataclass(frozen=True)
class JointWeights:
    """Multipliers as a document lists them."""

    over: int  # The common denominator, at least 1.
    rows: Mapping[str, Mapping[Place, int]]  # For each family, the numerators by place.


# A run again by its span and computation, or span, number and computations; or the multipliers of a
# leaf.
Node = tuple[int, ...] | int


@dataclass(frozen=True)
class JointCases:
    """Multipliers for each case of a distinction; by default there is only one."""

    multipliers: tuple[JointWeights, ...]  # Multipliers that leaves name by number.
    nodes: tuple[Node, ...] = (0,)  # Each before those under it.


def write(cases: JointCases) -> str:
    """Return multipliers as a line of text."""
    documents = [_document(weights) for weights in cases.multipliers]
    if cases.nodes == (0,):
        return pack(documents[0])
    tree = [list(node) if isinstance(node, tuple) else node for node in cases.nodes]
    return pack({"multipliers": documents, "tree": tree})


def _document(weights: JointWeights) -> dict[str, Any]:
    document: dict[str, Any] = {"over": weights.over}
    for family in PLACES:
        rows = weights.rows.get(family, {})
        if rows:
            document[family] = [[*place, rows[place]] for place in sorted(rows)]
    return document


def read(text: str, longest: float = LARGEST) -> JointCases:
    """Return the multipliers in a line of text, and for which cases they are.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    TooLongError
        If it holds more than `longest` characters.
    """
    fields = Fields(unpack(text, "proof", longest), "proof")
    if not fields.has("tree"):
        return JointCases((_weights(fields),))
    nodes = [_node(node, f"proof.tree[{i}]") for i, node in enumerate(fields.get("tree", list))]
    multipliers = tuple(_weights(each) for each in fields.each("multipliers"))
    fields.finish()
    return JointCases(multipliers, tuple(nodes))


def _weights(fields: Fields) -> JointWeights:
    over = fields.integer("over", 1)
    rows = {
        family: _rows(fields.optional(family, list) or [], fields.path(family), len(parts))
        for family, parts in PLACES.items()
    }
    fields.finish()
    return JointWeights(over, rows)


def _node(value: Any, place: str) -> Node:
    if not isinstance(value, list):
        return require_integer(value, place, 0)
    if len(value) < 2 or len(value) == 3:
        raise InputError(
            f"{place} must be a span and a computation, or a number, not {show(value)}"
        )
    node = tuple(require_integer(n, f"{place}[{i}]", 0) for i, n in enumerate(value))
    if any(one >= two for one, two in pairwise(node[2:])):
        raise InputError(f"{place}: computations must increase, not {show(value)}")
    return node


def _rows(items: list[Any], path: str, parts: int) -> dict[Place, int]:
    rows: dict[Place, int] = {}
    previous: Place = ()
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        if not isinstance(item, list) or len(item) != parts + 1:
            raise InputError(f"{here} must be {parts + 1} integers, not {show(item)}")
        place = tuple(require_integer(n, f"{here}[{i}]", 0) for i, n in enumerate(item[:-1]))
        if index and place <= previous:
            raise InputError(f"{here} must come after the place before it, not {show(item)}")
        rows[place] = require_integer(item[-1], f"{here}[{parts}]", 1)
        previous = place
    return rows
