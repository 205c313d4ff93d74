"""What stays of a segment: results of operators, which autograd's outer hooks may move away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from offcert.core.errors import InputError
from offcert.runtime.in_place import changed_in_place
from offcert.runtime.saved import Handle

# An event of a module: its kind, path and call.
Tick = tuple[str, str, int]

# Packs and unpacks a saved tensor.
Hooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


def outer_hooks() -> Hooks:
    """Return the saved-tensor hooks that are active around a segment."""
    found = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if found is not None:
        return found[0], found[1]
    return (lambda tensor: Handle(tensor, None)), Handle.restore


@dataclass(slots=True)
class _Alias:
    """A result that is one of the tensors that the operator was given."""

    argument: int


@dataclass(slots=True)
class _Stored:
    """A result that stays: what the outer hooks made of it."""

    packed: Any


@dataclass(slots=True)
class _Record:
    """An operator that does not run again.

    Attributes
    ----------
    results : list
        What it returned: `_Stored`, `_Alias`, or what is no tensor.
    spec : TreeSpec
        How they are nested.
    changed : list of int
        Which of the tensors that it was given it has changed in place.
    generators : list of (device, state)
        Of random generators that it has used, afterwards.
    used : bool
        Whether the results have been handed out for the last time.
    """

    results: list[Any]
    spec: TreeSpec
    changed: list[int]
    generators: list[tuple[torch.device, torch.Tensor]]
    used: bool = False


class Keeper:
    """Keeps results of some operators of an outermost segment, from its first run on.

    A dispatch mode watches operators, but only between those events at which something is kept.

    Parameters
    ----------
    name : str
        Of the segment, for people.
    kept : dict
        For the events with which such stretches begin, which of the operators are kept; None for
        all.
    parameters : set of int
        Addresses of the storages of parameters: operators on different ones are different.
    """

    def __init__(
        self,
        name: str,
        kept: dict[Tick, frozenset[int] | None],
        parameters: set[int],
    ) -> None:
        self.name = name
        self.kept = kept
        self.parameters = parameters
        self.hooks = outer_hooks()
        self.records: dict[Any, _Record | None] = {}

    def check(self) -> None:
        """Raise an `InputError` if something kept has been changed in place since."""
        for (tick, *_), record in self.records.items():
            for result in [] if record is None else record.results:
                packed = result.packed if isinstance(result, _Stored) else None
                if isinstance(packed, Handle) and packed.changed:
                    raise InputError(
                        f"what {describe(tick)} computes is changed in place afterwards: in "
                        f"{self.name} it can only be kept together with that"
                    )


def describe(tick: Tick) -> str:
    """Name an event for people."""
    kind, path, call = tick
    what = path or "the model"
    what = what if call == 0 else f"call {call + 1} of {what}"
    return what if kind == "enter" else f"what follows {what}"


class Watch(TorchDispatchMode):
    """Sees the operators of those stretches of a segment in which something is kept.

    Call `tick` at every event. Between others the mode is not even there: it costs microseconds an
    operator.
    """

    def __init__(self, keeper: Keeper) -> None:
        super().__init__()
        self.keeper = keeper
        self.stretch: Tick | None = None
        self._entered = False
        self._has_passed = False
        self._counts: Counter[Any] = Counter()
        self._makers = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` work as without the mode."""
        return True

    def tick(self, event: Tick) -> None:
        """Begin the stretch that begins with an event."""
        self._counts.clear()
        self._makers = 0
        if event in self.keeper.kept:
            self.stretch = event
            if not self._entered:
                self.__enter__()
                self._entered = True
        elif self.stretch is not None:
            # Perhaps nothing is computed before the next event: what is open stays open then.
            self.stretch = None
            self._has_passed = False
        elif self._has_passed:
            self.pause()

    def pause(self) -> None:
        """Watch nothing before the next event, if that is possible: modes are left in order."""
        self.stretch = None
        if self._entered and _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)
            self._entered = False

    def leave(self) -> None:
        """Stop watching; whoever has entered other modes since has left them."""
        self.pause()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, or hand out what it returned before."""
        kwargs = kwargs or {}
        if self.stretch is None:
            self._has_passed = True
            return self.passed(func, args, kwargs)
        given = _tensors((args, kwargs))
        which = tuple(a for a in map(_address, given) if a in self.keeper.parameters)
        key = (self.stretch, str(func), which)
        self._counts[key] += 1
        return self.watched((*key, self._counts[key]), func, args, kwargs, given)

    def passed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator of a stretch in which nothing is kept."""
        return func(*args, **kwargs)

    def watched(self, key: Any, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Run an operator of a stretch in which something is kept."""
        raise NotImplementedError

    def wanted(self) -> bool:
        """Count an operator that makes something; return whether that is kept."""
        number, self._makers = self._makers, self._makers + 1
        assert self.stretch is not None
        chosen = self.keeper.kept[self.stretch]
        return chosen is None or number in chosen


class Keep(Watch):
    """The first run of a segment: results are kept."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__(keeper)
        # Storages that operators which are kept as well may still change in place: nobody else has
        # read them.
        self._open: dict[int, list[tuple[_Stored, torch.Tensor]]] = {}
        # Those among them that have just been changed; their versions are counted afterwards.
        self._pending: list[tuple[_Stored, torch.Tensor]] = []

    def tick(self, event: Tick) -> None:
        """Begin the stretch that begins with an event."""
        self._settle()
        super().tick(event)

    def pause(self) -> None:
        """Watch nothing before the next event."""
        self._settle()
        super().pause()
        if not self._entered:
            self._open.clear()

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for stored, tensor in pending:
            stored.packed = self._pack(tensor)

    def _pack(self, tensor: torch.Tensor) -> Any:
        # As the outer hooks would see it: with the versions of what the program goes on with.
        with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
            return self.keeper.hooks[0](tensor.detach())

    def passed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Take note of what others read: it must not be changed in place any more."""
        self._settle()
        self._close(
            [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        )
        return func(*args, **kwargs)

    def watched(self, key: Any, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Run it and keep its results."""
        self._settle()
        out = func(*args, **kwargs)
        self.keeper.records[key] = None
        changed = list(changed_in_place(func, args, kwargs))
        leaves, spec = tree_flatten(out)
        known = {_address(tensor) for tensor in given}
        makes = any(isinstance(x, torch.Tensor) and _address(x) not in known for x in leaves)
        if not (makes or changed):
            # A view costs nothing.
            return out
        if not self.wanted() or not all(_address(tensor) in self._open for tensor in changed):
            # It runs again; what it changes is computed again, too.
            self._close(given)
            return out
        results: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                results.append(leaf)
            elif _address(leaf) in known:
                results.append(_Alias(_index(given, leaf)))
            else:
                stored = _Stored(self._pack(leaf))
                results.append(stored)
                self._open.setdefault(_address(leaf), []).append((stored, leaf))
        for tensor in changed:
            self._pending += self._open[_address(tensor)]
        indices = [_index(given, tensor) for tensor in changed]
        states = _generators(leaves) if torch.Tag.nondeterministic_seeded in func.tags else []
        self.keeper.records[key] = _Record(results, spec, indices, states)
        return out

    def _close(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            self._open.pop(_address(tensor), None)


class Give(Watch):
    """Another run of a segment: results that were kept are handed out.

    Parameters
    ----------
    keeper : Keeper
        Of the first run.
    last : callable
        Whether what is handed out now will not be asked for again.
    """

    def __init__(self, keeper: Keeper, last: Callable[[], bool]) -> None:
        super().__init__(keeper)
        self._last = last
        self._given: set[int] = set()

    def watched(self, key: Any, func: Any, args: Any, kwargs: Any, given: list[Any]) -> Any:
        """Hand out what it returned in the first run, or run it."""
        record = self.keeper.records.get(key)
        if record is None or record.used:
            return func(*args, **kwargs)
        if not all(_address(given[index]) in self._given for index in record.changed):
            # What it changes has been computed again, since it had been handed out before.
            return func(*args, **kwargs)
        leaves = [self._result(each, given) for each in record.results]
        for device, state in record.generators:
            _set_generator(device, state)
        if self._last():
            record.used = True
            record.results = []
        return tree_unflatten(leaves, record.spec)

    def _result(self, result: Any, given: list[Any]) -> Any:
        if isinstance(result, _Alias):
            return given[result.argument]
        if not isinstance(result, _Stored):
            return result
        tensor = self.keeper.hooks[1](result.packed)
        self._given.add(_address(tensor))
        with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
            return tensor.detach()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        # Sparse tensors and some subclasses have no storage.
        return id(tensor)


def _index(tensors: list[torch.Tensor], wanted: torch.Tensor) -> int:
    """Return which of some tensors is another one, or else lies in the same storage."""
    for index, tensor in enumerate(tensors):
        if tensor is wanted:
            return index
    return next(i for i, tensor in enumerate(tensors) if _address(tensor) == _address(wanted))


def _generators(results: list[Any]) -> list[tuple[torch.device, torch.Tensor]]:
    """Return the states of the generators of the devices of some results."""
    devices = {leaf.device for leaf in results if isinstance(leaf, torch.Tensor)}
    return [(device, _generator(device)) for device in devices if device.type in ("cpu", "cuda")]


def _generator(device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def _set_generator(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
