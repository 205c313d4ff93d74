"""State of a segment's modules: as it was when the segment ran first, when it runs again.

Only tensors and plain values that modules hold, and generators of random numbers, are put back.
Any other object that a first run changes is found in the rehearsal, before anything runs again.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from offcert.runtime.segments.census import Census
from offcert.runtime.segments.code import Random
from offcert.runtime.segments.contents import MISSING, is_state, swapped, tensors_in
from offcert.runtime.segments.fingerprint import fingerprint
from offcert.runtime.segments.settings import settings, under
from offcert.runtime.segments.snapshot import (
    Before,
    Doubt,
    differences,
    equal_bits,
    flat_of,
    has_storage,
    ignores_statistics,
    marks,
    numbers,
    same,
    set_numbers,
)
from offcert.runtime.segments.uncounted import HELD, uncounted
from offcert.runtime.watch.proof import RecomputeError
from offcert.runtime.watch.sharded import Sharded, mark_of

# Bytes of the largest tensor of a module that is copied before it was seen to change. Arbitrary.
_SMALL = 2**20
# Bytes of the largest tensor that is held because a module holds another one since. Arbitrary.
_HELD = 2**16


class ModuleStates:
    """The state of a segment's modules.

    Parameters
    ----------
    name : str
        Name of the segment, for people.
    modules : sequence of (str, nn.Module)
        Path and module of all modules in it.
    sharded : Sharded, optional
        Of the model: what the segment's parameters are gathered from must stay what it is.
    """

    def __init__(
        self,
        name: str,
        modules: Sequence[tuple[str, nn.Module]],
        sharded: Sharded | None = None,
    ) -> None:
        self._name = name
        self._modules = list(modules)
        inside = [module for _, module in self._modules]
        self._shards = [] if sharded is None else sharded.shards_of(inside)
        self._census: Census | None = None
        # How many tensors have attributes that programs have given them.
        self._attached = 0
        # The dictionaries of modules, each with the path of its module.
        self._places: list[tuple[str, dict[str, Any]]] = []
        # What they held when they were looked at, and by which keys.
        self._last: list[Any] = []
        self._keys: list[list[str]] = []
        # Tensors with their names: those that must not change, and those that may.
        self._outside: list[tuple[str, torch.Tensor]] = []
        self._fixed: list[tuple[str, torch.Tensor]] = []
        self._loose: list[tuple[str, torch.Tensor]] = []
        self._statistics: list[torch.Tensor] = []
        self._where: dict[int, list[tuple[dict[str, Any], str]]] = {}
        # Whether tensors that are no buffers are among them: they are not to be held here.
        self._passing = False
        # Names of tensors that were seen to change.
        self._changing: set[str] = set()
        # The storages that modules hold by address, and whether they must not change.
        self.storages: dict[int, bool] = {}

    def module_of(self, name: str) -> tuple[str, ...]:
        """Return the path of the innermost module whose attributes an object was reached by."""
        paths = [path for path, _ in self._modules if name.startswith((f"{path}.", f"{path}, "))]
        return (max(paths, key=len),) if paths else ()

    # What there is.

    def _look(self) -> Census:
        """Find everything that the code of the modules can reach."""
        census = Census(self._modules)
        path_of = {id(module): path for path, module in self._modules}
        self._places, self._last, self._attached = [], [], 0
        for module in census.reached.modules:
            path = path_of.get(id(module), type(module).__name__)
            held = module.__dict__
            self._places += [(path, held), (path, held["_parameters"]), (path, held["_buffers"])]
        self._outside = census.tensors()
        return census

    def _sort(self, flat: list[Any]) -> None:
        """Take note of the tensors that modules hold now."""
        self._last, self._keys = flat, [list(held) for _, held in self._places]
        self._fixed, self._loose, self._statistics, self._where = [], [], [], {}
        ignored = {
            id(each)
            for _, module in self._modules
            if ignores_statistics(module)
            for each in module._buffers.values()
        }
        own = [
            (f"{path}.{key}" if path else key, held, key, tensor)
            for path, held in self._places
            for key, value in held.items()
            for tensor in tensors_in(value)
        ]
        for name, held, key, tensor in own:
            places = self._where.setdefault(id(tensor), [])
            places.append((held, key))
            if len(places) > 1 or not has_storage(tensor):
                continue
            if isinstance(tensor, nn.Parameter) or tensor.requires_grad:
                self._fixed.append((name, tensor))
            elif id(tensor) in ignored:
                self._statistics.append(tensor)
            else:
                self._loose.append((name, tensor))
        others = [each for each in self._outside if id(each[1]) not in self._where]
        self._fixed += [each for each in others if has_storage(each[1])]
        named = [*self._loose, *(("", each) for each in self._statistics)]
        self.storages = {each.untyped_storage()._cdata: False for _, each in named}
        self.storages |= {each.untyped_storage()._cdata: True for _, each in self._fixed}
        buffers = {
            id(each) for _, held in self._places for each in held.get("_buffers", {}).values()
        }
        self._passing = any(id(each) not in buffers for _, each in self._loose)

    # The first run.

    def begin(
        self, arguments: Iterable[Any] = (), *, rehearses: bool = False, verifies: bool = False
    ) -> Before:
        """Take down the state with which the segment begins.

        Parameters
        ----------
        arguments : iterable of object
            Arguments of the segment besides tensors, for a rehearsal or a verification.
        rehearses : bool
            Whether everything that the segment's code can reach is compared, and all bytes.
        verifies : bool
            Whether the objects that its code could reach in its rehearsal are compared.
        """
        if self._census is None or rehearses:
            self._census = self._look()
        census, flat = self._census, flat_of(self._places)
        if not same(flat, self._last):
            self._sort(flat)
        tensors = self._fixed + self._loose
        attached = [each for each in tensors if each[1].__dict__ and not _is_fake(each[1])]
        if len(attached) > self._attached:
            self._attached = len(attached)
            census.attach(attached)
        counted = census.take(arguments, closely=rehearses or verifies)
        before = Before(
            self._places,
            flat,
            self._keys,
            self._fixed,
            self._loose,
            self._statistics,
            self._where,
            marks(self._fixed),
            [tensor._version for _, tensor in self._loose],
            self._copies(rehearses) if self._loose else {},
            census.generators,
            self._states(census.generators),
            settings(),
            [mark_of(each) for each in self._shards],
            census,
            counted,
            rehearses,
        )
        if rehearses:
            before.prints = [fingerprint(tensor) for _, tensor in self._fixed]
        return before

    def _states(self, generators: list[Random]) -> list[Any]:
        return [random.getstate(), numbers(), *[each.take() for each in generators]]

    def _copies(self, rehearses: bool) -> dict[int, torch.Tensor]:
        wanted = [
            tensor
            for name, tensor in self._loose
            if rehearses or name in self._changing or tensor.nbytes <= _SMALL
        ]
        if not wanted:
            return {}
        with uncounted():
            HELD.take(sum(tensor.nbytes for tensor in wanted))
            return {id(tensor): tensor.detach().clone() for tensor in wanted}

    def end(self, before: Before) -> list[Doubt]:
        """Take down what the first run has changed; return why it must not run again, if so.

        In a rehearsal all changes are found; otherwise those of what modules hold.
        """
        doubts: list[Doubt] = []
        if before.loose:
            self._end_loose(before)
        flat = flat_of(before.places)
        before.changed = not same(flat, before.flat)
        if before.changed:
            doubts += self._end_rebound(before)
            self._sort(flat)
        if self._passing:
            self._last, self._loose, self._where = [], [], {}
        states = self._states(before.sources)
        before.used = [
            index
            for index, (one, other) in enumerate(zip(before.generators, states, strict=True))
            if not _same_state(before, index, one, other)
        ]
        if before.rehearses:
            # Those that one run is enough for come first.
            lasting = [
                Doubt(f"{each} may change unseen", each, True)
                for each in before.census.reached.unseen
            ]
            lasting += self._changed_parameters(before)
            doubts = [*lasting, *doubts]
        doubts += self.changed_outside(before)
        return doubts

    def _end_loose(self, before: Before) -> None:
        taken = sum(each.nbytes for each in before.copies.values())
        for (name, tensor), version in zip(before.loose, before.versions, strict=True):
            copy = before.copies.get(id(tensor))
            changed = tensor._version != version or name in self._changing
            if copy is None:
                if changed:
                    self._changing.add(name)
                    before.lost.append(name)
                continue
            if not changed and before.rehearses:
                # Some kernels write without a trace: running statistics, for example.
                with uncounted():
                    changed = not equal_bits(copy, tensor)
            if changed:
                self._changing.add(name)
            elif not before.rehearses:
                del before.copies[id(tensor)]
        before.versions = [tensor._version for _, tensor in before.loose]
        kept = sum(each.nbytes for each in before.copies.values())
        HELD.drop(taken - kept)
        if kept:
            weakref.finalize(before, HELD.drop, kept).atexit = False

    def _end_rebound(self, before: Before) -> Iterator[Doubt]:
        for path, held, key, was in differences(before.flat, before.keys, before.places):
            now = held.get(key, MISSING)
            name = f"{path}.{key}" if path else key
            if not (is_state(was) and is_state(now)):
                yield Doubt(f"{name} changes, and is no plain value", name)
                continue
            size = sum(tensor.nbytes for tensor in tensors_in(was))
            if size > _HELD:
                reason = f"it would hold the {size} bytes that were in {name} before"
                yield Doubt(reason, name, True)

    def _changed_parameters(self, before: Before) -> Iterator[Doubt]:
        for (name, tensor), version in zip(before.fixed, before.marks, strict=False):
            if tensor._version != version:
                yield Doubt(f"it changes {name}, a parameter", name, True)

    def changed_outside(self, before: Before) -> Iterator[Doubt]:
        """Yield the objects outside of modules' own state that have changed since."""
        for content in before.census.changed(before.counted):
            yield Doubt(f"{content.name} changes, and cannot be put back", content.name)
        if not before.rehearses:
            # They may hold anything, which is not to live on here.
            before.counted.flat.clear()
            before.counted.closely.clear()

    # Running again.

    @contextmanager
    def again(self, before: Before) -> Iterator[None]:
        """Put everything back for the block; afterwards it is what it was right before.

        Raises
        ------
        RecomputeError
            If that is impossible.
        """
        self._require(before)
        swap = self._swap(before)
        now, states = flat_of(before.places), self._states(before.sources) if before.used else []
        other = not same(now, before.flat)
        before.changed = before.changed or other
        keys = [list(held) for _, held in before.places] if before.changed else before.keys
        size = sum(tensor.nbytes for tensor in swap.values())
        HELD.take(size)
        try:
            with under(before.settings):
                if other:
                    self._put(before, before.flat, before.keys)
                for number in swap:
                    for held, key in before.where.get(number, ()):
                        if key in held:
                            held[key] = swapped(held[key], swap)
                _put_states(before, before.generators)
                yield
        finally:
            HELD.drop(size)
            _put_states(before, states)
            # A run that changed nothing the first time changes nothing from the same state.
            close = swap or before.changed or before.rehearses
            if close and not same(flat_of(before.places), now):
                self._put(before, now, keys)

    def _put(self, before: Before, flat: list[Any], keys: list[list[str]]) -> None:
        """Give modules the plain values and tensors that they held."""
        for _, held, key, value in list(differences(flat, keys, before.places)):
            if not (is_state(value) and is_state(held.get(key, MISSING))):
                continue
            if value is MISSING:
                del held[key]
            else:
                held[key] = value

    def _require(self, before: Before) -> None:
        """Raise a `RecomputeError` if something was changed that the segment reads."""
        for shard, mark in zip(self._shards, before.shards, strict=True):
            if mark_of(shard) != mark:
                self._lost(f"{shard._param_fqn} was changed after its forward pass")
        for name in before.lost:
            self._lost(f"{name}, which had never changed before, was changed in place")
        found = marks(before.fixed)
        if found != before.marks:
            count = len(before.fixed)
            for index, (name, _) in enumerate(before.fixed):
                if found[index::count] != before.marks[index::count]:
                    self._lost(f"{name} was changed after its forward pass")
        for (name, tensor), was in zip(before.fixed, before.prints, strict=False):
            now = None if was is None else fingerprint(tensor)
            if was is not None and (now is None or not torch.equal(was, now)):
                self._lost(f"{name} was changed after its forward pass")

    def _swap(self, before: Before) -> dict[int, torch.Tensor]:
        """Return the tensors that modules hold while the segment runs again, by `id`."""
        swap: dict[int, torch.Tensor] = {}
        if not (before.loose or before.statistics):
            return swap
        with uncounted():
            for tensor in before.statistics:
                swap[id(tensor)] = tensor.detach().clone()
            for (name, tensor), version in zip(before.loose, before.versions, strict=True):
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


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def _same_state(before: Before, index: int, one: Any, other: Any) -> bool:
    return bool(one == other) if index < 2 else before.sources[index - 2].same(one, other)


def _put_states(before: Before, states: list[Any]) -> None:
    for index in before.used if states else ():
        if index == 0:
            random.setstate(states[0])
        elif index == 1:
            set_numbers(states[1])
        else:
            before.sources[index - 2].put(states[index])
