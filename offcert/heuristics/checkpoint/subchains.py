"""Bytes and ticks of the parts of a chain, on which the dynamic program over subchains rests.

The subchain from stage `i` to stage `j` begins with ``a_i`` on the device, and ends when ``B_i``
has run; ``d_{j+1}`` is there all the time, if it is not the last stage's, which appears with
``B_j``. Its bytes count ``a_i``, that gradient, and everything of its own; not what is stored
outside. By persistency ``a_i`` stays until ``B_i``. There are two ways to begin:

- ``F_i`` keeps everything (``F_all``). Then come the subchain from ``i + 1`` to ``j``, beside what
  stage `i` stored, and ``B_i``.
- ``F_i`` and those behind it, up to ``F_{k-1}``, keep their outputs only (``F_ck``, then ``F_∅``,
  which drops its input); ``a_k`` is stored. Then come the subchain from ``k`` to ``j`` beside
  ``a_i``, and the subchain from ``i`` to ``k - 1``, for which ``a_k`` is not needed any more.

Source: the combined paper's supplement, its ``C_A`` with no bandwidth; Beaumont, Eyraud-Dubois,
Herrmann, Joly, Shilova, *Optimal checkpointing for heterogeneous chains* (2019). Here bytes are
those of `offcert.core.checkpoint_chain.CheckpointChain.network`, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray
from offcert.core.computations import Run
from offcert.core.strategy import Strategy

# The mark of a subchain in which everything is kept; other numbers are the stage whose input is
# stored next. By definition.
KEEP_ALL = -1


@dataclass(frozen=True)
class Subchains:
    """A chain as the arrays that the dynamic programs read; all in bytes or ticks.

    Attributes
    ----------
    forward, backward : int64 array
        Ticks of ``F_i`` and ``B_i``.
    output : int64 array
        Bytes of ``a_i``; one more than there are stages.
    beside : int64 array
        Bytes that ``F_i`` stores beside its output, for ``B_i``, if it keeps all.
    gradient : int64 array
        Bytes of ``d_{j+1}`` that are there while the subchain to `j` begins; 0 for the last stage.
    keeping, turning : int64 array
        Bytes while ``F_i`` runs and keeps all, without that gradient; and while ``B_i`` runs.
    passing : int64 array
        Bytes while ``F_k`` runs and keeps its output only: that, its input and its workspace.
    """

    forward: IntArray
    backward: IntArray
    output: IntArray
    beside: IntArray
    gradient: IntArray
    keeping: IntArray
    turning: IntArray
    passing: IntArray

    @classmethod
    def of(cls, chain: CheckpointChain) -> Subchains:
        """Return the arrays of a chain."""
        stages = len(chain)
        output, extra = np.array(chain.output, np.int64), np.array(chain.extra, np.int64)
        gradient = np.array(chain.gradient, np.int64)
        both = output[:-1] + output[1:]
        return cls(
            np.array(chain.forward, np.int64),
            np.array(chain.backward, np.int64),
            output,
            extra,
            np.where(np.arange(stages) < stages - 1, gradient[1:], 0),
            both + extra + np.array(chain.forward_workspace, np.int64),
            both + extra + gradient[:-1] + gradient[1:] + np.array(chain.backward_workspace),
            both + np.array(chain.forward_workspace, np.int64),
        )

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self.forward)

    def sweep(self, first: int) -> IntArray:
        """Return the bytes on the way from ``a_first`` to ``a_k``, without gradient.

        Entry `k - first - 1` is for `k`, up to the last stage's input.
        """
        beside = self.passing[first + 1 : -1] + self.output[first]
        return np.maximum.accumulate(np.concatenate((self.passing[first : first + 1], beside)))


class Decision(Protocol):
    """How each subchain begins, by the memory that it may use.

    Attributes
    ----------
    budget : int
        Of the whole chain, in bytes or slots.
    """

    budget: int

    def choice(self, first: int, last: int, budget: int) -> int:
        """Return `KEEP_ALL`, or the stage whose input is stored next."""

    def kept(self, stage: int) -> int:
        """Return the memory that a stage which keeps all leaves less to the stages behind it."""

    def stored(self, stage: int) -> int:
        """Return the memory that a stage's stored input leaves less to the stages behind it."""


def strategy_of(stages: int, decide: Decision) -> Strategy:
    """Return the strategy of a chain with so many stages that some decisions make."""
    runs: list[Run | int] = []
    waiting: list[tuple[int, int, int] | int] = [(0, stages - 1, decide.budget)]
    while waiting:
        task = waiting.pop()
        if isinstance(task, int):
            runs.append(2 * stages - 1 - task)
            continue
        first, last, budget = task
        stored = decide.choice(first, last, budget)
        if stored == KEEP_ALL:
            runs.append(first)
            waiting.append(first)
            if first < last:
                waiting.append((first + 1, last, budget - decide.kept(first)))
            continue
        # F_ck and F_∅ discard what lies between; the values e_i come behind the outputs.
        runs += [Run(stage, (stages + 1 + stage,)) for stage in range(first, stored)]
        waiting.append((first, stored - 1, budget))
        waiting.append((stored, last, budget - decide.stored(first)))
    return Strategy(runs)
