"""Tables beside the claims: figures of the campaign that nobody claimed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from statistics import mean

from offcert_lab.comparisons.points import Point
from papers.claims.predicates import certified, number, view_of

HEURISTICS = ("dynprog", "greedy", "vdnn", "autoswap", "tflms")


def by_memory(points: Sequence[Point]) -> dict[float, list[Point]]:
    """Return the certified points of every percentage at which something has to leave."""
    groups: dict[float, list[Point]] = defaultdict(list)
    for point in certified(points):
        if point.best is not None:
            groups[point.percent].append(point)
    return dict(sorted(groups.items()))


def ranking_lines(points: Sequence[Point]) -> list[str]:
    """Return a table: at each memory, how often each heuristic is the shortest, and its ratio."""
    names = [name for name in HEURISTICS if any(p.cell(name) is not None for p in points)]
    heads = [f"{name.upper()} best / plans / mean ratio" for name in names]
    lines = [
        f"| memory | problems | {' | '.join(heads)} |",
        "| ---: | ---: |" + " ---: |" * len(names),
    ]
    for percent, group in by_memory(points).items():
        cells = [_rank_cell(group, name, names) for name in names]
        lines.append(f"| {percent:g} % | {len(group)} | {' | '.join(cells)} |")
    return lines


def _rank_cell(group: Sequence[Point], name: str, names: Sequence[str]) -> str:
    won, ratios = 0, []
    for point in group:
        own = point.makespan(name)
        if own is not None:
            found = [m for m in (point.makespan(other) for other in names) if m is not None]
            won += own == min(found)
            ratios.append(Fraction(own, point.best or 1))
    return f"{won} / {len(ratios)} / {number(mean(ratios))}" if ratios else "– / 0 / –"


def yardstick_lines(points: Sequence[Point]) -> list[str]:
    """Return a table: at each memory, how far the optimum is from Prop. 3, and what is open."""
    lines = [
        "| memory | problems | certified optimal | largest gap | best / Prop. 3, mean | largest |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for percent, group in by_memory(points).items():
        levels = [(point.best or 0) / point.prop3 for point in group]
        optimal = sum(point.optimum is not None for point in group)
        gap = max(Fraction((p.best or 0) - p.lower, p.best or 1) for p in group)
        lines.append(
            f"| {percent:g} % | {len(group)} | {optimal} | {float(100 * gap):.2g} % "
            f"| {number(mean(levels))} | {number(max(levels))} |"
        )
    return lines


def open_lines(points: Sequence[Point]) -> list[str]:
    """Return a table: of each network, how many limits are closed, and the gaps of the others."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in certified(points):
        groups[point.network or point.problem].append(point)
    lines = [
        "| network | limits | certified optimal | without a schedule | mean gap of the rest | "
        "largest |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, group in groups.items():
        gaps = [Fraction(p.best - p.lower, p.best) for p in group if p.best is not None]
        rest = [gap for gap in gaps if gap]
        gap_cells = (
            [f"{float(100 * value):.2g} %" for value in (mean(rest), max(rest))]
            if rest
            else ["–", "–"]
        )
        lines.append(
            f"| {name} | {len(group)} | {len(gaps) - len(rest)} | {len(group) - len(gaps)} | "
            f"{' | '.join(gap_cells)} |"
        )
    return lines


def scaling_lines(points: Sequence[Point], what: str) -> list[str]:
    """Return how much the best schedule's ratio to Prop. 3 changes with ``batch`` or ``image``.

    Between any two values of it, at the same network, memory, and value of the other.
    """
    other = "image" if what == "batch" else "batch"
    groups: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in certified(points):
        if point.best is not None and getattr(point, what) is not None:
            same = (point.network, getattr(point, other), view_of(point), point.percent)
            groups[same].append(point)
    several = [group for group in groups.values() if len({getattr(p, what) for p in group}) > 1]
    if not several:
        return [f"The table has no two problems that differ in nothing but the {what}."]
    spreads = []
    for group in several:
        levels = [((point.best or 0) / point.prop3, point.problem) for point in group]
        spreads.append((max(levels)[0] / min(levels)[0] - 1, max(levels)[1], group[0].percent))
    most, name, percent = max(spreads)
    return [
        f"Another {what} changes the best schedule's ratio to Prop. 3 by "
        f"{float(100 * mean(spread for spread, _, _ in spreads)):.2g} % on average over "
        f"{len(spreads)} networks and limits, by {float(100 * most):.2g} % at most "
        f"({name} at {percent:g} %)."
    ]


def per_image_lines(points: Sequence[Point]) -> list[str]:
    """Return how far memory and computing are from growing in proportion with the batch."""
    groups: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        if point.batch is not None:
            groups[point.network, point.image, view_of(point)].append(point)
    several = [group for group in groups.values() if len({p.batch for p in group}) > 1]
    if not several:
        return []
    texts = []
    for name, what in (("peak", "the peak of the memory"), ("compute", "the time of computing")):
        apart = [
            max(shares) / min(shares) - 1
            for group in several
            for shares in [[Fraction(getattr(p, name), p.batch or 1) for p in group]]
        ]
        texts.append(
            f"{what} by {float(100 * mean(apart)):.2g} % on average over {len(several)} networks "
            f"and image sizes, by {float(100 * max(apart)):.2g} % at most"
        )
    return [f"Per image, another batch changes {'; '.join(texts)}."]
