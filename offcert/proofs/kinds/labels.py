"""Bounds by searches over labels, which verification searches again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from offcert.core.forms import LIST, Integers, Object, formed, integer, integers
from offcert.core.later import Later
from offcert.core.list_forms import Each
from offcert.proofs.proof import Proof, ProofKind

if TYPE_CHECKING:
    import offcert.verification.ends.check
    import offcert.verification.outward.check
    import offcert.verification.pivot.check


@dataclass(frozen=True, kw_only=True)
class Ends(Proof):
    """Least times of a head and a tail, and the sizes that the searches for them tell apart.

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
    head_counted: tuple[int, ...] = integers(1, ())
    tail_counted: tuple[int, ...] = integers(1, ())
    head_unit: int = integer(1, default=1)
    tail_unit: int = integer(1, default=1)

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
class Heads(Ends):
    """A head and a tail that add up to the bound, or do so where they move the same tensors.

    Attributes
    ----------
    pivot : int
        The operation at whose start schedules are cut.
    unit : int
        Bytes to whose multiples sizes are rounded up where both sides are joined.
    free_below : int
        Bytes below which tensors are absent whenever they may be, at no cost, where sides are
        joined.
    levels : tuple of tuple of int
        Sizes that each search of joined sides tells apart; each has those of the one before, and
        more. Without any, head and tail must add up to the bound.
    spare : int
        How many tensors may move on one side without being absent at the pivot.
    """

    pivot: int = integer(0)
    unit: int = integer(1, default=1)
    free_below: int = integer(0, default=0)
    levels: tuple[tuple[int, ...], ...] = formed(Each(Integers(1)), ())
    spare: int = integer(0, default=0)

    @property
    def ends(self) -> Ends:
        """Head and tail alone, for a proof that names the pivot itself."""
        return Ends(**{each.name: getattr(self, each.name) for each in fields(Ends)})


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
        Gaps whose tensors must not leave twice; none if absent.
    ends : Ends or None
        Proved ends of both sides, if they are needed.
    """

    pivot: int = integer(-1)
    front_limit: int = integer()
    back_limit: int = integer()
    once: tuple[int, ...] = integers(0, ())
    ends: Ends | None = formed(Object(Ends.record()), None)


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
    splits: tuple[list[Any], ...] = formed(Each(LIST))


PROOFS = (
    *(
        ProofKind(method, Heads, verifier, summary, page=page, searched=True)
        for method, verifier, summary, page in (
            (
                "atomic-heads",
                Later(lambda: offcert.verification.ends.check.heads),
                "the least time before a pivot, and from it on, with whole tensors",
                "heads",
            ),
            (
                "matched-heads",
                Later(lambda: offcert.verification.ends.check.heads),
                "head and tail that move the same tensors",
                "matched",
            ),
            (
                "matched-heads-joined",
                Later(lambda: offcert.verification.ends.check.heads_joined),
                "head and tail that move the same tensors, as if every tensor had one gap",
                "matched",
            ),
        )
    ),
    ProofKind(
        "pivot",
        Pivot,
        Later(lambda: offcert.verification.pivot.check.pivot),
        "pivot dynamic program: both sides of a cut searched to a limit",
        page="pivot",
        searched=True,
    ),
    ProofKind(
        "outward",
        Outward,
        Later(lambda: offcert.verification.outward.check.outward),
        "both sides of a cut followed from the pivot outward, part by part",
        page="outward",
        searched=True,
    ),
)
