"""Claims about whole curves, asked of the table: a case is a problem, or several of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from statistics import mean, median

from offcert_lab.comparisons.points import FAILED, Point, by_problem
from papers.claims.judge import Case, Outcome
from papers.claims.predicates import BLOCKS, Cases, binding, certified, number, title, view_of
from papers.claims.tolerance import Agreement, agreement

PAPERS = ("greedy", "dynprog")
LOW, HIGH = 25, 50
# Weights, their gradients and their momenta, four bytes each.
_STATES = 3 * 4


def _each(judge: Callable[[str, list[Point]], Case | None]) -> Cases:
    """Return the cases of something that is asked of every problem."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = [judge(name, group) for name, group in by_problem(binding(points)).items()]
        return [case for case in found if case is not None]

    return cases


def _outcome(holds: bool) -> Outcome:
    return Outcome.HOLDS if holds else Outcome.FAILS


def larger_advantage_at_low_memory(method: str, other: str) -> Cases:
    """The other's time by the method's is larger on average up to 25 % memory than from 50 %."""

    def judge(name: str, points: list[Point]) -> Case | None:
        low = _ratios([p for p in points if p.percent <= LOW], other, method)
        high = _ratios([p for p in points if p.percent >= HIGH], other, method)
        if not low or not high:
            return None
        text = f"{number(mean(low))} × up to {LOW} %, {number(mean(high))} × from {HIGH} %"
        return Case(name, _outcome(mean(low) > mean(high)), mean(high) / mean(low), text)

    return _each(judge)


def _ratios(points: Iterable[Point], over: str, under: str) -> list[Fraction]:
    pairs = [(point.makespan(over), point.makespan(under)) for point in points]
    return [Fraction(a, b) for a, b in pairs if a is not None and b]


def mean_improvement(methods: Sequence[str], other: str, factor: Fraction) -> Cases:
    """On average over limits, the other takes at least so many times the best of the methods."""

    def judge(name: str, points: list[Point]) -> Case | None:
        found = []
        for point in points:
            own = [m for m in (point.makespan(method) for method in methods) if m is not None]
            theirs = point.makespan(other)
            if own and theirs is not None:
                found.append(Fraction(theirs, min(own)))
        if not found:
            return None
        text = f"{number(mean(found))} × on average over {len(found)} limits"
        return Case(name, _outcome(mean(found) >= factor), -mean(found), text)

    return _each(judge)


def optimal_at_highest(method: str) -> Cases:
    """At the highest limit below the peak, if it is at least 75 %, the method is optimal."""

    def judge(name: str, points: list[Point]) -> Case | None:
        point = points[-1]
        cell = point.cell(method)
        if cell is None or cell.status == FAILED or point.percent < 75 or point.best is None:
            return None
        if not point.certified:
            return None
        if cell.makespan is None:
            return Case(point.label, Outcome.FAILS, None, f"{title(method)} finds no plan", point)
        outcome = Outcome.OPEN
        if cell.makespan <= point.lower:
            outcome = Outcome.HOLDS
        elif cell.makespan > point.best:
            outcome = Outcome.FAILS
        amount = Fraction(cell.makespan, point.best)
        return Case(point.label, outcome, amount, f"{number(amount)} × the best", point)

    return _each(judge)


def wider_range(method: str, other: str, factor: int) -> Cases:
    """The method has plans at at least so many times the limits at which the other has."""

    def judge(name: str, points: list[Point]) -> Case | None:
        both = [p for p in points if p.cell(method) is not None and p.cell(other) is not None]
        if not both:
            return None
        own, theirs = (sum(p.makespan(m) is not None for p in both) for m in (method, other))
        text = f"{own} against {theirs} of {len(both)} limits"
        amount = Fraction(theirs, max(own, 1))
        return Case(name, _outcome(own >= max(1, factor * theirs)), amount, text)

    return _each(judge)


