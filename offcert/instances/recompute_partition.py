"""2-partition as a choice of what to keep: why deciding what runs again is hard on its own.

`F_i` takes ``u_i`` ticks and makes ``u_i`` bytes, which `B_i` reads after the turn. There are 2V
bytes, the sum of all ``u_i``, and the turn takes V beside what is there; nothing may leave. So what
is there during the turn sums to at most V, and all else has to be computed again, in as many ticks
as it has bytes. The least time is 3V exactly if some of the values sum to V; else it is longer by
what the closest sum below V lacks. Everything fits: outside of the turn, all values take 2V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.core.computations import Computation, Run, Value
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.strategy import Strategy
from offcert.instances.generator import MOST, Generator, knob
from offcert.instances.two_partition import TwoPartition, halve, reduced_values
from offcert.questions.schedule.problem import Problem, Recompute


def recompute_partition(values: Sequence[int]) -> Problem:
    """Return the problem of which a schedule of 3V ticks keeps half of the values.

    Parameters
    ----------
    values : sequence of int
        Positive; 2V is their sum.

    Returns
    -------
    Problem
        Its source holds the values and the ``solution``: the makespan in question (3V), the answer,
        the optimum, and the half or the closest sum that exists.
    """
    answer = halve(values)
    half = sum(values) // 2
    solution: dict[str, Any] = {
        "makespan": 3 * half,
        "optimum": 4 * half - answer.closest,
    }
    if answer.part is None:
        solution |= {"answer": "no", "closest_sum": answer.closest}
    else:
        solution |= {"answer": "yes", "partition": list(answer.part)}
    source = {
        "generator": RecomputePartition.kind,
        "values": list(values),
        "solution": solution,
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

    Parameters
    ----------
    problem : Problem
        From `recompute_partition`.
    execution : Execution or None
        Legal, and what the schedule schedules.
    makespan : int
        Ticks of the schedule.
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
class RecomputePartition(Generator):
    """Problems whose optimum says whether the drawn values can be halved."""

    kind: ClassVar[str] = "recompute-partition"
    summary: ClassVar[str] = "reduction from 2-partition to what is kept and what runs again"
    takes_memory: ClassVar[bool] = False

    count: int = knob(12, "number of values", least=2, most=MOST)
    largest: int = knob(1000, "values are drawn from 1 to this", least=2)
    answer: str = knob("any", "whether a half exists", choices=("any", "yes", "no"))

    def draw(self, seed: int) -> Problem:
        """Return the reduction of the values of a seed."""
        drawn = TwoPartition(count=self.count, largest=self.largest, answer=self.answer).draw(seed)
        problem = recompute_partition(reduced_values(drawn, TwoPartition.kind))
        return replace(problem, name=f"{problem.name}-{seed}")
