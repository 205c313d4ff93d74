"""AUTOSWAP: four priority scores, weighted by Bayesian optimisation.

Zhang, Yeung, Shu, He and Wang, "Efficient Memory Management for GPU-based Deep Learning Systems",
arXiv:1903.06631, 2019; the offloading paper, §6.1, compares with it. Every candidate for eviction
has four scores, computed on the undisturbed timeline:

- ``doa``, duration of absence: from the end of the use before to the start of the use after, less
  the times to leave and to return;
- ``aoa``, area of absence: duration times size, or duration by size where it is negative;
- ``wdoa``, weighted duration of absence: the memory above the limit, integrated over the absence;
- ``swdoa``, submodular: the same when the candidate's turn comes, where one after the other the
  best is taken and its size is subtracted from the memory over its absence.

A candidate's priority is the weighted average of its scores. While the peak exceeds the limit, the
candidate of highest priority that is absent at the peak leaves. The weights are those whose
schedule is shortest, found by Bayesian optimisation.

The four scores follow the public implementation in Apache SINGA, by its authors; there the memory
below the limit counts negative in ``wdoa``. *Decisions where the sources leave room:* scores are
scaled to 0…1 before they are averaged; the first four trials are the four scores alone, so that
AUTOSWAP is never worse than any of them; sets are scheduled like the offloading paper's others,
ordered and no-wait, which is AUTOSWAP's own scheduling as well (out in the order of availability,
back as late as possible). The optimiser is the tree-structured Parzen estimator of Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from offcert.core.compiled import FloatArray
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind
from offcert.heuristics.orders.ordered import OrderedSets, ordered_plan
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem

if TYPE_CHECKING:
    import optuna

SCORES = ("doa", "aoa", "wdoa", "swdoa")


def priority_scores(problem: Problem) -> FloatArray:
    """Return the scores of every gap, not scaled."""
    trace, platform = problem.trace, problem.platform
    elapsed = (0, *accumulate(trace.durations))
    scores = np.zeros((len(SCORES), len(trace.gaps)))
    for number, gap in enumerate(trace.gaps):
        size = trace.gap_size(number)
        transfers = sum(platform.transfer_time(size, kind) for kind in Kind)
        duration = elapsed[gap.after] - elapsed[gap.before + 1] - transfers
        scores[0, number] = duration
        scores[1, number] = duration * size if duration >= 0 else duration / size
    excess = np.array(trace.demand, dtype=np.float64) - platform.memory
    scores[2] = _weighted_absence(problem, excess)
    left = set(range(len(trace.gaps)))
    while left:
        weighted = _weighted_absence(problem, excess)
        chosen = max(left, key=lambda number: (weighted[number], -number))
        scores[3, chosen] = weighted[chosen]
        gap = trace.gaps[chosen]
        excess[gap.before + 1 : gap.after] -= trace.gap_size(chosen)
        left.remove(chosen)
    return scores


def _weighted_absence(problem: Problem, excess: FloatArray) -> FloatArray:
    """Return, for every gap, the integral over its operations of the memory above the limit."""
    trace = problem.trace
    total = np.concatenate(([0.0], np.cumsum(excess * np.array(trace.durations))))
    before = [gap.before + 1 for gap in trace.gaps]
    after = [gap.after for gap in trace.gaps]
    return total[after] - total[before]


def scaled(scores: FloatArray) -> FloatArray:
    """Return the scores with each row mapped to 0…1; a row of equal ones to 0."""
    if scores.size == 0:
        return scores
    least = scores.min(axis=1, keepdims=True)
    span = scores.max(axis=1, keepdims=True) - least
    return (scores - least) / np.where(span > 0, span, 1.0)


def select(problem: Problem, priority: Sequence[float]) -> list[int] | None:
    """Return the gaps that leave, best first, or None if those at some peak do not suffice."""
    trace, memory = problem.trace, problem.platform.memory
    load = list(trace.demand)
    chosen: list[int] = []
    while max(load) > memory:
        peak = load.index(max(load))
        candidates = set(trace.gaps_over[peak]).difference(chosen)
        if not candidates:
            return None
        best = max(candidates, key=lambda number: (priority[number], -number))
        chosen.append(best)
        for o in range(trace.gaps[best].before + 1, trace.gaps[best].after):
            load[o] -= trace.gap_size(best)
    return chosen


def autoswap(problem: Problem, trials: int = 100, seed: int = 0) -> Plan:
    """Return AUTOSWAP's plan: the ordered plan of the best weights, empty if the peak fits.

    At least 4 weights are tried; the same seed gives the same plan. A `MethodError` says that a
    parameter is out of range, a tensor has several gaps, or Optuna is not installed, a
    `NoPlanError` that no weights lead to a set that an ordered schedule can serve.
    """
    if trials < len(SCORES):
        raise MethodError(f"AUTOSWAP needs at least {len(SCORES)} trials, not {trials}")
    if not 0 <= seed < 2**32:
        raise MethodError(f"AUTOSWAP needs a seed from 0 to 2**32 - 1, not {seed}")
    sets = OrderedSets(problem, "AUTOSWAP")
    if problem.trace.peak_memory <= problem.platform.memory:
        return Plan()
    scores = scaled(priority_scores(problem))
    best: tuple[float, list[int]] = math.inf, []

    def makespan(trial: optuna.Trial) -> float:
        nonlocal best
        weights = np.array([trial.suggest_float(name, 0.0, 1.0) for name in SCORES])
        average = (weights @ scores) / max(float(weights.sum()), 1e-9)
        chosen = select(problem, average.tolist())
        found = None if chosen is None else sets.makespan(chosen)
        if chosen is None or found is None:
            return math.inf
        best = min(best, (found, chosen), key=lambda item: item[0])
        return float(found)

    _minimise(makespan, trials, seed)
    if math.isinf(best[0]):
        raise NoPlanError("AUTOSWAP found no weights whose tensors free enough memory")
    return ordered_plan(problem, best[1])


def _minimise(objective: Callable[[optuna.Trial], float], trials: int, seed: int) -> None:
    """Let Optuna try weights, each score alone first, without a word on the console."""
    try:
        import optuna
    except ImportError as error:
        raise MethodError(
            "AUTOSWAP optimises its weights with Optuna, which is not installed: "
            'pip install ".[autoswap]"'
        ) from error
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        for alone in SCORES:
            study.enqueue_trial({name: float(name == alone) for name in SCORES})
        study.optimize(objective, n_trials=trials)
    finally:
        optuna.logging.set_verbosity(level)
