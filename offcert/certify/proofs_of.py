"""Findings of searches over labels, written as proofs for certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcert.proofs.kinds import AtomicHeads, Ends, MatchedHeads, Outward, Pivot, PivotOutward

if TYPE_CHECKING:
    from offcert.formulations.labels.atomic_heads.bound import SideEnds
    from offcert.formulations.labels.matched_heads.bound import MatchedOutcome
    from offcert.formulations.labels.outward.bound import OutwardOutcome
    from offcert.formulations.labels.pivot.bound import PivotOutcome
    from offcert.formulations.labels.pivot_outward.bound import PivotOutwardOutcome


def ends_proof(ends: SideEnds) -> Ends:
    """Return what shows head and tail of a pivot that is named elsewhere."""
    return Ends(**_fields(ends))


def heads_proof(ends: SideEnds) -> AtomicHeads:
    """Return what shows head and tail of a pivot."""
    return AtomicHeads(pivot=ends.pivot, **_fields(ends))


def matched_proof(outcome: MatchedOutcome) -> MatchedHeads:
    """Return what shows a bound of head and tail that move the same."""
    proof = outcome.proof
    return MatchedHeads(
        pivot=outcome.ends.pivot,
        **_fields(outcome.ends),
        unit=proof.unit,
        free_below=proof.free_below,
        levels=tuple(tuple(level) for level in proof.levels),
        spare=proof.spare,
    )


def pivot_proof(outcome: PivotOutcome) -> Pivot:
    """Return what shows a bound of the pivot program."""
    return Pivot(
        pivot=outcome.pivot,
        front_limit=outcome.front_limit,
        back_limit=outcome.back_limit,
        once=tuple(outcome.once),
        ends=None if outcome.ends is None else ends_proof(outcome.ends),
    )


def pivot_outward_proof(outcome: PivotOutwardOutcome) -> PivotOutward:
    """Return what shows a bound of the pivot program with one side asked; it takes a cut."""
    assert outcome.ends is not None
    return PivotOutward(
        pivot=outcome.pivot,
        side=outcome.side,
        limit=outcome.limit,
        free_below=tuple(outcome.free_below),
        ends=ends_proof(outcome.ends),
    )


def outward_proof(outcome: OutwardOutcome) -> Outward:
    """Return what shows a bound of the outward search."""
    proof = outcome.proof
    return Outward(
        pivot=proof.pivot,
        free_below=tuple(proof.free_below),
        windows=tuple(proof.windows),
        splits=tuple(proof.splits),
    )


def _fields(ends: SideEnds) -> dict[str, Any]:
    return {
        "head": ends.head,
        "tail": ends.tail,
        "head_counted": tuple(ends.counted[0]),
        "tail_counted": tuple(ends.counted[1]),
        "head_unit": ends.units[0],
        "tail_unit": ends.units[1],
    }
