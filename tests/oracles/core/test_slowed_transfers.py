"""Directions that slow each other down: simulator, checker and replay against tick by tick."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certify.ladder import certify
from offcert.core.errors import PlanError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verify.document import verify
from offcert.verify.replay import replay
from support.oracles.schedules import brute_force
from support.oracles.slow_links import follow, least_makespan
from support.problems.random_instances import mixed_problem, slowing
from support.problems.random_plans import random_plan
from support.seeds import by_seeds


@pytest.mark.slow
@by_seeds(0, 600, 100)
def test_a_plan_takes_the_times_that_ticks_give_it(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        problem = slowing(mixed_problem(seed, largest=9, smallest=4))
        rng = random.Random(seed)
        for _ in range(8):
            plan = random_plan(rng, problem.trace)
            try:
                schedule = simulate(problem, plan)
            except PlanError:
                with pytest.raises(PlanError):
                    replay(problem, plan)
                continue
            assert check(problem, schedule) == []
            expected = follow(problem, plan)
            assert list(schedule.starts) == expected.starts
            found = {(t.kind, t.gap): (t.start, t.end) for t in schedule.transfers}
            assert found == expected.transfers
            again = replay(problem, plan)
            assert (again.starts, set(again.transfers)) == (
                schedule.starts,
                set(schedule.transfers),
            )
            # Alone everything is at most as late, always busy at least.
            alone, busiest = (
                simulate(replace(problem, platform=platform), plan).makespan
                for platform in (problem.platform.alone, problem.platform.always_busy)
            )
            assert alone <= schedule.makespan <= busiest
            seen["plans"] += 1
            seen["slower"] += alone < schedule.makespan
            seen["between"] += alone < schedule.makespan < busiest
    assert seen["plans"] > 100
    assert seen["slower"] > 15
    assert seen["between"] > 15


@pytest.mark.slow
@by_seeds(0, 200, 100)
def test_a_copy_that_ends_a_tick_too_early_or_too_late_is_refused(seeds: range) -> None:
    refused = 0
    for seed in seeds:
        problem = slowing(mixed_problem(seed, largest=9, smallest=4))
        plan = random_plan(random.Random(seed), problem.trace)
        try:
            schedule = simulate(problem, plan)
        except PlanError:
            continue
        for index, transfer in enumerate(schedule.transfers):
            slowed = transfer.end - transfer.start > problem.platform.transfer_time(
                problem.trace.gap_size(transfer.gap), transfer.kind
            )
            for by in (-1, 1):
                moves = list(schedule.transfers)
                moves[index] = replace(transfer, end=transfer.end + by)
                forged = Schedule(schedule.starts, schedule.ends, moves)
                assert any("ticks instead of" in fault for fault in check(problem, forged))
                refused += slowed
        # The times of links whose directions do not slow each other down are others.
        alone = simulate(replace(problem, platform=problem.platform.alone), plan)
        assert (check(problem, alone) == []) == (alone == schedule)
    assert refused > 5


@pytest.mark.slow
@by_seeds(0, 60, 20)
def test_no_schedule_of_such_a_link_is_shorter_than_the_best_alone(seeds: range) -> None:
    slower = 0
    for seed in seeds:
        problem = _crossing(seed)
        platform = problem.platform
        best = least_makespan(problem)
        alone, busiest = (
            replace(problem, platform=each) for each in (platform.alone, platform.always_busy)
        )
        least, most = brute_force(alone), brute_force(busiest)
        assert best is not None
        assert least is not None
        assert most is not None
        # The oracle in ticks and the one in events agree where both apply.
        assert least_makespan(alone) == least
        assert least <= best <= most
        slower += least < best
        certificate = certify(problem, time_limit=0.5)
        assert certificate.result.lower_bound <= best <= certificate.result.objective
        assert verify(certificate).valid
    assert slower


def _crossing(seed: int) -> Problem:
    """Return a tiny problem whose tensors leave and return at the same time."""
    rng = random.Random(seed)
    count = rng.randint(6, 8)
    operations = [
        Operation(f"o{i}", rng.randint(1, 3), rng.choice((0, 0, 2))) for i in range(count)
    ]
    tensors = []
    for index in range(rng.randint(3, 4)):
        first = rng.randint(-1, count - 3)
        last = rng.randint(first + 2, count - 1)
        uses = {first, last} | ({rng.randint(first, last)} if rng.random() < 0.3 else set())
        tensors.append(Tensor(f"t{index}", rng.randint(2, 4), tuple(sorted(uses))))
    trace = Trace(operations, tensors)
    memory = trace.least_memory + rng.randint(0, 2)
    return slowing(Problem(f"crossing-{seed}", trace, Platform(memory, Fraction(1), Link.DUPLEX)))
