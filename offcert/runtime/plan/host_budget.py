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
from typing import Any, Generic, TypeVar

from offcert.core.errors import InputError
from offcert.core.units import format_size
from offcert.questions.placement.problem import Placement, PlacementProblem
from offcert.questions.schedule.residences import HOST_ALIGNMENT
from offcert.runtime.plan.host_layout import HostLayout, placed

Key = TypeVar("Key", bound=Hashable)

# Steps into which bytes are divided when it is decided which tensors leave. Arbitrary.
_STEPS = 1024

# The last number, and those before it.
_Chain = tuple[int, Any] | None


@dataclass(frozen=True)
class HostPlan(Generic[Key]):
    """Where copies are on the host, within a limit.

    Attributes
    ----------
    layout : HostLayout
        All copies. Those in a file lie behind all others: none lies partly below `registered`.
    registered : int
        Bytes of host memory: the addresses below are in it, those from there on in a file.
    spilled : frozenset
        By what the runtime recognises the storages whose copies are in the file.
    staging : int
        Bytes of host memory besides, through which copies go to and from the file.
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
    """Return the places of copies on the host, within a limit in bytes.

    Parameters
    ----------
    layout : HostLayout
        As it is with all the memory in the world.
    limit : int or None
        Bytes of host memory; None for any number.
    spill : bool
        Whether what is too much goes into a file.
    staged : bool
        Whether some of the limit is kept for copies on their way to and from the file: streams do
        not copy to files by themselves.

    Raises
    ------
    InputError
        If it is too much and nothing may go into a file.
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


def bytes_for_staging(problem: PlacementProblem, limit: int) -> int:
    """Return how much of a limit copies get that are on their way; 0 if that would be too much.

    With room for four of the largest, two may be on their way to the file while two come back.
    Where one has no room it would go in small pieces, each of which the host waits for.
    """
    largest = -(-max(problem.sizes) // HOST_ALIGNMENT) * HOST_ALIGNMENT
    size = max(largest, min(4 * largest, limit // 4 // HOST_ALIGNMENT * HOST_ALIGNMENT))
    return size if 2 * HOST_ALIGNMENT <= size <= limit // 2 else 0


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
        kept = _kept(problem, target)
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


def _kept(problem: PlacementProblem, target: int) -> frozenset[int]:
    """Return residences of which never more than so many bytes are needed at a time."""
    residences, sizes = problem.residences, problem.sizes
    # What takes nothing never has to leave.
    kept = set(range(len(residences)))
    moments = sorted({residence.start for residence in residences})
    while True:
        # A sum grows only where a residence starts.
        there = {
            moment: [i for i in kept if residences[i].start <= moment < residences[i].end]
            for moment in moments
        }
        moment = max(moments, key=lambda moment: sum(sizes[i] for i in there[moment]))
        excess = sum(sizes[i] for i in there[moment]) - target
        if excess <= 0:
            return frozenset(kept)
        candidates = sorted(i for i in there[moment] if sizes[i])
        if not candidates:
            return frozenset(kept)
        kept -= set(least_covering(candidates, [sizes[i] for i in candidates], excess))


def least_covering(items: Sequence[int], sizes: Sequence[int], excess: int) -> list[int]:
    """Return items of the least total size that is not below `excess`; all if they do not reach it.

    Sums are told apart by 1/1024 of `excess`; where that is less than one, the answer is exact.
    """
    if sum(sizes) <= excess:
        return list(items)
    unit = max(1, excess // _STEPS)
    # By sums in units, rounded down: the true sum, and its items as a chain. Enough has key -1.
    best: dict[int, tuple[int, _Chain]] = {0: (0, None)}
    for number, size in enumerate(sizes):
        for total, chain in list(best.values()):
            if total >= excess:
                continue
            grown = total + size
            key = -1 if grown >= excess else grown // unit
            if key not in best or _better(grown, best[key][0], excess):
                best[key] = grown, (number, chain)
    found, chain = [], best[-1][1]
    while chain is not None:
        number, chain = chain
        found.append(items[number])
    return found


def _better(grown: int, known: int, excess: int) -> bool:
    """Whether a sum is to be kept rather than another one of the same step."""
    return grown < known if known >= excess else grown > known
