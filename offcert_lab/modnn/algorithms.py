"""Convolution algorithms: how long each takes and which workspace it needs, by stated formulas.

The formulas, and where they come from, are in docs/theory/modnn.md. A convolution of `N` images
with `C` channels into `K`, kernel `k × k`, output `p × p`, has three passes: forward, the gradient
of what it read (``DATA``), and the gradient of its weights (``FILTER``). With three algorithms the
other passes are the same product with the roles of its matrices exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from offcert.questions.split.menu import Alternative, undominated

# Nanoseconds in a second. By definition.
_NS_PER_SECOND = 10**9
# The tiles in which matrix products are made: rows, at 64 columns. A library has kernels for
# several, and takes the fastest for a shape. Assumed.
_ROWS, _COLUMNS = (128, 64, 32, 16), 64
# The longest inner dimension that is not divided; longer ones are, so that there is work for all
# processors. Assumed.
_INNER = 1024


@dataclass(frozen=True)
class Accelerator:
    """An accelerator, as far as the model of its kernels knows it.

    Attributes
    ----------
    name : str
        Name for people.
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
"""Bytes of what the paper calls a GB; docs/theory/modnn.md says why. Given by the moDNN paper."""
K40_MEMORY = 12 * GIGABYTE
"""Bytes; the paper says 12 GB, of which a little less is there."""


def _intensity(height: int) -> Fraction:
    """Return how much a tile computes for what it reads, relative to the largest one."""
    return Fraction(height * (_ROWS[0] + _COLUMNS), _ROWS[0] * (height + _COLUMNS))


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


FLOAT = 4
"""Bytes of a number. Given by single precision."""

IMPLICIT, LOWERED, WINOGRAD, FOURIER = "implicit-gemm", "gemm", "winograd", "fft"

# Part of the peak that the products of an algorithm reach: assumptions, see the documentation.
EFFICIENCY = {
    IMPLICIT: Fraction(2, 5),
    LOWERED: Fraction(7, 10),
    WINOGRAD: Fraction(3, 5),
    FOURIER: Fraction(3, 5),
}


class Pass(StrEnum):
    """The pass of a convolution: its output, or one of its two gradients."""

    FORWARD = "forward"
    DATA = "data"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Convolution:
    """The shape of a convolution; of a transposed one, that of the convolution it transposes."""

    channels: int
    outputs: int
    kernel: int
    stride: int
    read_side: int
    made_side: int

    @property
    def weights(self) -> int:
        """Numbers in its kernels."""
        return self.channels * self.outputs * self.kernel**2


def alternatives(
    accelerator: Accelerator, shape: Convolution, way: Pass, images: int, traffic: int = 0
) -> tuple[Alternative, ...]:
    """Return the algorithms for a pass of a convolution that no other one beats.

    Parameters
    ----------
    accelerator : Accelerator
        On which they run.
    shape : Convolution
        Shape of the convolution.
    way : Pass
        The pass that is computed.
    images : int
        Images in a sub-batch.
    traffic : int
        Bytes that are moved beside what the pass itself reads and writes, and its workspace.

    Returns
    -------
    tuple of Alternative
        By increasing workspace; the first has none.
    """
    own = shape.channels * shape.read_side**2 + shape.outputs * shape.made_side**2
    moved = (own * images + shape.weights) * FLOAT + traffic
    found = []
    for name, arithmetic, workspace, beside, kernels in _algorithms(
        accelerator, shape, way, images
    ):
        time = max(arithmetic, accelerator.traffic_time(moved + beside))
        found.append(Alternative(name, time + kernels * accelerator.overhead, workspace))
    return undominated(found)


# Name, ticks of the arithmetic, bytes of workspace, bytes moved beside, number of kernels.
_Costs = tuple[str, int, int, int, int]


def _algorithms(
    accelerator: Accelerator, shape: Convolution, way: Pass, images: int
) -> Iterator[_Costs]:
    pixels = shape.made_side**2
    inner = shape.channels * shape.kernel**2
    plain = _product(accelerator, way, images * pixels, shape.outputs, inner, 1, IMPLICIT)
    yield IMPLICIT, plain, 0, 0, 1
    if shape.kernel == shape.stride == 1:
        # The lowered matrix is what is read itself.
        time = _product(accelerator, way, images * pixels, shape.outputs, inner, 1, LOWERED)
        yield LOWERED, time, 0, 0, 1
    else:
        yield _lowered(accelerator, shape, way, images)
    if shape.kernel == 3 and shape.stride == 1:
        yield _winograd(accelerator, shape, way, images)
    if shape.kernel > 1 and shape.stride == 1:
        yield _fourier(accelerator, shape, way, images)


