"""DYNPROG: the dynamic program over interruptible transfers (offloading paper, §5, Algorithm 1).

Algorithm 1 finds the set of activations whose ordered no-wait schedule with interruptible transfers
is shortest; DYNPROG offloads that set atomically. The equations are used as corrected:

- (6) has ``ex^B``; the memory identities and both tests of Algorithm 1 use the positive parts of
  the deltas, and states that fail a test are dropped; ``R_j^B`` has ``|y_{j+1}|``, divides by the
  bandwidth and bounds ``epsilon_G`` from below; ``R_j^F`` subtracts ``|y_{L+1}|``.
- (10) still lets the prefetch of ``x_j`` begin inside ``F_j``, while ``x_j`` is in use, if its
  offload ends there. With that allowed, the value is exactly the least over all sets of their
  ordered schedules' makespans; without, it can be too small, though it rarely is.

The paper has one bandwidth; a link with two serves each delta at the rate of its direction.

The value is a lower bound for nothing: the best schedule of Problem 2 need not be ordered.

Traces are seen as chains. A stage of a network saves its input ``x_i`` *and* internals, which exist
only once ``F_i`` has run and are needed only by ``B_i``. A chain has no internals, so they are
merged into the stage's output ``x_{i+1}``: it is live from ``F_i`` to ``B_i``, as they are, but can
be absent only between ``F_{i+1}`` and ``B_{i+1}``, while they could be between ``F_i`` and ``B_i``.
A tensor whose gap is not mirrored, because the backward operation of its reader does not need it,
say, is taken for the activation of the widest stage that fits inside the gap. Whatever else takes
memory becomes gradient or workspace. The view is conservative: at every operation it demands at
least the trace's bytes, and what it lets be absent is absent in the trace too; so a set of
activations that works on the chain works on the trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Gap, Tensor, Trace
from offcert.heuristics.evictions.dynprog_states import ScaledChain, least_idle
from offcert.heuristics.orders.ordered import ordered_makespan, ordered_plan, require_possible
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class ChainView:
    """A chain, and what its activations stand for."""

    chain: Chain  # Stages ``0..L``.
    # Length L+2. For each activation ``x_i`` of the chain, the numbers of the trace's gaps that are
    # evicted if ``x_i`` is offloaded; none for ``x_L`` and ``x_{L+1}``, which cannot leave, and for
    # empty activations.
    gap_groups: tuple[tuple[int, ...], ...]

    def gaps_of(self, activations: tuple[int, ...]) -> list[int]:
        """Return the trace's gaps that offloading these activations of the chain evicts."""
        return [gap for activation in activations for gap in self.gap_groups[activation]]


def chain_view(problem: Problem) -> ChainView:
    """Return `problem`'s network as a chain."""
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
    """Return the gap that spans the turn, even of an empty tensor, which it calls 0; or None."""
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


# States that the tables may have, at most. Arbitrary.
MAX_STATES = 2_000_000


def algorithm_1(
    chain: Chain,
    memory: int,
    bandwidth: Fraction,
    max_states: int = MAX_STATES,
    prefetch_bandwidth: Fraction | None = None,
) -> tuple[Fraction, tuple[int, ...]]:
    """Run Algorithm 1 without discretising anything.

    Activations are offloaded whole, by interruptible transfers, at bytes per tick, which may be
    others on the way back. The number of states of a stage can grow exponentially. Returned are the
    ticks, as Algorithm 1 computes them, and the activations that reach them, increasing. A
    `MethodError` says that no set of activations passes Algorithm 1's memory tests, or that there
    are too many states.
    """
    out = Fraction(bandwidth)
    back = out if prefetch_bandwidth is None else Fraction(prefetch_bandwidth)
    # Then sizes and what the link moves in a tick, in either direction, are integers.
    factor = math.lcm(out.denominator, back.denominator)
    scaled = _exact(chain, memory, out * factor, back * factor, factor)
    found = least_idle(scaled, max_states)
    if found is None:
        raise NoPlanError("Algorithm 1 found no set of activations that fits into the memory")
    idle, offloaded = found
    compute = sum(chain.forward) + sum(chain.backward)
    return compute + idle / (out * factor * scaled.weights[0]), offloaded


