"""Where each storage that leaves lies in the arena of the host: addresses made when a plan is read.

They are computed, not stored in certificates, whose field for addresses is about the device: what
the host needs depends on the storages that a tensor consists of, and on the order in which this
runtime copies, which is not that of a schedule's ticks
(`offcert.questions.schedule.residences`). The rule is quick, and deterministic, so that all
processes that follow a plan lay it out alike. Its pool is reported beside the load, which is a
lower bound on every pool; `offcert.place` takes the problem and searches for a smaller one. Needs
no torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from offcert.core.errors import InputError
from offcert.core.units import Units, format_size
from offcert.questions.placement.problem import Placement, PlacementProblem, Residence
from offcert.questions.schedule.residences import (
    HOST_ALIGNMENT,
    HostResidences,
    bytes_for_staging,
    kept_within,
)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class HostLayout(Generic[Key]):
    """An arena on the host, laid out for a plan.

    The problem has the storages that leave, and when the host needs their copies: from the
    operation before which they are written to that before which they are read last. By its key the
    runtime recognises each. The last bytes of the arena may be `in_file`, copies to and from which
    go through `staging` bytes of host memory besides.
    """

    problem: PlacementProblem
    placement: Placement
    keys: tuple[Key, ...]
    in_file: int = 0
    staging: int = 0

    @cached_property
    def offsets(self) -> dict[Key, int]:
        """Where each storage lies."""
        return dict(zip(self.keys, self.placement.addresses, strict=True))

    @cached_property
    def overlapping(self) -> dict[Key, tuple[Key, ...]]:
        """The storages that have bytes where each lies, itself among them."""
        found: dict[Key, list[Key]] = {key: [] for key in self.keys}
        sizes = [each.size for each in self.problem.residences]
        rows = sorted(
            zip(self.placement.addresses, sizes, self.keys, strict=True), key=itemgetter(0)
        )
        open_rows: list[tuple[int, Key]] = []
        for address, size, key in rows:
            open_rows = [row for row in open_rows if row[0] > address]
            if size:
                open_rows.append((address + size, key))
            for _, other in open_rows:
                found[key].append(other)
                if other != key:
                    found[other].append(key)
        return {key: tuple(others) for key, others in found.items()}

    @cached_property
    def pool(self) -> int:
        """Bytes of the arena."""
        return self.placement.pool(self.problem)

    @property
    def registered(self) -> int:
        """Addresses below it are in the host's memory, those from there on in the file."""
        return self.pool - self.in_file

    @property
    def spilled(self) -> frozenset[Key]:
        """The storages that are in the file."""
        pairs = zip(self.problem.residences, self.keys, strict=True)
        return frozenset(
            key for each, key in pairs if each.size and self.offsets[key] >= self.registered
        )

    @cached_property
    def load(self) -> int:
        """Most bytes of copies that are needed at a time: no arena is smaller."""
        return self.problem.load


def host_layout(
    name: str, stays: HostResidences, parts: Mapping[int, Sequence[tuple[Key, int]]]
) -> HostLayout[Key]:
    """Return an arena for all that a plan moves.

    `stays` are tensors that have a copy on the host, and the operations before which it is needed;
    `parts` the storages of each, by key, and their bytes.
    """
    residences, keys = [], []
    for occupant, stay in stays:
        for key, size in parts[occupant.index]:
            residences.append(Residence(stay.name, size, stay.start, stay.end))
            keys.append(key)
    problem = PlacementProblem(
        f"{name} on the host", residences, None, HOST_ALIGNMENT, Units("tick", "B")
    )
    return HostLayout(problem, placed(problem), tuple(keys))


def placed(problem: PlacementProblem) -> Placement:
    """Return the best of a few placements, or the first whose pool is no larger than the load."""
    sizes = problem.sizes
    if sum(sizes) == problem.load:
        # All are needed at once, as where everything leaves before anything returns.
        return Placement([end - size for end, size in zip(accumulate(sizes), sizes, strict=True)])
    lasting = [each.end - each.start for each in problem.residences]
    areas = [size * time for size, time in zip(sizes, lasting, strict=True)]
    found: Placement | None = None
    for keys in (areas, sizes, lasting):
        order = sorted(range(len(sizes)), key=keys.__getitem__, reverse=True)
        placement = _lowest(problem, order)
        if found is None or placement.pool(problem) < found.pool(problem):
            found = placement
        if found.pool(problem) == problem.load:
            break
    assert found is not None
    return found


def _lowest(problem: PlacementProblem, order: Sequence[int]) -> Placement:
    """Place each at the lowest address at which nothing placed already is in its way."""
    starts, ends, lows, highs = (np.empty(0, np.int64) for _ in range(4))
    addresses = [0] * len(order)
    for index in order:
        residence, size = problem.residences[index], problem.sizes[index]
        met = (starts < residence.end) & (ends > residence.start)
        # Those that it meets, by address: below each is what the ones before leave free.
        tops = np.concatenate([[0], np.maximum.accumulate(highs[met])])
        room = np.flatnonzero(lows[met] - tops[:-1] >= size)
        address = int(tops[room[0]] if len(room) else tops[-1])
        addresses[index] = address
        place = int(np.searchsorted(lows, address))
        starts, ends, lows, highs = (
            np.insert(row, place, value)
            for row, value in (
                (starts, residence.start),
                (ends, residence.end),
                (lows, address),
                (highs, address + size),
            )
        )
    return Placement(addresses)


def layout_within(
    layout: HostLayout[Key], limit: int | None, spill: bool = False, *, staged: bool = False
) -> HostLayout[Key]:
    """Return a layout that keeps to a limit in bytes; None for any number.

    `spill`: what is too much goes into a file, and is not refused by an `InputError`. `staged`:
    some of the limit is kept for copies on their way to and from the file, since streams do not
    copy to files by themselves.
    """
    if limit is not None and limit < 0:
        raise InputError(f"host memory must be at least 0 bytes, not {limit}")
    if limit is None or layout.pool <= limit:
        return layout
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


def _split(layout: HostLayout[Key], kept: Placement, registered: frozenset[int]) -> HostLayout[Key]:
    """Return the layout in which some have the addresses of a placement, and others follow."""
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
    made = HostLayout(problem, Placement(addresses), layout.keys)
    return replace(made, in_file=made.pool - size)


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
