"""A trace seen as a chain, for the papers' dynamic programs.

A stage of a network saves its input ``x_i`` *and* internals, which exist only once ``F_i`` has
run and are needed only by ``B_i``. A chain has no internals, so they are merged into the stage's
output ``x_{i+1}``: it is live from ``F_i`` to ``B_i``, as they are, but can be absent only between
``F_{i+1}`` and ``B_{i+1}``, while they could be between ``F_i`` and ``B_i``. A tensor whose gap is
not mirrored, because the backward operation of its reader does not need it, say, is taken for the
activation of the widest stage that fits inside the gap. Whatever else takes memory becomes gradient
or workspace. The view is conservative: at every operation it demands at least the trace's bytes,
and what it lets be absent is absent in the trace too; so a set of activations that works on the
chain works on the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.trace import Gap, Tensor, Trace
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class ChainView:
    """A chain, and what its activations stand for.

    Attributes
    ----------
    chain : Chain
        Stages ``0..L``.
    gap_groups : tuple of tuple of int, length L+2
        For each activation ``x_i`` of the chain, the numbers of the trace's gaps that are evicted
        if ``x_i`` is offloaded; none for ``x_L`` and ``x_{L+1}``, which cannot leave, and for empty
        activations.
    """

    chain: Chain
    gap_groups: tuple[tuple[int, ...], ...]

    def gaps_of(self, activations: tuple[int, ...]) -> list[int]:
        """Return the trace's gaps that offloading these activations of the chain evicts."""
        return [gap for activation in activations for gap in self.gap_groups[activation]]


def chain_view(problem: Problem) -> ChainView:
    """Return `problem`'s network as a chain.

    Raises
    ------
    MethodError
        If the trace has no such view.
    """
    trace = problem.trace
    if len(trace) % 2:
        raise MethodError(
            "a chain view needs a forward and a backward operation per stage, "
            f"but the trace has an odd number of operations, {len(trace)}"
        )
    owner = [_activation_of(trace, tensor) for tensor in trace.tensors]
    groups: list[list[int]] = [[] for _ in range(len(trace) // 2 + 1)]
    for number, gap in enumerate(trace.gaps):
        activation = owner[gap.tensor]
        # Internals of the stage before the last become part of x_L, which the chain cannot evict.
        spans_turn = gap.before < len(trace) // 2 <= gap.after
        if spans_turn and activation is not None and activation < len(trace) // 2 - 1:
            groups[activation].append(number)
    chain = problem.chain if problem.chain is not None else _conservative_chain(trace, owner)
    return ChainView(chain, tuple(map(tuple, groups)))


def _activation_of(trace: Trace, tensor: Tensor) -> int | None:
    """Return the activation of the chain that a tensor is part of, or None.

    A tensor that can be absent between ``F_i`` and ``B_i``, at the widest, is part of ``x_i`` if an
    earlier operation wrote it. If ``F_i`` itself did, it is an internal of stage ``i`` and so part
    of ``x_{i+1}``. A tensor without such a gap counts as ``x_L`` or ``x_{L+1}`` if it lives exactly
    as long.
    """
    last = len(trace) - 1
    gap = _gap_of(tensor, len(trace) // 2)
    if gap is not None:
        stage = max(gap.before, last - gap.after)
        return stage + (tensor.uses[0] == stage)
    first_use, last_use = tensor.uses[0], tensor.uses[-1]
    turn = len(trace) // 2
    if tensor.evictable and first_use in (turn - 2, turn - 1):
        # x_0 is resident from the start, so its first use, -1, has no mirror image.
        return first_use + 1 if last_use == min(last, last - first_use) else None
    return None


def _gap_of(tensor: Tensor, turn: int) -> Gap | None:
    """Return the gap that spans the turn, with 0 for its tensor, also if that is empty; or None."""
    if tensor.evictable:
        for before, after in pairwise(tensor.uses):
            if after - before > 1 and before < turn <= after:
                return Gap(0, before, after)
    return None


def _conservative_chain(trace: Trace, owner: list[int | None]) -> Chain:
    """Return the chain whose demand is the trace's, or more where an activation lives longer."""
    stages = len(trace) // 2
    last = len(trace) - 1
    activation = [0] * (stages + 1)
    gradient = [0] * (stages + 1)
    for tensor, part_of in zip(trace.tensors, owner, strict=True):
        if part_of is not None:
            activation[part_of] += tensor.size
        elif (boundary := _gradient_of(tensor, stages)) is not None:
            gradient[boundary] += tensor.size
    bare = Chain(
        forward=trace.durations[:stages],
        backward=trace.durations[: stages - 1 : -1],
        activation=activation,
        gradient=gradient,
        names=[operation.name for operation in trace.operations[:stages]],
    )
    rest = [
        max(0, whole - part) for whole, part in zip(trace.demand, bare.trace().demand, strict=True)
    ]
    return Chain(
        forward=bare.forward,
        backward=bare.backward,
        activation=activation,
        gradient=gradient,
        forward_workspace=rest[:stages],
        backward_workspace=[rest[last - i] for i in range(stages)],
        names=bare.names,
    )


def _gradient_of(tensor: Tensor, stages: int) -> int | None:
    """Return i if the tensor lives exactly as ``y_i`` does: from ``B_i`` to ``B_{i-1}``."""
    last = 2 * stages - 1
    for boundary in (last - tensor.uses[0], stages):
        uses = {last - boundary if boundary < stages else stages}
        uses |= {last - (boundary - 1)} if boundary > 0 else set()
        if 0 <= boundary <= stages and tensor.uses == tuple(sorted(uses)):
            return boundary
    return None
