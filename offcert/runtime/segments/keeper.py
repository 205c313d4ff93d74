"""Dispatch modes of segments: where results are kept (`Watch`), and in rehearsals (`Operators`)."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.segments.placed import Kept, called
from offcert.runtime.segments.settings import GeneratorStates
from offcert.runtime.torch_private import (
    TorchDispatchMode,
    TreeSpec,
    dispatch_mode,
    sequence_number,
    top_saved_hooks,
)
from offcert.runtime.watch.entries import Handle, View
from offcert.runtime.watch.operators import foreign_name, tensors_of

# An event of a module: its kind, path and call.
Tick = tuple[str, str, int]

# Packs and unpacks a saved tensor.
Hooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


def outer_hooks() -> Hooks:
    """Return the saved-tensor hooks that are active around a segment."""
    found = top_saved_hooks(True)
    if found is not None:
        return found[0], found[1]
    return (lambda tensor: Handle(tensor, None)), Handle.restore


@dataclass(slots=True)
class Alias:
    """A result that is one of the tensors that the operator was given."""

    argument: int


@dataclass(slots=True)
class Stored:
    """A result that stays: what the outer hooks made of it."""

    packed: Any


@dataclass(slots=True)
class StandIn:
    """A result that nobody needs again: how it lay in its storage, and on which device."""

    view: View
    device: torch.device


@dataclass(slots=True)
class StoredOperator:
    """An operator that does not run again.

    Its `results` are `Stored`, `StandIn`, `Alias`, or objects that are no tensors, nested as `spec`
    says. It has `changed` in place the tensors of these numbers among its arguments, and left
    `generators` of random numbers, if it draws some, in these states. It is `used` once results
    have been handed out for the last time.
    """

    results: list[Any]
    spec: TreeSpec
    changed: list[int]
    generators: GeneratorStates | None
    used: bool = False


class Keeper:
    """Keeps results of some operators of an outermost segment, from its first run on.

    A dispatch mode watches operators, but only in stretches that begin with events at which
    something is `kept`. Operators on different `parameters`, given by the addresses of their
    storages, are different.

    `storages` are those of kept results, by address; `largest` bytes of a result that nobody needs
    again, by device.
    """

    def __init__(self, name: str, kept: dict[Tick, Kept], parameters: set[int]) -> None:
        self.name, self.kept, self.parameters = name, kept, parameters
        self.largest: dict[torch.device, int] = {}
        self.hooks = outer_hooks()
        self.storages: weakref.WeakValueDictionary[int, torch.UntypedStorage]
        self.storages = weakref.WeakValueDictionary()
        self.records: dict[Any, StoredOperator | None] = {}

    def check(self) -> None:
        """Raise an `InputError` if something kept has been changed in place since."""
        for (tick, *_), record in self.records.items():
            for result in [] if record is None else record.results:
                packed = result.packed if isinstance(result, Stored) else None
                if isinstance(packed, Handle) and packed.changed:
                    raise InputError(
                        f"what {describe(tick)} computes is changed in place afterwards: in "
                        f"{self.name} it can only be kept together with that"
                    )


def describe(tick: Tick) -> str:
    """Name an event for people."""
    kind, path, call = tick
    what = called(path or "the model", call)
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
        self._entered, self._has_passed = False, False
        self._counts: Counter[Any] = Counter()
        self._makers = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` work as without the mode."""
        return True

    def tick(self, event: Tick) -> None:
        """Begin the stretch that begins with an event."""
        if self._counts:
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
        if self._entered and dispatch_mode() is self:
            self.__exit__(None, None, None)
            self._entered = False

    def release(self) -> None:
        """Let go of the memory that it holds itself, if any."""

    def leave(self) -> None:
        """Stop watching; whoever has entered other modes since has left them."""
        self.pause()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, or hand out its earlier results."""
        kwargs = kwargs or {}
        if self.stretch is None:
            self._has_passed = True
            return self.passed(func, args, kwargs)
        given = tensors_of((args, kwargs))
        which = tuple(a for a in map(storage_number, given) if a in self.keeper.parameters)
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
        chosen = self.keeper.kept[self.stretch].operators
        return chosen is None or number in chosen


def storage_number(tensor: torch.Tensor) -> int:
    """Return a number that tells a tensor's storage from others as long as it lives."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        # Sparse tensors and some subclasses have no storage.
        return id(tensor)


def operator_number() -> int:
    """Return a number that is another one for each operator with a node in the autograd graph."""
    return int(sequence_number())


class Operators(TorchDispatchMode):
    """Watches the operators of a rehearsal's first run.

    Those that are written in Python, and not declared to be pure, are `foreign`. Functions that are
    to be `told` are called whenever one has ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.told: list[Callable[[], None]] = []
        # Addresses of the storages that the latest operator has returned, and its number.
        self._made: set[int] = set()
        self._number = -1

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` work as without the mode."""
        return True

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Whether the operator that saves a tensor has returned it already.

        It has if autograd has not begun with another one since: that might be about to write what
        the latest one has only allocated.
        """
        address = tensor.untyped_storage()._cdata
        return self._number == operator_number() and address in self._made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        foreign = foreign_name(func)
        if foreign is not None and foreign not in self.foreign:
            self.foreign.append(foreign)
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:
            # It computes nothing; we call it ourselves for what stays.
            return result
        for ended in self.told:
            ended()
        self._number = operator_number()
        self._made = set(map(storage_number, tensors_of(result)))
        return result
