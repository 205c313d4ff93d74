"""The exact trade-off curve of a chain: live bytes against time spent on running stages again.

Ours. A chain is cut into segments that run again and stages that keep all they make. As in
`live_selection`, what a piece takes by itself concerns only the piece and what is stored before it,

``needed(h) = max(own bytes of the piece from h to i, bytes that it stores + needed(i))``,

and with time beside bytes only those continuations of a piece matter that are not worse in both.
All numbers are exact: no slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray, plain
from offcert.core.errors import MethodError
from offcert.core.program import Program, Segment
from offcert.heuristics.checkpoint.live import Selection, path, size_array

# Rows of the numbers of stages. By definition.
EXTRA, FORWARD, BACKWARD = 0, 1, 2


def live_selection(chain: CheckpointChain) -> Selection:
    """Return the checkpoints of least live bytes: no other set of checkpoints has fewer.

    Stages from one checkpoint to the next run again together, and the memory is the peak of that
    program's trace, exactly. Segments inside of segments may do with less.
    """
    outputs, gradients = size_array(chain.output), size_array(chain.gradient, "gradients")
    stages = np.array([chain.extra, chain.forward_workspace, chain.backward_workspace], np.int64)
    following = np.zeros(len(outputs), np.int64)
    memory = np.zeros(len(outputs), np.int64)
    least_live(outputs, gradients, stages, memory, following)
    return Selection(path(following), int(memory[0]))


@plain
def least_live(
    outputs: IntArray, gradients: IntArray, stages: IntArray, memory: IntArray, following: IntArray
) -> None:
    """Write ``M(h)`` and the next checkpoint after each `h`; ``M`` of the output is 0."""
    last = len(outputs) - 1
    memory[last] = 0
    for h in range(last - 1, -1, -1):
        # Bytes that are there once the stages so far have run and kept everything.
        held = outputs[h]
        first_run, again, backward, least = 0, 0, 0, -1
        for i in range(h + 1, last + 1):
            k = i - 1
            held += outputs[i] + stages[EXTRA, k]
            passing = outputs[h] + outputs[i] + stages[FORWARD, k]
            if k > h:
                passing += outputs[k]
            first_run = max(first_run, passing)
            again = max(again, held + stages[FORWARD, k])
            backward = max(backward, held + gradients[i] + gradients[k] + stages[BACKWARD, k])
            if i == last:
                # What runs last forward is needed first: it keeps everything at once.
                own = max(again, backward)
            elif i == h + 1 and stages[EXTRA, h] == 0:
                # Nothing of it is missing.
                own = max(first_run, backward)
            else:
                own = max(first_run, again + gradients[i], backward)
            needed = own if i == last else max(own, outputs[h] + memory[i])
            if least < 0 or needed < least:
                least, following[h] = needed, i
        memory[h] = least


# Continuations that are kept for all stages together, at most. Arbitrary.
MAX_CHOICES = 5_000_000


@dataclass(frozen=True, slots=True)
class Trade:
    """Segments such that no others take as little memory and as little time.

    First and last stages increase, and stages in no segment run once; `memory` is the most live
    bytes, and `again` the ticks that running stages again takes.
    """

    segments: tuple[tuple[int, int], ...]
    memory: int
    again: int

    @property
    def program(self) -> Program:
        """The segments that the runtime runs again."""
        return Program(Segment(first, last) for first, last in self.segments)


@dataclass(frozen=True, slots=True)
class _Choices:
    """From one stage on: bytes increase, ticks fall; where the piece ends, and what follows it.

    The entry of a segment is the stage before which it ends, that of a stage that is kept `KEPT`.
    """

    memory: IntArray
    again: IntArray
    ends: IntArray
    following: IntArray


# The mark of a stage that does not run again. By definition.
KEPT = -1


def live_curve(
    chain: CheckpointChain, memory: int | None = None, max_choices: int = MAX_CHOICES
) -> list[Trade]:
    """Return all trades of memory against time, from the least memory on, within some bytes.

    Stages of a segment run again together, as under ``torch.utils.checkpoint``. Memory increases,
    time falls; there are none if no segments make the chain fit. With more continuations than
    `max_choices` it raises a `MethodError`.
    """
    size_array((*chain.output, *chain.extra))
    last = len(chain)
    nothing = np.zeros(1, np.int64)
    choices = {last: _Choices(nothing, nothing, nothing, nothing)}
    kept = 0
    for h in range(last - 1, -1, -1):
        # The input is there besides, whatever lies between.
        room = None if memory is None else memory - (chain.output[0] if h else 0)
        choices[h] = _choices(chain, h, choices, room)
        kept += len(choices[h].memory)
        if kept > max_choices:
            raise MethodError(f"the curve keeps more than {max_choices} continuations")
    first = choices[0]
    return [
        Trade(_segments(choices, index, last), int(first.memory[index]), int(first.again[index]))
        for index in range(len(first.memory))
    ]


def _choices(
    chain: CheckpointChain, h: int, choices: dict[int, _Choices], room: int | None
) -> _Choices:
    """Return the continuations from stage `h` on of which none is worse in both."""
    parts = []
    for piece in pieces(chain, h):
        after = choices[h + 1 if piece.end == KEPT else piece.end]
        needed = np.maximum(after.memory + piece.stored, piece.own)
        index = np.arange(len(needed))
        parts.append((needed, after.again + piece.again, np.full_like(index, piece.end), index))
    columns = [np.concatenate([part[column] for part in parts]) for column in range(4)]
    needed, again = columns[0], columns[1]
    # For equal bytes the least time first; then only what takes less time than all before.
    order = np.lexsort((again, needed))
    if room is not None:
        order = order[needed[order] <= room]
    if len(order):
        ordered = again[order]
        least = np.minimum.accumulate(ordered)
        order = order[np.concatenate([[True], ordered[1:] < least[:-1]])]
    return _Choices(*(column[order] for column in columns))


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment, or a stage that is kept.

    Before stage `end` the segment ends; `KEPT` is the mark of a stage that is kept. While its
    stages run they take at most `own` bytes beside what is stored before; `stored` bytes stay while
    later stages run, and `again` ticks run again.
    """

    end: int
    own: int
    stored: int
    again: int


def pieces(chain: CheckpointChain, h: int) -> Iterator[Piece]:
    """Yield every piece that begins with stage `h`.

    No segment ends with the last stage: its results are needed as soon as they are there, so
    running it again would bring back what need not have gone.
    """
    output, gradient = chain.output, chain.gradient
    held = output[h]
    first_run = again_run = backward = ticks = 0
    for k in range(h, len(chain)):
        i = k + 1
        held += chain.saved[k]
        ticks += chain.forward[k]
        passing = output[h] + output[i] + (output[k] if k > h else 0)
        first_run = max(first_run, passing + chain.forward_workspace[k])
        again_run = max(again_run, held + chain.forward_workspace[k])
        backward = max(backward, held + gradient[i] + gradient[k] + chain.backward_workspace[k])
        if k == h:
            yield Piece(KEPT, max(again_run, backward), output[h] + chain.extra[h], 0)
        if i < len(chain):
            own = max(first_run, again_run + gradient[i], backward)
            yield Piece(i, own, output[h], ticks)


def _segments(choices: dict[int, _Choices], index: int, last: int) -> tuple[tuple[int, int], ...]:
    segments = []
    h = 0
    while h < last:
        at = choices[h]
        end = int(at.ends[index])
        index = int(at.following[index])
        if end == KEPT:
            end = h + 1
        else:
            segments.append((h, end - 1))
        h = end
    return tuple(segments)
