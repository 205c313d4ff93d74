"""2-partition as an offloading problem, and as a choice of what to keep: two reductions.

Offloading paper, Theorem 3, with operations 0..n+2. The time unit of the paper is V ticks here, so
that the bandwidth is one byte per tick: a tensor of size u moves in u ticks. ``F_n`` and ``B_n``
last V, nothing else lasts at all; ``x_0 … x_{n-1}`` have the given values, ``x_{n+2}`` has size V;
the memory is 2V. When ``F_{n+1}`` starts, 3V are alive, so at least V must have left, and whatever
leaves comes back: a schedule of length 2V moves a set of sum V exactly, and with such a set one
exists. That is so for interruptible and for atomic transfers.

What to keep (`recompute_partition`) shows why deciding what runs again is hard on its own. `F_i`
takes ``u_i`` ticks and makes ``u_i`` bytes, which `B_i` reads after the turn. There are 2V bytes,
the sum of all ``u_i``, and the turn takes V beside what is there; nothing may leave. So what is
there during the turn sums to at most V, and all else has to be computed again, in as many ticks as
it has bytes. The least time is 3V exactly if some of the values sum to V; else it is longer by what
the closest sum below V lacks. Everything fits: outside of the turn, all values take 2V.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.core.chain import Chain
from offcert.core.computations import Computation, Run, Value
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind, Platform
from offcert.core.strategy import Strategy
from offcert.core.trace import require_integer
from offcert.instances.generator import MOST, Generator, knob
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer

# Bits of the largest table, one a reachable sum and value (125 MB), and draws in search of an
# instance. Arbitrary.
_MOST_BITS = 10**9
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Halves:
    """The answer to a 2-partition instance."""

    part: tuple[int, ...] | None  # Indices of one half; None if there is none.
    # The largest sum of a subset that is at most half of everything: the answer is "yes" exactly if
    # it is that half. For a "no", the proof is that all sums were enumerated.
    closest: int

    def to_json(self) -> dict[str, Any]:
        """Return the answer, and what shows it, as a JSON value."""
        if self.part is None:
            return {"answer": "no", "closest_sum": self.closest}
        return {"answer": "yes", "partition": list(self.part)}


def halve(values: Sequence[int]) -> Halves:
    """Answer 2-partition exactly, by enumerating all subset sums up to the half."""
    half = _half(values)
    if len(values) * half > _MOST_BITS:
        raise InputError(
            f"values must have a product of count and half sum of at most {_MOST_BITS}, "
            f"not {len(values) * half}"
        )
    mask = (1 << (half + 1)) - 1
    # Bit s of entry k: some subset of the first k values sums to s.
    reachable = [1]
    for value in values:
        reachable.append((reachable[-1] | reachable[-1] << value) & mask)
    closest = rest = reachable[-1].bit_length() - 1
    if closest < half:
        return Halves(None, closest)
    part = []
    for index in reversed(range(len(values))):
        if not reachable[index] >> rest & 1:
            part.append(index)
            rest -= values[index]
    return Halves(tuple(reversed(part)), closest)


def two_partition(values: Sequence[int], transfers: str = "atomic") -> Problem:
    """Return the problem that has a schedule of length 2V exactly if the values can be halved.

    Values are positive, and 2V is their sum; transfers are ``"atomic"`` or ``"interruptible"``. The
    source holds the values and the ``solution``: the makespan in question (2V), the answer, and the
    half or the closest sum that exists.
    """
    chain, platform = _reduce(values)
    source = {
        "generator": TwoPartition.kind,
        "values": list(values),
        "transfers": transfers,
        "solution": {"makespan": platform.memory} | halve(values).to_json(),
    }
    return Problem(
        f"two-partition-{len(values)}",
        chain,
        platform,
        transfers,  # type: ignore[arg-type]
        source=source,
    )


def _reduce(values: Sequence[int]) -> tuple[Chain, Platform]:
    half = _half(values)
    count = len(values)
    forward = [0] * (count + 3)
    forward[count] = half
    activation = [*values, 0, 0, half, 0]
    chain = Chain(forward, forward, activation, [0] * (count + 4))
    return chain, Platform(2 * half, Fraction(1))


def schedule_of_half(values: Sequence[int], part: Sequence[int]) -> Schedule:
    """Return a schedule of length 2V that moves a half: out during ``F_n``, back in ``B_n``."""
    half = _half(values)
    if len(set(part)) != len(part) or sum(values[index] for index in part) != half:
        raise InputError(f"the part {list(part)} is no half of the values")
    count = len(values)
    ends = [0] * count + [half] * 5 + [2 * half] * (count + 1)
    starts = [0] * (count + 1) + [half] * 5 + [2 * half] * count
    gaps = _reduce(values)[0].trace().gaps
    gap_of = {gap.tensor: number for number, gap in enumerate(gaps)}
    transfers = []
    time = 0
    for index in part:
        move = Transfer(Kind.OFFLOAD, gap_of[index], time, time + values[index])
        # What leaves first comes back first, half a schedule later.
        back = Transfer(Kind.PREFETCH, gap_of[index], half + time, half + time + values[index])
        transfers += [move, back]
        time += values[index]
    return Schedule(starts, ends, transfers)


def half_of(problem: Problem, schedule: Schedule | FluidSchedule) -> tuple[int, ...]:
    """Turn a schedule of length 2V back into a half: the indices of the values that it moves."""
    values = reduced_values(problem, TwoPartition.kind)
    half = _half(values)
    if _reduce(values) != (problem.network, problem.platform):
        raise InputError(f"{problem.name} is not the problem that its values reduce to")
    if schedule.makespan != 2 * half:
        raise InputError(
            f"only a schedule of length {2 * half} holds a half, not one of {schedule.makespan}"
        )
    if isinstance(schedule, FluidSchedule):
        faults = check_fluid(problem, schedule)
    else:
        faults = check(problem, schedule)
    if faults:
        raise InputError(f"the schedule is not valid: {faults[0]}")
    part = tuple(sorted(problem.trace.gaps[gap].tensor for gap in schedule.evicted))
    if sum(values[index] for index in part) != half:
        raise AssertionError(f"a valid schedule of length 2V moves {part}: the reduction is wrong")
    return part


def reduced_values(problem: Problem, kind: str) -> list[int]:
    """Return the values that a reduction's problem was made from."""
    source = problem.source or {}
    values = source.get("values")
    if source.get("generator") != kind or not isinstance(values, list):
        raise InputError(f"{problem.name} is no reduction from {kind.replace('-', ' ')}")
    return values