def slower(method: str, other: str, factor: int) -> Cases:
    """The median of the method's computing times is at least so many times the other's."""

    def judge(name: str, points: list[Point]) -> Case | None:
        times = [
            [cell.seconds for p in points if (cell := p.cell(m)) and cell.status != FAILED]
            for m in (method, other)
        ]
        if not all(times) or median(times[1]) <= 0:
            return None
        amount = Fraction(median(times[0])) / Fraction(median(times[1]))
        text = f"{title(method)} takes {float(amount):.2g} × the computing time of {title(other)}"
        return Case(name, _outcome(amount >= factor), -amount, text)

    return _each(judge)


def steadier(method: str, other: str) -> Cases:
    """Over limits, the method's ratio to Prop. 3 varies less (largest less least)."""

    def judge(name: str, points: list[Point]) -> Case | None:
        both = [p for p in points if p.makespan(method) is not None]
        both = [p for p in both if p.makespan(other) is not None]
        if len(both) < 3:
            return None
        own, theirs = (_spread(both, m) for m in (method, other))
        text = f"varies by {number(own)} against {number(theirs)}"
        return Case(name, _outcome(own < theirs), own - theirs, text)

    return _each(judge)


def _spread(points: Sequence[Point], method: str) -> Fraction:
    levels = [(point.makespan(method) or 0) / point.prop3 for point in points]
    return max(levels) - min(levels)


def balance(point: Point) -> float | None:
    """Return the percent at which both terms of Prop. 3 are equal, or None if no limit is."""
    if point.peak == point.minimum:
        return None
    unit = 1 / point.rates[0] + 1 / point.rates[1]
    memory = point.peak - point.compute / unit
    percent = float(100 * (memory - point.minimum) / (point.peak - point.minimum))
    return percent if 0 <= percent <= 100 else None


def peaks_at_balance(method: str, to_optimum: bool = False) -> Cases:
    """The method's ratio is largest within a step of the limit at which Prop. 3's terms are equal.

    Its ratio to the bound of Prop. 3, or to the optimum.
    """

    def judge(name: str, points: list[Point]) -> Case | None:
        planned = [p for p in points if p.makespan(method) is not None and p.best is not None]
        if to_optimum:
            planned = [p for p in planned if p.certified]
        middle = balance(points[0])
        if middle is None or len(planned) < 5:
            return None
        step = max(b.percent - a.percent for a, b in pairwise(planned))
        ranges = [(p, _range(p, method, to_optimum)) for p in planned]
        near = [found for p, found in ranges if abs(p.percent - middle) <= step]
        far = [found for p, found in ranges if abs(p.percent - middle) > step]
        if not near or not far:
            return None
        outcome = Outcome.OPEN
        if max(low for low, _ in near) >= max(high for _, high in far):
            outcome = Outcome.HOLDS
        elif max(high for _, high in near) < max(low for low, _ in far):
            outcome = Outcome.FAILS
        top = max(planned, key=lambda p: _range(p, method, to_optimum)[0])
        level = _range(top, method, to_optimum)[0]
        text = f"terms equal at {middle:.0f} %, peak of {number(level)} at {top.percent:.4g} %"
        return Case(name, outcome, Fraction(abs(top.percent - middle)), text)

    return _each(judge)


def _range(point: Point, method: str, to_optimum: bool) -> tuple[Fraction, Fraction]:
    """Return between what the ratio lies; Prop. 3 is known, the optimum only between bounds."""
    own = point.makespan(method) or 0
    if not to_optimum:
        return own / point.prop3, own / point.prop3
    return Fraction(own, point.best or 1), Fraction(own, max(point.lower, 1))