def _lowered(accelerator: Accelerator, shape: Convolution, way: Pass, images: int) -> _Costs:
    """Write the patches of one image as a matrix, multiply it, go on to the next image."""
    pixels = shape.made_side**2
    inner = shape.channels * shape.kernel**2
    workspace = inner * pixels * FLOAT
    time = _product(accelerator, way, pixels, shape.outputs, inner, 1, LOWERED)
    return LOWERED, images * time, workspace, 2 * images * workspace, 2 * images


def _winograd(accelerator: Accelerator, shape: Convolution, way: Pass, images: int) -> _Costs:
    """Transform tiles of 4 × 4 for outputs of 2 × 2: 16 products, 2.25 times fewer operations."""
    points = 16
    tiles = (-(-shape.made_side // 2)) ** 2
    filters = points * shape.channels * shape.outputs * FLOAT
    per_image = points * tiles * (shape.channels + shape.outputs) * FLOAT

    def time(count: int) -> int:
        rows, columns, inner = count * tiles, shape.outputs, shape.channels
        return _product(accelerator, way, rows, columns, inner, points, WINOGRAD)

    workspace = filters + per_image * min(images, accelerator.chunk)
    chunks = -(-images // accelerator.chunk)
    beside = 2 * (filters + per_image * images)
    return WINOGRAD, _in_chunks(images, accelerator.chunk, time), workspace, beside, 2 + 2 * chunks


def _fourier(accelerator: Accelerator, shape: Convolution, way: Pass, images: int) -> _Costs:
    """Transform whole images: a complex product of images by channels for each frequency."""
    side = shape.read_side + shape.kernel - 1
    side += side % 2
    frequencies = side * (side // 2 + 1)
    plane = 2 * frequencies * FLOAT
    filters = plane * shape.channels * shape.outputs
    per_image = plane * (shape.channels + shape.outputs)

    def time(count: int) -> int:
        # A complex multiplication takes four real ones.
        rows, columns, inner = count, shape.outputs, 4 * shape.channels
        planes = (shape.channels + shape.outputs) * count
        return _product(accelerator, way, rows, columns, inner, frequencies, FOURIER) + _transforms(
            accelerator, side, planes
        )

    workspace = filters + per_image * min(images, accelerator.chunk)
    chunks = -(-images // accelerator.chunk)
    beside = 2 * (filters + per_image * images)
    arithmetic = _in_chunks(images, accelerator.chunk, time)
    arithmetic += _transforms(accelerator, side, shape.channels * shape.outputs)
    return FOURIER, arithmetic, workspace, beside, 2 + 4 * chunks


def _transforms(accelerator: Accelerator, side: int, planes: int) -> int:
    """Return the ticks of real transforms of squares: 5/2 n log2 n operations for n numbers."""
    numbers = side * side
    flops = planes * 5 * numbers * (numbers - 1).bit_length() // 2
    reached = accelerator.flops * EFFICIENCY[FOURIER]
    return -(-flops * 10**9 * reached.denominator // reached.numerator)


def _in_chunks(images: int, chunk: int, time: Callable[[int], int]) -> int:
    whole, rest = divmod(images, chunk)
    return (whole * time(chunk) if whole else 0) + (time(rest) if rest else 0)


def _product(
    accelerator: Accelerator,
    way: Pass,
    rows: int,
    columns: int,
    inner: int,
    count: int,
    algorithm: str,
) -> int:
    """Return the ticks of products that the forward pass makes as rows × inner by inner × columns.

    The gradient of what was read is of the shape rows × inner, that of the weights inner × columns.
    """
    shapes = {
        Pass.FORWARD: (rows, columns, inner),
        Pass.DATA: (rows, inner, columns),
        Pass.FILTER: (columns, inner, rows),
    }
    return accelerator.product_time(*shapes[way], count, EFFICIENCY[algorithm])