def dynprog(problem: Problem, slots: int | None = 500, max_states: int = MAX_STATES) -> Plan:
    """Return DYNPROG's plan: the ordered plan of the set that Algorithm 1 chooses.

    Memory is divided in `slots` (``S`` of the discretisation, §5.3.2), or nothing is discretised
    with None. The plan is empty if the peak fits. A `MethodError` says that the problem has no
    chain view, that there are too many states, or that no plan is found, which does not mean that
    there is none: sizes are rounded up.
    """
    if slots is not None and slots < 1:
        raise MethodError(f"DYNPROG needs at least 1 slot, not {slots}")
    view = chain_view(problem)
    if problem.trace.peak_memory <= problem.platform.memory:
        return Plan()
    require_possible(problem)
    if slots is None:
        platform = problem.platform
        out, back = (platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
        _, chosen = algorithm_1(view.chain, platform.memory, out, max_states, back)
        return ordered_plan(problem, view.gaps_of(chosen))
    return ordered_plan(problem, _discretised_gaps(problem, view, slots, max_states))


def _discretised_gaps(problem: Problem, view: ChainView, slots: int, max_states: int) -> list[int]:
    """Return the gaps of the first feasible set of the iterative rounding (§5.3.2)."""
    memory, exact = problem.platform.memory, view.chain.activation
    # Optimistic: sums from x_0 on are rounded up, as the first activations usually leave.
    activation = _differences([-(-total * slots // memory) for total in accumulate(exact)])
    while True:
        scaled = _discretised(view.chain, problem.platform, slots, activation)
        found = least_idle(scaled, max_states)
        if found is None:
            raise NoPlanError(
                f"DYNPROG found no plan at {slots} slots; rounding sizes up may be the only reason"
            )
        gaps = view.gaps_of(found[1])
        if ordered_makespan(problem, gaps) is not None:
            return gaps
        too_small = {
            i: size * slots - rounded * memory
            for i, (size, rounded) in enumerate(zip(exact, activation, strict=True))
            if rounded * memory < size * slots
        }
        if not too_small:
            raise NoPlanError(f"DYNPROG found no feasible set at {slots} slots")
        activation[min(too_small, key=too_small.__getitem__)] += 1


def _exact(chain: Chain, memory: int, out: Fraction, back: Fraction, factor: int) -> ScaledChain:
    """Scale sizes by `factor`; `out` and `back` are how many of those the link moves in a tick."""

    def scaled(values: Sequence[int], by: int | Fraction) -> list[int]:
        return [int(value * by) for value in values]

    return ScaledChain(
        memory=memory * factor,
        forward=scaled(chain.forward, out),
        backward=scaled(chain.backward, back),
        forward_back=scaled(chain.forward, back),
        backward_out=scaled(chain.backward, out),
        weights=_weights(out, back),
        activation=scaled(chain.activation, factor),
        gradient=scaled(chain.gradient, factor),
        forward_workspace=scaled(chain.forward_workspace, factor),
        backward_workspace=scaled(chain.backward_workspace, factor),
    )


def _weights(out: Fraction, back: Fraction) -> tuple[int, int]:
    """Return integers in the ratio of the times to move a byte out and back."""
    ratio = back / out
    return ratio.numerator, ratio.denominator


def _discretised(
    chain: Chain, platform: Platform, slots: int, activation: Sequence[int]
) -> ScaledChain:
    """Round to slots of ``memory / slots``: sizes up, partial sums of ``u * beta`` down."""
    memory = platform.memory
    out, back = (platform.rate(kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH))

    def rounded_up(values: Sequence[int]) -> list[int]:
        return [-(-value * slots // memory) for value in values]

    def rounded_down(times: Sequence[int], rate: Fraction) -> list[int]:
        factor = rate * slots / memory
        return _differences(
            [total * factor.numerator // factor.denominator for total in accumulate(times)]
        )

    return ScaledChain(
        memory=slots,
        forward=rounded_down(chain.forward, out),
        backward=rounded_down(chain.backward, back),
        forward_back=rounded_down(chain.forward, back),
        backward_out=rounded_down(chain.backward, out),
        weights=_weights(out, back),
        activation=tuple(activation),
        gradient=rounded_up(chain.gradient),
        forward_workspace=rounded_up(chain.forward_workspace),
        backward_workspace=rounded_up(chain.backward_workspace),
    )


def _differences(totals: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *totals))]
