"""The state of a segment while it runs again: as before its first run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from offcert.runtime.segments.contents import MISSING, is_state, swapped
from offcert.runtime.segments.fingerprint import fingerprint
from offcert.runtime.segments.settings import HeldBytes, put, settings, uncounted
from offcert.runtime.segments.snapshot import (
    Before,
    differences,
    equal_bits,
    flat_of,
    marks,
    put_states,
    same,
    states_of,
)
from offcert.runtime.watch.guard import RecomputeError
from offcert.runtime.watch.sharded import mark_of


class Restored(AbstractContextManager["Restored"]):
    """A context in which a segment finds all as before its first run; left, it undoes that.

    A segment that runs again is left as soon as nothing more of it is needed, in the midst of the
    user's code: so all is put back in any case. What the segment reads, and was changed since and
    cannot be put back, is a `RecomputeError`.
    """

    def __init__(self, name: str, before: Before, changing: set[str], shards: list[Any]) -> None:
        self._name, self._before, self._changing = name, before, changing
        self._shards = shards

    def __enter__(self) -> Restored:
        """Put everything back."""
        before, had = self._before, self._before.had
        self._require()
        swap = self._swap()
        self._held = HeldBytes(sum(tensor.nbytes for tensor in swap.values()))
        self._settings, self._states = settings(), states_of(before.sources)
        self._trained = [each.requires_grad for _, each in had.fixed]
        self._flat = flat_of(had.places)
        self._keys = [list(held) for _, held in had.places]
        _train(had.fixed, before.trained)
        put(before.settings, self._settings)
        put_states(before.sources, before.generators, self._states)
        other = not same(self._flat, had.flat)
        if other:
            self._put(had.flat, had.keys)
        for number in swap:
            for held, key in had.where.get(number, ()):
                if key in held:
                    held[key] = swapped(held[key], swap)
        # By which it shows where the user's code is in the midst of something.
        flat = flat_of(had.places) if swap or other else self._flat
        self._begun = flat, before.census.flat()
        return self

    @property
    def is_clean(self) -> bool:
        """Whether nothing is changed by now: the user's code may be left here."""
        flat, others = self._begun
        now = flat_of(self._before.had.places)
        return same(flat, now) and same(others, self._before.census.flat())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put everything back to what it was right before."""
        before = self._before
        put(self._settings, settings())
        put_states(before.sources, self._states, states_of(before.sources))
        _train(before.had.fixed, self._trained)
        if not same(flat_of(before.had.places), self._flat):
            self._put(self._flat, self._keys)
        del self._flat, self._begun, self._held

    def _put(self, flat: list[Any], keys: list[list[str]]) -> None:
        """Give modules the plain values and tensors that they held."""
        for _, held, key, value in list(differences(self._before.had.places, flat, keys)):
            if not (is_state(value) and is_state(held.get(key, MISSING))):
                continue
            if value is MISSING:
                del held[key]
            else:
                held[key] = value

    def _require(self) -> None:
        before, fixed = self._before, self._before.had.fixed
        for shard, mark in zip(self._shards, before.shards, strict=True):
            if mark_of(shard) != mark:
                self._lost(f"{shard._param_fqn} was changed after its forward pass")
        for name in before.lost:
            self._lost(f"{name}, which had never changed before, was changed in place")
        found = marks(fixed)
        if found != before.marks:
            for index, (name, _) in enumerate(fixed):
                if found[index :: len(fixed)] != before.marks[index :: len(fixed)]:
                    self._lost(f"{name} was changed after its forward pass")
        for (name, tensor), was in zip(fixed, before.prints, strict=False):
            now = None if was is None else fingerprint(tensor)
            if was is not None and (now is None or not torch.equal(was, now)):
                self._lost(f"{name} was changed after its forward pass")

    def _swap(self) -> dict[int, torch.Tensor]:
        """Return the tensors that modules hold while the segment runs again, by `id`."""
        before, swap = self._before, dict[int, torch.Tensor]()
        if not (before.had.loose or before.had.statistics):
            return swap
        with uncounted():
            for tensor in before.had.statistics:
                swap[id(tensor)] = tensor.detach().clone()
            for (name, tensor), version in zip(before.had.loose, before.versions, strict=True):
                copy = before.copies.get(id(tensor))
                moved = tensor._version != version
                if copy is None:
                    if moved:
                        self._changing.add(name)
                        self._lost(f"{name} was changed after its forward pass")
                elif moved or name in self._changing or not equal_bits(copy, tensor):
                    # Somebody else may have changed it: from the next step on it is copied.
                    self._changing.add(name)
                    swap[id(tensor)] = copy.clone()
        return swap

    def _lost(self, reason: str) -> None:
        raise RecomputeError(f"{self._name} cannot run again for the backward pass: {reason}")


def _train(tensors: list[tuple[str, torch.Tensor]], trained: list[bool]) -> None:
    """Let tensors need gradients, or not, where they do otherwise."""
    for (_, tensor), wanted in zip(tensors, trained, strict=True):
        if tensor.requires_grad is not wanted and tensor.is_leaf:
            tensor.requires_grad_(wanted)
