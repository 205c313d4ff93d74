"""Three rules: all layers alike, whole blocks, and a menu of the plans of one layer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from offcert.core.execution import Execution
from offcert.heuristics.joint.annealing import weight_of
from offcert.questions.schedule.problem import Problem
from papers.layers.bound import Choice, cut_of, members_of
from papers.layers.search import Plans
from papers.layers.stretches import LayerPlan, Layers, Stretch

# Computations of a layer whose sets are all looked at. Arbitrary: a larger layer has more than can
# be counted in seconds.
_MOST = 23
# Segments of a layer, and ways to put a set into segments, at most. Arbitrary.
_SEGMENTS, _WAYS = 4, 3
Span = tuple[int, int]
Spans = tuple[Span, ...]


class Rule:
    """A rule for plans: the choices for the bound, where to start, and other plans."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers

    def choices(self) -> list[Choice]:
        """Return the groups of computations that run again together."""
        raise NotImplementedError

    def starts(self, chosen: Sequence[int]) -> list[Plans]:
        """Return plans to begin with, those of the options that a relaxation prefers among them."""
        raise NotImplementedError

    def change(self, random: random.Random, plans: Plans) -> Plans:
        """Return other plans within the rule."""
        raise NotImplementedError


class Alike(Rule):
    """In all layers of a stretch the same computations run again."""

    def choices(self) -> list[Choice]:
        """Return a choice for every place of a layer: in all layers, or in none."""
        network = self.layers.problem.computed
        assert network is not None
        found = []
        for stretch in self.layers.stretches:
            for place in range(stretch.period):
                members = stretch.members(place)
                if all(network.computations[each].repeatable for each in members):
                    found.append(Choice((frozenset(), frozenset(members))))
        return found

    def starts(self, chosen: Sequence[int]) -> list[Plans]:
        """Return the preferred plans, and those in which nothing or everything runs again."""
        taken = {min(c.options[1]) for c, o in zip(self.choices(), chosen, strict=True) if o}
        sides = product(
            *(
                [LayerPlan(), _whole(stretch), *self._of(number, taken)]
                for number, stretch in enumerate(self.layers.stretches)
            )
        )
        return [
            [[plan] * s.copies for plan, s in zip(side, self.layers.stretches, strict=True)]
            for side in sides
        ]

    def _of(self, number: int, taken: set[int]) -> list[LayerPlan]:
        """Return the plans of a layer in which some computations run again."""
        stretch = self.layers.stretches[number]
        again = frozenset(p for p in range(stretch.period) if stretch.first + p in taken)
        return _in_segments(self.layers, number, again) if again else []

    def change(self, random: random.Random, plans: Plans) -> Plans:
        """Change a segment, or what is kept, in all layers of a stretch."""
        number = random.randrange(len(plans))
        stretch, plan = self.layers.stretches[number], plans[number][0]
        segments, again = plan.segments, set(plan.again)
        if random.random() < 0.5 or not segments:
            segments = _other_segments(random, segments, self.layers.ranges[number])
        else:
            again ^= self.layers.together(number, random.randrange(stretch.period))
        changed = LayerPlan(segments, frozenset(again))
        return [*plans[:number], [changed] * stretch.copies, *plans[number + 1 :]]