def _half(values: Sequence[int]) -> int:
    if not values:
        raise InputError("values must not be empty")
    for index, value in enumerate(values):
        require_integer(value, f"values[{index}]", 1)
    total = sum(values)
    if total % 2:
        raise InputError(f"values must have an even sum, not {total}")
    return total // 2


@dataclass(frozen=True, kw_only=True)
class _Halving(Generator):
    """Values to be drawn, which can be halved or not; a reduction dictates the memory."""

    takes_memory: ClassVar[bool] = False

    count: int = knob(12, "number of values", least=2, most=MOST)
    largest: int = knob(1000, "values are drawn from 1 to this", least=2)
    answer: str = knob("any", "whether a half exists", choices=("any", "yes", "no"))


@dataclass(frozen=True, kw_only=True)
class TwoPartition(_Halving):
    """Problems that have a schedule of length 2V exactly if the drawn values can be halved."""

    kind: ClassVar[str] = "two-partition"
    summary: ClassVar[str] = "reduction from 2-partition: weakly NP-hard"

    transfers: str = knob(
        "interruptible", "what a transfer may do", choices=("atomic", "interruptible")
    )

    def draw(self, seed: int) -> Problem:
        """Return the reduction of the values of a seed."""
        rng = random.Random(f"two-partition {self.count} {self.largest} {self.answer} {seed}")
        for _ in range(_MOST_DRAWS):
            values = self._values(rng)
            if sum(values) % 2 == 0 and self.answer in ("any", self._answer(values)):
                return self._named(values, seed)
        # Of many values hardly any draw is a "no"; there are few ways to halve values up to 3.
        if self.answer == "no" and self.largest > 3:
            return self._named(self._values_without_half(rng), seed)
        raise InputError(
            f"count {self.count} and largest {self.largest} gave no values whose answer is "
            f'"{self.answer}" in {_MOST_DRAWS} draws; from largest 4 on there always are some'
        )

    def _named(self, values: list[int], seed: int) -> Problem:
        drawn = two_partition(values, self.transfers)
        return replace(drawn, name=f"{drawn.name}-{seed}")

    def _values_without_half(self, rng: random.Random) -> list[int]:
        """Return values that cannot be halved because of their remainders.

        Of an odd number of values the remainder by an odd modulus is 1, of all others 0, and the
        modulus is larger than that number. The difference of two sides has the remainder of an odd
        number between its negative and itself, which is never that of 0.
        """
        odd = rng.randrange(1, min(self.count, self.largest - 3) + 1, 2)
        # Less than the largest value: a remainder of 1 leaves a choice, which makes the sum even.
        modulus = rng.randrange(odd + 2, max(odd + 2, self.largest // 4) + 1, 2)
        ones = set(rng.sample(range(self.count), odd))
        while True:
            rest = [int(index in ones) for index in range(self.count)]
            values = [
                modulus * rng.randint(1 - one, (self.largest - one) // modulus) + one
                for one in rest
            ]
            if sum(values) % 2 == 0:
                return values

    def _values(self, rng: random.Random) -> list[int]:
        values = [rng.randint(1, self.largest) for _ in range(self.count)]
        if self.answer == "yes":
            # The last value makes up for the difference of two random sides, where it can.
            rest = abs(sum(rng.choice((-1, 1)) * value for value in values[:-1]))
            values[-1] = rest if 1 <= rest <= self.largest else values[-1]
            rng.shuffle(values)
        return values

    def _answer(self, values: list[int]) -> str:
        return "no" if halve(values).part is None else "yes"


def recompute_partition(values: Sequence[int]) -> Problem:
    """Return the problem of which a schedule of 3V ticks keeps half of the values.

    Values are positive, and 2V is their sum. The source holds the values and the ``solution``: the
    makespan in question (3V), the answer, the optimum, and the half or the closest sum that exists.
    """
    answer = halve(values)
    half = sum(values) // 2
    optimum = {"makespan": 3 * half, "optimum": 4 * half - answer.closest}
    source = {
        "generator": RecomputePartition.kind,
        "values": list(values),
        "solution": optimum | answer.to_json(),
    }
    return Problem(
        f"{RecomputePartition.kind}-{len(values)}",
        _network(values),
        Platform(2 * half, Fraction(1)),
        source=source,
        recompute=Recompute.ANY,
        offload=False,
    )


def _network(values: Sequence[int]) -> Network:
    count, half = len(values), sum(values) // 2
    made = [Value(f"v{index}", size) for index, size in enumerate(values)]
    computations = [
        Computation(f"F{index}", size, writes=(index,)) for index, size in enumerate(values)
    ]
    made.append(Value("turn", 0, evictable=False))
    computations.append(Computation("turn", 0, half, writes=(count,), repeatable=False))
    for index in reversed(range(count)):
        gradient = len(made)
        made.append(Value(f"d{index}", 0, evictable=False))
        reads = (index, gradient - 1)
        computations.append(
            Computation(f"B{index}", 0, 0, reads, (gradient,), repeatable=False, of=(index,))
        )
    return Network(computations, made)


def strategy_of_part(values: Sequence[int], part: Sequence[int]) -> Strategy:
    """Return the strategy that keeps some values, and computes each other one when it is read."""
    kept, half = set(part), sum(values) // 2
    if len(kept) != len(part) or sum(values[index] for index in part) > half:
        raise InputError(f"the part {list(part)} is more than a half of the values")
    count = len(values)
    runs: list[Run | int] = [
        Run(index, () if index in kept else (index,)) for index in range(count)
    ]
    runs.append(count)
    for index in reversed(range(count)):
        if index not in kept:
            runs.append(index)
        runs.append(2 * count - index)
    return Strategy(runs)


def part_of(problem: Problem, execution: Execution | None, makespan: int) -> tuple[int, ...]:
    """Turn a valid schedule of 3V ticks back into a half: the values that are computed once.

    The problem is one of `recompute_partition`, the execution legal, and what was scheduled.
    """
    values = reduced_values(problem, RecomputePartition.kind)
    half = sum(values) // 2
    if _network(values) != problem.network or execution is None:
        raise InputError(f"{problem.name} is not the problem that its values reduce to")
    if makespan != 3 * half:
        raise InputError(
            f"only a schedule of length {3 * half} holds a half, not one of {makespan}"
        )
    part = tuple(index for index in range(len(values)) if execution.runs.count(index) == 1)
    if sum(values[index] for index in part) != half:
        raise InputError(f"the schedule is not valid: what it computes once, {part}, is no half")
    return part


@dataclass(frozen=True, kw_only=True)
class RecomputePartition(_Halving):
    """Problems whose optimum says whether the drawn values can be halved."""

    kind: ClassVar[str] = "recompute-partition"
    summary: ClassVar[str] = "reduction from 2-partition to what is kept and what runs again"

    def draw(self, seed: int) -> Problem:
        """Return the reduction of the values of a seed."""
        drawn = TwoPartition(count=self.count, largest=self.largest, answer=self.answer).draw(seed)
        problem = recompute_partition(reduced_values(drawn, TwoPartition.kind))
        return replace(problem, name=f"{problem.name}-{seed}")
