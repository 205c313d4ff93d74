"""Proofs packed into a line of text: base64 of zlib-compressed canonical JSON.

Canonical means sorted keys and no white space.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

from offcert.core.errors import InputError

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
