"""The search for plans that keep to a rule: annealing over layers' plans and what may leave."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offcert.heuristics.joint.annealing import weight_of
from offcert.heuristics.joint.plans import JointPlan, improved, realised
from papers.layers.stretches import LayerPlan, Layers

# Temperatures of a cooling, as shares of the computing time, and the coolings. Arbitrary.
_HOT, _COLD, _COOLINGS = 2e-3, 1e-6, 3
# The share of the time that is left for better transfers of the best program. Arbitrary.
_TRANSFERS = 0.3
# The chance that a change is about what may leave. Arbitrary.
_LEAVING = 0.25
Plans = list[list[LayerPlan]]
# From random numbers and the plans of all layers to others.
Change = Callable[[random.Random, Plans], Plans]


@dataclass
class _Point:
    plans: Plans
    stays: list[np.ndarray]
    value: float
    fits: bool


def best_within(
    layers: Layers,
    starts: Sequence[Plans],
    change: Change,
    seconds: float,
    seed: int = 0,
    outside: Sequence[tuple[int, int, frozenset[int]]] = (),
) -> JointPlan | None:
    """Return the best plan found that keeps to a rule, or None if none fits.

    Parameters
    ----------
    layers : Layers
        The problem.
    starts : sequence of Plans
        Where coolings begin; the best one first.
    change : callable
        Makes other plans that keep to the rule.
    seconds : float
        Seconds of the processor; a part, by the clock, is for better transfers of the best program.
    seed : int
        Seed of the random numbers.
    outside : sequence
        Segments between the layers, as in `Layers.state`.
    """
    search = _Search(layers, change, seed, outside)
    found = search.run(starts, time.thread_time() + (1 - _TRANSFERS) * seconds)
    if found is None:
        return None
    plan = realised(layers.problem, layers.tables, layers.state(found.plans, found.stays, outside))
    if plan is None:
        return None
    best = plan

    def offer(better: JointPlan) -> None:
        nonlocal best
        best = better

    improved(
        layers.problem,
        plan,
        time_limit=_TRANSFERS * seconds,
        seed=seed,
        target=0,
        on_improvement=offer,
    )
    return best


class _Search:
    def __init__(
        self,
        layers: Layers,
        change: Change,
        seed: int,
        outside: Sequence[tuple[int, int, frozenset[int]]],
    ) -> None:
        self.layers, self.change, self.outside = layers, change, outside
        self.random = random.Random(seed)
        self.compute = float(layers.problem.trace.compute_time)
        self.weight = 100 * weight_of(layers.tables, layers.problem.trace.peak_memory)
        self.best: _Point | None = None
        self.tried = 0

    def run(self, starts: Sequence[Plans], until: float) -> _Point | None:
        """Return the best point that fits."""
        points = [self._point(plans, self.layers.nothing_stays()) for plans in starts]
        points.sort(key=lambda point: point.value)
        begun = time.thread_time()
        for number in range(_COOLINGS):
            end = begun + (until - begun) * (number + 1) / _COOLINGS
            start = points[min(number, len(points) - 1)] if number < 2 else self.best or points[0]
            self._cool(start, end)
        return self.best

    def _point(self, plans: Plans, stays: list[np.ndarray]) -> _Point:
        value, fits = self.layers.value(self.layers.state(plans, stays, self.outside), self.weight)
        self.tried += 1
        point = _Point(plans, stays, value, fits)
        if fits and (self.best is None or value < self.best.value):
            self.best = point
        return point

    def _cool(self, point: _Point, end: float) -> None:
        begin = time.thread_time()
        while (now := time.thread_time()) < end:
            part = (now - begin) / max(1e-9, end - begin)
            heat = self.compute * _HOT * (_COLD / _HOT) ** part
            if self.random.random() < _LEAVING:
                other = self._point(point.plans, self._other_stays(point.stays))
            else:
                other = self._point(self.change(self.random, point.plans), point.stays)
            worse = other.value - point.value
            if worse <= 0 or self.random.random() < math.exp(-worse / heat):
                point = other

    def _other_stays(self, stays: list[np.ndarray]) -> list[np.ndarray]:
        """Change whether one value of a layer may leave, in all layers or some in a row."""
        found = list(stays)
        number = self.random.randrange(len(stays))
        row = found[number] = stays[number].copy()
        copies, values = row.shape
        column = self.random.randrange(values)
        begin, end = 0, copies
        if self.random.random() < 0.5:
            begin = self.random.randrange(copies)
            end = self.random.randint(begin + 1, copies)
        row[begin:end, column] = not row[begin, column]
        return found
