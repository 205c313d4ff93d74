"""Traces of stages that save their input and internals, as profiled networks do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offcert.core.trace import Operation, Tensor, Trace


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a network.

    Attributes
    ----------
    name : str
        For people.
    forward, backward : int
        Durations of ``F_i`` and ``B_i`` in ticks.
    output : int
        Size of ``x_{i+1}``; its gradient is as large.
    internals : int
        Size of what ``F_i`` saves for ``B_i`` besides its input.
    forward_workspace, backward_workspace : int
        Sizes taken only while ``F_i`` or ``B_i`` runs.
    """

    name: str
    forward: int
    backward: int
    output: int
    internals: int = 0
    forward_workspace: int = 0
    backward_workspace: int = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """A connection that feeds the output of stage `source` to stage `target` too.

    Attributes
    ----------
    source, target : int
        Numbers of stages, ``source + 1 < target``.
    """

    source: int
    target: int


def stage_trace(
    image: int, stages: Sequence[Stage], skips: Iterable[Skip] = (), *, hold: bool = True
) -> Trace:
    """Return the trace of one training step.

    ``x_i`` is written by ``F_{i-1}`` and read by ``F_i``, ``B_i`` and what skips lead to; the
    internals of stage ``i`` live from ``F_i`` to ``B_i``; the gradient of ``x_i`` from the first
    backward operation that adds to it to ``B_{i-1}``.

    Parameters
    ----------
    image : int
        Size of ``x_0``, resident at the start; it gets no gradient.
    stages : sequence of Stage
        In the order of the forward pass.
    skips : iterable of Skip
        At most one from each stage.
    hold : bool
        Whether what a skip carries stays on the device from its writer to its last forward reader
        and again from its first backward reader on. It then has one gap, and all gaps are nested
        around the turn from forward to backward; otherwise it has up to three.
    """
    count = len(stages)
    last = 2 * count - 1
    target = {skip.source: skip.target for skip in skips}
    operations = [Operation(f"F:{s.name}", s.forward, s.forward_workspace) for s in stages]
    operations += [
        Operation(f"B:{s.name}", s.backward, s.backward_workspace) for s in reversed(stages)
    ]
    tensors = []
    gradients = []
    sizes = [image, *(stage.output for stage in stages)]
    for i, size in enumerate(sizes):
        readers = [i] if i < count else []
        readers += [target[i - 1]] if i - 1 in target else []
        uses = {i - 1, *readers, *(last - reader for reader in readers)}
        if hold and len(readers) > 1:
            uses |= set(range(i - 1, readers[-1])) | set(range(last - readers[-1], last - i))
        if i == count:
            # The loss is taken as part of the last stage, which starts the backward pass.
            uses = {count - 1, count}
        tensors.append(Tensor(f"x{i}", size, tuple(sorted(uses)), evictable=i < count))
        if i < count:
            internals = (i, last - i)
            tensors.append(Tensor(f"internals{i}", stages[i].internals, internals))
        if i > 0:
            first = last - max(readers) if readers else count
            gradients.append(
                Tensor(f"y{i}", size, tuple(sorted({first, last - (i - 1)})), evictable=False)
            )
    return Trace(operations, [*tensors, *reversed(gradients)])
