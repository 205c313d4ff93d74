"""`PlacementProblem`, `Placement` and `PlacementResult`, and whether addresses are a placement.

`placement_faults` is the one place that says so. Residences enter in the order of time. Those that
are there share no byte, so they are ordered by address, and one that enters can only meet its
neighbours in that order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, islice

from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.result import Bound, Bounded, SolveStatus
from offcert.core.trace import LARGEST_TOTAL, require_integer
from offcert.core.units import Units, format_size


@dataclass(frozen=True, slots=True)
class Residence:
    """A stretch of time in which something occupies one contiguous piece of memory.

    A tensor that leaves the device and returns has one residence before and one after: it may come
    back to another address.

    Attributes
    ----------
    name : str
        Name for people.
    size : int
        Bytes, at least 0.
    start, end : int
        Moments: memory is occupied from `start` to just before `end`; `start < end`.
    """

    name: str
    size: int
    start: int
    end: int

    def meets(self, other: Residence) -> bool:
        """Whether both occupy memory at some time, so that they must not share an address."""
        together = self.start < other.end and other.start < self.end
        return together and self.size > 0 and other.size > 0


@dataclass(frozen=True, slots=True)
class Occupant:
    """The tensor or workspace that a residence in a schedule belongs to."""

    kind: str  # ``"tensor"`` or ``"workspace"``.
    index: int  # The index of the tensor, or of the operation whose workspace it is.


@dataclass(frozen=True)
class PlacementProblem:
    """Find addresses such that no two residences overlap in time and in space.

    With a capacity: within it. Without: such that the pool is as small as possible. The literature
    calls it static memory allocation or (offline) dynamic storage allocation; it is strongly
    NP-hard.

    Parameters
    ----------
    name : str
        Name for people.
    residences : sequence of Residence
        The index of a residence is its name everywhere else.
    capacity : int, optional
        Bytes of the pool.
    alignment : int
        Every address must be a multiple of it, and every residence takes a multiple of it.
    units : Units
        Units of times and sizes.

    Raises
    ------
    InputError
        If a number is no integer, negative or out of range, or a residence does not last.
    """

    name: str
    residences: Sequence[Residence]
    capacity: int | None = None
    alignment: int = 1
    units: Units = field(default_factory=lambda: Units("tick", "B"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "residences", tuple(self.residences))
        if not isinstance(self.name, str):
            raise InputError(f"name must be a string, not {short_repr(self.name)}")
        if self.capacity is not None:
            require_integer(self.capacity, "capacity", 0)
        require_integer(self.alignment, "alignment", 1)
        for index, residence in enumerate(self.residences):
            place = f"residences[{index}]"
            if not isinstance(residence, Residence):
                raise InputError(f"{place} must be a Residence, not {short_repr(residence)}")
            require_integer(residence.size, f"{place}.size", 0)
            require_integer(residence.start, f"{place}.start")
            require_integer(residence.end, f"{place}.end")
            if residence.start >= residence.end:
                raise InputError(
                    f"{place}.end must be after its start, {residence.start}, not {residence.end}"
                )
        total = sum(residence.size + self.alignment for residence in self.residences)
        if total >= LARGEST_TOTAL:
            raise InputError(f"the sizes must sum to less than 2**61 bytes, not {total}")

    def __repr__(self) -> str:
        limit = "" if self.capacity is None else f"; capacity {self.capacity}"
        return f"<PlacementProblem: {len(self.residences)} residences; load {self.load}{limit}>"

    def with_capacity(self, capacity: int | None) -> PlacementProblem:
        """Return the problem with another capacity, or with none."""
        return replace(self, capacity=capacity)

    def with_alignment(self, alignment: int) -> PlacementProblem:
        """Return the problem with another alignment."""
        return replace(self, alignment=alignment)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes that each residence takes: its size, rounded up to the alignment."""
        unit = self.alignment
        return tuple(-(-residence.size // unit) * unit for residence in self.residences)

    @cached_property
    def load(self) -> int:
        """Most bytes taken at a time: no pool is smaller."""
        change: dict[int, int] = {}
        for residence, size in zip(self.residences, self.sizes, strict=True):
            change[residence.start] = change.get(residence.start, 0) + size
            change[residence.end] = change.get(residence.end, 0) - size
        return max(accumulate(change[moment] for moment in sorted(change)), default=0)


@dataclass(frozen=True)
class Placement:
    """Where every residence of a problem lies.

    Whether no two overlap is for `offcert.verification.placement` to say.

    Parameters
    ----------
    addresses : iterable of int
        First byte of each residence.
    """

    addresses: tuple[int, ...]

    def __init__(self, addresses: Iterable[int]) -> None:
        object.__setattr__(self, "addresses", tuple(addresses))

    def pool(self, problem: PlacementProblem) -> int:
        """Return the bytes from address 0 to the last one that is taken."""
        pairs = zip(self.addresses, problem.sizes, strict=True)
        return max((address + size for address, size in pairs), default=0)


@dataclass(frozen=True)
class PlacementOutcome:
    """The return value of a search for addresses."""

    # The best it found; None if nothing, or nothing within the capacity.
    placement: Placement | None
    # Bytes of the pool that no placement can do without, whether or not there is a capacity.
    bounds: tuple[Bound, ...] = ()
    # Whether everything was searched: the placement is a least one, or none fits the capacity.
    complete: bool = False


@dataclass(frozen=True)
class PlacementResult(Bounded):
    """The result of a search for addresses."""

    # ``OPTIMAL`` only if the pool equals the lower bound; ``INFEASIBLE`` only if the lower bound
    # exceeds the capacity; ``UNKNOWN`` if there are no addresses within it.
    status: SolveStatus
    placement: Placement | None  # Within the capacity, if there is one.
    pool: int | None  # Bytes that it takes: the objective.
    bounds: tuple[Bound, ...] = ()  # In bytes, each of the least pool, whatever the capacity.
    runtime: float = 0.0  # Seconds.

    @classmethod
    def of(
        cls,
        problem: PlacementProblem,
        placement: Placement | None,
        bounds: tuple[Bound, ...] = (),
        runtime: float = 0.0,
    ) -> PlacementResult:
        """Return the result with the status that a placement and bounds amount to."""
        pool = None if placement is None else placement.pool(problem)
        found = cls(SolveStatus.UNKNOWN, placement, pool, bounds, runtime)
        return replace(found, status=found.status_within(problem))

    def status_within(self, problem: PlacementProblem) -> SolveStatus:
        """Return the status that pool and bounds amount to within a problem's capacity."""
        return self.status_by(problem.capacity is not None and self.lower_bound > problem.capacity)

    def __repr__(self) -> str:
        return f"<PlacementResult {self.summary()}>"

    def summary(self, units: Units | None = None) -> str:
        """Return status, pool and bound in a line for people, by default in bytes."""
        units = units or Units("tick", "B")
        bound = f"lower bound {format_size(self.lower_bound, units)} ({self.evidence or 'none'})"
        if self.pool is None:
            return f"{self.status}: no addresses, {bound}"
        pool = format_size(self.pool, units)
        if self.status is SolveStatus.OPTIMAL:
            return f"{self.status}: pool {pool} ({self.evidence or 'no bound'})"
        return f"{self.status}: pool {pool}, {bound}, gap {100 * self.gap:.3g} %"

    @property
    def objective(self) -> int | None:
        """Bytes of the pool."""
        return self.pool


# Faults of one kind that are named; more are counted. Arbitrary.
_SHOWN = 10
# Letters of a name in a sentence that has two. Arbitrary.
_NAME = 60


def placement_faults(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return every reason why a placement is none of a problem; empty if it is one.

    Of several faults of a kind the first ones. With a capacity, no byte beyond it may be taken.
    """
    count = len(problem.residences)
    addresses = placement.addresses
    if len(addresses) != count:
        return [f"there are {len(addresses)} addresses for {count} residences"]
    wrong = [
        f"residence {index} has the address {cut(repr(address))}, which is no integer"
        for index, address in enumerate(addresses)
        if type(address) is not int
    ]
    if wrong:
        return _first(iter(wrong), "addresses that are no integers")
    return [
        *_first(_outside(problem, addresses), "residences outside the pool"),
        *_first(_unaligned(problem, addresses), "addresses that are no multiples"),
        *_first(_overlaps(problem, addresses), "overlaps"),
    ]


def _first(faults: Iterator[str], what: str) -> list[str]:
    """Return the first faults, and how many more there are."""
    found = list(islice(faults, _SHOWN))
    more = sum(1 for _ in faults)
    return [*found, *([f"there are {more} more {what}"] if more else [])]


def _taken(problem: PlacementProblem, index: int) -> int:
    """Return the bytes that a residence takes: whole multiples of the alignment."""
    unit = problem.alignment
    return (problem.residences[index].size + unit - 1) // unit * unit


def _said(problem: PlacementProblem, addresses: Sequence[int], index: int) -> str:
    residence = problem.residences[index]
    begin = addresses[index]
    return (
        f"{cut(residence.name, _NAME)} (residence {index}, times {residence.start} to "
        f"{residence.end}, bytes {begin} to {begin + _taken(problem, index)})"
    )


def _outside(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    for index, address in enumerate(addresses):
        end = address + _taken(problem, index)
        if address < 0:
            yield f"{_said(problem, addresses, index)} begins before the pool"
        elif problem.capacity is not None and end > problem.capacity:
            yield (
                f"{_said(problem, addresses, index)} ends {end - problem.capacity} bytes beyond "
                f"the pool of {problem.capacity}"
            )


def _unaligned(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    for index, address in enumerate(addresses):
        if address % problem.alignment:
            said = _said(problem, addresses, index)
            yield f"{said} does not begin at a multiple of {problem.alignment}"


def _overlaps(problem: PlacementProblem, addresses: Sequence[int]) -> Iterator[str]:
    """Yield one fault for every residence that meets one that began before it and is sound."""
    residences = problem.residences
    begins: list[int] = []
    there: list[int] = []
    leaving: list[tuple[int, int]] = []
    for index in sorted(range(len(residences)), key=lambda index: residences[index].start):
        size = _taken(problem, index)
        if size == 0:
            continue
        begin, now = addresses[index], residences[index].start
        while leaving and leaving[0][0] <= now:
            place = bisect_left(begins, heappop(leaving)[1])
            del begins[place], there[place]
        place = bisect_left(begins, begin)
        met = [*there[max(place - 1, 0) : place], *there[place : place + 1]]
        for other in met:
            apart = addresses[other] + _taken(problem, other) <= begin
            if not (apart or begin + size <= addresses[other]):
                pair = (_said(problem, addresses, each) for each in (other, index))
                yield " overlaps ".join(pair)
                break
        else:
            begins.insert(place, begin)
            there.insert(place, index)
            heappush(leaving, (residences[index].end, begin))
