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
    """The choice: whole numbers, and names.

    Attributes
    ----------
    sizes : mapping
        Bytes of the storages that may be saved.
    makers : mapping
        The operator that makes each storage.
    times : mapping
        Cost of each operator that may run again.
    reads : mapping
        The storages that each of these operators reads.
    needs : sequence
        Storages that the backward pass reads.
    """

    sizes: Mapping[Name, int]
    makers: Mapping[Name, Name]
    times: Mapping[Name, int]
    reads: Mapping[Name, Sequence[Name]]
    needs: Sequence[Name]


@dataclass(frozen=True)
class SavedChoice:
    """A choice, and what any other one costs at least.

    Attributes
    ----------
    names : frozenset or None
        Storages that are saved; None if no choice was found that keeps to the limits.
    bound : int or None
        No choice that keeps to the limits costs less; None if none keeps to them.
    """

    names: frozenset[Name] | None
    bound: int | None


def choose(
    saving: Saving,
    limits: Sequence[tuple[Mapping[Name, int], int]],
    time_limit: float,
    *,
    least_bytes: bool = False,
    proved: bool = True,
) -> SavedChoice:
    """Return the storages to save so that running again costs least.

    Parameters
    ----------
    saving : Saving
        The choice.
    limits : sequence of (mapping, int)
        Bytes by storage that count if it is saved, and how many there may be; storages that are not
        in the choice do not count.
    time_limit : float
        Seconds.
    least_bytes : bool
        Whether bytes are minimised instead of the cost.
    proved : bool
        Whether time is spent on the bound.
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
