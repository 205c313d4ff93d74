"""The kinds of proof: one frozen dataclass each, whose fields a verifier reads.

`offcert.proofs.registry` says under which names bounds with these proofs stand in certificates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offcert.proofs.forms import (
    FLAG,
    OBJECT,
    TEXT,
    IntegerLists,
    Lists,
    Nested,
    formed,
    integer,
    integers,
)
from offcert.proofs.proof import Proof


@dataclass(frozen=True, kw_only=True)
class Computed(Proof):
    """Nothing: the bound is computed from the problem alone."""


@dataclass(frozen=True, kw_only=True)
class LargeTensors(Proof):
    """The fractional optimum with large tensors as wholes.

    Attributes
    ----------
    smallest : int
        Bytes of a tensor that counts as large.
    """

    smallest: int = integer(1)


@dataclass(frozen=True, kw_only=True)
class ExactSums(Proof):
    """Sums of bytes that may be absent where most has to be, looked at one by one.

    Attributes
    ----------
    pivot : int
        The operation.
    smallest : int
        Bytes of a tensor that counts as a whole.
    """

    pivot: int = integer(0)
    smallest: int = integer(1)


@dataclass(frozen=True, kw_only=True)
class FluidProof(Proof):
    """Multipliers of a linear program, and a case distinction over gaps.

    Attributes
    ----------
    whole : bool
        Whether what must be absent is rounded up to what whole tensors make up.
    proof : str
        Multipliers and tree, packed; see `offcert.proofs.fluid_document`.
    """

    whole: bool = formed(FLAG)
    proof: str = formed(TEXT)


@dataclass(frozen=True, kw_only=True)
class Ends(Proof):
    """How long a head and a tail last at least, and what the searches for them have to tell apart.

    Attributes
    ----------
    head, tail : int
        Ticks before the pivot's start, and from it on, that no schedule can do without.
    head_counted, tail_counted : tuple of int
        Sizes in bytes of which no more tensors may move than there are.
    head_unit, tail_unit : int
        Bytes to whose multiples sizes are rounded up.
    """

    head: int = integer(0)
    tail: int = integer(0)
    head_counted: tuple[int, ...] = integers(1)
    tail_counted: tuple[int, ...] = integers(1)
    head_unit: int = integer(1)
    tail_unit: int = integer(1)

    @property
    def times(self) -> tuple[int, int]:
        """Head and tail, in ticks."""
        return self.head, self.tail

    @property
    def counted(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sizes counted in head and tail."""
        return self.head_counted, self.tail_counted

    @property
    def units(self) -> tuple[int, int]:
        """The units of head and tail, in bytes."""
        return self.head_unit, self.tail_unit


@dataclass(frozen=True, kw_only=True)
class AtomicHeads(Ends):
    """A head and a tail with whole tensors that add up to the bound.

    Attributes
    ----------
    pivot : int
        The operation at whose start schedules are cut.
    """

    pivot: int = integer(0)


@dataclass(frozen=True, kw_only=True)
class MatchedHeads(AtomicHeads):
    """A head and a tail that move the same tensors.

    Attributes
    ----------
    unit : int
        Bytes to whose multiples sizes are rounded up where both sides are joined.
    free_below : int
        Bytes below which tensors are absent whenever they may be, at no cost.
    levels : tuple of tuple of int
        Sizes that each search tells apart; each has those of the one before, and more.
    spare : int
        How many tensors may move on one side without being absent at the pivot.
    """

    unit: int = integer(1)
    free_below: int = integer(0)
    levels: tuple[tuple[int, ...], ...] = formed(IntegerLists(1))
    spare: int = integer(0, default=0)


@dataclass(frozen=True, kw_only=True)
class Pivot(Proof):
    """Two sides of a cut, each searched to a limit.

    Attributes
    ----------
    pivot : int
        The operation at whose start schedules are cut; -1 if the bound needs no search.
    front_limit, back_limit : int
        Ticks after which a side may end without being searched.
    once : tuple of int
        Gaps whose tensors must not leave twice.
    ends : Ends or None
        What is known of both sides beforehand, if that is needed.
    """

    pivot: int = integer(-1)
    front_limit: int = integer()
    back_limit: int = integer()
    once: tuple[int, ...] = integers(0)
    ends: Ends | None = formed(Nested(Ends), None)


@dataclass(frozen=True, kw_only=True)
class PivotOutward(Proof):
    """One side of a cut searched to a limit, the other followed from the pivot outward.

    Attributes
    ----------
    pivot : int
        The operation at whose start schedules are cut; -1 if the bound needs no search.
    side : int
        What is searched: 0 for the front, 1 for the back.
    limit : int
        Ticks after which it may end without being searched.
    ends : Ends
        What is known of both sides beforehand.
    free_below : tuple of int
        Bytes below which tensors are absent on the other side at no cost; decreasing.
    """

    pivot: int = integer(-1)
    side: int = integer(0)
    limit: int = integer()
    free_below: tuple[int, ...] = integers(1)
    ends: Ends = formed(Nested(Ends))


@dataclass(frozen=True, kw_only=True)
class Outward(Proof):
    """Both sides of a cut, followed from the pivot outward, part by part.

    Attributes
    ----------
    pivot : int
        The operation at whose start schedules are cut.
    free_below : tuple of int
        Bytes below which tensors are absent at no cost, at first and later; decreasing.
    windows : tuple of int
        Divisors: a side is followed until this part of the bytes that the pivot needs is back;
        decreasing.
    splits : tuple of list
        How each part is divided, before the divisions of its own parts.
    """

    pivot: int = integer(0)
    free_below: tuple[int, ...] = integers(1)
    windows: tuple[int, ...] = integers(1)
    splits: tuple[list[Any], ...] = formed(Lists())


@dataclass(frozen=True, kw_only=True)
class JointProof(Proof):
    """Multipliers of facts about executions, cut at the first runs of some computations.

    Attributes
    ----------
    moments : tuple of int
        Where they are cut: for a computation `o`, ``2o`` is the start of its first run, ``2o + 1``
        its end. Increasing.
    spans : tuple of tuple of int
        Stretches between two boundaries over which runs again are counted once; the beginning is
        boundary 0, then come the moments, then the end.
    whole : bool
        Whether the room that runs leave is rounded down to what whole values take.
    proof : str
        Multipliers, packed; see `offcert.proofs.joint_document`.
    """

    moments: tuple[int, ...] = integers(0)
    spans: tuple[tuple[int, ...], ...] = formed(IntegerLists(0))
    whole: bool = formed(FLAG)
    proof: str = formed(TEXT)


@dataclass(frozen=True, kw_only=True)
class LeastMemoryCut(Proof):
    """Where executions are cut to see what has to be kept, and prices of what saves bytes.

    Attributes
    ----------
    computation : int
        During whose first run bytes are counted.
    unit : int
        By which bytes are multiplied, so that prices are integers.
    computing_price, moving_price : int
        For a tick of running again and a tick of the link, in bytes times `unit`.
    """

    computation: int = integer(0)
    unit: int = integer(1)
    computing_price: int = integer(0)
    moving_price: int = integer(0)


@dataclass(frozen=True, kw_only=True)
class MemoryByTime(Proof):
    """A bound on time, at a limit at which it exceeds the deadline.

    Attributes
    ----------
    limit : int
        Bytes.
    method : str
        The name of the bound on time within that limit.
    ticks : int
        Its value.
    details : mapping
        Its own details.
    """

    limit: int = integer(0)
    method: str = formed(TEXT)
    ticks: int = integer(0)
    details: Mapping[str, Any] = formed(OBJECT)