class Menu(Rule):
    """Every layer takes one of some plans.

    Parameters
    ----------
    layers : Layers
        The problem.
    menus : sequence of sequence of LayerPlan
        For each stretch.
    """

    def __init__(self, layers: Layers, menus: Sequence[Sequence[LayerPlan]]) -> None:
        super().__init__(layers)
        self.menus: list[list[LayerPlan]] = []
        self.sets: list[list[frozenset[int]]] = []
        for number, menu in enumerate(menus):
            found = [(plan, layers.run_by(number, plan)) for plan in menu]
            self.menus.append([plan for plan, again in found if again is not None])
            self.sets.append([again for _, again in found if again is not None])
        # What runs again by each plan that was tried; other segments are found while searching.
        self.tried: list[dict[LayerPlan, frozenset[int] | None]] = [
            dict(zip(*row, strict=True)) for row in zip(self.menus, self.sets, strict=True)
        ]

    def choices(self) -> list[Choice]:
        """Return a choice for every layer: the sets of its menu."""
        return [
            Choice(tuple(stretch.layer(copy, again) for again in dict.fromkeys(sets)))
            for stretch, sets in zip(self.layers.stretches, self.sets, strict=True)
            for copy in range(stretch.copies)
        ]

    def starts(self, chosen: Sequence[int]) -> list[Plans]:
        """Return the preferred plans, and those in which all layers of a stretch take the same."""
        found: list[Plans] = []
        for size in range(_WAYS + 1):
            plans, preferred = [], iter(chosen)
            for stretch, menu, sets in zip(
                self.layers.stretches, self.menus, self.sets, strict=True
            ):
                distinct = list(dict.fromkeys(sets))
                taken = [distinct[next(preferred)] for _ in range(stretch.copies)]
                # A set may be run in one segment or in several.
                places = [[n for n, each in enumerate(sets) if each == one] for one in taken]
                plans.append([menu[place[min(size, len(place) - 1)]] for place in places])
            found.append(plans)
        for side in product(*self.menus):
            rows = zip(side, self.layers.stretches, strict=True)
            found.append([[plan] * stretch.copies for plan, stretch in rows])
        return found

    def change(self, random: random.Random, plans: Plans) -> Plans:
        """Let one layer, or some in a row, take another plan, or exchange the plans of two."""
        number = random.randrange(len(plans))
        row, menu = list(plans[number]), self.menus[number]
        one = random.randrange(len(row))
        kind = random.random()
        if kind < 0.25:
            other = random.randrange(len(row))
            row[one], row[other] = row[other], row[one]
        elif kind < 0.6:
            row[one] = random.choice(menu)
        elif kind < 0.8:
            end = random.randint(one + 1, len(row))
            row[one:end] = [random.choice(menu)] * (end - one)
        else:
            old, new = row[one], self._otherwise(random, number, row[one])
            row = [new if plan == old else plan for plan in row]
        return [*plans[:number], row, *plans[number + 1 :]]

    def _otherwise(self, random: random.Random, number: int, plan: LayerPlan) -> LayerPlan:
        """Return a plan in which the same runs again in other segments, or the same one."""
        segments = _other_segments(random, plan.segments, self.layers.ranges[number])
        other = replace(plan, segments=segments)
        known = self.tried[number]
        if other not in known:
            known[other] = self.layers.run_by(number, other)
            again = known[plan]
            if again is not None and known[other] == again:
                self.menus[number].append(other)
                self.sets[number].append(again)
        return other if known[other] == known[plan] else plan


def blocks(layers: Layers) -> Menu:
    """Return the rule by which all that a layer computes runs again, or nothing of it."""
    everything = [frozenset(range(stretch.period)) for stretch in layers.stretches]
    return Menu(
        layers,
        [[LayerPlan(), *_in_segments(layers, n, again)] for n, again in enumerate(everything)],
    )


def two_levels(layers: Layers) -> Menu:
    """Return the rule by which every layer takes a plan that is good for a layer alone."""
    return Menu(
        layers,
        [
            [
                plan
                for again in front(layers, number)
                for plan in _in_segments(layers, number, again)
            ]
            for number in range(len(layers.stretches))
        ],
    )


