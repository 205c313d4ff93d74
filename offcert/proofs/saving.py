"""The choice of what a step saves, and the cases that prove what each choice costs at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

# A storage or an operator, by whatever the caller calls it.
Name = int | str
# Bytes by storage that count if it is saved, and how many there may be.
Limit = tuple[Mapping[Name, int], int]
# What is decided: whether a storage is saved ("save"), whether an operator runs again ("run").
Decision = tuple[str, Name]
# A fact about all choices, by a name and its place: storage ``needs[i]`` is there ("need", i, 0);
# of what operator w reads, ``reads[w][i]`` is there if it runs ("read", w, i); ``limits[i]`` holds
# ("limit", i, 0).
Fact = tuple[str, Name, int]


@dataclass(frozen=True)
class Saving:
    """The storages that a step may save, what makes each, and what the backward pass reads."""

    sizes: Mapping[Name, int]  # Bytes of the storages that may be saved
    makers: Mapping[Name, Name]  # The operator that makes each storage
    times: Mapping[Name, int]  # Cost of each operator that may run again
    reads: Mapping[Name, Sequence[Name]]  # The storages that each of these operators reads
    needs: Sequence[Name]  # Storages that the backward pass reads


@dataclass(frozen=True)
class SavingCase:
    """One case of a proof: what is decided in it, and multipliers of facts."""

    decided: Mapping[Decision, int]
    multipliers: Mapping[Fact, Fraction]
