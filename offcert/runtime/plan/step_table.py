"""Tables of a plan, made once: which events of a step matter, and what autograd saves between them.

A step has to hear of the events before which something moves, and of its last one. An operation
without such an event is a part of the *stretch* of the one before it: a storage that autograd saves
is recognised by its stretch, its size, type and shape, and how many of the same kind the stretch
has saved before. Where every operation counts, each is a stretch of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from offcert.runtime.watch.events import ENTER, INPUT, LEAVE, OUTPUT, Event
from offcert.runtime.watch.saved_hooks import SavedPlace

# In the place of an operation, where none begins. By definition.
NONE = -1

# For each time that a gradient is complete, the operation that begins then.
Turns = tuple[int, ...]

# What an operation saves of one kind: its number, bytes, data type and shape.
SavedKind = tuple[int, int, torch.dtype, tuple[int, ...]]


class EventRow(NamedTuple):
    """The actions of a step at the moment when a module is called, or returns.

    An operation begins, or NONE; and for some of the tensors that it is called with, or returns, by
    their number among these, operations that begin when their gradients are complete.
    """

    operation: int
    gradients: tuple[tuple[int, Turns], ...]


@dataclass(frozen=True)
class StepTable:
    """Operations that begin at the events of a step under a plan, and storages between them.

    `operations` are those that matter, by their events; `following` has for NONE and each operation
    in turn the next one that matters, or how many there are. `entering` and `leaving` have rows by
    the paths of modules and the numbers of calls; `heard` and `left` the modules of which steps
    hear when they are called, and when they return. `places` are what each stretch saves, by kind,
    in order, `alike` the same by the stretch, the data type, and the number of dimensions.
    """

    operations: dict[Event, int]
    following: tuple[int, ...]
    entering: dict[str, dict[int, EventRow]]
    leaving: dict[str, dict[int, EventRow]]
    heard: frozenset[str]
    left: frozenset[str]
    places: dict[SavedKind, tuple[SavedPlace, ...]]
    alike: dict[tuple[int, str, int], tuple[SavedPlace, ...]]


def step_table(
    ticks: Sequence[Event], matter: Collection[int], places: Iterable[SavedPlace]
) -> StepTable:
    """Return the table of a step whose operations begin with `ticks`, and that has saved `places`.

    Before those that `matter` something is to be done; the last one matters in any case.
    """
    mattering = sorted({*matter, len(ticks) - 1})
    entering, leaving = (
        _rows(ticks, mattering, ENTER, INPUT),
        _rows(ticks, mattering, LEAVE, OUTPUT),
    )
    # Which call returns can be told without its beginning only where there is but one.
    often = {path for path, rows in leaving.items() if any(rows)}
    following, after = [len(ticks)] * (len(ticks) + 1), set(mattering)
    for operation in reversed(range(len(ticks))):
        following[operation] = operation if operation in after else following[operation + 1]
    by_kind, alike = _stretches(mattering, len(ticks), places)
    return StepTable(
        {ticks[operation]: operation for operation in mattering},
        tuple(following),
        entering,
        leaving,
        frozenset(entering) | often,
        frozenset(leaving),
        by_kind,
        alike,
    )


def _rows(
    ticks: Sequence[Event], mattering: Sequence[int], begins: str, completes: str
) -> dict[str, dict[int, EventRow]]:
    """Return the rows of modules that are called, or of modules that return."""
    operations: dict[tuple[str, int], int] = {}
    gradients: dict[tuple[str, int], dict[int, dict[int, int]]] = {}
    for operation in mattering:
        event = ticks[operation]
        key = event.path, event.call
        if event.kind == begins:
            operations[key] = operation
        elif event.kind == completes:
            turns = gradients.setdefault(key, {}).setdefault(event.part, {})
            turns[event.again] = operation
    found: dict[str, dict[int, EventRow]] = {}
    for path, call in dict.fromkeys((*operations, *gradients)):
        parts = gradients.get((path, call), {}).items()
        row = EventRow(operations.get((path, call), NONE), tuple((n, _turns(t)) for n, t in parts))
        found.setdefault(path, {})[call] = row
    return found


def _turns(operations: Mapping[int, int]) -> Turns:
    return tuple(operations.get(again, NONE) for again in range(max(operations) + 1))


def _stretches(
    mattering: Sequence[int], operations: int, places: Iterable[SavedPlace]
) -> tuple[
    dict[SavedKind, tuple[SavedPlace, ...]],
    dict[tuple[int, str, int], tuple[SavedPlace, ...]],
]:
    begins = set(mattering)
    numbers = (operation if operation in begins else 0 for operation in range(operations))
    of = list(accumulate(numbers, max))
    by_kind: dict[SavedKind, list[SavedPlace]] = {}
    alike: dict[tuple[int, str, int], list[SavedPlace]] = {}
    for place in sorted(places, key=lambda each: (each.operation, each.ordinal)):
        dtype, stretch = getattr(torch, place.dtype), of[place.operation]
        by_kind.setdefault((stretch, place.size, dtype, tuple(place.shape)), []).append(place)
    for place in places:
        kind = of[place.operation], place.dtype, len(place.shape)
        alike.setdefault(kind, []).append(place)
    return (
        {kind: tuple(found) for kind, found in by_kind.items()},
        {kind: tuple(found) for kind, found in alike.items()},
    )
