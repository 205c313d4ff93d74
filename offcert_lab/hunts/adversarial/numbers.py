"""`Numbers`: a chain on a platform as small integers that can be drawn, moved and made simpler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.questions.schedule.problem import Problem, Transfers

FORWARD, BACKWARD, ACTIVATION, GRADIENT, FORWARD_WORKSPACE, BACKWARD_WORKSPACE = range(6)
_RATES = (*(Fraction(1),) * 4, Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 3))
# Factors by which numbers are made smaller, in turn. Arbitrary.
_SHRINKS = (10, 5, 3, 2)


@dataclass(frozen=True)
class Numbers:
    """All numbers of a problem."""

    # Names of the rows, and how many entries each has beyond the number of stages. The first two
    # are durations.
    NAMES: ClassVar[tuple[str, ...]] = (
        *("forward", "backward", "activation", "gradient", "forward ws", "backward ws"),
    )
    EXTRA: ClassVar[tuple[int, ...]] = (0, 0, 1, 1, 0, 0)

    # Forward and backward durations in ticks; sizes of activations, gradients, forward and backward
    # workspaces; each as long as in `Chain`.
    rows: tuple[tuple[int, ...], ...]
    memory: int  # Units of size.
    rate: Fraction = Fraction(1)  # Units of size per tick, in both directions of a simplex link.

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.rows[FORWARD])

    @property
    def cost(self) -> tuple[int, int, int, int, int]:
        """How hard it is to read: stages, entries that are not 0, bandwidth, digits, the sum."""
        entries = [value for row in self.rows for value in row]
        fineness = self.rate.numerator + self.rate.denominator
        digits = sum(len(str(value)) for value in entries if value)
        total = sum(entries) + self.memory
        return self.stages, sum(value > 0 for value in entries), fineness, digits, total

    def __str__(self) -> str:
        """Return all numbers but rows of nothing, on one line."""
        rows = [
            f"{name} {' '.join(map(str, row))}"
            for name, row in zip(self.NAMES, self.rows, strict=True)
            if any(row)
        ]
        return ", ".join([*rows, f"memory {self.memory}", f"bandwidth {self.rate}"])

    def problem(self, transfers: Transfers = Transfers.ATOMIC, name: str = "candidate") -> Problem:
        """Return the problem of these numbers."""
        platform = Platform(self.memory, self.rate)
        return Problem(name, self.chain, platform, transfers)

    @property
    def chain(self) -> Chain:
        """The chain alone."""
        forward, backward, activation, gradient, in_forward, in_backward = self.rows
        return Chain(forward, backward, activation, gradient, in_forward, in_backward)

    def with_entry(self, row: int, place: int, value: int) -> Numbers:
        """Return the same with one entry changed."""
        changed = list(self.rows[row])
        changed[place] = value
        return self.with_row(row, tuple(changed))

    def with_row(self, row: int, values: tuple[int, ...]) -> Numbers:
        """Return the same with one row changed."""
        return replace(self, rows=(*self.rows[:row], values, *self.rows[row + 1 :]))

    def without_stage(self, stage: int, tensor: int) -> Numbers:
        """Return the same without a stage; `tensor` is which of its two tensors goes with it."""
        places = [tensor if extra else stage for extra in self.EXTRA]
        rows = tuple(
            row[:place] + row[place + 1 :] for row, place in zip(self.rows, places, strict=True)
        )
        return replace(self, rows=rows)

    def with_stage(self, stage: int) -> Numbers:
        """Return the same with a stage and its input doubled."""
        return replace(self, rows=tuple(row[: stage + 1] + row[stage:] for row in self.rows))

    def feasible(self) -> Numbers:
        """Return the same with at least as much memory as any schedule needs."""
        return replace(self, memory=max(self.memory, self.least_memory))

    @property
    def least_memory(self) -> int:
        """The least memory with which there is a schedule."""
        return self.chain.trace().least_memory


@dataclass(frozen=True)
class Box:
    """Where to look."""

    stages: range  # How many stages there may be.
    largest: int  # Durations and sizes are at most this; memory may be more.
    shortest: int  # Durations are at least this.
    kind: type[Numbers] = Numbers  # The class of the numbers.

    def least(self, row: int) -> int:
        """Return the least value in a row."""
        return self.shortest if row in (FORWARD, BACKWARD) else 0


def draw(rng: random.Random, box: Box) -> Numbers:
    """Return random numbers with little memory; many are as small as they may be."""
    density = rng.choice((0.3, 0.6, 0.9))
    stages = rng.choice(box.stages)
    rows = []
    for row, extra in enumerate(box.kind.EXTRA):
        least = box.least(row)
        values = [
            rng.randint(least + 1, box.largest) if rng.random() < density else least
            for _ in range(stages + extra)
        ]
        rows.append(tuple(values))
    numbers = box.kind(tuple(rows), 0, rng.choice(_RATES)).feasible()
    slack = rng.choice((0, 0, 1, rng.randint(0, box.largest)))
    return replace(numbers, memory=numbers.memory + slack)


def moved(rng: random.Random, numbers: Numbers, box: Box) -> Numbers:
    """Return a neighbour with one to three changes, feasible and within the box."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        kind = rng.randrange(20)
        if kind == 0 and numbers.stages < box.stages[-1]:
            numbers = numbers.with_stage(rng.randrange(numbers.stages))
        elif kind == 1 and numbers.stages > box.stages[0]:
            stage = rng.randrange(numbers.stages)
            numbers = numbers.without_stage(stage, stage + rng.randrange(2))
        elif kind == 2:
            numbers = replace(numbers, rate=rng.choice(_RATES))
        elif kind <= 5:
            least = numbers.least_memory
            memory = rng.choice((least, numbers.memory - 1, numbers.memory + 1))
            numbers = replace(numbers, memory=max(least, memory))
        else:
            numbers = _entry_moved(rng, numbers, box)
    return numbers.feasible()


