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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.heuristics.evictions.chain_view import ChainView, chain_view
from offcert.heuristics.evictions.dynprog_states import ScaledChain, least_idle
from offcert.heuristics.orders.ordered import ordered_makespan, ordered_plan
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem

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

    Parameters
    ----------
    chain : Chain
        Its activations are offloaded whole, by interruptible transfers.
    memory : int
        Bytes.
    bandwidth : Fraction
        Bytes per tick.
    max_states : int
        The most states that any stage may have; their number can grow exponentially.
    prefetch_bandwidth : Fraction, optional
        Bytes per tick from the host to the device, if not the same.

    Returns
    -------
    makespan : Fraction
        Ticks, as Algorithm 1 computes it.
    offloaded : tuple of int
        The activations that reach it, increasing.

    Raises
    ------
    MethodError
        If no set of activations passes Algorithm 1's memory tests, or there are too many states.
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
    """Return DYNPROG's plan.

    Parameters
    ----------
    problem : Problem
        A chain, or a trace that has a chain view.
    slots : int or None
        Number ``S`` of memory slots of the discretisation (§5.3.2); None for none.
    max_states : int
        The most states that any stage may have.

    Returns
    -------
    Plan
        The ordered plan of the set that Algorithm 1 chooses; empty if the peak fits.

    Raises
    ------
    MethodError
        If the problem has no chain view, there are too many states, or no plan is found, which
        does not mean that there is none: sizes are rounded up.
    """
    if slots is not None and slots < 1:
        raise MethodError(f"DYNPROG needs at least 1 slot, not {slots}")
    view = chain_view(problem)
    if problem.trace.peak_memory <= problem.platform.memory:
        return Plan()
    if problem.trace.least_memory > problem.platform.memory:
        raise MethodError(
            f"no plan exists below {problem.trace.least_memory} bytes of memory, "
            f"and the limit is {problem.platform.memory}"
        )
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
