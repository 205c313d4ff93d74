"""A chain in memory slots: the numbers that the combined paper's recursions look at.

Sizes are rounded up to slots, and what the link moves is rounded down, so whatever fits in slots
fits in bytes. Moved amounts are rounded as partial sums from the first stage on: of fifty stages in
each of which less than a slot passes the link, each by itself would move nothing. So a plan's time
in slots is close to its time in bytes, on either side of it; `timing` says what it is in bytes.
With enough slots for whole bytes nothing is rounded, and the values are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import IntArray
from offcert.core.errors import MethodError
from offcert.core.platform import Kind, Platform

# The largest number in a chain. Derived: sums of a few stay inside 64 bits.
LARGEST = 2**60
# Slots, at most: decisions and moved amounts are kept in 16 bits. Derived.
MOST_SLOTS = 32_000


class SlottedChain(NamedTuple):
    """A chain in slots, as kernels take it; stages count from 0 as in `CheckpointChain`."""

    stages: int
    slots: int  # Memory.
    unit: int  # Scaled bytes a slot.
    # (2, stages). Slots of the input of each stage: ``a`` alone, or all that the stage before has
    # kept.
    input: IntArray
    # (2, stages). Slots of what a sweep keeps whose last stage this is: ``a`` alone, or everything.
    output: IntArray
    # (2, stages). Scaled bytes that stay while what precedes ``B_j`` is computed again: the
    # gradient, and what stage j has kept if it has.
    hold: IntArray
    # (2, stages). Slots that ``F_i`` (with everything kept) and ``B_i`` take beside the stage's
    # input.
    own: IntArray
    # (stages,). Scaled bytes of ``F_i`` that keeps everything, for the gradient to be added to.
    first_again: IntArray
    # Of the first forward pass, during which data leave, and of later ones, during which they
    # return.
    out: Sweeps
    back: Sweeps
    # (stages + 1,). Ticks before each stage.
    forward: IntArray
    backward: IntArray
    # (stages + 1,). Slots that return during the backward operations of the stages before each.
    returned: IntArray
    idle: IntArray  # (2, 2 * slots + 1). Ticks in which so many slots leave, or return.
    moved: IntArray  # (2, 2 * slots + 1). Slots that pass the link in these ticks.
    # (slots + 1, slots + 1). Ticks between the last forward and the first backward operation in
    # which so many slots leave and then so many return.
    turn: IntArray
    rate: tuple[int, int]  # Slots a tick that return, as a fraction.
    most: int  # The most slots that may wait for the link: 0 if nothing may leave.


class Sweeps(NamedTuple):
    """Forward operations from stage i to stage j, of which the last keeps ``a`` or everything.

    First: scaled bytes of ``F_i``, beside its input; rest: the most that a later one takes;
    pressed: the most of all, each less what the link has moved by then (forward), or moves after
    it; each of shape (2, stages, stages). Passed: slots that pass the link during the forward
    operations before each stage.
    """

    first: IntArray
    rest: IntArray
    pressed: IntArray
    passed: IntArray


def slotted(
    chain: CheckpointChain, platform: Platform, slots: int | None, offload: bool
) -> SlottedChain:
    """Return a chain in slots."""
    rates = [platform.rate(kind) for kind in Kind]
    factor, unit, count = grid(platform, slots, offload)
    numbers = _Numbers(chain, factor, unit)
    longest = _longest(chain, platform)
    passing = [_coarse(rate * factor / unit, longest) for rate in rates]
    amounts = range(2 * count + 1)
    idle = [[-(-x * rate.denominator // rate.numerator) for x in amounts] for rate in passing]
    moved = [[int(ticks * rate) for ticks in row] for row, rate in zip(idle, passing, strict=True)]
    elapsed = list(accumulate(chain.forward, initial=0))
    passed = [[int(ticks * rate) for ticks in elapsed] for rate in passing]
    backward = list(accumulate(chain.backward, initial=0))
    most = count if offload else 0
    numbers.require_small(longest)
    return SlottedChain(
        stages=len(chain),
        slots=count,
        unit=unit,
        input=_array(numbers.inputs()),
        output=_array(numbers.outputs()),
        hold=_array(numbers.hold()),
        own=_array(numbers.own()),
        first_again=_array(numbers.first(stage, 1) for stage in range(len(chain))),
        out=numbers.sweeps(passed[0], forward=True),
        back=numbers.sweeps(passed[1], forward=False),
        forward=_array(elapsed),
        backward=_array(backward),
        returned=_array(int(ticks * passing[1]) for ticks in backward),
        idle=_array(idle),
        moved=_array(moved),
        turn=_turn(passing, most),
        rate=(passing[1].numerator, passing[1].denominator),
        most=most,
    )


def grid(platform: Platform, slots: int | None, offload: bool) -> tuple[int, int, int]:
    """Return the factor of bytes, the scaled bytes of a slot, and the number of slots."""
    if slots is None:
        rates = (platform.rate(kind) for kind in Kind)
        factor = math.lcm(*(rate.denominator for rate in rates)) if offload else 1
        unit, count = 1, platform.memory * factor
    else:
        # Without memory there are no slots, whatever a slot is.
        factor, unit, count = slots, max(1, platform.memory), slots if platform.memory else 0
    if count > MOST_SLOTS:
        raise MethodError(f"the memory has {count} slots, and at most {MOST_SLOTS} can be told")
    return factor, unit, count


def _turn(passing: Sequence[Fraction], most: int) -> IntArray:
    slow = [1 / rate for rate in passing]
    whole = math.lcm(*(each.denominator for each in slow))
    # Numbers too large for 64 bits are Python's, one by one.
    small = 2 * (most + 1) * sum(each * whole for each in slow) < LARGEST
    amounts = np.arange(most + 1, dtype=np.int64 if small else object)
    out, back = (amounts * int(each * whole) for each in slow)
    return np.asarray(-(-(out[:, None] + back[None, :]) // whole), dtype=np.int64)


def _longest(chain: CheckpointChain, platform: Platform) -> int:
    """Return ticks that nothing which is looked at exceeds."""
    stages = len(chain)
    compute = (stages + 1) * sum(chain.forward) + sum(chain.backward)
    transfers = sum(platform.transfer_time(2 * platform.memory, kind) for kind in Kind)
    return compute + 4 * (stages + 1) * (transfers + 1)


def _coarse(rate: Fraction, longest: int) -> Fraction:
    """Return a rate of few digits that is no higher, so that ticks times it stay inside 64 bits."""
    digits = max(0, (rate.numerator * longest // LARGEST).bit_length())
    if not digits:
        return rate
    numerator = rate.numerator >> digits
    if not numerator:
        raise MethodError("the times or sizes are too large for the combined program")
    return Fraction(numerator, (rate.denominator >> digits) + 1)


def _array(values: Any) -> IntArray:
    return np.array(list(values), dtype=np.int64)


class _Numbers:
    """Sizes in scaled bytes."""

    def __init__(self, chain: CheckpointChain, factor: int, unit: int) -> None:
        self.chain, self.factor, self.unit = chain, factor, unit
        self.stages = range(len(chain))

    def require_small(self, longest: int) -> None:
        """Raise MethodError unless sums of a few of these fit into 64 bits."""
        chain = self.chain
        work = max(*chain.forward_workspace, *chain.backward_workspace, 0)
        sizes = sum(chain.output) + sum(chain.saved) + 2 * sum(chain.gradient) + work
        if 4 * sizes * self.factor >= LARGEST or longest >= LARGEST:
            raise MethodError("the times or sizes are too large for the combined program")

    def slots(self, size: int) -> int:
        """Return the slots that so many bytes take."""
        return -(-size * self.factor // self.unit)

    def kept(self, stage: int, full: int) -> int:
        """Return bytes of what a sweep that ends with a stage keeps."""
        return self.chain.saved[stage] if full else self.chain.output[stage + 1]

    def inputs(self) -> list[list[int]]:
        """For each stage, slots of its input."""
        return [
            [self.slots(self.kept(i - 1, x) if i else self.chain.output[0]) for i in self.stages]
            for x in range(2)
        ]

    def outputs(self) -> list[list[int]]:
        """For each stage, slots of the values kept after it."""
        return [[self.slots(self.kept(i, z)) for i in self.stages] for z in range(2)]

    def hold(self) -> list[list[int]]:
        """For each stage, what stays until its backward operation."""
        gradient, saved = self.chain.gradient, self.chain.saved
        return [
            [(gradient[j + 1] + (saved[j] if y else 0)) * self.factor for j in self.stages]
            for y in range(2)
        ]

    def own(self) -> list[list[int]]:
        """For each stage, slots of its forward and its backward operation."""
        chain = self.chain
        backward = [
            chain.saved[i] + chain.gradient[i] + chain.gradient[i + 1] + chain.backward_workspace[i]
            for i in self.stages
        ]
        forward = [chain.saved[i] + chain.forward_workspace[i] for i in self.stages]
        return [[self.slots(size) for size in row] for row in (forward, backward)]

    def first(self, stage: int, full: int) -> int:
        """Return scaled bytes of a forward operation beside its input."""
        return (self.kept(stage, full) + self.chain.forward_workspace[stage]) * self.factor

    def later(self, stage: int, full: int) -> int:
        """Return scaled bytes of a forward operation together with its input, which it gives up."""
        return self.first(stage, full) + self.chain.output[stage] * self.factor

    def sweeps(self, passed: Sequence[int], forward: bool) -> Sweeps:
        """Return the slots that sweeps from any stage to any other take."""
        count = len(self.chain)
        first = np.zeros((2, count, count), dtype=np.int64)
        rest, pressed = np.zeros_like(first), np.zeros_like(first)
        lowest = -(2**61)
        for i in self.stages:
            # Of the operations from i on that are not last: the most, and the most under pressure.
            most = eased = lowest
            for j in range(i, count):
                for z in range(2):
                    need = self.first(j, z) if j == i else self.later(j, z)
                    gone = (passed[j] - passed[i]) * self.unit if forward else 0
                    first[z, i, j] = self.first(i, z if j == i else 0)
                    rest[z, i, j] = max(most, need) if j > i else lowest
                    pressed[z, i, j] = max(eased, need - gone)
                need = self.first(j, 0) if j == i else self.later(j, 0)
                if j > i:
                    most = max(most, need)
                if forward:
                    eased = max(eased, need - (passed[j] - passed[i]) * self.unit)
                elif j + 1 < count:
                    # One operation more follows each of these.
                    more = (passed[j + 2] - passed[j + 1]) * self.unit
                    eased = max(eased, need) - more
        return Sweeps(first, rest, pressed, _array(passed))
