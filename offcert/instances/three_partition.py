"""3-partition as an offloading problem: the reduction that makes atomic transfers strongly hard.

Offloading paper, Theorem 1, corrected: as printed, positive instances need two units more (V stands
on the outputs of the long forward operations; it belongs on those of the short ones). With values
u_0 … u_{3m-1} of sum mV, i from 0 and k in 0..m-1:

- ``x_i`` has size u_i for i < 3m, ``x_{3m+2k+2}`` has size V, everything else is empty;
- ``F_{3m+2k}`` lasts V ticks (one unit of the paper; the bandwidth is one byte per tick),
  ``B_{3m}`` lasts mV, nothing else lasts at all; the memory is mV.

A schedule of length 2mV leaves the device no idle time, so ``F_{3m+2k+1}``, which writes V bytes,
starts at (k+1)V, when (k+1)V bytes must have left: all that the link can have moved by then. So no
transfer is under way at that time, and those that end in ((k, k+1]·V) sum to V. Nothing can come
back before mV, so what leaves is never one of the tensors of size V, which are needed at that time.
Back, ``B_{3m}`` gives exactly the time to fetch everything.

If every value is more than V/4, such sets have three members each. Otherwise V is added to every
value, which keeps the answer and makes it so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import require_integer
from offcert.instances.generator import Generator, knob
from offcert.instances.two_partition import reduced_values
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

Triple = tuple[int, int, int]
# Draws in search of an instance with the answer that was asked for. Arbitrary.
_MOST_DRAWS = 1000
# Nodes of a search: minutes, and far more than 20 triples usually take. Arbitrary.
_MOST_NODES = 10**6
# Triples that a search is begun for: half a minute until it gives up, measured (no record).
_MOST_TRIPLES = 100


@dataclass(frozen=True, slots=True)
class Triples:
    """The answer to a 3-partition instance."""

    triples: tuple[Triple, ...] | None  # Indices; None if there is no such partition.
    # Sets of values left over that the exhaustive search looked at; for a "no", all there are.
    nodes: int


def find_triples(values: Sequence[int]) -> Triples:
    """Answer 3-partition exactly: the largest value left is in some triple, so each is tried."""
    target = _target(values)
    if len(values) > 3 * _MOST_TRIPLES:
        raise InputError(f"values must be at most {3 * _MOST_TRIPLES}, not {len(values)}")
    order = sorted(range(len(values)), key=lambda index: (-values[index], index))
    places_of: dict[int, list[int]] = {}
    for place, index in enumerate(order):
        places_of.setdefault(values[index], []).append(place)
    failed: set[int] = set()
    nodes = 0

    def search(left: int) -> list[Triple] | None:
        nonlocal nodes
        if not left:
            return []
        if left in failed:
            return None
        nodes += 1
        if nodes > _MOST_NODES:
            raise InputError(
                f"the answer for these {len(values)} values needs a search of more than "
                f"{_MOST_NODES} nodes"
            )
        places = [place for place in range(len(order)) if left >> place & 1]
        first = places[0]
        for second in places[1:]:
            missing = target - values[order[first]] - values[order[second]]
            for third in places_of.get(missing, ()):
                if third <= second or not left >> third & 1:
                    continue
                found = search(left & ~(1 << first | 1 << second | 1 << third))
                if found is not None:
                    return [(order[first], order[second], order[third]), *found]
        failed.add(left)
        return None

    found = search((1 << len(order)) - 1)
    return Triples(None if found is None else tuple(found), nodes)


def three_partition(values: Sequence[int]) -> Problem:
    """Return the problem that has a schedule of length 2mV exactly if the answer is yes.

    Values are 3m positive integers whose sum is a multiple of m; transfers are atomic. The source
    holds the values, what was ``added`` to them (0 or V) and the ``solution``: the makespan in
    question (2mV of the sizes), the answer, and the partition or the number of nodes of the
    exhaustive search that found none.
    """
    sizes, added = _sizes(values)
    chain, platform = _reduce(sizes)
    answer = find_triples(values)
    solution: dict[str, Any] = {"makespan": 2 * platform.memory}
    if answer.triples is None:
        solution |= {"answer": "no", "search_nodes": answer.nodes}
    else:
        solution |= {"answer": "yes", "partition": [list(triple) for triple in answer.triples]}
    source = {
        "generator": ThreePartition.kind,
        "values": list(values),
        "added": added,
        "solution": solution,
    }
    return Problem(f"three-partition-{len(values) // 3}", chain, platform, source=source)


def _reduce(sizes: Sequence[int]) -> tuple[Chain, Platform]:
    """Return the chain and the platform for values of more than a quarter of a triple."""
    unit = _target(sizes)
    count = len(sizes)
    groups = count // 3
    forward = [0] * count + [unit, 0] * groups
    backward = [0] * (5 * groups)
    backward[count] = groups * unit
    # x_{3m} is empty, and so is what each long operation writes.
    activation = [*sizes, 0] + [0, unit] * groups
    chain = Chain(forward, backward, activation, [0] * len(activation))
    return chain, Platform(groups * unit, Fraction(1))


def schedule_of_triples(values: Sequence[int], triples: Sequence[Sequence[int]]) -> Schedule:
    """Return the schedule of length 2mV in which the k-th triple leaves during ``F_{3m+2k}``."""
    target = _target(values)
    if sorted(index for triple in triples for index in triple) != list(range(len(values))):
        raise InputError(f"the triples {list(triples)} do not hold every value once")
    for number, triple in enumerate(triples):
        if len(triple) != 3 or sum(values[index] for index in triple) != target:
            raise InputError(f"triples[{number}] must be three values of sum {target}")
    sizes, _ = _sizes(values)
    chain, platform = _reduce(sizes)
    trace, half = chain.trace(), platform.memory
    durations = trace.durations
    starts, time = [], 0
    for duration in durations:
        starts.append(time)
        time += duration
    ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
    gap_of = {gap.tensor: number for number, gap in enumerate(trace.gaps)}
    transfers, time = [], 0
    for index in (index for triple in triples for index in triple):
        end = time + sizes[index]
        transfers.append(Transfer(Kind.OFFLOAD, gap_of[index], time, end))
        transfers.append(Transfer(Kind.PREFETCH, gap_of[index], half + time, half + end))
        time = end
    return Schedule(starts, ends, transfers)


def triples_of(problem: Problem, schedule: Schedule) -> tuple[Triple, ...]:
    """Turn a schedule of length 2mV back into the partition: what leaves in each unit of time."""
    values = reduced_values(problem, ThreePartition.kind)
    if _reduce(_sizes(values)[0]) != (problem.network, problem.platform):
        raise InputError(f"{problem.name} is not the problem that its values reduce to")
    length = 2 * problem.platform.memory
    if schedule.makespan != length:
        raise InputError(
            f"only a schedule of length {length} holds a partition, not one of {schedule.makespan}"
        )
    faults = check(problem, schedule)
    if faults:
        raise InputError(f"the schedule is not valid: {faults[0]}")
    groups = len(values) // 3
    unit = problem.platform.memory // groups
    sets: list[list[int]] = [[] for _ in range(groups)]
    for transfer in schedule.transfers:
        if transfer.kind is Kind.OFFLOAD:
            sets[(transfer.end - 1) // unit].append(problem.trace.gaps[transfer.gap].tensor)
    target = _target(values)
    for members in sets:
        if len(members) != 3 or sum(values[index] for index in members) != target:
            raise AssertionError(f"a valid schedule moves {sets}: the reduction is wrong")
    return tuple((a, b, c) for a, b, c in map(sorted, sets))


def _target(values: Sequence[int]) -> int:
    """Return V."""
    groups, rest = divmod(len(values), 3)
    if rest or not groups:
        raise InputError(f"values must be 3, 6, 9, … integers, not {len(values)}")
    for index, value in enumerate(values):
        require_integer(value, f"values[{index}]", 1)
    total = sum(values)
    if total % groups:
        raise InputError(f"values must have a sum that is a multiple of {groups}, not {total}")
    return total // groups


def _sizes(values: Sequence[int]) -> tuple[list[int], int]:
    """Return the sizes of the tensors, all of more than a quarter of a triple, and what was added.

    With V added, triples must sum to 4V and every value exceeds V: a set of that sum has at most
    three members, so m of them have three each.
    """
    target = _target(values)
    added = 0 if 4 * min(values) > target else target
    return [value + added for value in values], added


@dataclass(frozen=True, kw_only=True)
class ThreePartition(Generator):
    """Problems that have a schedule of length 2mV exactly if the drawn values can be partitioned.

    Values lie strictly between V/4 and V/2, as in the strongly NP-hard form.
    """

    kind: ClassVar[str] = "three-partition"
    summary: ClassVar[str] = "reduction from 3-partition: strongly NP-hard"
    takes_memory: ClassVar[bool] = False

    m: int = knob(3, "number of triples", least=1, most=_MOST_TRIPLES)
    target: int = knob(100, "V, the sum of a triple", least=3)
    answer: str = knob("any", "whether a partition exists", choices=("any", "yes", "no"))

    def draw(self, seed: int) -> Problem:
        """Return the reduction of the values of a seed."""
        rng = random.Random(f"three-partition {self.m} {self.target} {self.answer} {seed}")
        for _ in range(_MOST_DRAWS):
            values = self._values(rng)
            if self.answer == "any" or self.answer == self._answer(values):
                drawn = three_partition(values)
                return replace(drawn, name=f"{drawn.name}-{seed}")
        raise InputError(
            f"m {self.m} and target {self.target} gave no values whose answer is "
            f'"{self.answer}" in {_MOST_DRAWS} draws'
        )

    def _values(self, rng: random.Random) -> list[int]:
        """Draw triples of the right sum; unless the answer must be yes, swap units between them."""
        least, most = self.target // 4 + 1, -(-self.target // 2) - 1
        if 3 * least > self.target or 3 * most < self.target:
            raise InputError(f"target {self.target} is the sum of no three values of that range")
        values = []
        for _ in range(self.m):
            first = rng.randint(
                max(least, self.target - 2 * most), min(most, self.target - 2 * least)
            )
            rest = self.target - first
            second = rng.randint(max(least, rest - most), min(most, rest - least))
            values += [first, second, rest - second]
        if self.answer != "yes":
            for _ in range(self.m):
                giver, taker = rng.sample(range(len(values)), 2)
                amount = rng.randint(0, min(values[giver] - least, most - values[taker]))
                values[giver] -= amount
                values[taker] += amount
        rng.shuffle(values)
        return values

    def _answer(self, values: list[int]) -> str:
        return "no" if find_triples(values).triples is None else "yes"