def _entry_moved(rng: random.Random, numbers: Numbers, box: Box) -> Numbers:
    row = rng.randrange(len(numbers.EXTRA))
    place = rng.randrange(len(numbers.rows[row]))
    value, least = numbers.rows[row][place], box.least(row)
    drawn = rng.randint(least, box.largest)
    like = rng.choice(numbers.rows[row])
    new = rng.choice((least, drawn, value - 1, value + 1, 2 * value, value // 2, like))
    return numbers.with_entry(row, place, min(box.largest, max(least, new)))


def simplifications(numbers: Numbers, box: Box) -> Iterator[Numbers]:
    """Yield feasible numbers within the box, simpler by `Numbers.cost`, the most promising first.

    Stages are left out; rows or entries become as small as may be, smaller, or like others in their
    row; everything is divided; the bandwidth becomes 1; sizes become smaller with memory or
    without.
    """
    for simpler in _simpler(numbers, box):
        if simpler.cost < numbers.cost and simpler.memory >= simpler.least_memory:
            yield simpler


def _simpler(numbers: Numbers, box: Box) -> Iterator[Numbers]:
    if numbers.stages > box.stages[0]:
        for stage in range(numbers.stages):
            for tensor in (stage, stage + 1):
                yield from _with_memory(numbers.without_stage(stage, tensor), numbers.memory)
    for row, values in enumerate(numbers.rows):
        emptied = numbers.with_row(row, (box.least(row),) * len(values))
        yield from _with_memory(emptied, numbers.memory)
    for factor in _SHRINKS:
        rows = tuple(
            tuple(max(box.least(row), (2 * value + factor) // (2 * factor)) for value in values)
            for row, values in enumerate(numbers.rows)
        )
        yield from _with_memory(replace(numbers, rows=rows), numbers.memory // factor)
    yield replace(numbers, rate=Fraction(1))
    yield from _with_memory(numbers, numbers.memory)
    for row, values in enumerate(numbers.rows):
        for place in range(len(values)):
            yield from _entry_simpler(numbers, row, place, box.least(row))


def _entry_simpler(numbers: Numbers, row: int, place: int, least: int) -> Iterator[Numbers]:
    values = numbers.rows[row]
    value = values[place]
    # Every other value in the row is a chance to repeat one instead of having one more.
    lower = {least, 1, value // 2, value - 2, value - 1, value // 10 * 10, value // 5 * 5, *values}
    for new in sorted(lower):
        if least <= new < value:
            changed = numbers.with_entry(row, place, new)
            yield changed
            if row > BACKWARD:
                yield replace(changed, memory=max(0, numbers.memory - (value - new)))
                yield replace(changed, memory=min(numbers.memory, changed.least_memory))


def _with_memory(changed: Numbers, memory: int) -> Iterator[Numbers]:
    """Yield changed numbers with the least memory, with that given, and with one less."""
    least = changed.least_memory
    for amount in dict.fromkeys((least, memory, memory - 1)):
        if amount >= least:
            yield replace(changed, memory=amount)
