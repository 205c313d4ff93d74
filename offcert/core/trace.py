"""`Trace`: what the device executes, in order, and the tensors it holds meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import SupportsIndex

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.notebook import Shown, html

# Sums of sizes or ticks that a trace may have, so that compiled code may add and multiply small
# factors in 64-bit integers; the largest of these integers. Derived.
LARGEST_TOTAL = 2**61
LARGEST_INTEGER = 2**63 - 1


def require_integer(value: object, field: str, minimum: int | None = None) -> int:
    """Return a value if it is an integer of 64 bits, at least `minimum`; messages name `field`."""
    if type(value) is int:
        # Asking a protocol takes ten times as long, and files hold hundreds of thousands of these.
        number = value
    elif isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InputError(f"{field} must be an integer, not {short_repr(value)}")
    else:
        number = value.__index__()
    if abs(number) > LARGEST_INTEGER:
        raise InputError(f"{field} must fit into 64 bits, which a number this large does not")
    if minimum is not None and number < minimum:
        raise InputError(f"{field} must be at least {minimum}, not {number}")
    return number


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of the device.

    Attributes
    ----------
    name : str
        Name for people.
    duration : int
        Ticks, at least 0.
    workspace : int
        Bytes that are taken only while the operation runs.
    """

    name: str
    duration: int
    workspace: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """Something that occupies device memory over several operations.

    Attributes
    ----------
    name : str
        Name for people.
    size : int
        Bytes.
    uses : tuple of int
        Indices of the operations that need it on the device, strictly increasing, the writer first;
        -1 in first place means that it is resident at the start. It takes memory from the start of
        the first use to the end of the last one.
    evictable : bool
        Whether it may leave the device between two uses.
    """

    name: str
    size: int
    uses: tuple[int, ...]
    evictable: bool = True


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch between two consecutive uses of an evictable tensor with an operation in between.

    Between uses by adjacent operations there is none, by definition: there a tensor could be absent
    in idle time only. On a simplex link that never pays. On a duplex link it can, as what returns
    may take its place while something else is still on its way out; with an operation of no
    duration between the two uses, such a stretch is a gap (docs/theory/problem.md).

    Attributes
    ----------
    tensor : int
        Index of the tensor.
    before : int
        The use that opens the gap (-1: the start). The tensor's memory can be released once this
        operation has ended and a copy of the tensor is on the host.
    after : int
        The use that closes the gap. The tensor must be back before this operation starts.
    """

    tensor: int
    before: int
    after: int

    def spans(self, operation: int) -> bool:
        """Whether the tensor may be absent while `operation` runs."""
        return self.before < operation < self.after


@dataclass(frozen=True)
class Trace:
    """Operations in the order in which the device runs them, and the tensors they use.

    Parameters
    ----------
    operations : iterable of Operation
        At least one; they run one at a time, in this order.
    tensors : iterable of Tensor
        In any order; the index of a tensor is its name everywhere else.

    Raises
    ------
    InputError
        If a number is no integer or negative, a use is out of range or out of order, or the totals
        leave 61 bits.
    """

    operations: tuple[Operation, ...]
    tensors: tuple[Tensor, ...]

    def __init__(self, operations: Iterable[Operation], tensors: Iterable[Tensor]) -> None:
        object.__setattr__(self, "operations", tuple(operations))
        object.__setattr__(self, "tensors", tuple(tensors))
        self._validate()

    def _validate(self) -> None:
        if not self.operations:
            raise InputError("trace.operations must not be empty")
        for index, operation in enumerate(self.operations):
            place = f"trace.operations[{index}]"
            if not isinstance(operation, Operation):
                raise InputError(f"{place} must be an Operation, not {short_repr(operation)}")
            require_integer(operation.duration, f"{place}.duration", 0)
            require_integer(operation.workspace, f"{place}.workspace", 0)
        for index, tensor in enumerate(self.tensors):
            self._validate_tensor(tensor, f"trace.tensors[{index}]")
        self._validate_totals()

    def _validate_tensor(self, tensor: Tensor, place: str) -> None:
        if not isinstance(tensor, Tensor):
            raise InputError(f"{place} must be a Tensor, not {short_repr(tensor)}")
        require_integer(tensor.size, f"{place}.size", 0)
        if not tensor.uses:
            raise InputError(f"{place}.uses must name at least one operation")
        previous = -2
        for position, use in enumerate(tensor.uses):
            require_integer(use, f"{place}.uses[{position}]", -1)
            if use >= len(self.operations):
                raise InputError(
                    f"{place}.uses[{position}] must be below the number of operations, "
                    f"{len(self.operations)}, not {use}"
                )
            if use <= previous:
                raise InputError(
                    f"{place}.uses must increase strictly, but {use} follows {previous}"
                )
            previous = use
        if previous == -1:
            raise InputError(f"{place}.uses must name at least one operation, not only -1")

    def _validate_totals(self) -> None:
        time = sum(operation.duration for operation in self.operations)
        if time >= LARGEST_TOTAL:
            raise InputError(f"the durations must sum to less than 2**61 ticks, not {time}")
        memory = sum(tensor.size for tensor in self.tensors)
        memory += max(operation.workspace for operation in self.operations)
        if memory >= LARGEST_TOTAL:
            raise InputError(f"the sizes must sum to less than 2**61 bytes, not {memory}")

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.operations)

    def _repr_html_(self) -> str:
        leaving = len({gap.tensor for gap in self.gaps})
        facts = [
            ("operations", f"{len(self)}"),
            ("tensors", f"{len(self.tensors)}, of which {leaving} may leave"),
            ("compute time", f"{self.compute_time} ticks"),
            ("least memory", f"{self.least_memory}"),
            ("peak memory", f"{self.peak_memory}"),
        ]
        largest = sorted(self.tensors, key=lambda tensor: -tensor.size)
        rows = ((tensor.name, f"{tensor.size}") for tensor in largest)
        return html(Shown("trace", facts, ("largest tensors", "size"), rows))

    def __repr__(self) -> str:
        return (
            f"<Trace: {len(self)} operations, {len(self.tensors)} tensors, {len(self.gaps)} gaps; "
            f"compute time {self.compute_time}, memory from {self.least_memory} "
            f"to {self.peak_memory}>"
        )

    @cached_property
    def durations(self) -> tuple[int, ...]:
        """Ticks per operation."""
        return tuple(operation.duration for operation in self.operations)

    @cached_property
    def compute_time(self) -> int:
        """Ticks of all operations together."""
        return sum(self.durations)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """Every gap, ordered by tensor and then by time; the index of a gap is its name elsewhere.

        Empty tensors have none: moving them changes nothing.
        """
        return tuple(
            Gap(index, before, after)
            for index, tensor in enumerate(self.tensors)
            if tensor.evictable and tensor.size > 0
            for before, after in zip(tensor.uses, tensor.uses[1:], strict=False)
            if after - before > 1
        )

    @cached_property
    def gap_sizes(self) -> tuple[int, ...]:
        """Bytes of the tensor of each gap."""
        return tuple(self.tensors[gap.tensor].size for gap in self.gaps)

    def gap_size(self, gap: int) -> int:
        """Bytes of the tensor of gap number `gap`."""
        return self.gap_sizes[gap]

    @cached_property
    def gap_numbers(self) -> Mapping[tuple[int, ...], int]:
        """The number of each gap, by its tensor and the uses before and after it."""
        return {(gap.tensor, gap.before, gap.after): number for number, gap in enumerate(self.gaps)}

    def first_gaps(self, gaps: Iterable[int]) -> dict[int, int]:
        """Return, for each tensor of some gaps, the first of them: where it leaves the device."""
        first: dict[int, int] = {}
        for gap in sorted(gaps):
            first.setdefault(self.gaps[gap].tensor, gap)
        return first

    @cached_property
    def gaps_entering(self) -> tuple[tuple[int, ...], ...]:
        """For each operation, the numbers of the gaps that are over it first.

        Going through the operations, adding those of `gaps_entering` and taking away those of
        `gaps_leaving` gives `gaps_over`, without a list as long as all of its together.
        """
        return self._gaps_at([gap.before + 1 for gap in self.gaps])

    @cached_property
    def gaps_leaving(self) -> tuple[tuple[int, ...], ...]:
        """For each operation, the numbers of the gaps that it closes."""
        return self._gaps_at([gap.after for gap in self.gaps])

    def _gaps_at(self, operations: list[int]) -> tuple[tuple[int, ...], ...]:
        rows: list[list[int]] = [[] for _ in self.operations]
        for number, operation in enumerate(operations):
            rows[operation].append(number)
        return tuple(map(tuple, rows))

    @cached_property
    def gaps_over(self) -> tuple[tuple[int, ...], ...]:
        """For each operation, the numbers of the gaps whose tensor may be absent while it runs.

        With thousands of operations and gaps these are tens of millions of numbers: sums over gaps
        are in `evictable_over`, and `gaps_entering` helps with the rest.
        """
        spanning: list[list[int]] = [[] for _ in self.operations]
        for index, gap in enumerate(self.gaps):
            for operation in range(gap.before + 1, gap.after):
                spanning[operation].append(index)
        return tuple(map(tuple, spanning))

    @cached_property
    def evictable_over(self) -> tuple[int, ...]:
        """For each operation, bytes of all tensors that may be absent while it runs."""
        change = [0] * (len(self.operations) + 1)
        for gap, size in zip(self.gaps, self.gap_sizes, strict=True):
            change[gap.before + 1] += size
            change[gap.after] -= size
        return tuple(accumulate(change[:-1]))

    @cached_property
    def demand(self) -> tuple[int, ...]:
        """For each operation, bytes on the device while it runs if nothing is ever evicted."""
        change = [0] * (len(self.operations) + 1)
        for tensor in self.tensors:
            change[max(tensor.uses[0], 0)] += tensor.size
            change[tensor.uses[-1] + 1] -= tensor.size
        return tuple(
            live + operation.workspace
            for live, operation in zip(accumulate(change[:-1]), self.operations, strict=True)
        )

    @cached_property
    def live_before(self) -> tuple[int, ...]:
        """For each operation, bytes held from the one before it on if nothing is ever evicted."""
        change = [0] * (len(self.operations) + 1)
        for tensor in self.tensors:
            change[tensor.uses[0] + 1] += tensor.size
            change[tensor.uses[-1] + 1] -= tensor.size
        return tuple(accumulate(change[:-1]))

    @cached_property
    def least_demand(self) -> tuple[int, ...]:
        """For each operation, bytes on the device while it runs if all that may be absent is."""
        return tuple(
            demand - evictable
            for demand, evictable in zip(self.demand, self.evictable_over, strict=True)
        )

    @cached_property
    def resident_at_start(self) -> int:
        """Bytes on the device before the first operation."""
        return sum(tensor.size for tensor in self.tensors if tensor.uses[0] == -1)

    @cached_property
    def peak_memory(self) -> int:
        """Bytes needed to run without evicting anything (``M_peak`` of the offloading paper)."""
        return max(max(self.demand), self.resident_at_start)

    @cached_property
    def least_memory(self) -> int:
        """Bytes below which no schedule exists, whatever leaves the device.

        At this limit one does: with unlimited time, everything that an operation does not use can
        leave before it starts.
        """
        return max(max(self.least_demand), self.resident_at_start)
