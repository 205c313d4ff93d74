"""From the recording of a few equal layers to that of many.

A recording is cut into sections: a layer's part of a forward pass, a layer's part of a backward
pass, and what lies between. Layers `first` to `first + period - 1` are repeated: `times` copies of
their sections follow them, and layers behind them move on. What is noted in a layer's section is
noted in each of its copies, moved on by as many layers as the copy is; what is made outside of
layers is there once, and touched in all copies that touch it.

That the result is the recording of the larger model is no theorem, as a program may do anything; it
is checked against a recording (`offcert.runtime.capture.repeated`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from offcert.runtime.capture.moments import Life, Moment, Seen
from offcert.runtime.capture.recording import (
    LayerPlace,
    Lines,
    NotRepeatingError,
    Recording,
    Repeat,
)
from offcert.runtime.watch.events import ENTER, INPUT, LEAVE, OPERATOR, OUTPUT, UNPACK, Event
from offcert.runtime.watch.tracker import StorageRecord


def stretched(recording: Recording, repeat: Repeat) -> Recording:
    """Return the recording of the model with more layers; nodes are still those of the smaller one.

    Raises
    ------
    NotRepeatingError
        If the recording cannot be cut into sections of layers, or what happens in one is not that
        of one alone.
    """
    return _Stretch(recording, repeat).recording()


class _Stretch:
    def __init__(self, recording: Recording, repeat: Repeat) -> None:
        self.old = recording
        self.repeat = repeat
        # A path below the container: what comes before the number, the number, and what follows.
        prefix = re.escape(f"{repeat.path}." if repeat.path else "")
        self.below = re.compile(rf"^({prefix})(\d+)(\.|$)")
        self.places: list[LayerPlace | None] = [None] * len(recording.moments)
        self.starts: dict[tuple[int, int], int] = {}
        self._cut()
        self.new_places: list[tuple[int, int]] = []
        self.new_starts: dict[tuple[int, int], int] = {}
        self.new_outside: dict[int, int] = {}
        self._lay_out()
        # By where a storage is made; those from outside of layers by their number.
        self.made_at: dict[int, tuple[LayerPlace | None, int]] = {}
        self.copies: dict[Any, Life] = {}

    def layer_of(self, path: str) -> int | None:
        found = self.below.match(path)
        return None if found is None else int(found[2])

    def _cut(self) -> None:
        """Find the section of every moment."""
        traversal, current = -1, None
        forward = True
        for index, moment in enumerate(self.old.moments):
            event = moment.event
            layer = None
            if event.kind not in (OPERATOR, UNPACK):
                layer = self.layer_of(event.path)
            if moment.backward and event.kind in (ENTER, LEAVE):
                raise NotRepeatingError("modules are called in the backward pass")
            if layer is not None and self._begins(event, layer, current, forward):
                if current is None:
                    traversal += 1
                    forward = event.kind == ENTER
                current = layer
                if (traversal, layer) in self.starts:
                    raise NotRepeatingError("a layer is visited twice")
                self.starts[traversal, layer] = index
            elif current is not None and self._ends(index, moment, current, forward):
                current = None
            if current is not None:
                offset = index - self.starts[traversal, current]
                self.places[index] = LayerPlace(traversal, current, offset)
        expected = set(range(self.repeat.count))
        for each in range(traversal + 1):
            if {layer for key, layer in self.starts if key == each} != expected:
                raise NotRepeatingError("a layer is left out")

    def _begins(self, event: Event, layer: int, current: int | None, forward: bool) -> bool:
        last = self.repeat.count - 1
        exact = event.path.rpartition(".")[0] == self.repeat.path
        if current is None:
            return (exact and event.kind == ENTER and layer == 0) or (
                event.kind in (INPUT, OUTPUT) and layer == last
            )
        if forward:
            return exact and event.kind == ENTER and layer == current + 1
        return event.kind in (INPUT, OUTPUT) and layer == current - 1

    def _ends(self, index: int, moment: Moment, current: int, forward: bool) -> bool:
        """Whether a moment is the first behind the last layer of a traversal."""
        if forward:
            if current != self.repeat.count - 1:
                return False
            before = self.old.moments[index - 1].event
            return before.kind == LEAVE and self._is_layer(before.path, current)
        return current == 0 and (
            not moment.backward
            or (moment.event.kind in (INPUT, OUTPUT) and self.layer_of(moment.event.path) is None)
        )

    def _is_layer(self, path: str, layer: int) -> bool:
        return path == (f"{self.repeat.path}.{layer}" if self.repeat.path else str(layer))

    def _lay_out(self) -> None:
        """Find which moments there are in the larger model: old ones, moved by layers."""
        lengths: Counter[tuple[int, int]] = Counter(
            (place.traversal, place.layer) for place in self.places if place is not None
        )
        index = 0
        while index < len(self.places):
            place = self.places[index]
            if place is None:
                self.new_outside[index] = len(self.new_places)
                self.new_places.append((index, 0))
                index += 1
                continue
            first = index
            while index < len(self.places):
                here = self.places[index]
                if here is None or here.traversal != place.traversal:
                    break
                index += 1
            order = self._order(self.places[first:index])
            for layer in order:
                source = self.repeat.source(layer)
                key = place.traversal, source
                self.new_starts[place.traversal, layer] = len(self.new_places)
                begun = self.starts[key]
                self.new_places.extend(
                    (begun + offset, layer - source) for offset in range(lengths[key])
                )

    def _order(self, places: Sequence[LayerPlace | None]) -> Iterable[int]:
        first, last = places[0], places[-1]
        assert first is not None
        assert last is not None
        count = self.repeat.count + self.repeat.moved
        return range(count) if first.layer < last.layer else range(count - 1, -1, -1)

    def moved(self, moment: int, shift: int | None) -> int:
        """Return the moment of the larger model that one is, seen from something that is moved.

        Seen from outside of layers (None), it has to be outside, or in a layer with one copy.
        """
        if moment >= len(self.places):
            return len(self.new_places) + moment - len(self.places)
        place = self._place(moment)
        if place is None:
            # What is given to the model is seen before its first moment.
            return self.new_outside[moment] if moment >= 0 else moment
        if shift is None:
            shift = self._only_shift(place.layer)
        start = self.new_starts.get((place.traversal, place.layer + shift))
        if start is None:
            raise NotRepeatingError("a layer refers to one that is not there")
        return start + place.offset

    def _place(self, moment: int) -> LayerPlace | None:
        """Return the layer of a moment; None outside of layers, or of the recording."""
        return self.places[moment] if 0 <= moment < len(self.places) else None

    def _only_shift(self, layer: int) -> int:
        found = tuple(self.repeat.shifts(layer))
        if len(found) != 1:
            raise NotRepeatingError("something from outside begins or ends in a layer")
        return found[0]

    def shifts(self, moment: int) -> Iterable[int | None]:
        """Return by how many layers what is noted at a moment is moved; None outside of layers."""
        place = self._place(moment)
        return (None,) if place is None else self.repeat.shifts(place.layer)

    def everywhere(self, moment: int) -> Iterable[int]:
        """Return the moments of the larger model that one stands for, seen from outside."""
        return (self.moved(moment, shift) for shift in self.shifts(moment))

    def recording(self) -> Recording:
        old = self.old
        lives = self._lives()
        saved = self._moved(
            old.saved,
            lambda each: each.moment,
            lambda each, shift: replace(
                each, moment=self.moved(each.moment, shift), life=self._copy_of(each.life, shift)
            ),
        )
        given = self._moved(
            old.given,
            lambda each: each[0],
            lambda each, shift: (
                self.moved(each[0], shift),
                [self._seen(seen, shift) for seen in each[1]],
            ),
        )
        unpacked = self._moved(
            old.unpacked,
            lambda each: each[0],
            lambda each, shift: (self.moved(each[0], shift), self.moved(each[1], shift)),
        )
        return replace(
            old,
            moments=self._moments(lives),
            lives=lives,
            saved=saved,
            unpacked=unpacked,
            packed=self._moved(old.packed, lambda each: each.moment, self._seen),
            made=self._moved(old.made, lambda each: each.moment, self._seen),
            given=given,
            only_once={
                self._renamed(event, shift)
                for event in old.only_once
                for shift in self._shifts_of(event)
            },
            lines=Lines(self._lines()),
        )

    def _moved(
        self,
        items: Sequence[Any],
        moment: Callable[[Any], int],
        copy: Callable[[Any, int | None], Any],
    ) -> list[Any]:
        """Return copies of all items in the order of their moments."""
        found = [
            (self.moved(moment(item), shift), number, copy(item, shift))
            for number, item in enumerate(items)
            for shift in self.shifts(moment(item))
        ]
        return [item for *_, item in sorted(found, key=lambda each: each[:2])]

    def _seen(self, seen: Seen, shift: int | None) -> Seen:
        storage = seen.storage
        if isinstance(storage, Life):
            storage = self._copy_of(storage, shift)
        return replace(seen, moment=self.moved(seen.moment, shift), storage=storage)

    def _copy_of(self, life: Life | None, shift: int | None) -> Life | None:
        """Return the storage of the larger model that one is, seen from something that is moved."""
        if life is None:
            return None
        found = self.copies.get(self._key(life, shift))
        if found is None:
            raise NotRepeatingError("a layer refers to a storage of another that is not there")
        return found

    def _key(self, life: Life, shift: int | None) -> Any:
        """Return by what a storage is known: by where it is made, moved by so many layers."""
        place, ordinal = self.made_at[id(life)]
        if place is None:
            return ordinal
        if shift is None:
            shift = self._only_shift(place.layer)
        return place._replace(layer=place.layer + shift), ordinal

    def _lives(self) -> list[Life]:
        found: list[tuple[int, int, Life]] = []
        counts: Counter[LayerPlace] = Counter()
        for number, life in enumerate(self.old.lives):
            place = self._place(life.record.born)
            if place is None:
                self.made_at[id(life)] = None, number
                copy = self.copies[number] = self._outside(life)
                found.append((min(copy.touched), number, copy))
                continue
            self.made_at[id(life)] = place, counts[place]
            counts[place] += 1
            for shift in self.repeat.shifts(place.layer):
                copy = self.copies[self._key(life, shift)] = self._inside(life, shift)
                found.append((min(copy.touched), number, copy))
        return [life for *_, life in sorted(found, key=lambda each: each[:2])]

    def _inside(self, life: Life, shift: int) -> Life:
        record = life.record
        made = StorageRecord(record.size, self.moved(record.born, shift))
        made.died = None if record.died is None else self.moved(record.died, shift)
        made.excluded = record.excluded
        return Life(
            made,
            {self.moved(moment, shift) for moment in life.touched},
            [(self.moved(first, shift), self.moved(end, shift)) for first, end in life.held],
            None if life.saved_at is None else self.moved(life.saved_at, shift),
            None,
            {self.moved(moment, shift) for moment in life.changed},
        )

    def _outside(self, life: Life) -> Life:
        record = life.record
        born = self.moved(record.born, None)
        made = StorageRecord(record.size, born)
        made.died = None if record.died is None else self.moved(record.died, None)
        made.excluded = record.excluded
        return Life(
            made,
            {each for moment in life.touched for each in self.everywhere(moment)},
            [span for first, end in life.held for span in self._spans(first, end)],
            None if life.saved_at is None else self.moved(life.saved_at, None),
            None,
            {each for moment in life.changed for each in self.everywhere(moment)},
        )

    def _spans(self, first: int, end: int) -> Iterable[tuple[int, int]]:
        begun, ended = self._place(first), self._place(end)
        if begun is not None and ended is not None and begun[:2] == ended[:2]:
            yield from zip(self.everywhere(first), self.everywhere(end), strict=True)
        else:
            yield self.moved(first, None), self.moved(end, None)

    def _moments(self, lives: Sequence[Life]) -> list[Moment]:
        count = len(self.old.moments)
        for counted, moment in zip(_live(self.old.lives, count), self.old.moments, strict=True):
            if counted != moment.live:
                raise NotRepeatingError("bytes are alive of which nothing is known")
        live = _live(lives, len(self.new_places))
        counts: Counter[tuple[str, str]] = Counter()
        made = []
        for index, (source, shift) in enumerate(self.new_places):
            old = self.old.moments[source]
            event = self._renamed(old.event, shift)
            if event.kind in (OPERATOR, UNPACK):
                event = event._replace(call=counts[event.kind, event.path])
                counts[event.kind, event.path] += 1
            elif self._is_repeated(source) and self.layer_of(event.path) is None:
                raise NotRepeatingError("a module outside of layers is called in one")
            made.append(
                replace(
                    old,
                    event=event,
                    module=self._path(old.module, shift),
                    live=live[index],
                    peak=old.peak - old.live + live[index],
                )
            )
        return made

    def _is_repeated(self, moment: int) -> bool:
        place = self._place(moment)
        return place is not None and self.repeat.first <= place.layer < self.repeat.end

    def _path(self, path: str, shift: int | None) -> str:
        if not shift:
            return path
        return self.below.sub(lambda found: f"{found[1]}{int(found[2]) + shift}{found[3]}", path)

    def _renamed(self, event: Event, shift: int | None) -> Event:
        if event.kind in (OPERATOR, UNPACK):
            return event
        return event._replace(path=self._path(event.path, shift))

    def _shifts_of(self, event: Event) -> Iterable[int]:
        layer = self.layer_of(event.path)
        return (0,) if layer is None else self.repeat.shifts(layer)

    def _lines(self) -> list[list[Event]]:
        when = {
            moment.event: index
            for index, moment in enumerate(self.old.moments)
            if moment.event.kind == ENTER
        }
        return self._moved(
            self.old.lines.found,
            lambda line: when[line[0]],
            lambda line, shift: [self._renamed(event, shift) for event in line],
        )


def _live(lives: Sequence[Life], count: int) -> list[int]:
    """Return the bytes alive when each of so many moments begins."""
    changes = [0] * (count + 1)
    for life in lives:
        record = life.record
        changes[min(record.born + 1, count)] += record.size
        if record.died is not None:
            changes[min(record.died + 1, count)] -= record.size
    return list(accumulate(changes))[:count]
