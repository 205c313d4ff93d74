"""The best strategy and the inputs that leave, from the tables of the dynamic program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray
from offcert.heuristics.combined.kernels import NEVER, Shorts, cells, fill_forward, fill_recompute
from offcert.heuristics.combined.slots import SlottedChain


class Sweep(NamedTuple):
    """A sweep of the first forward pass, from a first stage to a last one.

    It is full if everything that the last one makes is kept, and not its output alone; the input of
    the first one may be offloaded.
    """

    first: int
    last: int
    full: bool
    leaves: bool


@dataclass(frozen=True)
class Decisions:
    """The decisions of the dynamic program, and their ticks in slots.

    Sweeps are those of the first forward pass, without the last stage. The order is of stages whose
    forward operation runs; those of backward operations stand as ``-1 - i``.
    """

    value: int
    sweeps: tuple[Sweep, ...]
    order: tuple[int, ...]


class Tables:
    """The filled tables of one chain.

    A bare stage keeps all that it makes without its input, which the paper's operations do not do.
    """

    def __init__(self, chain: SlottedChain, again: bool, bare: bool) -> None:
        self.chain = chain
        self.bases = (cells(chain.slots, chain.most, 1), cells(chain.slots, chain.most, 2))
        self.planes = _planes(chain.stages, again, bare)
        count = int(self.planes.max()) + 1
        self.cost: IntArray = np.full((count, self.bases[0][-1]), NEVER, dtype=np.int64)
        self.moved: Shorts = np.zeros(self.cost.shape, dtype=np.int16)
        self.later: Shorts = np.zeros(self.cost.shape, dtype=np.int16)
        shape = (2, chain.stages, int(self.bases[1][-1]))
        self.value: IntArray = np.full(shape, NEVER, dtype=np.int64)
        self.first: Shorts = np.zeros(shape, dtype=np.int16)
        self._fill(again, bare)

    def _fill(self, again: bool, bare: bool) -> None:
        chain = self.chain
        fill_recompute(
            self.planes,
            self.bases[0],
            (chain.slots, chain.unit, *chain.rate),
            (chain.output, chain.hold, chain.own),
            (
                chain.first_again,
                chain.forward,
                chain.backward,
                chain.returned,
                np.ascontiguousarray(chain.idle[1]),
            ),
            (chain.back.first, chain.back.rest, chain.back.pressed),
            self.cost,
            self.moved,
            self.later,
        )
        fill_forward(
            self.planes,
            self.bases,
            (chain.slots, chain.unit, int(bare), int(again), int(chain.most > 0)),
            (chain.input, chain.output, chain.own, chain.forward, chain.backward),
            (chain.out.passed, chain.returned),
            (chain.idle, chain.moved, chain.turn),
            (chain.out.first, chain.out.rest, chain.out.pressed),
            (self.cost, self.moved),
            self.value,
            self.first,
        )

    def decisions(self) -> Decisions | None:
        """Return the best decisions, or None if nothing fits."""
        value = int(self.value[0, 0, 0])
        if value >= NEVER:
            return None
        sweeps, backward = [], []
        x = i = kept = front = back = 0
        chain = self.chain
        while i < chain.stages - 1:
            width = self._width(kept)
            code = int(self.first[x, i, self.bases[1][kept] + front * width + back])
            sweep = Sweep(i, i + code // 4, bool(code & 2), bool(code & 1))
            z, j, size = int(sweep.full), sweep.last, int(chain.input[x, i])
            sweeps.append(sweep)
            backward.append((z, i, j, kept + size, back))
            cell = self.bases[0][kept + size] + back
            back = max(0, back - int(self.moved[self.planes[z, i, j], cell]))
            passed = int(chain.out.passed[j + 1] - chain.out.passed[i])
            passed += int(chain.moved[0, self._lacking(sweep, kept + front, size)])
            front = max(0, front + (size if sweep.leaves else 0) - passed)
            if sweep.leaves:
                back += size
            else:
                kept += size
            x, i = z, j + 1
        order = [*range(chain.stages), -chain.stages]
        for state in reversed(backward):
            order += self._again(*state)
        return Decisions(value, tuple(sweeps), tuple(order))

    def _width(self, kept: int) -> int:
        return min(self.chain.most, self.chain.slots - kept) + 1

    def _lacking(self, sweep: Sweep, held: int, size: int) -> int:
        chain = self.chain
        pressed = int(chain.out.pressed[int(sweep.full), sweep.first, sweep.last])
        return max(0, -(-pressed // chain.unit) + size - chain.slots + held)

    def _again(self, y: int, i: int, j: int, kept: int, late: int) -> Iterator[int]:
        """Yield the operations from the input of stage i back to it."""
        if i == j:
            yield from () if y else (i,)
            yield -1 - i
            return
        plane, cell = self.planes[y, i, j], self.bases[0][kept] + late
        code = int(self.later[plane, cell])
        z, k = code % 2, i + code // 2
        yield from range(i, k + 1)
        last = self.planes[z, i, k]
        back = max(0, late - int(self.moved[last, cell]))
        yield from self._again(y, k + 1, j, kept + int(self.chain.output[z, k]), back)
        yield from self._again(z, i, k, kept, late)


def _planes(stages: int, again: bool, bare: bool) -> IntArray:
    """Number the planes that are needed."""
    planes = np.full((2, stages, stages), -1, dtype=np.int64)
    count = 0
    for y in range(2):
        for i in range(stages - 1):
            for j in range(i, stages - 1):
                if (y == 1 and i == j) or (again and (y == 0 or bare)):
                    planes[y, i, j] = count
                    count += 1
    return planes
