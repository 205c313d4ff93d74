"""Plans of the same time that move less, against all subsets and against all schedules."""

import random
from itertools import combinations

from offcert.core.errors import PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Trace
from offcert.formulations.models.least_cover import least_cover_gaps
from offcert.heuristics.orders.insertion import fewest_bytes
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from support.oracles.schedules import every_schedule
from support.problems.random_instances import mixed_problem, slowing
from support.problems.random_plans import random_plan
from support.seeds import by_seeds

# Gaps of the largest problem whose schedules are all listed in no time.
_MOST = 3


def bytes_of(trace: Trace, transfers: list[tuple[Kind, int]]) -> tuple[int, int]:
    """Bytes and number of transfers, added up one by one."""
    return sum(trace.tensors[trace.gaps[gap].tensor].size for _, gap in transfers), len(transfers)


def cost(problem: Problem, schedule: Schedule) -> tuple[int, int]:
    return bytes_of(problem.trace, [(each.kind, each.gap) for each in schedule.transfers])


def least_of_all_subsets(problem: Problem, schedule: Schedule) -> tuple[int, int]:
    """The least that plans move from which transfers of the schedule's plan are missing."""
    trace, plan = problem.trace, schedule.plan(problem.trace)
    best = cost(problem, schedule)
    for count in range(len(plan.evicted) + 1):
        for kept in map(set, combinations(plan.evicted, count)):
            moves = []
            for move in plan.moves:
                same = [
                    gap
                    for gap in sorted(kept)
                    if trace.gaps[gap].tensor == trace.gaps[move.gap].tensor
                ]
                if move.kind is Kind.OFFLOAD and same:
                    moves.append(Move(move.kind, same[0], move.before))
                elif move.gap in kept:
                    moves.append(move)
            try:
                found = simulate(problem, Plan(moves))
            except PlanError:
                continue
            if found.makespan <= schedule.makespan:
                best = min(best, cost(problem, found))
    return best


def some_schedules(seeds: range, largest: int, slow: bool = False):
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, largest)
        problem = slowing(problem) if slow else problem
        for _ in range(4):
            try:
                yield problem, simulate(problem, random_plan(rng, problem.trace))
            except PlanError:
                continue


@by_seeds(0, 100)
def test_no_subset_of_the_transfers_moves_less_and_nothing_takes_longer(seeds: range) -> None:
    better = 0
    for problem, schedule in some_schedules(seeds, 6):
        found = fewest_bytes(problem, schedule, time_limit=10.0)
        assert check(problem, found) == []
        assert found.makespan <= schedule.makespan
        assert cost(problem, found) <= least_of_all_subsets(problem, schedule)
        better += cost(problem, found) < cost(problem, schedule)
    assert better


@by_seeds(0, 25)
def test_no_schedule_that_is_as_quick_moves_less_than_the_fewest_bytes(seeds: range) -> None:
    """Of the shortest schedules; seldom another set of tensors would do with less."""
    met = tried = 0
    for problem, schedule in some_schedules(seeds, 4):
        if len(problem.trace.gaps) > _MOST:
            continue
        every = list(every_schedule(problem))
        quick = [each for each in every if each.operations[-1][1] <= schedule.makespan]
        trace = problem.trace
        numbers = {(gap.tensor, gap.before, gap.after): n for n, gap in enumerate(trace.gaps)}
        least = min(
            bytes_of(
                trace,
                [(Kind.PREFETCH, numbers[gap]) for gap in each.prefetches]
                + [
                    (Kind.OFFLOAD, next(n for n, g in enumerate(trace.gaps) if g.tensor == tensor))
                    for tensor in each.offloads
                ],
            )
            for each in quick
        )
        cover = least_cover_gaps(problem, 10.0)
        found = cost(problem, fewest_bytes(problem, schedule, time_limit=10.0, cover=cover))
        assert found >= least
        met += found == least
        tried += 1
    assert tried > 20
    assert met >= 0.9 * tried


@by_seeds(0, 50)
def test_it_takes_no_longer_where_directions_slow_each_other_down(seeds: range) -> None:
    for problem, schedule in some_schedules(seeds, 6, slow=True):
        found = fewest_bytes(problem, schedule, time_limit=10.0)
        assert check(problem, found) == []
        assert found.makespan <= schedule.makespan
        assert cost(problem, found) <= cost(problem, schedule)
