"""The card to count with where nobody names one, and its memory for a training step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.runtime.hardware.cards import HARDWARE
from offcert.runtime.hardware.files import spelled, suggested
from offcert.runtime.hardware.measured_card import measured_card
from offcert.runtime.hardware.model import Hardware

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

    Parameters
    ----------
    card : Hardware or None
        The one that the caller names; by default the CUDA device here, which is measured if its
        name is not known, or else the card that `memory` suggests.
    memory : int or None
        Bytes of the whole device, as the caller says; by default those of the card, less an
        allowance for CUDA's context and one for fragmentation.
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
