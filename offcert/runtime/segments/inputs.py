"""`Inputs`: the tensors that a segment is given, held until it runs again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from offcert.runtime.segments.evidence import version_of
from offcert.runtime.segments.keeper import outer_hooks
from offcert.runtime.watch.entries import InPlaceError


@dataclass(slots=True)
class _Input:
    packed: Any
    trained: bool


class Inputs:
    """The tensors that a call of a segment is given, as the hooks around it hold them.

    Parameters
    ----------
    name : str
        Of the segment, for people.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._hooks = outer_hooks()
        self._held: list[_Input] = []
        # Of a rehearsal under way, and how often each had been changed in place: an outer segment
        # hands out only once what it has made again.
        self._rehearsed: list[tuple[torch.Tensor, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, tensor: torch.Tensor) -> None:
        """Hold one more tensor: the hooks take it, and nothing here keeps it on the device."""
        self._held.append(_Input(self._hooks[0](tensor), tensor.requires_grad))

    def now(self, index: int) -> torch.Tensor:
        """Return a tensor as it is now, by its place in the order in which they were held.

        Raises
        ------
        InPlaceError
            If it has been changed in place since it was held.
        """
        if not self._rehearsed:
            return self._hooks[1](self._held[index].packed)
        tensor, changes = self._rehearsed[index]
        if version_of(tensor) != changes:
            raise InPlaceError(f"{self._name} changes what it is given")
        return tensor

    def again(self, *, rehearses: bool) -> list[torch.Tensor]:
        """Return all tensors, detached, for the segment to run again; a rehearsal keeps them.

        Raises
        ------
        InPlaceError
            If one has been changed in place.
        """
        try:
            tensors = [self._hooks[1](each.packed) for each in self._held]
        except InPlaceError as error:
            raise InPlaceError(
                f"{self._name} cannot run again: what it is given is changed in place afterwards"
            ) from error
        if rehearses:
            self._rehearsed = [(tensor, version_of(tensor)) for tensor in tensors]
        given = [tensor.detach() for tensor in tensors]
        for tensor, each in zip(given, self._held, strict=True):
            tensor.requires_grad_(each.trained)
        return given

    def end_rehearsal(self) -> None:
        """Let go of the inputs of a rehearsal."""
        self._rehearsed.clear()
