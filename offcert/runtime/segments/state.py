"""State of a segment's modules: as it was when the segment ran first, when it runs again.

Only tensors and plain values that modules hold, and generators of random numbers, are put back.
Any other object that a first run changes is found in the rehearsal, before anything runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from offcert.runtime.segments.contents import MISSING, is_state, tensors_in
from offcert.runtime.segments.fingerprint import fingerprint
from offcert.runtime.segments.restored import Restored
from offcert.runtime.segments.settings import HeldBytes, settings, uncounted
from offcert.runtime.segments.snapshot import (
    Before,
    Census,
    Doubt,
    InModules,
    differences,
    equal_bits,
    flat_of,
    has_storage,
    hooks_of,
    ignores_statistics,
    marks,
    module_hooks,
    same,
    states_of,
)
from offcert.runtime.torch_private import FakeTensor
from offcert.runtime.watch.sharded import Sharded, mark_of

# Bytes of the largest tensor of a module that is copied before it was seen to change. Arbitrary.
_SMALL = 2**20
# Bytes of the largest tensor that is held because a module holds another one since. Arbitrary.
_HELD = 2**16


class ModuleStates:
    """The state of the modules in a segment, each with its path.

    What parameters of a `sharded` model are gathered from must stay what it is.
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
        # How many tensors others hold, and which of those that modules hold are among them.
        self._outside = 0
        self._shared: set[int] = set()
        # The dictionaries of modules inside of modules, and what they held.
        self._inside: list[tuple[str, dict[str, Any]]] = []
        self._children: list[Any] = []
        # Whether modules are others than in the rehearsal.
        self.is_new = False
        self._had = InModules([])
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
        places: list[tuple[str, dict[str, Any]]] = []
        self._had, self._attached, self._inside = InModules(places), 0, []
        for module in census.reached.modules:
            path = path_of.get(id(module), type(module).__name__)
            held: dict[str, Any] = module.__dict__
            places += [(path, held), (path, held["_parameters"]), (path, held["_buffers"])]
            self._inside.append((path, held["_modules"]))
        self._outside = len(census.tensors)
        self._children = self._structure()
        self._sort(flat_of(places), census)
        return census

    def _structure(self) -> list[Any]:
        """Return the modules inside of modules, and the keys of hooks."""
        return flat_of(self._inside) + module_hooks(self._had.places)

    def _sort(self, flat: list[Any], census: Census | None = None) -> None:
        """Take note of the tensors that modules hold now."""
        census = self._census if census is None else census
        assert census is not None
        places = self._had.places
        self._had = had = InModules(places, flat, [list(held) for _, held in places])
        ignored = {
            id(each)
            for _, module in self._modules
            if ignores_statistics(module)
            for each in module._buffers.values()
        }
        own = [
            (f"{path}.{key}" if path else key, held, key, tensor)
            for path, held in places
            for key, value in held.items()
            for tensor in tensors_in(value)
        ]
        for name, held, key, tensor in own:
            known = had.where.setdefault(id(tensor), [])
            known.append((held, key))
            if len(known) > 1 or not has_storage(tensor):
                continue
            if isinstance(tensor, nn.Parameter) or tensor.requires_grad:
                had.fixed.append((name, tensor))
            elif id(tensor) in ignored:
                had.statistics.append(tensor)
            else:
                had.loose.append((name, tensor))
        others = [each for each in census.tensors if id(each[1]) not in had.where]
        self._shared = {id(each) for _, each in census.tensors if id(each) in had.where}
        had.fixed += [each for each in others if has_storage(each[1])]
        named = [*had.loose, *(("", each) for each in had.statistics)]
        self.storages = {each.untyped_storage()._cdata: False for _, each in named}
        self.storages |= {each.untyped_storage()._cdata: True for _, each in had.fixed}
        buffers = {id(each) for _, held in places for each in held.get("_buffers", {}).values()}
        self._passing = any(
            id(each) not in buffers and id(each) in had.where and not isinstance(each, nn.Parameter)
            for _, each in had.loose + had.fixed
        )

    # The first run.

    def begin(
        self, arguments: Iterable[Any] = (), *, rehearses: bool = False, verifies: bool = False
    ) -> Before:
        """Take down the state with which the segment begins.

        In a rehearsal everything that its code can reach is compared, and all bytes; in a
        verification the objects that its code could reach in its rehearsal. There, `arguments`
        besides tensors count, too.
        """
        if self._census is None or rehearses or not same(self._structure(), self._children):
            self.is_new = self._census is not None and not rehearses
            self._census = self._look()
        census, flat = self._census, flat_of(self._had.places)
        if not same(flat, self._had.flat):
            self._sort(flat)
        tensors = self._had.fixed + self._had.loose
        attached = [
            each for each in tensors if each[1].__dict__ and not isinstance(each[1], FakeTensor)
        ]
        if len(attached) > self._attached:
            self._attached = len(attached)
            census.attach(attached)
        counted = census.take(arguments, closely=rehearses or verifies)
        if len(census.tensors) > self._outside:
            self._outside = len(census.tensors)
            self._sort(flat)
        had = self._had
        before = Before(
            had,
            marks(had.fixed),
            [tensor._version for _, tensor in had.loose],
            self._copies(rehearses) if had.loose else {},
            census.generators,
            states_of(census.generators),
            settings(),
            [mark_of(each) for each in self._shards],
            census,
            counted,
            rehearses,
        )
        before.trained = [tensor.requires_grad for _, tensor in had.fixed]
        before.hooks = hooks_of(had)
        if before.copies:
            before.held = HeldBytes(sum(each.nbytes for each in before.copies.values()))
        if rehearses:
            before.prints = [fingerprint(tensor) for _, tensor in had.fixed]
        return before

    def _copies(self, rehearses: bool) -> dict[int, torch.Tensor]:
        wanted = [
            tensor
            for name, tensor in self._had.loose
            if rehearses or name in self._changing or tensor.nbytes <= _SMALL
        ]
        if not wanted:
            return {}
        with uncounted():
            return {id(tensor): tensor.detach().clone() for tensor in wanted}

    def end(self, before: Before) -> list[Doubt]:
        """Take down what the first run has changed; return why it must not run again, if so.

        In a rehearsal all changes are found; otherwise those of what modules hold.
        """
        doubts: list[Doubt] = []
        had = before.had
        if had.loose:
            doubts += self._end_loose(before)
        flat = flat_of(had.places)
        if not same(flat, had.flat):
            doubts += self._end_rebound(had)
            self._sort(flat)
        if self._passing:
            self._had = InModules(self._had.places)
        if before.hooks != hooks_of(had):
            doubts.append(Doubt(f"{self._name} registers or removes hooks", self._name, True))
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

    def _end_loose(self, before: Before) -> Iterator[Doubt]:
        for (name, tensor), version in zip(before.had.loose, before.versions, strict=True):
            copy = before.copies.get(id(tensor))
            changed = tensor._version != version or name in self._changing
            if copy is None:
                if changed:
                    self._changing.add(name)
                    before.lost.append(name)
                continue
            if not changed and (before.rehearses or tensor.device.type == "cpu"):
                # Some kernels write without a trace, and so does what is given `.data`.
                with uncounted():
                    changed = not equal_bits(copy, tensor)
            if changed:
                self._changing.add(name)
                if id(tensor) in self._shared:
                    yield Doubt(f"{name} changes, and others hold it as well", name, True)
            elif not before.rehearses:
                del before.copies[id(tensor)]
        before.versions = [tensor._version for _, tensor in before.had.loose]
        if before.held is not None:
            before.held.keep(sum(each.nbytes for each in before.copies.values()))

    def _end_rebound(self, had: InModules) -> Iterator[Doubt]:
        for path, held, key, was in differences(had.places, had.flat, had.keys):
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
        for (name, tensor), version in zip(before.had.fixed, before.marks, strict=False):
            if tensor._version != version:
                yield Doubt(f"it changes {name}, a parameter", name, True)

    def changed_outside(self, before: Before) -> Iterator[Doubt]:
        """Yield the objects outside of modules' own state that have changed since."""
        for content in before.census.changed(before.counted):
            yield Doubt(f"{content.name} changes, and cannot be put back", content.name)
        if not before.rehearses:
            # They may hold anything, which is not to live on here.
            before.counted.clear()

    # Running again.

    def again(self, before: Before) -> Restored:
        """Return the context in which all is as it was before; afterwards it is as it is now."""
        return Restored(self._name, before, self._changing, self._shards)