def front(layers: Layers, number: int) -> list[frozenset[int]]:
    """Return the sets of a layer's computations that are good for a layer alone.

    That is: no other set keeps at most as many bytes for the backward pass and takes at most as
    long to run again, unless it is equal in both. What a layer keeps is what the backward pass
    reads of what the layer makes, and what the set itself reads, but for what the set makes.
    """
    stretch = layers.stretches[number]
    network = layers.problem.computed
    assert network is not None
    # A layer in the middle reads what another layer has made.
    begin = stretch.first + stretch.period * (stretch.copies // 2)
    inside = [c for c in range(begin, begin + stretch.period) if network.computations[c].repeatable]
    used = [c for c in inside if _saves(layers, c)][:_MOST]
    sets = np.arange(1 << len(used), dtype=np.int64)
    taken = np.zeros(len(sets), dtype=np.int64)
    kept = np.zeros(len(sets), dtype=np.int64)
    for bit, computation in enumerate(used):
        taken += network.computations[computation].duration * (sets >> bit & 1)
    makers = {value: c for c in inside for value in network.computations[c].writes}
    entering = {v for c in inside for v in network.computations[c].reads} - makers.keys()
    for value in (*makers, *entering):
        size = network.values[value].size
        if not size or (value in entering and network.writer[value] < stretch.first):
            continue
        readers = network.readers[value]
        if any(not network.computations[each].repeatable for each in readers):
            needed = np.ones(len(sets), dtype=bool)
        else:
            mask = sum(1 << bit for bit, c in enumerate(used) if c in readers)
            needed = (sets & mask) != 0
        maker = makers.get(value)
        if maker in used:
            needed &= (sets >> used.index(maker) & 1) == 0
        kept += size * needed
    return [
        frozenset(used[bit] - begin for bit in range(len(used)) if sets[each] >> bit & 1)
        for each in _least(kept, taken)
    ]


def _least(kept: np.ndarray, taken: np.ndarray) -> Iterator[int]:
    """Yield the points that no other one dominates, one of equal ones."""
    best = None
    for each in np.lexsort((taken, kept)).tolist():
        if best is None or taken[each] < best:
            best = taken[each]
            yield each


def _saves(layers: Layers, computation: int) -> bool:
    """Return whether running a computation again can be of use."""
    network = layers.problem.computed
    assert network is not None
    return any(network.readers[value] for value in network.computations[computation].writes)


def _in_segments(layers: Layers, number: int, again: frozenset[int]) -> list[LayerPlan]:
    """Return plans in which a set runs again, in one segment or in the best of several ways.

    Ways are rows of ranges that hold the set, and none of which holds nothing of it; they are
    compared as what all layers do.
    """
    if not again:
        return [LayerPlan()]
    stretch = layers.stretches[number]
    whole = LayerPlan(((0, stretch.period - 1),), again)
    aim = layers.run_by(number, whole)
    ways = [plan for plan in _ways(layers.ranges[number], again) if plan != whole]
    weight = 100 * weight_of(layers.tables, layers.problem.trace.peak_memory)
    rated = []
    for order, plan in enumerate(ways):
        plans = [
            [plan if each == number else LayerPlan()] * other.copies
            for each, other in enumerate(layers.stretches)
        ]
        value, _ = layers.value(layers.state(plans, layers.nothing_stays()), weight)
        rated.append((value, order, plan))
    rated.sort(key=lambda item: item[:2])
    found = [whole]
    for _, _, plan in rated[: 2 * _WAYS]:
        if len(found) <= _WAYS and layers.run_by(number, plan) == aim:
            found.append(plan)
    return found


def _ways(ranges: Sequence[Span], again: frozenset[int]) -> Iterator[LayerPlan]:
    """Yield a set in every row of at most some ranges that lie apart and hold all of it."""
    holding = [each for each in ranges if any(each[0] <= place <= each[1] for place in again)]

    def rows(begin: int, row: Spans, left: frozenset[int]) -> Iterator[Spans]:
        if not left:
            yield row
        elif len(row) < _SEGMENTS:
            for first, last in holding:
                inside = {place for place in left if first <= place <= last}
                if first >= begin and min(left) in inside:
                    yield from rows(last + 1, (*row, (first, last)), left - inside)

    for row in rows(0, (), again):
        yield LayerPlan(row, again)


def _whole(stretch: Stretch) -> LayerPlan:
    return LayerPlan(((0, stretch.period - 1),), frozenset(range(stretch.period)))


def _other_segments(random: random.Random, segments: Spans, ranges: Sequence[Span]) -> Spans:
    """Return segments with one more, or without one, or the same."""
    drawn = random.choice(ranges)
    if drawn in segments:
        return tuple(each for each in segments if each != drawn)
    if all(_nested(drawn, other) for other in segments):
        return tuple(sorted([*segments, drawn], key=lambda each: (each[0], -each[1])))
    return segments


def _nested(one: Span, other: Span) -> bool:
    """Return whether two different ranges are apart, or one is inside of the other."""
    first, second = sorted([one, other], key=lambda each: (each[0], -each[1]))
    return first[1] < second[0] or second[1] <= first[1]


def faults(problem: Problem, choices: Sequence[Choice], execution: Execution) -> str:
    """Return a sentence on how an execution goes against a rule; "" if it keeps to it.

    What runs again has to do so after the cut (`cut_of`), too, as the bounds assume.
    """
    last = {computation: place for place, computation in enumerate(execution.runs)}
    again = {computation for computation, runs in Counter(execution.runs).items() if runs > 1}
    cut = execution.runs.index(cut_of(problem, members_of(choices)) // 2)
    for number, choice in enumerate(choices):
        found = again & members_of([choice])
        if found not in choice.options:
            return f"choice {number} has no option {sorted(found)}"
        if any(last[computation] < cut for computation in found):
            return f"some of choice {number} runs again before the cut"
    return ""
