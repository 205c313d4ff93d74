"""Certified choice of what a step saves, and what its backward pass computes again.

No times of transfers and no order: operators make storages from storages, the backward pass needs
some, and each is saved or made again from what is there. What is saved keeps to limits that are
sums of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcert.formulations.common.binary_tree import minimum
from offcert.formulations.common.linear_model import LinearModel

# A storage or an operator, by whatever the caller calls it.
Name = int | str


@dataclass(frozen=True)
class Saving:
    """The storages that a step may save, what makes each, and what the backward pass reads."""

    sizes: Mapping[Name, int]  # Bytes of the storages that may be saved
    makers: Mapping[Name, Name]  # The operator that makes each storage
    times: Mapping[Name, int]  # Cost of each operator that may run again
    reads: Mapping[Name, Sequence[Name]]  # The storages that each of these operators reads
    needs: Sequence[Name]  # Storages that the backward pass reads


@dataclass(frozen=True)
class SavedChoice:
    """A choice, and what any other one costs at least."""

    # Storages that are saved; None if no choice was found that keeps to the limits.
    names: frozenset[Name] | None
    bound: int | None  # No choice that keeps to the limits costs less; None if none keeps to them


def choose(
    saving: Saving,
    limits: Sequence[tuple[Mapping[Name, int], int]],
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

    for name in saving.needs:
        model.row(there(name), 1)
    for work, column in run.items():
        for name in saving.reads[work]:
            model.row([*there(name), (column, -1)], 0)
    for sizes, limit in limits:
        terms = [(save[name], size) for name, size in sizes.items() if name in save]
        model.row(terms, -math.inf, limit)
    found = minimum(model, time_limit, proved=proved)
    if found.values is None:
        return SavedChoice(None, found.bound)
    values = found.values
    return SavedChoice(
        frozenset(name for name, column in save.items() if values[column]), found.bound
    )
