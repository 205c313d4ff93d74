"""Bounds by searches over labels, which verification searches again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcert.core.forms import IntegerLists, Lists, Nested, formed, integer, integers
from offcert.core.later import Later
from offcert.proofs.proof import SIMPLEX, Proof, ProofKind

if TYPE_CHECKING:
    import offcert.verify.heads.check
    import offcert.verify.matched.verifier
    import offcert.verify.outward.check
    import offcert.verify.pivot.check


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
        Proved ends of both sides, if they are needed.
    """

    pivot: int = integer(-1)
    front_limit: int = integer()
    back_limit: int = integer()
    once: tuple[int, ...] = integers(0)
    ends: Ends | None = formed(Nested(Ends), None)


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


PROOFS = (
    ProofKind(
        "atomic-heads",
        AtomicHeads,
        Later(lambda: offcert.verify.heads.check.atomic_heads),
        "the least time before a pivot, and from it on, with whole tensors",
        page="heads",
        searched=True,
    ),
    ProofKind(
        "matched-heads",
        MatchedHeads,
        Later(lambda: offcert.verify.matched.verifier.matched_heads),
        "head and tail that move the same tensors",
        page="matched",
        searched=True,
    ),
    ProofKind(
        "matched-heads-joined",
        MatchedHeads,
        Later(lambda: offcert.verify.matched.verifier.matched_heads_joined),
        "head and tail that move the same tensors, as if every tensor had one gap",
        page="matched",
        searched=True,
    ),
    ProofKind(
        "pivot",
        Pivot,
        Later(lambda: offcert.verify.pivot.check.pivot),
        "pivot dynamic program: both sides of a cut searched to a limit",
        page="pivot",
        searched=True,
        links=SIMPLEX,
    ),
    ProofKind(
        "outward",
        Outward,
        Later(lambda: offcert.verify.outward.check.outward),
        "both sides of a cut followed from the pivot outward, part by part",
        page="outward",
        searched=True,
        links=SIMPLEX,
    ),
)
