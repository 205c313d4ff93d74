"""An accelerator by its name, or from a file of one's own."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from offcert.core.documents import Fields, naming, write_text
from offcert.core.errors import InputError
from offcert.core.messages import meant, short_repr, show
from offcert.core.units import parse_size
from offcert.runtime.hardware.cards import HARDWARE
from offcert.runtime.hardware.model import EFFICIENT, FLASH_2, TYPES, Hardware, OperationClass

_SUFFIX = ".toml"
# Keys of the parts of a peak: a class of work, or one in a type.
_CLASSES = (*OperationClass, *(f"{work}-{dtype}" for work in OperationClass for dtype in TYPES))


def hardware(name: str | Hardware, *, peak: bool = False, attention: str | None = None) -> Hardware:
    """Return the accelerator called `name`, or the one that a file describes.

    Parameters
    ----------
    name : str or Hardware
        A key of `HARDWARE`, also as others spell it (``"RTX 4090"``, ``"NVIDIA A100-SXM4-80GB"``),
        or the path of a TOML file, which ends in ``.toml``; or what it would be. With
        ``-calibrated`` behind it, as quick as such cards are in steps of training.
    peak : bool
        Whether operations reach the peaks, whatever is known of what they do reach, and read what
        they take once, however many kernels they are.
    attention : str, optional
        The kernel that attention runs on where it can: ``"flash-2"``, ``"efficient"``, or
        ``"flash-3"`` where it is known what that reaches.
    """
    if isinstance(name, Hardware):
        found = name
    elif not isinstance(name, str):
        raise InputError(f"hardware must be a name or a Hardware, not {short_repr(name)}")
    elif name.endswith(CALIBRATED):
        found = calibrated(hardware(name.removesuffix(CALIBRATED)))
    elif name.endswith(_SUFFIX):
        found = _read(Path(name))
    elif (card := spelled(name)) is not None:
        found = card
    else:
        raise InputError(
            f"hardware must be one of {', '.join(HARDWARE)}, or a file that ends in {_SUFFIX}, not "
            f"{show(name)}{meant(name, HARDWARE)}"
        )
    if attention is not None and attention != found.attention:
        found = _with_kernel(found, attention)
    none: Mapping[str, Fraction] = MappingProxyType({})
    if not peak:
        return found
    return replace(found, efficiency=none, kernels=none, once=True, sustained=Fraction(1))


def write_hardware(path: str | Path, card: Hardware) -> None:
    """Write an accelerator as a file that `hardware` reads back with the same rates.

    Parameters
    ----------
    path : str or Path
        Must end in ``.toml``.
    card : Hardware
        Of kernels of attention, the part of the chosen one is written.
    """
    if not str(path).endswith(_SUFFIX):
        raise InputError(f"a hardware file must end in {_SUFFIX}, not {show(str(path))}")
    lines = [
        f"name = {json.dumps(card.name)}",
        f'memory = "{card.memory}B"',
        f"memory_bandwidth = {card.memory_bandwidth}",
        f"link_bandwidth = {card.link_bandwidth}",
    ]
    lines += [] if card.link_back is None else [f"link_back = {card.link_back}"]
    lines += [] if card.link_both is None else [f"link_both = {list(card.link_both)}"]
    lines += [] if card.sustained == 1 else [f"sustained = {float(card.sustained)}"]
    lines += [f"overhead_ns = {card.overhead_ns}", f"source = {json.dumps(card.source)}", "[rates]"]
    lines += [f"{name} = {rate}" for name, rate in {"float32": card.flops, **card.rates}.items()]
    reached = {str(name): part for name, part in card.efficiency.items()}
    if card.kernels:
        reached[str(OperationClass.ATTENTION)] = card.reached(OperationClass.ATTENTION)
    if reached:
        lines += ["[efficiency]", *(f"{name} = {float(part)}" for name, part in reached.items())]
    write_text(path, "\n".join([*lines, ""]))


def _with_kernel(found: Hardware, kernel: str) -> Hardware:
    known = ", ".join({FLASH_2: None, EFFICIENT: None, **found.kernels})
    if kernel not in known.split(", "):
        raise InputError(
            f"attention on {found.name} must be by {known}, not {show(kernel)}: what that reaches "
            "there is not known"
        )
    return replace(found, attention=kernel)


def _read(path: Path) -> Hardware:
    """Return the accelerator that a file describes."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    with naming(path):
        return _parsed(Fields(document))


def _parsed(fields: Fields) -> Hardware:
    rates = _numbers(fields, "rates", TYPES, required="float32")
    efficiency = _numbers(fields, "efficiency", _CLASSES)
    for name, value in efficiency.items():
        if value > 1:
            raise InputError(f"efficiency.{name} must be at most 1, not {float(value):g}")
    found = Hardware(
        name=fields.get("name", str),
        flops=int(rates.pop("float32")),
        memory_bandwidth=int(_positive(fields, "memory_bandwidth")),
        link_bandwidth=int(_positive(fields, "link_bandwidth")),
        memory=parse_size(fields.get("memory", str), "memory"),
        overhead_ns=fields.integer("overhead_ns", 0),
        source=fields.get("source", str),
        rates=MappingProxyType({name: int(value) for name, value in rates.items()}),
        efficiency=MappingProxyType(efficiency),
        link_back=int(_positive(fields, "link_back")) if fields.has("link_back") else None,
        link_both=_pair(fields, "link_both"),
        sustained=_positive(fields, "sustained") if fields.has("sustained") else Fraction(1),
    )
    if found.sustained > 1:
        raise InputError(f"sustained must be at most 1, not {float(found.sustained):g}")
    fields.finish()
    return found


def _numbers(
    fields: Fields, table: str, names: Collection[str], required: str | None = None
) -> dict[str, Fraction]:
    """Return the numbers of a table, some of those that it may have."""
    if required is None and not fields.has(table):
        return {}
    rows = Fields(fields.get(table, dict), table)
    if required is not None:
        rows.get(required, (int, float))
    found = {name: _positive(rows, name) for name in names if rows.has(name)}
    rows.finish()
    return found


def _pair(fields: Fields, name: str) -> tuple[int, int] | None:
    """Return the rates out and back, if there are any."""
    if not fields.has(name):
        return None
    found = fields.get(name, list)
    if len(found) != 2 or not all(
        type(rate) in (int, float) and 0 < rate < math.inf for rate in found
    ):
        raise InputError(f"{fields.path(name)} must be two rates, out and back, not {found}")
    return int(found[0]), int(found[1])


def _positive(fields: Fields, name: str) -> Fraction:
    value: Any = fields.get(name, (int, float))
    if not 0 < value < math.inf:
        raise InputError(f"{fields.path(name)} must be finite and more than 0, not {value:g}")
    # The decimal number that is written there.
    return Fraction(str(value))


# Behind the name of a card.
CALIBRATED = "-calibrated"
# Fitted by `benchmarks/plausibility.py --fit` to throughputs of training steps, published ones and
# those of an H200, half of which was held out.
SUSTAINED = Fraction("0.74")


def calibrated(card: Hardware) -> Hardware:
    """Return a card with the part of its best that its kernels reach in steps of training."""
    return replace(
        card,
        name=card.name + CALIBRATED,
        sustained=SUSTAINED,
        source=f"{card.source}; in training {float(SUSTAINED):g} of that, but for traffic: fitted",
    )


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
