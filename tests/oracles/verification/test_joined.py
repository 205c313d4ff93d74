"""Bounds on problems whose gaps are joined: what they leave out, and what they say."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.labels import climb_joined
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.labels.common import joined_gaps
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from offcert.verification.ends.check import with_joined_gaps
from offcert.verification.findings import recheck
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds


def residual_problem() -> Problem:
    """Two tensors are read on the way, too; at the turn both of them have to be away."""
    tensors = [
        Tensor("x", 6, (0, 2, 7)),
        Tensor("y", 4, (1, 3, 6)),
        Tensor("z", 8, (4, 5), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 2) for i in range(8)], tensors)
    return Problem("residual", trace, Platform(10, Fraction(1)))


def several(problem: Problem) -> bool:
    return len({gap.tensor for gap in problem.trace.gaps}) < len(problem.trace.gaps)


def test_only_the_uses_between_the_first_gap_and_the_last_are_left_out() -> None:
    tensors = [
        Tensor("a", 1, (0, 1, 4, 5, 8, 9)),
        Tensor("b", 1, (-1, 3, 6)),
        Tensor("c", 1, (2, 5)),
        Tensor("d", 1, (0, 3, 7), evictable=False),
    ]
    trace = Trace([Operation(f"o{i}", 1) for i in range(10)], tensors)
    joined = joined_gaps(Problem("p", trace, Platform(9, Fraction(1)))).trace
    assert [tensor.uses for tensor in joined.tensors] == [(0, 1, 8, 9), (-1, 6), (2, 5), (0, 3, 7)]
    with pytest.raises(MethodError, match="several gaps"):
        joined_gaps(Problem("p", joined, Platform(9, Fraction(1))))


@pytest.mark.parametrize("seed", range(100))
def test_every_schedule_remains_one_without_the_earlier_prefetches(seed: int) -> None:
    problem = mixed_problem(seed, 8)
    verified = with_joined_gaps(problem)
    assert verified.trace == (joined_gaps(problem).trace if several(problem) else problem.trace)
    try:
        schedule = simulate(problem, sequential(problem))
    except MethodError:
        return
    place = {gap.tensor: number for number, gap in enumerate(verified.trace.gaps)}
    kept: dict[tuple[str, int], Transfer] = {}
    # In the order of their starts: the last prefetch of a tensor is what stays.
    for transfer in schedule.transfers:
        number = place[problem.trace.gaps[transfer.gap].tensor]
        kept[transfer.kind, number] = replace(transfer, gap=number)
    relaxed = Schedule(schedule.starts, schedule.ends, kept.values())
    assert check(verified, relaxed) == []


@by_seeds(0, 300, 75)
def test_its_optimum_is_no_more_and_what_is_proved_about_it_holds(seeds: range) -> None:
    proved = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        optimum = brute_force(problem)
        if optimum is None or not several(problem):
            continue
        relaxed = brute_force(with_joined_gaps(problem))
        assert relaxed is not None
        assert relaxed <= optimum
        search = Search(problem, 5.0)
        search.offer(simulate(problem, sequential(problem)))
        with suppress(MethodError):  # nothing has to leave
            climb_joined(search, Effort(2.0, 1))
        for bound in search.bounds:
            assert bound.method == "matched-heads-joined"
            assert bound.value <= relaxed
            if bound.evidence is Evidence.PROVED:
                assert recheck(bound, problem) is None
                assert recheck(replace(bound, value=relaxed + 1), problem) is not None
                proved += 1
    assert proved >= 1


def test_such_a_bound_says_nothing_about_other_transfers() -> None:
    problem = replace(residual_problem(), transfers=Transfers.INTERRUPTIBLE)
    bound = Bound("matched-heads-joined", 1, Evidence.PROVED, {})
    assert "interruptible" in str(recheck(bound, problem))
