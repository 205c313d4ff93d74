"""Keeping results of a segment's operators, and handing them out when the segment runs again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from offcert.runtime.segments.keeper import (
    Alias,
    Keeper,
    StandIn,
    Stored,
    StoredOperator,
    Tick,
    Watch,
    storage_number,
)
from offcert.runtime.segments.settings import GeneratorStates
from offcert.runtime.torch_private import (
    aliases_tracked,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from offcert.runtime.watch.entries import View, viewed
from offcert.runtime.watch.guard import RecomputeError, SegmentProof
from offcert.runtime.watch.operators import changed_in_place, tensors_of


@dataclass(slots=True)
class _Open:
    """A storage that only kept operators have read yet, and the results that lie in it."""

    storage: weakref.ref[torch.UntypedStorage]
    results: list[tuple[Stored, View]] = field(default_factory=list)
    # Whether it waits to be read or changed: it is what an operator was called for.
    waits: bool = False


class Keep(Watch):
    """The first run of a segment: results are kept."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__(keeper)
        # Storages that operators which are kept as well may still change in place: nobody else has
        # read them. Nothing is held here, it might be about to leave.
        self._open: dict[int, _Open] = {}
        # Tensors that have just been changed; versions are counted only afterwards.
        self._pending: list[tuple[Stored, torch.Tensor]] = []
        # Storages of results that nobody needs again: only kept operators read or change them.
        self._unread: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        # How many results the operators of the stretch have had so far.
        self._results = 0
        # The stretches that are still to come.
        self._left = set(keeper.kept)

    def tick(self, event: Tick) -> None:
        """Begin the stretch that begins with an event."""
        if not (self._entered or self._open or event in self.keeper.kept):
            # Nothing is watched, and nothing begins.
            return
        if self._pending:
            self._settle()
        self._left.discard(event)
        self._results = 0
        super().tick(event)

    def pause(self) -> None:
        """Watch nothing before the next event, unless a result waits for what may change it.

        A sum may be written over one of its terms long after that, as in residual networks whose
        other term takes several modules. Whoever reads it meanwhile must be seen.
        """
        if self._pending:
            self._settle()
        if self._left:
            for each in self._open.values():
                if each.waits and each.storage() is not None:
                    return
        super().pause()
        if not self._entered:
            self._open.clear()

    def leave(self) -> None:
        """Stop watching: the segment has run."""
        self._settle()
        self._open.clear()
        super().leave()

    def suspend(self) -> None:
        """Watch nothing before the next event, while others run who are not watched at all.

        What they read of what is kept does not run again: it may still be changed in place.
        """
        self._settle()
        super().pause()

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for stored, tensor in pending:
            stored.packed = self._pack(tensor)

    def _pack(self, tensor: torch.Tensor) -> Any:
        # As the outer hooks would see it: with the versions of what the program goes on with.
        with aliases_tracked():
            return self.keeper.hooks[0](tensor.detach())

    def passed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take note of what others read: it must not be changed in place any more."""
        if self._pending:
            self._settle()
        if self._open:
            self._close(tensors_of((args, kwargs)))
        return func(*args, **kwargs)

    def watched(self, key: Any, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Run it and keep its results."""
        if self._pending:
            self._settle()
        out = func(*args, **kwargs)
        self.keeper.records[key] = None
        changed = list(changed_in_place(func, args, kwargs))
        leaves, spec = tree_flatten(out)
        known = {storage_number(tensor) for tensor in given}
        made = [x for x in leaves if isinstance(x, torch.Tensor) and storage_number(x) not in known]
        makes, first_made = bool(made), self._results
        self._results += sum(x.layout is torch.strided for x in made)
        if not (makes or changed):
            # A view costs nothing.
            return out
        held = [tensor for tensor in changed if not self._is_unread(tensor)]
        if not self.wanted() or not all(self._is_open(tensor) for tensor in held):
            # The operator runs again; storages that it changes are computed again, too.
            self._close(given)
            return out
        results: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                results.append(leaf)
            elif storage_number(leaf) in known:
                results.append(Alias(_index(given, leaf)))
            else:
                results.append(self._store(leaf, first_made))
                first_made += leaf.layout is torch.strided
        for tensor in given:
            if self._is_open(tensor):
                self._open[storage_number(tensor)].waits = False
        # What else an operator returns (statistics, indices) is for its backward pass alone.
        first = leaves[0] if leaves else None
        if given and makes and isinstance(first, torch.Tensor) and self._is_open(first):
            self._open[storage_number(first)].waits = True
        for tensor in held:
            opened = self._open[storage_number(tensor)]
            opened.waits = True
            self._pending += [(each, _seen_as(view, tensor)) for each, view in opened.results]
        indices = [_index(given, tensor) for tensor in changed]
        states = None
        if torch.Tag.nondeterministic_seeded in func.tags:
            states = GeneratorStates.of({x.device for x in leaves if isinstance(x, torch.Tensor)})
        self.keeper.records[key] = StoredOperator(results, spec, indices, states)
        return out

    def _store(self, tensor: torch.Tensor, number: int) -> Stored | StandIn:
        """Keep a result, whose number in the stretch is given, or only its shape."""
        assert self.stretch is not None
        strided = tensor.layout is torch.strided
        if strided and number in self.keeper.kept[self.stretch].unread:
            storage = tensor.untyped_storage()
            self._unread[storage_number(tensor)] = weakref.ref(storage)
            largest = self.keeper.largest
            largest[tensor.device] = max(storage.nbytes(), largest.get(tensor.device, 0))
            return StandIn(View.like(tensor), tensor.device)
        stored = Stored(self._pack(tensor))
        if strided:
            address = storage_number(tensor)
            self.keeper.storages[address] = tensor.untyped_storage()
            if not self._is_open(tensor):
                self._open[address] = _Open(weakref.ref(tensor.untyped_storage()))
            self._open[address].results.append((stored, View.like(tensor)))
        return stored

    def _is_unread(self, tensor: torch.Tensor) -> bool:
        found = self._unread.get(storage_number(tensor))
        # An address may be used again.
        return found is not None and found() is tensor.untyped_storage()

    def _is_open(self, tensor: torch.Tensor) -> bool:
        found = self._open.get(storage_number(tensor))
        # An address may be used again.
        return (
            found is not None
            and found.storage() is tensor.untyped_storage()
            and all(view.dtype == tensor.dtype for _, view in found.results)
        )

    def _close(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            self._open.pop(storage_number(tensor), None)


class Give(Watch):
    """Another run of a segment: results that were kept are handed out.

    `last` says whether what is handed out now will not be asked for again.
    """

    def __init__(self, keeper: Keeper, last: Callable[[], bool], proof: SegmentProof) -> None:
        super().__init__(keeper)
        self._last, self._proof = last, proof
        self._given: set[int] = set()
        # Where stand-ins lie.
        self._places: dict[torch.device, torch.Tensor] = {}

    def tick(self, event: Tick) -> None:
        """Begin the stretch that begins with an event; others need no watching."""
        if self._entered or event in self.keeper.kept:
            super().tick(event)
            if self.stretch is None and not self._places:
                self.pause()

    def release(self) -> None:
        """Let go of where stand-ins lie."""
        self._places.clear()

    def passed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator of a stretch in which nothing is kept."""
        if not self._places:
            return func(*args, **kwargs)
        return self._run(func, args, kwargs, tensors_of((args, kwargs)))

    def _run(self, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Run an operator; one that does more than view stand-ins refuses the segment."""
        out = func(*args, **kwargs)
        # By operators of that name, tensors without data are asked for their device.
        if self._places and func.namespace != "prim":
            known = {storage_number(place) for place in self._places.values()}
            used = known.intersection(map(storage_number, given))
            views = all(
                isinstance(x, torch.Tensor) and storage_number(x) in used for x in tree_leaves(out)
            )
            if used and (not views or any(True for _ in changed_in_place(func, args, kwargs))):
                self._proof.refuse("it reads again what only kept operators had read")
                raise RecomputeError(
                    f"{self.keeper.name} was run again for the backward pass, and {func} read what "
                    "only operators that are kept had read. From the next step on it does not run "
                    "again"
                )
        return out

    def watched(self, key: Any, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Hand out an operator's results of the first run, or run it."""
        record = self.keeper.records.get(key)
        if record is None or record.used:
            return self._run(func, args, kwargs, given)
        if not all(storage_number(given[index]) in self._given for index in record.changed):
            # What it changes has been computed again, since it had been handed out before.
            return self._run(func, args, kwargs, given)
        leaves = [self._result(each, given) for each in record.results]
        if record.generators is not None:
            record.generators.put()
        if self._last():
            record.used = True
            record.results = []
        return tree_unflatten(leaves, record.spec)

    def _result(self, result: Any, given: list[Any]) -> Any:
        if isinstance(result, Alias):
            return given[result.argument]
        if isinstance(result, StandIn):
            tensor = self._stand_in(result)
        elif isinstance(result, Stored):
            tensor = self.keeper.hooks[1](result.packed)
        else:
            return result
        self._given.add(storage_number(tensor))
        with aliases_tracked():
            return tensor.detach()

    def _stand_in(self, result: StandIn) -> torch.Tensor:
        place = self._places.get(result.device)
        if place is None:
            size = self.keeper.largest[result.device]
            place = torch.empty(size, dtype=torch.uint8, device=result.device)
            self._places[result.device] = place
        return viewed(place, *result.view)


def _seen_as(view: View, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that lies in the storage of another one as a view says."""
    if View.like(tensor) == view:
        return tensor
    return tensor.as_strided(view.shape, view.stride, view.offset)


def _index(tensors: list[torch.Tensor], wanted: torch.Tensor) -> int:
    """Return the number of the tensor that is another one, or else lies in its storage."""
    for index, tensor in enumerate(tensors):
        if tensor is wanted:
            return index
    return next(
        i for i, tensor in enumerate(tensors) if storage_number(tensor) == storage_number(wanted)
    )
