"""The K40 of the moDNN paper, and how long a kernel takes on it: a roofline with partial tiles.

Everything here is a stated model, in integers and rationals, so that a problem is the same on every
machine. The paper measures its times and prints none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_NS_PER_SECOND = 10**9
# The tiles in which matrix products are made: rows, at 64 columns. A library has kernels for
# several, and takes what is fastest for a shape.
_ROWS, _COLUMNS = (128, 64, 32, 16), 64
# A long inner dimension is divided, so that there is work for all processors.
_INNER = 1024


@dataclass(frozen=True)
class Accelerator:
    """An accelerator, as far as the model of its kernels knows it.

    Attributes
    ----------
    name : str
        For people.
    flops : int
        Peak floating-point operations per second.
    processors : int
        Multiprocessors; each makes one tile at a time.
    memory_bandwidth : int
        Bytes per second of the device memory.
    link_bandwidth : int
        Bytes per second between host and device, in one direction.
    overhead : int
        Nanoseconds that every kernel takes beyond its work.
    chunk : int
        Images that algorithms which transform them take at a time; it bounds their workspace.
    """

    name: str
    flops: int
    processors: int
    memory_bandwidth: int
    link_bandwidth: int
    overhead: int
    chunk: int = 32

    def traffic_time(self, size: int) -> int:
        """Return the nanoseconds in which the device memory moves so many bytes."""
        return _up(size * _NS_PER_SECOND, self.memory_bandwidth)

    def product_time(
        self, rows: int, columns: int, inner: int, count: int, efficiency: Fraction
    ) -> int:
        """Return the nanoseconds of the arithmetic of `count` matrix products.

        Products are made of tiles, and tiles in waves, one tile a processor: what a tile or a wave
        lacks to be full costs as if it were there. A tile of fewer rows reads more for what it
        computes, and is slower in proportion to that (its rows times columns by rows plus columns).

        Parameters
        ----------
        rows, columns, inner : int
            Of one product.
        count : int
            Independent products of this shape.
        efficiency : Fraction
            Part of the peak that a full wave of the largest tiles reaches.
        """
        pieces = _up(inner, _INNER)
        length = _up(inner, pieces)
        best = None
        for height in _ROWS:
            tiles = count * pieces * _up(rows, height) * _up(columns, _COLUMNS)
            done = _up(tiles, self.processors) * self.processors
            flops = 2 * done * height * _COLUMNS * length
            reached = self.flops * efficiency * _intensity(height)
            time = _up(flops * _NS_PER_SECOND * reached.denominator, reached.numerator)
            best = time if best is None else min(best, time)
        assert best is not None
        return best


K40 = Accelerator(
    name="k40",
    # 2880 cores, 745 MHz, a multiplication and an addition each.
    flops=4_290_000_000_000,
    processors=15,
    memory_bandwidth=288_000_000_000,
    # The paper states no rate. Measured on PCI Express 3.0 x16 in the offloading paper.
    link_bandwidth=12_200_000_000,
    overhead=2_000,
)
"""NVIDIA Tesla K40, 12 GB; flops, multiprocessors and bandwidth from its data sheet."""

GIGABYTE = 2**30
"""Bytes of what the paper calls a GB; docs/theory/modnn.md says why."""
K40_MEMORY = 12 * GIGABYTE
"""Bytes; the paper says 12 GB, of which a little less is there."""


def _intensity(height: int) -> Fraction:
    """Return how much a tile computes for what it reads, relative to the largest one."""
    return Fraction(height * (_ROWS[0] + _COLUMNS), _ROWS[0] * (height + _COLUMNS))


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
