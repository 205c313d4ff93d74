"""Verification of the least cost of what runs again, by cases and multipliers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from offcert.proofs.saving import Decision, Fact, Limit, Saving, SavingCase


def proved_cost(saving: Saving, limits: Sequence[Limit], cases: Sequence[SavingCase]) -> int | None:
    """Return the least cost that cases prove; None if they do not cover everything.

    Whatever the multipliers are: the cost of a choice is at least that of the facts, each of which
    holds for it, plus the least that its decisions can add.
    """
    if not _cover([case.decided for case in cases], {}):
        return None
    return min(math.ceil(_least(saving, limits, case)) for case in cases)


def _cover(decided: Sequence[Mapping[Decision, int]], given: dict[Decision, int]) -> bool:
    """Whether every way to decide the rest is in some case."""
    alike = [
        case for case in decided if all(given.get(each, case[each]) == case[each] for each in case)
    ]
    if not alike:
        return False
    fewest = min(alike, key=lambda case: len(case.keys() - given.keys()))
    others = [each for each in fewest if each not in given]
    if not others:
        return True
    return all(_cover(alike, {**given, others[0]: value}) for value in (0, 1))


def _least(saving: Saving, limits: Sequence[Limit], case: SavingCase) -> Fraction:
    prices: dict[Decision, Fraction] = {("save", name): Fraction(0) for name in saving.sizes}
    prices |= {("run", work): Fraction(time) for work, time in saving.times.items()}
    total = Fraction(0)
    for fact, multiplier in case.multipliers.items():
        terms, least = _fact(saving, limits, fact)
        # What is at least something may count more than not at all, never less.
        used = max(Fraction(0), multiplier)
        total += used * least
        for each, factor in terms:
            if each in prices:
                prices[each] -= used * factor
    for each, price in prices.items():
        total += price * case.decided[each] if each in case.decided else min(Fraction(0), price)
    return total


def _fact(
    saving: Saving, limits: Sequence[Limit], fact: Fact
) -> tuple[list[tuple[Decision, int]], int]:
    """Return decisions with factors whose sum is at least a number in every choice."""
    kind, name, place = fact
    if kind == "limit":
        sizes, most = limits[int(name)]
        return [(("save", storage), -size) for storage, size in sizes.items()], -most
    storage = saving.needs[int(name)] if kind == "need" else saving.reads[name][place]
    there: list[tuple[Decision, int]] = [
        (("save", storage), 1),
        (("run", saving.makers[storage]), 1),
    ]
    return (there, 1) if kind == "need" else ([*there, (("run", name), -1)], 0)
