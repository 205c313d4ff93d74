"""Snapshots of a segment's state before its first run, and comparisons with later states."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import is_
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn

from offcert.runtime.segments.code import Random
from offcert.runtime.segments.contents import MISSING, Content
from offcert.runtime.segments.fingerprint import fingerprint
from offcert.runtime.segments.reachable import Reach, Reached, is_atom
from offcert.runtime.segments.settings import HeldBytes
from offcert.runtime.torch_private import GLOBAL_HOOKS, BatchNorm

# Before each dictionary in a list of what modules hold.
MARK = object()


class Doubt(NamedTuple):
    """A reason why a segment must not run again, and the name of the object that it is about.

    It is `lasting` if one run is enough to know; otherwise it was something like a cache perhaps.
    """

    reason: str
    name: str
    lasting: bool = False


@dataclass(eq=False, slots=True)
class InModules:
    """The values and tensors that modules held when they were looked at.

    Of the dictionaries of modules, with their paths (`places`), `flat` are the values, one after
    another, and `keys` the keys of each. Of tensors with names `fixed` ones must not change and
    `loose` ones may; nothing reads `statistics`. `where` says, by a tensor's `id`, in which
    dictionaries it is.
    """

    places: list[tuple[str, dict[str, Any]]]
    flat: list[Any] = field(default_factory=list)
    keys: list[list[str]] = field(default_factory=list)
    fixed: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    loose: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    statistics: list[torch.Tensor] = field(default_factory=list)
    where: dict[int, list[tuple[dict[str, Any], str]]] = field(default_factory=dict)


@dataclass(eq=False, slots=True, weakref_slot=True)
class Before:
    """The state before a segment began (`had`), and what its first run has changed.

    `marks` are versions and storages of the fixed tensors, `versions` those of the loose ones,
    before the first run and then after it; `copies` are of tensors that may change, by `id`, and
    their bytes are `held`. `sources` are generators that code reaches, `generators` the states of
    Python's, NumPy's, and theirs. `census` and `counted`: all other objects that the segment's code
    can reach, and what they held. In a rehearsal `prints` are fingerprints of the fixed tensors.
    `lost` are names of tensors that have changed and had not been copied.
    """

    had: InModules
    marks: list[int]
    versions: list[int]
    copies: dict[int, torch.Tensor]
    sources: list[Random]
    generators: list[Any]
    settings: tuple[Any, ...]
    shards: list[Any]
    census: Any
    counted: Any
    rehearses: bool
    prints: list[torch.Tensor | None] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    trained: list[bool] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)
    held: HeldBytes | None = None


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(one) == len(other) and all(map(is_, one, other))


def flat_of(places: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Return the values that dictionaries hold, a mark before those of each.

    Keys are left out: an attribute that is set or deleted changes the number of values.
    """
    return [each for _, held in places for each in (MARK, *(held.values() if held else ()))]


def marks(tensors: list[tuple[str, torch.Tensor]]) -> list[int]:
    """Return versions, then storages, of tensors with names."""
    versions = [tensor._version for _, tensor in tensors]
    return versions + [tensor.untyped_storage()._cdata for _, tensor in tensors]


def differences(
    places: list[tuple[str, dict[str, Any]]], flat: list[Any], keys: list[list[str]]
) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
    """Yield the attributes that have changed: path, dictionary, key, and value before."""
    ends = [index for index, each in enumerate(flat) if each is MARK] + [len(flat)]
    spans = pairwise(ends)
    for (path, held), named, (first, end) in zip(places, keys, spans, strict=True):
        was = dict(zip(named, flat[first + 1 : end], strict=True))
        for key, value in was.items():
            if held.get(key, MISSING) is not value:
                yield path, held, key, value
        for key in list(held):
            if key not in was:
                yield path, held, key, MISSING


