"""The state space of Algorithm 1 of the offloading paper (§5), compiled.

Sizes are in one unit: bytes (or slots). Times are the bytes that the link moves meanwhile in the
direction concerned, so that ``beta = 1`` in either. The paper has one rate; where there are two,
``Delta_F`` is served at that of offloads and ``Delta_B`` at that of prefetches, and only where
times of both meet (the idle times' sum and the turn) are they weighted. A state before stage ``i``
is

- ``kept``: ``M_F - Delta_F^+``, the bytes of ``x_i`` and of what is never offloaded before it;
- ``front``: ``Delta_F``, the bytes still to be offloaded when ``F_{i-1}`` ends, or minus the time
  since the last offload;
- ``back``: ``Delta_B``, the bytes of ``x_{i-1} .. x_0`` prefetched before ``B_{i-1}`` starts, or
  minus the time until the first prefetch;
- ``idle``: the sum of the delays so far, weighted.

``M_F = kept + Delta_F^+`` and ``M_B = |y_i| + kept + Delta_B^+`` (the paper's identities, which
need the positive parts), so equations (1) to (8) involve nothing else.

Two reductions keep the least idle time. ``Delta`` is clamped from below at minus the time to move
everything in the other direction: (9) and (10) compare it with at most that. And of two states with
equal ``kept``, the first can imitate the second by waiting until its deltas are as small, so it
dominates if ``idle_1 + (front_1 - front_2)^+ + (back_1 - back_2)^+ <= idle_2``, both weighted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import IntArray, compiled
from offcert.core.errors import MethodError

# Rows of a table of states. By definition.
KEPT, FRONT, BACK, IDLE, PARENT, MOVED = 0, 1, 2, 3, 4, 5
# The largest number in the tables. Derived: sums of a few stay inside 64 bits.
_LARGEST = 2**60


@dataclass(frozen=True)
class ScaledChain:
    """A chain and a memory limit; times as what the link moves meanwhile in one direction."""

    memory: int
    # Length L+1. ``u_F`` times the rate of offloads and ``u_B`` times that of prefetches.
    forward: Sequence[int]
    backward: Sequence[int]
    # Length L+1. ``u_F`` times the rate of prefetches and ``u_B`` times that of offloads.
    forward_back: Sequence[int]
    backward_out: Sequence[int]
    weights: tuple[int, int]  # Scaled time in which one unit of memory moves out, and one back.
    # Length L+2.
    activation: Sequence[int]
    gradient: Sequence[int]
    # Length L+1.
    forward_workspace: Sequence[int]
    backward_workspace: Sequence[int]

    @property
    def total_size(self) -> int:
        """All activations together."""
        return sum(self.activation)

    def require_small(self) -> None:
        """Raise MethodError unless sums of these numbers fit into 64 bits."""
        times = (self.forward, self.backward, self.forward_back, self.backward_out)
        largest = max(map(sum, times[::2])) + max(map(sum, times[1::2]))
        largest += self.total_size + sum(self.gradient)
        largest += self.memory + max(*self.forward_workspace, *self.backward_workspace, 0)
        # Clamped deltas are as large as everything in the other direction.
        largest *= max(self.weights)
        if largest >= _LARGEST:
            raise MethodError("Algorithm 1's numbers do not fit into 60 bits on this problem")


def least_idle(chain: ScaledChain, max_states: int) -> tuple[int, tuple[int, ...]] | None:
    """Run Algorithm 1; return the least idle time that it computes, and the activations for it.

    The time is that of all delays of an ordered no-wait schedule. A stage of more states, or
    numbers that are too large, raise a `MethodError`.
    """
    chain.require_small()
    states = np.array([[chain.activation[0]], [0], [0], [0], [-1], [0]], dtype=np.int64)
    history = []  # all that backtracking needs, a tenth of the states' bytes
    out, back = chain.weights
    floors = (-chain.total_size * back // out, -chain.total_size * out // back)
    last = len(chain.forward) - 1
    for stage in range(last + 1):
        numbers = _stage_numbers(chain, stage)
        candidates = expand(states, numbers, stage < last, floors)
        order = np.lexsort(candidates[[MOVED, BACK, FRONT, IDLE, KEPT]])
        states = np.take(candidates, undominated(candidates, order, out, back), axis=1)
        history.append((states[PARENT].astype(np.int32), states[MOVED].astype(np.bool_)))
        if states.shape[1] > max_states:
            raise MethodError(
                f"Algorithm 1 has more than {max_states} states at stage {stage}; use fewer slots"
            )
    if states.shape[1] == 0:
        return None
    total = states[IDLE] + _turn_idle(chain, states)
    # The paper leaves ties open; the least moved is the safest once transfers are atomic.
    state = best = int(np.lexsort((-states[KEPT], total))[0])
    offloaded = []
    for stage in range(last, -1, -1):
        parents, moved = history[stage]
        if moved[state]:
            offloaded.append(stage)
        state = int(parents[state])
    return int(total[best]), tuple(reversed(offloaded))


def _stage_numbers(chain: ScaledChain, stage: int) -> IntArray:
    """Return the sizes, times and room of one stage, in the order that `expand` reads."""
    gradients = chain.gradient[stage] + chain.gradient[stage + 1]
    room = chain.memory - chain.activation[stage + 1]
    return np.array(
        [
            chain.activation[stage],
            chain.activation[stage + 1],
            chain.forward[stage],
            chain.backward[stage],
            room - chain.forward_workspace[stage],
            room - chain.backward_workspace[stage] - gradients,
            *chain.weights,
        ],
        dtype=np.int64,
    )


@compiled
def expand(states: IntArray, numbers: IntArray, movable: bool, floors: tuple[int, int]) -> IntArray:
    """Return the successors of all states of a stage, by equations (1) to (8).

    The numbers are ``|x_i|``, ``|x_{i+1}|``, ``u_F``, ``u_B``, the memory that ``F_i`` and ``B_i``
    leave to everything but their outputs, gradients and workspaces, and the weights; the floors are
    the least values of the deltas. The last activation, ``x_L``, is in use until ``F_L`` ends and
    again when ``B_L`` starts, so moving it only costs time.
    """
    size, output, forward, backward, front_room, back_room, out_weight, back_weight = numbers
    successors = np.empty((6, 2 * states.shape[1]), dtype=np.int64)
    count = 0
    for state in range(states.shape[1]):
        kept, front, back = states[KEPT, state], states[FRONT, state], states[BACK, state]
        if kept > front_room or kept > back_room:
            continue
        front_idle = max(0, kept + max(0, front) - front_room)  # (1)
        back_idle = max(0, kept + max(0, back) - back_room)  # (6), with ex^B
        for moved in range(2 if movable and size > 0 else 1):
            if moved:
                kept_after = kept - size + output
                front_after = max(0, front) + size - front_idle - forward  # (2)
                back_after = size + max(0, back - back_idle - backward)  # (7)
            else:
                kept_after = kept + output
                front_after = front - front_idle - forward  # (4)
                back_after = back - back_idle - backward  # (8)
            successors[KEPT, count] = kept_after
            successors[FRONT, count] = max(floors[0], front_after)
            successors[BACK, count] = max(floors[1], back_after)
            waited = front_idle * out_weight + back_idle * back_weight
            successors[IDLE, count] = states[IDLE, state] + waited
            successors[PARENT, count] = state
            successors[MOVED, count] = moved
            count += 1
    # Contiguous whatever the count: each layout would be compiled for separately.
    return successors[:, :count].copy()


@compiled
def undominated(states: IntArray, order: IntArray, out: int, back: int) -> IntArray:
    """Return the states that no other state with equal ``kept`` dominates.

    Only states that are earlier by ``kept``, ``idle``, ``front`` and ``back`` can.
    """
    chosen = np.empty(len(order), dtype=np.int64)
    count = first = 0
    for state in order:
        if count > first and states[KEPT, chosen[first]] != states[KEPT, state]:
            first = count
        dominated = False
        for place in range(first, count):
            other = chosen[place]
            wait = out * max(0, states[FRONT, other] - states[FRONT, state])
            wait += back * max(0, states[BACK, other] - states[BACK, state])
            if states[IDLE, other] + wait <= states[IDLE, state]:
                dominated = True
                break
        if not dominated:
            chosen[count] = state
            count += 1
    return chosen[:count]


def _turn_idle(chain: ScaledChain, states: IntArray) -> IntArray:
    """Return ``epsilon_G`` of final states, by equations (9) and (10) as corrected.

    The maxima over ``j`` run over all stages: for one with ``U_j >= Av`` the term cannot exceed
    ``Delta - Av``, because the state passed the memory test of stage ``j``. (10) lets the prefetch
    of an ``x_j`` begin while ``F_j`` still reads it; the state does not tell.
    """
    front, back = states[FRONT], states[BACK]
    out_weight, back_weight = chain.weights
    kept = states[KEPT] - chain.memory
    front_memory = kept + np.maximum(front, 0)
    back_memory = kept + np.maximum(back, 0) + chain.gradient[-1]
    front_waits = front_memory + _most_needed(
        [
            workspace + chain.gradient[j] + chain.gradient[j + 1]
            for j, workspace in enumerate(chain.backward_workspace)
        ],
        chain.backward_out,
        chain.activation,
    )
    back_waits = back_memory + _most_needed(
        [workspace - chain.gradient[-1] for workspace in chain.forward_workspace],
        chain.forward_back,
        chain.activation,
    )
    meets = np.maximum(front * out_weight + back * back_weight, 0)
    one_sided = np.where(
        front > 0, front_waits * out_weight, np.where(back > 0, back_waits * back_weight, 0)
    )
    return np.where((front > 0) & (back > 0), meets, np.maximum(meets, one_sided))


def _most_needed(needs: Sequence[int], times: Sequence[int], activation: Sequence[int]) -> int:
    """Return the maximum over stages ``j`` of ``R_j - U_j``.

    ``R_j`` is ``needs[j]`` less the activations after ``x_{j+1}``, which are gone by then; ``U_j``
    is the time of the later stages.
    """
    best = None
    gone = elapsed = 0
    for j in range(len(needs) - 1, -1, -1):
        value = needs[j] - gone - elapsed
        best = value if best is None else max(best, value)
        gone += activation[j + 1]
        elapsed += times[j]
    assert best is not None
    return best
