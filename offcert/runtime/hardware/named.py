"""Cards as people and CUDA spell them, and the card that a size of memory suggests."""

from __future__ import annotations

import re
from collections.abc import Iterator

from offcert.runtime.hardware.cards import HARDWARE
from offcert.runtime.hardware.model import Hardware

# Words of a device's name that say nothing of the card, and those that name a form factor. Given by
# NVIDIA and AMD.
_EMPTY = {"nvidia", "geforce", "tesla", "amd", "instinct", "gpu"}
_SAME = {"sxm4": "sxm", "sxm5": "sxm", "hbm3": "sxm", "pci": "pcie"}
# How far the memory that a name says is from that which the card has: GiB are called GB. Assumed.
_NEAR = 0.03
# Cards for which a name or a size of memory that several have is taken. Arbitrary.
_FIRST = ("rtx-4090", "h100-sxm", "a100-80gb-sxm")
_SIZE = re.compile(r"(\d+)gi?b?")
# Fewer GiB than this suggest no card: 16 GiB are those of too many. Arbitrary.
_TELLING = 20 * 2**30


def spelled(name: str) -> Hardware | None:
    """Return the card of a name in any usual spelling, such as ``"NVIDIA A100-SXM4-80GB"``.

    Every word of the name has to be true of the card, so that one that is not known, such as that
    of a laptop, is not taken for its bigger sister. Where several are meant, the likeliest is.
    """
    if name in HARDWARE:
        return HARDWARE[name]
    words = {_SAME.get(word, word) for word in _words(name)} - _EMPTY
    if not any(re.search(r"\d", word) and not _SIZE.fullmatch(word) for word in words):
        return None
    return _likeliest([each for each in HARDWARE.values() if all(_true(w, each) for w in words)])


def _words(name: str) -> Iterator[str]:
    for part in re.split(r"[^a-z0-9.]+", name.lower()):
        series = re.fullmatch(r"(rtx)(\d+)", part)
        yield from series.groups() if series else (part,) if part else ()


def _true(word: str, card: Hardware) -> bool:
    size = _SIZE.fullmatch(word)
    if size is not None:
        return any(_near(card.memory, int(size[1]) * unit) for unit in (2**30, 10**9))
    return word in {_SAME.get(each, each) for each in _words(card.name)}


def _near(memory: int, wanted: int) -> bool:
    return abs(memory - wanted) <= _NEAR * wanted


def _likeliest(found: list[Hardware]) -> Hardware | None:
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    return min(found, key=lambda card: ranks.get(card.name, len(ranks)), default=None)


def suggested(memory: int) -> Hardware | None:
    """Return the card that a size of memory suggests, if it suggests one."""
    if memory < _TELLING:
        return None
    return _likeliest([card for card in HARDWARE.values() if _near(card.memory, memory)])
