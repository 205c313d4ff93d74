"""Equal layers of a captured step, the plans of one layer, and programs made of such plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.plans import estimate, ranges_of
from offcert.heuristics.joint.repeats import repeats_of
from offcert.heuristics.joint.state import UNCOVERED, JointState, new_state, new_work
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.questions.schedule.problem import Problem

# Copies from which on a stretch counts as equal layers, as in the package's search. Given by it.
_COPIES = 8


@dataclass(frozen=True)
class Stretch:
    """Equal layers: the computations of the first one, and how many layers there are."""

    first: int
    period: int
    copies: int

    def members(self, offset: int) -> list[int]:
        """Return the computations of all layers that stand at one place of a layer."""
        return [self.first + offset + copy * self.period for copy in range(self.copies)]

    def layer(self, copy: int, offsets: Iterable[int]) -> frozenset[int]:
        """Return computations of one layer by their places in it."""
        return frozenset(self.first + copy * self.period + offset for offset in offsets)


@dataclass(frozen=True)
class LayerPlan:
    """The runs, tensors and moves of one layer; all numbers are places in a layer.

    Attributes
    ----------
    segments : tuple of (int, int)
        First and last computation of each segment; one before those inside of it.
    again : frozenset of int
        The computations that are not kept in the segments.
    """

    segments: tuple[tuple[int, int], ...] = ()
    again: frozenset[int] = frozenset()


class Layers:
    """A captured step with equal layers, as what searches for programs need.

    Parameters
    ----------
    problem : Problem
        The problem of a captured step, with a memory limit.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tables: Tables = tables_of(problem, ranges_of(problem))
        self.work = new_work(self.tables)
        found = repeats_of(self.tables)
        rows = zip(*(row.tolist() for row in found[:3]), strict=True)
        chosen = [(n, Stretch(*row)) for n, row in enumerate(rows) if row[2] >= _COPIES]
        chosen.sort(key=lambda item: item[1].first)
        self.stretches = [stretch for _, stretch in chosen]
        # For each stretch, what each of its layers makes: a row a layer.
        self.made = [
            found.value[found.value_first[n] : found.value_first[n + 1]].reshape(stretch.copies, -1)
            for n, stretch in chosen
        ]

    @cached_property
    def ranges(self) -> list[list[tuple[int, int]]]:
        """For each stretch, the ranges of places that may be segments in every layer of it."""
        pairs = zip(self.tables.range_first.tolist(), self.tables.range_last.tolist(), strict=True)
        every = set(pairs)
        found = []
        for stretch in self.stretches:
            here = []
            for first in range(stretch.period):
                for last in range(first, stretch.period):
                    starts = [stretch.first + c * stretch.period for c in range(stretch.copies)]
                    if all((s + first, s + last) in every for s in starts):
                        here.append((first, last))
            found.append(here)
        return found

    def together(self, number: int, place: int) -> frozenset[int]:
        """Return the places of a layer that run again together with one."""
        stretch, tables = self.stretches[number], self.tables
        begin = stretch.first + stretch.copies // 2 * stretch.period
        row = slice(tables.group_first[begin + place], tables.group_first[begin + place + 1])
        members = {int(each) - begin for each in tables.group[row]}
        return frozenset({place, *(each for each in members if 0 <= each < stretch.period)})

    def state(
        self,
        plans: Sequence[Sequence[LayerPlan]],
        stays: Sequence[np.ndarray],
        outside: Sequence[tuple[int, int, frozenset[int]]] = (),
    ) -> JointState:
        """Return the program in which every layer does what its plan says.

        Parameters
        ----------
        plans : sequence of sequence of LayerPlan
            For each stretch, one a layer.
        stays : sequence of bool array
            For each stretch, what may not leave; a row a layer, a column a value that it makes.
        outside : sequence of (int, int, frozenset of int)
            Segments between the layers, and what is not kept in them.
        """
        state = new_state(self.tables)
        state.kept[:] = 1
        spans = [(first, -last) for first, last, _ in outside]
        for _, _, again in outside:
            state.kept[list(again)] = 0
        for stretch, layers, made, row in zip(self.stretches, plans, self.made, stays, strict=True):
            begin = stretch.first
            for plan in layers:
                spans += [(begin + first, -(begin + last)) for first, last in plan.segments]
                for place in plan.again:
                    state.kept[begin + place] = 0
                begin += stretch.period
            state.stays[made] = row
        spans.sort()
        state.kept[self.tables.frozen == 1] = 1
        for index, (first, last) in enumerate(spans):
            state.first[index], state.last[index] = first, -last
        state.number[0] = len(spans)
        return state

    def nothing_stays(self) -> list[np.ndarray]:
        """Return for `state` that everything may leave."""
        return [np.zeros(made.shape, dtype=bool) for made in self.made]

    def value(self, state: JointState, weight: float) -> tuple[float, bool]:
        """Return the ticks of a program as the package counts them, and whether it fits."""
        found = float(evaluate(self.tables, state, self.work, weight))
        return found, not self.work.facts[UNCOVERED]

    def again(self, state: JointState) -> list[list[frozenset[int]]]:
        """Return which places run more than once, for each stretch and layer."""
        runs = Counter(estimate(self.tables, state).runs)
        return [
            [
                frozenset(
                    place
                    for place in range(stretch.period)
                    if runs[stretch.first + copy * stretch.period + place] > 1
                )
                for copy in range(stretch.copies)
            ]
            for stretch in self.stretches
        ]

    def run_by(self, number: int, plan: LayerPlan) -> frozenset[int] | None:
        """Return which places run again if all layers of a stretch do the same, or None.

        None if that is not the same in all of them, or no program.
        """
        plans = [
            [plan if index == number else LayerPlan()] * stretch.copies
            for index, stretch in enumerate(self.stretches)
        ]
        found = set(self.again(self.state(plans, self.nothing_stays()))[number])
        return found.pop() if len(found) == 1 else None


def with_memory(problem: Problem, memory: int) -> Problem:
    """Return a problem of a captured step at a limit; everything may run again."""
    from offcert.questions.schedule.problem import Recompute

    return replace(problem, recompute=Recompute.ANY).with_memory(memory)
