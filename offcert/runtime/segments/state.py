"""State of modules: as it was when a segment ran first, and untouched when it runs again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm

from offcert.runtime.segments.contents import Content
from offcert.runtime.segments.evidence import Row, address_of, digest, same_elements, version_of
from offcert.runtime.segments.reachable import Reach, is_atom
from offcert.runtime.segments.settings import settings, under
from offcert.runtime.segments.uncounted import HELD, uncounted
from offcert.runtime.watch.proof import RecomputeError
from offcert.runtime.watch.sharded import Sharded, mark_of

# Bytes of the largest tensor that is copied before it was seen to change. Arbitrary.
_SMALL = 2**16


@dataclass(slots=True)
class Before:
    """The state before a segment began.

    Attributes
    ----------
    contents : list of Content
        Of the objects that its code can reach.
    values : list
        The content of each object.
    rows : list of Row
        The tensors among that.
    settings : tuple
        Of PyTorch.
    python, numpy : object
        States of generators that PyTorch does not keep.
    rehearses : bool
        Whether everything is compared.
    doubts : list of (str, str)
        Why the segment must not run again, as far as a rehearsal has shown.
    shards : list of object
        Marks of what its parameters are gathered from.
    """

    contents: list[Content]
    values: list[Any]
    rows: list[Row]
    settings: tuple[Any, ...]
    python: Any
    numpy: Any
    rehearses: bool
    doubts: list[tuple[str, str]] = field(default_factory=list)
    shards: list[Any] = field(default_factory=list)


class ModuleStates:
    """The state of a segment's modules, and all else that their code can reach.

    The segment runs again from where it began: attributes, containers, closures, global variables,
    buffers, generators of random numbers (but for PyTorch's own, which `GeneratorStates` keeps) and
    settings are what they were then. Whatever it changes when it runs again is dropped: afterwards
    all is what it was before. So statistics of a batch norm are updated once, and lists grow once.
    The copies are not counted as live bytes.

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
        self._reach: Reach | None = None
        self._contents: list[Content] = []
        # For each content: what it held when it was last looked through, and the tensors in it.
        self._last: list[Any] = []
        self._tensors: list[list[tuple[str, torch.Tensor]]] = []
        self._unseen: list[str] = []
        # Keys of tensors that were seen to change.
        self._changing: set[Any] = set()
        self._looked = False

    def module_of(self, name: str) -> tuple[str, ...]:
        """Return the path of the innermost module whose attributes an object was reached by."""
        paths = [path for path, _ in self._modules if name.startswith((f"{path}.", f"{path}, "))]
        return (max(paths, key=len),) if paths else ()

    # Taking down.

    def begin(self, arguments: Iterable[Any] = (), *, rehearses: bool = False) -> Before:
        """Take down the state with which the segment begins.

        Parameters
        ----------
        arguments : iterable of object
            Arguments of the segment besides tensors.
        rehearses : bool
            Whether parameters are to be compared by their elements, too.
        """
        if self._reach is None:
            self._reach = Reach()
            self._look(self._modules)
        values = [content.take() for content in self._contents]
        for index, (content, value) in enumerate(list(zip(self._contents, values, strict=True))):
            if not content.same(self._last[index], value):
                self._look_again(index, content, value)
        self._look_at_tensors()
        values += [content.take() for content in self._contents[len(values) :]]
        contents, tensors = list(self._contents), list(enumerate(self._tensors))
        given = [each for each in arguments if not is_atom(each)]
        if given:
            for content in Reach(self._reach).visit(("an argument", x) for x in given).contents:
                contents.append(content)
                values.append(content.take())
                tensors.append((-1, _tensors_in(content, values[-1])))
        rows = self._rows(contents, tensors, rehearses)
        unseen = self._unseen if rehearses else []
        doubts = [(f"{each} may change unseen", each) for each in unseen]
        python, numbers = random.getstate(), numpy.random.get_state()
        shards = [mark_of(each) for each in self._shards]
        return Before(
            contents, values, rows, settings(), python, numbers, rehearses, doubts, shards
        )

    def _look(self, things: Iterable[tuple[str, Any]]) -> None:
        """Add the contents that can be reached from these objects and were not known yet."""
        assert self._reach is not None
        found = self._reach.visit(iter(things))
        self._unseen += found.unseen
        self._contents += found.contents
        for content in found.contents:
            value = content.take()
            self._last.append(value)
            self._tensors.append(_tensors_in(content, value))

    def _look_at_tensors(self) -> None:
        """Look at what programs have attached to tensors since."""
        assert self._reach is not None
        for tensors in list(self._tensors):
            for name, tensor in tensors:
                if isinstance(tensor, FakeTensor):
                    continue
                if tensor.__dict__ and id(tensor.__dict__) not in self._reach:
                    self._look([(name, tensor.__dict__)])

    def _look_again(self, index: int, content: Content, value: Any) -> None:
        """Look through what an object holds now."""
        self._tensors[index] = tensors = _tensors_in(content, value)
        # Nothing that comes and goes is to be held here.
        passing = {id(t): None for _, t in tensors if not isinstance(t, nn.Parameter)}
        self._last[index] = content.swapped(value, passing) if passing else value
        above = f"{content.name}." if content.name else ""
        self._look((above + key, held) for key, held in content.items(value))

    def _rows(
        self,
        contents: Sequence[Content],
        tensors: Iterable[tuple[int, list[tuple[str, torch.Tensor]]]],
        rehearses: bool,
    ) -> list[Row]:
        rows = {}
        for index, those in tensors:
            statistics = _ignores_statistics(contents[index].thing)
            for name, tensor in those:
                if id(tensor) in rows:
                    continue
                row = Row(name, (index, name), tensor, version_of(tensor), address_of(tensor))
                rows[id(tensor)] = row
                if isinstance(tensor, nn.Parameter) or tensor.requires_grad:
                    row.fixed = True
                    row.digest = digest(tensor) if rehearses else None
                elif statistics:
                    row.ignored = True
                elif self._wants_copy(row.key, tensor, rehearses):
                    with uncounted():
                        row.copy = HELD.taken(tensor.detach().clone())
        return list(rows.values())

    def _wants_copy(self, key: Any, tensor: torch.Tensor, rehearses: bool) -> bool:
        if not self._looked or rehearses or key in self._changing:
            return True
        return tensor.numel() * tensor.element_size() <= _SMALL

    def end(self, before: Before) -> Before:
        """Take down what the first run has changed: the rest needs no copies."""
        for row in before.rows:
            if row.copy is not None and self._has_changed(row, before.rehearses):
                self._changing.add(row.key)
            elif row.copy is None and not row.fixed and not row.ignored and row.moved:
                row.lost = True
                self._changing.add(row.key)
            elif not before.rehearses:
                row.copy = None
            if before.rehearses and row.fixed and digest(row.tensor) != row.digest:
                before.doubts.append((f"it changes {row.name}, a parameter", row.name))
            if not row.fixed:
                # What shows from now on is somebody else's doing.
                row.version, row.address = version_of(row.tensor), address_of(row.tensor)
        if before.rehearses:
            before.doubts += self._kept_or_lost(before)
        self._looked = True
        return before

    def _has_changed(self, row: Row, closely: bool) -> bool:
        if row.moved or row.key in self._changing:
            return True
        closely |= not self._looked
        if not closely or isinstance(row.tensor, FakeTensor):
            return False
        # Some kernels write without a trace: running statistics, for example.
        assert row.copy is not None
        with uncounted():
            return not same_elements(row.copy, row.tensor)

    def _kept_or_lost(self, before: Before) -> Iterator[tuple[str, str]]:
        """Yield changes of the first run that cannot be undone, or are dear: sentence, name."""
        for content, value in zip(before.contents, before.values, strict=True):
            now = content.take()
            if content.same(now, value) or (
                content.transparent(value) and content.transparent(now)
            ):
                continue
            if not content.restorable:
                yield f"{content.name} changes, and cannot be put back", content.name
            kept = set(map(id, (each for _, each in content.items(now))))
            for name, held in content.items(value):
                if isinstance(held, torch.Tensor) and id(held) not in kept:
                    size = held.numel() * held.element_size()
                    if size > _SMALL:
                        where = f"{content.name}.{name}"
                        yield f"it would hold the {size} bytes that were in {where} before", where

    # Running again.

    @contextmanager
    def again(self, before: Before) -> Iterator[None]:
        """Put everything back for the block; afterwards it is what it was right before.

        Raises
        ------
        RecomputeError
            If that is impossible.
        """
        now = [content.take() for content in before.contents]
        python, numbers = random.getstate(), numpy.random.get_state()
        swap = self._swap(before)
        try:
            with under(before.settings):
                self._put(before, now, swap)
                random.setstate(before.python)
                numpy.random.set_state(before.numpy)
                yield
        finally:
            random.setstate(python)
            numpy.random.set_state(numbers)
            self._put_back(before.contents, now)

    def _swap(self, before: Before) -> dict[int, torch.Tensor]:
        """Return the stand-ins of tensors that change while the segment runs again, by `id`."""
        swap: dict[int, torch.Tensor] = {}
        for shard, mark in zip(self._shards, before.shards, strict=True):
            if mark_of(shard) != mark:
                self._lost(f"{shard._param_fqn} was changed after its forward pass")
        with uncounted():
            for row in before.rows:
                changing = row.key in self._changing
                if row.lost:
                    self._lost(f"{row.name}, which had never changed before, was changed in place")
                if row.copy is not None and (changing or self._moved_since(row, before)):
                    swap[id(row.tensor)] = HELD.taken(row.copy.clone())
                elif row.shows_change(closely=before.rehearses):
                    self._lost(f"{row.name} was changed after its forward pass")
                if row.ignored:
                    swap[id(row.tensor)] = HELD.taken(row.tensor.detach().clone())
        return swap

    def _moved_since(self, row: Row, before: Before) -> bool:
        """Whether somebody else has changed a tensor since the first run; only rehearsals see."""
        if not before.rehearses or isinstance(row.tensor, FakeTensor):
            return row.moved
        assert row.copy is not None
        if row.moved or not same_elements(row.copy, row.tensor):
            # From the next step on it is copied each time.
            self._changing.add(row.key)
            return True
        return False

    def _put(self, before: Before, now: list[Any], swap: dict[int, torch.Tensor]) -> None:
        for content, found, value in zip(before.contents, now, before.values, strict=True):
            if content.transparent(value) and content.transparent(found):
                continue
            if not content.same(found, value):
                self._require(content)
                content.put(content.swapped(value, swap) if swap else value)
            elif swap:
                swapped = content.swapped(value, swap)
                if swapped is not value and not content.same(swapped, value):
                    content.put(swapped)

    def _put_back(self, contents: list[Content], values: list[Any]) -> None:
        changed = [
            pair
            for pair in zip(contents, values, strict=True)
            if not pair[0].same(pair[0].take(), pair[1])
        ]
        for content, value in changed:
            if content.restorable:
                content.put(value)
        for content, _ in changed:
            self._require(content)

    def _require(self, content: Content) -> None:
        if not content.restorable:
            self._lost(f"{content.name} has changed and cannot be put back")

    def _lost(self, reason: str) -> None:
        raise RecomputeError(f"{self._name} cannot run again for the backward pass: {reason}")


def _ignores_statistics(thing: Any) -> bool:
    """Whether it is a module that updates running statistics, and normalises by the batch."""
    return (
        isinstance(thing, _BatchNorm)
        and thing.training
        and type(thing).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward)
    )


def _tensors_in(content: Content, value: Any) -> list[tuple[str, torch.Tensor]]:
    above = f"{content.name}." if content.name else ""
    found = []
    todo = list(content.items(value))
    while todo:
        name, held = todo.pop()
        if isinstance(held, torch.Tensor):
            found.append((above + name, held))
        elif isinstance(held, tuple):
            todo += [(f"{name}[{index}]", each) for index, each in enumerate(held)]
    return found
