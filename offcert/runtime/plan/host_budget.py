"""The host's memory as a limit: what a plan needs of it, and what goes into a file instead.

Registered memory cannot be moved out by the system, so a plan that takes more of it than there is
takes it from everyone else. What it needs is known before training begins. Where that is more than
it may have, the plan is refused, or some storages have their copies in a memory-mapped file: those
with the fewest bytes, because a byte in the file is written to it and read from it in every step.
Which are the fewest is, already where all copies are needed at once, a knapsack problem: that is
solved, up to 1/1024 of what is too much, for the moment at which most is needed, then for the next
one, until everything fits. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from offcert.core.errors import InputError
from offcert.core.units import format_size
from offcert.questions.placement.problem import Placement, PlacementProblem
from offcert.questions.schedule.within_host import bytes_for_staging, kept_within
from offcert.runtime.plan.host_layout import HostLayout, placed

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class HostPlan(Generic[Key]):
    """Where copies are on the host, within a limit.

    Those of storages that are `spilled`, in a file, lie behind all others: addresses below
    `registered` are in the host's memory, those from there on in the file. Copies go to and from it
    through `staging` bytes of host memory besides.
    """

    layout: HostLayout[Key]
    registered: int
    spilled: frozenset[Key] = frozenset()
    staging: int = 0

    @property
    def in_file(self) -> int:
        """Bytes of the file."""
        return self.layout.pool - self.registered if self.spilled else 0

    @property
    def spilled_bytes(self) -> int:
        """Bytes that are written to the file in a step; as many are read from it, or more."""
        pairs = zip(self.layout.keys, self.layout.problem.residences, strict=True)
        return sum(residence.size for key, residence in pairs if key in self.spilled)

    def describe(self) -> str:
        """Return the host memory that the plan needs, as a text to be read before training."""
        units = self.layout.problem.units
        text = f"{format_size(self.registered + self.staging, units)} of host memory"
        if self.spilled:
            text += (
                f", and {format_size(self.in_file, units)} in a file, through which "
                f"{format_size(self.spilled_bytes, units)} go in each step"
            )
        return text


def host_plan(
    layout: HostLayout[Key], limit: int | None, spill: bool = False, *, staged: bool = False
) -> HostPlan[Key]:
    """Return the places of copies on the host, within a limit in bytes; None for any number.

    `spill`: what is too much goes into a file, and is not refused by an `InputError`. `staged`:
    some of the limit is kept for copies on their way to and from the file, since streams do not
    copy to files by themselves.
    """
    if limit is not None and limit < 0:
        raise InputError(f"host memory must be at least 0 bytes, not {limit}")
    if limit is None or layout.pool <= limit:
        return HostPlan(layout, layout.pool)
    if not spill:
        units = layout.problem.units
        raise InputError(
            f"the plan needs {format_size(layout.pool, units)} of host memory ({layout.pool} "
            f"bytes), but may have {format_size(limit, units)} ({limit}): allow it more, or let "
            "what is too much go into a file"
        )
    staging = bytes_for_staging(layout.problem, limit) if staged else 0
    kept, registered = _fitting(layout.problem, limit - staging)
    return replace(_split(layout, kept, registered), staging=staging)


def _split(layout: HostLayout[Key], kept: Placement, registered: frozenset[int]) -> HostPlan[Key]:
    """Return the plan in which some have the addresses of a placement, and others follow."""
    problem = layout.problem
    inside = sorted(registered)
    outside = [index for index in range(len(problem.residences)) if index not in registered]
    size = kept.pool(_part(problem, inside))
    behind = placed(_part(problem, outside))
    addresses = [0] * len(problem.residences)
    for index, address in zip(inside, kept.addresses, strict=True):
        addresses[index] = address
    for index, address in zip(outside, behind.addresses, strict=True):
        addresses[index] = size + address
    spilled = frozenset(layout.keys[index] for index in outside)
    return HostPlan(HostLayout(problem, Placement(addresses), layout.keys), size, spilled)


def _part(problem: PlacementProblem, indices: Sequence[int]) -> PlacementProblem:
    residences = [problem.residences[index] for index in indices]
    return PlacementProblem(problem.name, residences, None, problem.alignment, problem.units)


def _fitting(problem: PlacementProblem, limit: int) -> tuple[Placement, frozenset[int]]:
    """Return who stays in memory, and where; that all fit at a time is not enough."""
    target = limit
    while True:
        kept = kept_within(problem, target)
        placement = _place(problem, kept)
        excess = placement.pool(_part(problem, sorted(kept))) - limit
        if excess <= 0:
            break
        target -= excess
    # Some may have gone for a moment at which, as it turned out, others went too.
    gone = [index for index in range(len(problem.residences)) if index not in kept]
    for index in sorted(gone, key=problem.sizes.__getitem__, reverse=True):
        more = kept | {index}
        part = _part(problem, sorted(more))
        if part.load <= limit and (found := placed(part)).pool(part) <= limit:
            kept, placement = more, found
    return placement, kept


def _place(problem: PlacementProblem, kept: frozenset[int]) -> Placement:
    return placed(_part(problem, sorted(kept))) if kept else Placement(())