def worse_with_depth(method: str, family: str) -> Cases:
    """On average over limits, it is further from the optimum on the deepest network.

    One case for each image size, batch and network of the family that is shallower; over those
    certified limits at which it has plans for both. Where an optimum is open the averages are known
    between bounds only, and the case stays open if these overlap. Blocks are left out: as stages,
    all DenseNets have equally many.
    """

    def cases(points: Sequence[Point]) -> list[Case]:
        groups: dict[tuple[int | None, int | None], dict[int, dict[float, Point]]] = {}
        for point in certified(points):
            network = point.network or ""
            depth = network.removeprefix(family)
            planned = point.makespan(method) is not None and point.best is not None
            planned = planned and view_of(point) != BLOCKS
            if network.startswith(family) and depth.isdecimal() and planned:
                at = groups.setdefault((point.image, point.batch), {})
                at.setdefault(int(depth), {})[point.percent] = point
        found = []
        for (image, batch), depths in groups.items():
            deep = max(depths)
            for shallow in sorted(depths.keys() - {deep}):
                limits = sorted(depths[deep].keys() & depths[shallow].keys())
                if limits:
                    label = f"{family}{deep} against {family}{shallow}"
                    one, other = ([depths[d][at] for at in limits] for d in (deep, shallow))
                    case = _further(f"{label}, image {image}, batch {batch}", one, other, method)
                    found.append(case)
        return found

    return cases


def _further(label: str, deep: list[Point], shallow: list[Point], method: str) -> Case:
    """Return whether the method is further from the optimum on the first points than on others."""
    (low, high), (least, most) = (_mean_range(points, method) for points in (deep, shallow))
    outcome = Outcome.OPEN
    if low > most:
        outcome = Outcome.HOLDS
    elif high <= least:
        outcome = Outcome.FAILS
    text = (
        f"{number(low)} × the best, against {number(least)} ×, on average over {len(deep)} limits"
    )
    return Case(label, outcome, least - low, text)


def _mean_range(points: Iterable[Point], method: str) -> tuple[Fraction, Fraction]:
    """Return between what the mean ratio to the optimum lies."""
    ranges = [_range(point, method, to_optimum=True) for point in points]
    return mean(low for low, _ in ranges), mean(high for _, high in ranges)


def memory_grows_with(power: int) -> Cases:
    """Between two image sizes of a network and batch, the peak grows with close to this power."""

    def cases(points: Sequence[Point]) -> list[Case]:
        sizes: dict[tuple[str | None, int | None, str], dict[int, int]] = {}
        for point in points:
            if point.image is not None:
                group = (point.network, point.batch, view_of(point))
                sizes.setdefault(group, {})[point.image] = point.peak
        found = []
        for (network, batch, _), peaks in sizes.items():
            for small, large in combinations(sorted(peaks), 2):
                grown = math.log(peaks[large] / peaks[small]) / math.log(large / small)
                near = agreement(Fraction(grown), Fraction(power)) is Agreement.CONFIRMED
                label = f"{network}, batch {batch}, {small} to {large} pixels"
                text = f"power {grown:.2f}"
                apart = Fraction(abs(grown - power))
                found.append(Case(label, _outcome(near), apart, text))
        return found

    return cases


def faster_in_larger_batches() -> Cases:
    """Without a memory limit, a network computes more images a second in the larger batch."""

    def cases(points: Sequence[Point]) -> list[Case]:
        groups: dict[tuple[str | None, int | None, str], dict[int, int]] = {}
        for point in points:
            if point.batch is not None:
                group = (point.network, point.image, view_of(point))
                groups.setdefault(group, {})[point.batch] = point.compute
        found = []
        for (network, image, _), times in groups.items():
            for small, large in pairwise(sorted(times)):
                gain = Fraction(large * times[small], small * times[large])
                label = f"{network}, {image} pixels, batch {small} to {large}"
                text = f"{number(gain)} × the images a second"
                found.append(Case(label, _outcome(gain > 1), -gain, text))
        return found

    return cases


def training_takes_about(
    network: str, image: int, batch: int, size: int, digit: int, parameters: int
) -> Cases:
    """The peak and what belongs to the weights of one network are what the paper says."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = {
            point.problem: point.peak + _STATES * parameters
            for point in points
            if (point.network, point.image, point.batch) == (network, image, batch)
        }
        return [
            Case(
                name,
                _outcome(_confirmed(taken, size, digit)),
                Fraction(abs(taken - size), size),
                f"{taken / 1e9:.2f} GB",
            )
            for name, taken in found.items()
        ]

    return cases


def _confirmed(ours: int, paper: int, digit: int) -> bool:
    found = agreement(Fraction(ours), Fraction(paper), digit=Fraction(digit))
    return found is Agreement.CONFIRMED
