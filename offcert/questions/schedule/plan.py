"""`Plan`: the tensors that are offloaded, and the order of transfers, without times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace


@dataclass(frozen=True, slots=True)
class Move:
    """One transfer of a plan.

    Attributes
    ----------
    kind : Kind
        ``OFFLOAD``: device to host; ``PREFETCH``: back.
    gap : int
        The gap (index into ``trace.gaps``) that the transfer serves. An offload names the first
        evicted gap of its tensor.
    before : int
        A prefetch takes its memory before operation `before` starts and after operation
        ``before - 1`` has started. An offload's tensor has left the device when operation `before`
        starts; the simulator does not need that, the runtime does.
    """

    kind: Kind
    gap: int
    before: int


@dataclass(frozen=True)
class Plan:
    """Transfers in the order in which they use the link.

    A tensor is offloaded at most once, before all its prefetches. A gap is *evicted* if a prefetch
    names it. When a tensor with several gaps is evicted again, its host copy is still valid, so
    the plan names a further prefetch and no further offload.

    Parameters
    ----------
    moves : iterable of Move
        On a duplex link the order matters within each direction only.
    """

    moves: tuple[Move, ...] = ()

    def __init__(self, moves: Iterable[Move] = ()) -> None:
        object.__setattr__(self, "moves", tuple(moves))

    def __repr__(self) -> str:
        leave = sum(move.kind is Kind.OFFLOAD for move in self.moves)
        return f"<Plan: {leave} tensors leave, {len(self.evicted)} prefetches>"

    @property
    def evicted(self) -> tuple[int, ...]:
        """The evicted gaps, in the order of their prefetches."""
        return tuple(move.gap for move in self.moves if move.kind is Kind.PREFETCH)

    def require_consistent(self, trace: Trace) -> None:
        """Raise if the plan does not make sense on `trace`, whatever the platform.

        Raises
        ------
        PlanError
            If a gap or operation does not exist, a transfer is given twice or lacks its
            counterpart, or an offload does not name its tensor's first evicted gap.
        """
        planned = {(move.kind, move.gap) for move in self.moves}
        seen: set[tuple[Kind, int]] = set()
        offloaded = {
            trace.gaps[move.gap].tensor: move.gap
            for move in self.moves
            if move.kind is Kind.OFFLOAD and 0 <= move.gap < len(trace.gaps)
        }
        for position, move in enumerate(self.moves):
            if not 0 <= move.gap < len(trace.gaps):
                raise PlanError(f"move {position} names gap {move.gap}, which does not exist")
            if not 0 <= move.before < len(trace):
                raise PlanError(f"move {position} names operation {move.before} of {len(trace)}")
            if (move.kind, move.gap) in seen:
                raise PlanError(f"move {position} repeats the {move.kind} of gap {move.gap}")
            seen.add((move.kind, move.gap))
            tensor = trace.gaps[move.gap].tensor
            if move.kind is Kind.OFFLOAD:
                if move.gap != offloaded[tensor]:
                    raise PlanError(f"move {position} offloads tensor {tensor} a second time")
                if (Kind.PREFETCH, move.gap) not in planned:
                    raise PlanError(f"move {position} offloads tensor {tensor} for good")
            elif tensor not in offloaded:
                raise PlanError(f"move {position} prefetches tensor {tensor} without an offload")
            elif move.gap < offloaded[tensor]:
                raise PlanError(
                    f"move {position} evicts gap {move.gap} before the gap of its offload, "
                    f"{offloaded[tensor]}"
                )
