"""Simulated annealing over programs and what leaves, in batches."""

from __future__ import annotations

import numpy as np

from offcert.core.compiled import compiled
from offcert.heuristics.joint.changes import Alike, alike, change
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.repeats import Repeats, repeats_of, spread
from offcert.heuristics.joint.state import UNCOVERED, JointState, Scratch, assign, new_work
from offcert.heuristics.joint.tables import COMPUTE, Tables

# How often a change is done in other copies of what repeats, and the parts of `spread`. By
# definition.
Spreading = tuple[float, int]
ALONE: Spreading = (0.0, 0)


class JointAnnealer:
    """Improves a program in batches, so that the caller can look at the clock in between.

    Parameters
    ----------
    tables : Tables
        The tables of the problem.
    start : JointState
        Where to start.
    seed : int
        Seed of the random numbers.
    weight : float
        Ticks a byte that does not fit.

    Attributes
    ----------
    best : JointState
        The best one so far that fits; the start, if none does.
    makespan : float
        Its estimated ticks; infinite if it does not fit.
    fits : bool
        Whether the present one fits.
    """

    def __init__(self, tables: Tables, start: JointState, seed: int, weight: float) -> None:
        self._tables = tables
        self._random = np.random.default_rng(seed)
        self._alike = alike(tables)
        self._repeats = repeats_of(tables)
        self._work = new_work(tables)
        self._state, self._new = start.copy(), start.copy()
        self.best = start.copy()
        self.weight = weight
        self.makespan = np.inf
        self.restart(start)

    def restart(self, state: JointState) -> None:
        """Continue from a state."""
        _copy(self._state, state)
        self._value = float(evaluate(self._tables, self._state, self._work, self.weight))
        self.fits = not self._work.facts[UNCOVERED]
        if self.fits and self._value < self.makespan:
            self.makespan = self._value
            _copy(self.best, state)

    def penalise(self, weight: float) -> None:
        """Change the ticks a byte that does not fit."""
        self.weight = weight
        self._value = float(evaluate(self._tables, self._state, self._work, weight))

    def run(self, steps: int, hot: float, cold: float, spreading: Spreading = ALONE) -> bool:
        """Make `steps` steps, cooling from `hot` to `cold` ticks; return whether that helped."""
        before = self.makespan
        self._value, self.makespan, self.fits = _anneal(
            self._tables,
            self._alike,
            self._repeats,
            self._state,
            self._new,
            self.best,
            self._work,
            self._value,
            self.makespan,
            self.weight,
            steps,
            hot,
            cold,
            spreading,
            int(self._random.integers(2**31)),
        )
        return bool(self.makespan < before)

    @property
    def current(self) -> JointState:
        """A copy of the present state."""
        return self._state.copy()


def weight_of(tables: Tables, peak: int) -> float:
    """Return ticks a byte that does not fit, for the first round: a step for the peak."""
    return 4.0 * float(tables.settings[COMPUTE]) / max(1, peak)


def _copy(to: JointState, of: JointState) -> None:
    for target, source in zip(to, of, strict=True):
        target[:] = source


@compiled
def _anneal(
    tables: Tables,
    alike: Alike,
    repeats: Repeats,
    state: JointState,
    new: JointState,
    best: JointState,
    work: Scratch,
    value: float,
    best_value: float,
    weight: float,
    steps: int,
    hot: float,
    cold: float,
    spreading: tuple[float, int],
    seed: int,
) -> tuple[float, float, bool]:
    """Anneal in place; return the present value, the best that fits, and whether this one fits."""
    np.random.seed(seed)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    fits = evaluate(tables, state, work, weight) == value and work.facts[UNCOVERED] == 0
    for _ in range(steps):
        temperature *= cooling
        assign(new, state)
        if not change(tables, alike, new, work):
            continue
        if np.random.random() < spreading[0]:
            spread(tables, repeats, state, new, spreading[1])
        found = evaluate(tables, new, work, weight)
        if found > value and np.random.random() >= np.exp((value - found) / temperature):
            continue
        assign(state, new)
        value = found
        fits = work.facts[UNCOVERED] == 0
        if fits and value < best_value:
            best_value = value
            assign(best, state)
    return value, best_value, fits
