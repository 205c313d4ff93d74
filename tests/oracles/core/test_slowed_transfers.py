"""Directions that slow each other down: simulator, checker and replay against tick by tick."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.ladder import certify
from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator, simulate
from offcert.questions.schedule.slowing import latest
from offcert.verification.document import verify
from offcert.verification.replay import replay, replay_latest
from support.oracles.schedules import brute_force
from support.oracles.slow_links import follow, least_makespan
from support.problems.random_instances import mixed_problem, slowing
from support.problems.random_plans import random_plan, with_durations
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


@pytest.mark.slow
@by_seeds(0, 300, 100)
def test_no_point_of_a_box_is_later_than_what_is_said_of_all(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        exact = slowing(mixed_problem(seed, largest=9, smallest=4)).plain()
        box = exact.with_uncertainty(rng.choice(("10%", "30%", "*=25%", "link=20%")))
        plan = random_plan(rng, exact.trace)
        low, high = (box.corner(fastest=each) for each in (True, False))
        try:
            early = simulate(low, plan)
        except PlanError:
            continue
        simulator = Simulator(high)
        late = latest(high, early, lambda lasts, s=simulator, p=plan: s.timed(p, lasts))
        again = replay_latest(high, low, plan)
        assert (again.starts, set(again.transfers)) == (late.starts, set(late.transfers))
        ranges = list(zip(low.trace.durations, high.trace.durations, strict=True))
        for _ in range(4):
            rate = rng.choice((Fraction(0), Fraction(1, 2), Fraction(1)))
            platform = _between(high.platform, low.platform, rate)
            durations = [rng.choice((least, most)) for least, most in ranges]
            found = simulate(with_durations(exact, durations, platform), plan)
            for one, other in ((early, found), (found, late)):
                assert all(a <= b for a, b in zip(one.ends, other.ends, strict=True))
                times = {(t.kind, t.gap): (t.start, t.end) for t in other.transfers}
                for each in one.transfers:
                    start, end = times[each.kind, each.gap]
                    assert each.start <= start
                    assert each.end <= end
            seen["points"] += 1
        busiest = simulate(replace(high, platform=high.platform.always_busy), plan).makespan
        assert late.makespan <= busiest
        seen["less than always busy"] += late.makespan < busiest
    assert seen["points"] > 50
    assert seen["less than always busy"] > 1


@pytest.mark.slow
def test_what_is_said_of_a_box_is_verified_to_the_tick() -> None:
    for seed in (0, 20, 46):
        box = _crossing(seed).plain().with_uncertainty("30%")
        certificate = certify(box, time_limit=2, workers=1)
        assert certificate.robust is not None
        assert verify(certificate).valid
        most = certificate.robust.objective
        for wrong in (most - 1, most + 1):
            forged = replace(certificate, robust=replace(certificate.robust, longest=wrong))
            assert any("robust.objective" in fault for fault in verify(forged).faults)


def _between(slow: Platform, fast: Platform, part: Fraction) -> Platform:
    """Return a platform whose rates are so far from the slowest, at once in proportion."""
    alone = [slow.rate(k) + part * (fast.rate(k) - slow.rate(k)) for k in Kind]
    slowed = [slow.rate(k, busy=True) / slow.rate(k) * a for k, a in zip(Kind, alone, strict=True)]
    return Platform(
        slow.memory,
        alone[0],
        Link.DUPLEX,
        alone[1],
        busy_bandwidth=slowed[0],
        busy_prefetch_bandwidth=slowed[1],
    )


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
