"""Certified choice of what a step saves, and what its backward pass computes again.

No times of transfers and no order: operators make storages from storages, the backward pass needs
some, and each is saved or made again from what is there. What is saved keeps to limits that are
sums of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offcert.formulations.common.binary_tree import minimum
from offcert.formulations.common.linear_model import LinearModel
from offcert.proofs.saving import Fact, Limit, Name, Saving, SavingCase
from offcert.verification.saving import proved_cost


@dataclass(frozen=True)
class SavedChoice:
    """A choice, and what any other one costs at least."""

    # Storages that are saved; None if no choice was found that keeps to the limits.
    names: frozenset[Name] | None
    bound: int | None  # No choice that keeps to the limits costs less; None if none keeps to them
    # The proof of the bound, for `offcert.verification.saving`.
    cases: tuple[SavingCase, ...] = ()


def choose(
    saving: Saving,
    limits: Sequence[Limit],
    time_limit: float,
    *,
    least_bytes: bool = False,
    proved: bool = True,
) -> SavedChoice:
    """Return the storages to save so that running again costs least.

    `limits` are bytes by storage that count if it is saved, with how many there may be. If
    `least_bytes`, bytes are minimised instead of the cost. Unless `proved`, no time is spent on the
    bound.
    """
    model = LinearModel()
    save = {
        name: model.column(0, 1, cost=size if least_bytes else 0, integer=True)
        for name, size in saving.sizes.items()
    }
    run = {
        name: model.column(0, 1, cost=0 if least_bytes else cost, integer=True)
        for name, cost in saving.times.items()
    }

    def there(name: Name) -> list[tuple[int, float]]:
        columns = [save.get(name), run.get(saving.makers[name])]
        return [(column, 1) for column in columns if column is not None]

    facts: list[Fact] = []

    def require(fact: Fact, terms: list[tuple[int, float]], *ends: float) -> None:
        model.row(terms, *ends)
        # A row without decisions is none.
        facts.extend([fact] * (len(model.rows) - len(facts)))

    for place, name in enumerate(saving.needs):
        require(("need", place, 0), there(name), 1)
    for work, column in run.items():
        for place, name in enumerate(saving.reads[work]):
            require(("read", work, place), [*there(name), (column, -1)], 0)
    for place, (sizes, limit) in enumerate(limits):
        saved: list[tuple[int, float]] = [
            (save[name], size) for name, size in sizes.items() if name in save
        ]
        require(("limit", place, 0), saved, -math.inf, limit)
    found = minimum(model, time_limit, proved=proved)
    decisions = dict(enumerate([*(("save", n) for n in save), *(("run", n) for n in run)]))
    cases = tuple(
        SavingCase(
            {decisions[column]: value for column, value in fixed.items()},
            {fact: abs(each) for fact, each in zip(facts, multipliers, strict=True) if each},
        )
        for fixed, multipliers in found.leaves
    )
    bound, values = found.bound, found.values
    if proved and bound is not None and not least_bytes:
        # Only what is established again is said.
        bound = min(bound, proved_cost(saving, limits, cases) or 0)
    if values is None:
        return SavedChoice(None, bound, cases)
    names = frozenset(name for name, column in save.items() if values[column])
    return SavedChoice(names, bound, cases)
