"""The card to count with where nobody names one: one like the device at hand, or measured here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.runtime.hardware.bandwidth import memory_and_name, read_link_of
from offcert.runtime.hardware.cards import HARDWARE, OVERHEAD_NS
from offcert.runtime.hardware.files import spelled, suggested
from offcert.runtime.hardware.model import NS_PER_SECOND, TYPES, Hardware

# Bytes that CUDA's context and the kernels that PyTorch loads take, and the part of a card's memory
# that its allocator cannot use because of fragmentation. Assumed.
CONTEXT = 2**29
FRAGMENTED = 32
_BYTES = Units("ns", "B")


@dataclass(frozen=True)
class Chosen:
    """A card, its memory for a step, and who chose both."""

    card: Hardware  # The accelerator
    memory: int  # Bytes for the step, with all that is there before it
    # Sentences: who chose the card, and how much of its memory is left out; none where the caller
    # named both.
    notes: tuple[str, ...]


def at_hand() -> Hardware | None:
    """Return the card that is the CUDA device here; None without one, or if it is not known."""
    return spelled(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def choose(card: Hardware | None, memory: int | None) -> Chosen:
    """Return the card to count with, and its memory: what is given, at hand, or suggested.

    By default that is the CUDA device here, which is measured if its name is not known, or else the
    card that `memory` suggests; and all its bytes, less an allowance for CUDA's context and one for
    fragmentation.
    """
    notes = []
    if card is None:
        card, who = _unnamed(memory)
        notes.append(f"{card.name} is {who}: hardware names another")
    if memory is None:
        memory = card.memory - CONTEXT - card.memory // FRAGMENTED
        notes.append(
            f"of its {format_size(card.memory, _BYTES)}, {format_size(CONTEXT, _BYTES)} are for "
            f"the context of CUDA and a {FRAGMENTED}nd for fragmentation, both assumed: "
            "device memory says otherwise"
        )
    return Chosen(card, memory, tuple(notes))


def _unnamed(memory: int | None) -> tuple[Hardware, str]:
    """Return the card at hand or the one that its memory suggests, and which of both it is."""
    there = at_hand()
    if there is not None:
        return there, "the card here"
    if torch.cuda.is_available():
        return measured_card(), "the card here, measured now"
    card = None if memory is None else suggested(memory)
    if card is None:
        none = "" if memory is None else f", and {format_size(memory, _BYTES)} suggest none"
        raise InputError(
            f"hardware is missing: there is no CUDA device here{none}; name one of "
            f"{', '.join(HARDWARE)}, or a file that ends in .toml"
        )
    return card, f"suggested by {format_size(card.memory, _BYTES)}"


# Rows of the products, bytes of a vector, and repetitions, of which the median counts: arbitrary,
# large enough that a GPU is busy with one, and small on the CPU, which only stands in for one.
_ROWS = {"cuda": 8192, "cpu": 128}
_VECTOR = {"cuda": 2**30, "cpu": 2**22}
_REPETITIONS = 7


def measured_card(device: torch.device | None = None) -> Hardware:
    """Return a hardware model whose rates are those that a device reaches now.

    Rates of products are those of square ones, that of memory is one of a sum of two vectors, and
    those of the link are of copies from and to pinned memory. So no class of work has a part of a
    peak: convolutions and attention count at the rate of products. The device is by default a CUDA
    device if there is one, else the CPU, on which TF32 is left out.
    """
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    memory, name = memory_and_name(device)
    kind = device.type
    left_out = {"float8"} if kind == "cuda" else {"float8", "tf32"}
    types = [each for each in TYPES if each not in left_out]
    rates = {each: _products(device, each) for each in types}
    reading = read_link_of(device)
    both = reading.together
    float32 = rates.pop("float32")
    return Hardware(
        name=name,
        flops=float32,
        memory_bandwidth=_vectors(device),
        link_bandwidth=int(reading.alone.out * NS_PER_SECOND),
        memory=memory,
        overhead_ns=OVERHEAD_NS,
        source=f"measured with torch {torch.__version__}: products of {_ROWS[kind]} each way, a "
        f"sum of vectors, copies; {OVERHEAD_NS} ns a kernel are assumed",
        rates=MappingProxyType(rates),
        link_back=int(reading.alone.back * NS_PER_SECOND),
        link_both=None if both is None else (both.to_json()[0], both.to_json()[1]),
    )


def _products(device: torch.device, name: str) -> int:
    """Return the operations a second of square products in a type."""
    rows, dtype = _ROWS[device.type], getattr(torch, "float32" if name == "tf32" else name)
    left, right = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    # The setting is the card's; where PyTorch's newer names of it were used, it cannot be read.
    with _by_tf32(name == "tf32") if device.type == "cuda" else nullcontext():
        seconds = _seconds(device, lambda: torch.mm(left, right, out=out))
    return int(2 * rows**3 / seconds)


@contextmanager
def _by_tf32(allowed: bool) -> Iterator[None]:
    """Let a card multiply float32 by TF32 in the block, or not."""
    matmul: Any = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _vectors(device: torch.device) -> int:
    """Return the bytes a second that are read and written to add two vectors."""
    size = _VECTOR[device.type]
    left, right, out = (torch.ones(size // 4, device=device) for _ in range(3))
    return int(3 * size / _seconds(device, lambda: torch.add(left, right, alpha=2.0, out=out)))


def _seconds(device: torch.device, compute: Callable[[], Any]) -> float:
    """Return the median time of something, which is run once before."""
    compute()
    found = []
    for _ in range(_REPETITIONS):
        if device.type == "cuda":
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            compute()
            ended.record()
            ended.synchronize()
            found.append(begun.elapsed_time(ended) / 1000)
        else:
            since = time.perf_counter()
            compute()
            found.append(time.perf_counter() - since)
    return max(statistics.median(found), 1e-9)