def module_hooks(places: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Return the keys of the hooks of modules, and of those of all modules."""
    tables = [
        each
        for _, held in places
        if "_forward_hooks" in held
        for each in (
            held["_forward_hooks"],
            held["_forward_pre_hooks"],
            held["_backward_hooks"],
            held["_backward_pre_hooks"],
        )
    ]
    return [key for table in (*tables, *GLOBAL_HOOKS) for key in table]


def hooks_of(had: InModules) -> list[Any]:
    """Return the keys of hooks: of modules, of all modules, of tensors that do not change."""
    found = module_hooks(had.places)
    for _, tensor in had.fixed:
        found += tensor._backward_hooks or ()
        found += tensor._post_accumulate_grad_hooks or ()
    return found


def states_of(generators: list[Random]) -> list[Any]:
    """Return the states of the generators of Python and NumPy, and of others."""
    return [random.getstate(), numbers(), *[each.take() for each in generators]]


def put_states(generators: list[Random], states: list[Any], now: list[Any]) -> None:
    """Give generators states that `states_of` has returned, where they are others now."""
    if states[0] != now[0]:
        random.setstate(states[0])
    if states[1] != now[1]:
        set_numbers(states[1])
    for each, state, found in zip(generators, states[2:], now[2:], strict=True):
        if not each.same(state, found):
            each.put(state)


def numbers() -> Any:
    """Return the state of NumPy's generator, in a form that can be compared."""
    name, keys, *rest = numpy.random.get_state(legacy=True)
    assert isinstance(keys, numpy.ndarray)
    return name, keys.tobytes(), *rest


def set_numbers(state: Any) -> None:
    """Give NumPy's generator a state that `numbers` has returned before."""
    name, keys, *rest = state
    numpy.random.set_state((name, numpy.frombuffer(keys, numpy.uint32), *rest))


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor counts its changes, and lies in a storage."""
    if tensor.is_inference():
        return False
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def equal_bits(copy: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a tensor has the very bits of a copy."""
    one, other = fingerprint(copy), fingerprint(tensor)
    return one is None or other is None or torch.equal(one, other)


def ignores_statistics(thing: Any) -> bool:
    """Whether a module updates running statistics, but normalises by those of the batch."""
    return (
        isinstance(thing, BatchNorm)
        and thing.training
        and type(thing).forward in (BatchNorm.forward, nn.SyncBatchNorm.forward)
    )


@dataclass(slots=True)
class Counted:
    """The objects before a first run: all that they hold, one after another (`flat`).

    In a rehearsal or a verification all of them, with their contents (`closely`).
    """

    flat: list[Any]
    closely: list[tuple[Content, Any]] = field(default_factory=list)

    def clear(self) -> None:
        """Hold nothing any more."""
        self.flat.clear()
        self.closely.clear()


class Census:
    """The objects that the code of some modules can reach.

    Those that were found first are `reached`, modules and objects that may change unseen among
    them. `tensors` are those that these objects hold; `generators` of random numbers are put back.
    """

    def __init__(self, modules: Iterable[tuple[str, Any]]) -> None:
        self._reach = Reach()
        everywhere = [("a global hook", each) for table in GLOBAL_HOOKS for each in table.values()]
        self.reached: Reached = self._reach.visit([*modules, *everywhere])
        self.generators: list[Random] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self._contents: list[Content] = []
        # Those of them that hold anything, ever.
        self._holding: list[Content] = []
        self._last: list[Any] = []
        self._add(self.reached)

    def _add(self, found: Reached) -> None:
        self.tensors += found.tensors
        for each in found.contents:
            if isinstance(each, Random):
                self.generators.append(each)
            else:
                self._contents.append(each)
                if type(each).held is not Content.held:
                    self._holding.append(each)

    def attach(self, tensors: list[tuple[str, torch.Tensor]]) -> None:
        """Add the attributes that programs have given to tensors, and all that they reach."""
        self._add(self._reach.visit((name, each.__dict__) for name, each in tensors))

    def take(self, arguments: Iterable[Any] = (), *, closely: bool = False) -> Counted:
        """Take down what the objects hold; `closely`: what is dear and in arguments, too."""
        flat = self.flat()
        if not same(flat, self._last):
            self._look_again()
            flat = self._last = self.flat()
        if not closely:
            return Counted(flat)
        given = [("an argument", each) for each in arguments if not is_atom(each)]
        others = Reach(self._reach).visit(given).contents
        return Counted(flat, [(each, each.take()) for each in self._contents + others])

    def flat(self) -> list[Any]:
        """Return the objects that they all hold, one after another."""
        return [held for each in self._holding for held in (MARK, *each.held())]

    def _look_again(self) -> None:
        """Add the objects that can be reached now and were not known yet."""
        above = [(each.name, each, each.take()) for each in self._contents]
        self._add(
            self._reach.visit(
                (f"{name}.{key}" if name else key, held)
                for name, content, value in above
                for key, held in content.items(value)
            )
        )

    def changed(self, before: Counted) -> Iterator[Content]:
        """Yield the objects that hold something else than they did."""
        if before.closely:
            for content, value in before.closely:
                if not content.same(value, content.take()):
                    yield content
        elif not same(self.flat(), before.flat):
            yield from self._differing(before.flat)

    def _differing(self, flat: list[Any]) -> Iterator[Content]:
        ends = [index for index, each in enumerate(flat) if each is MARK] + [len(flat)]
        for number, content in enumerate(self._holding[: len(ends) - 1]):
            was = flat[ends[number] + 1 : ends[number + 1]]
            if not same(was, list(content.held())):
                yield content
