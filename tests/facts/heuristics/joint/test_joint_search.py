"""The search for joint plans: legal, never worse than the simple plans, optimal on tiny ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError
from offcert.core.platform import Link
from offcert.core.program import Program, Segment, program_from_json
from offcert.heuristics.combined.search import combined_plan
from offcert.heuristics.joint import search
from offcert.heuristics.joint.plans import JointPlan
from offcert.heuristics.joint.search import joint_search
from offcert.heuristics.orders.order_search import set_search
from offcert.heuristics.orders.ordered import require_possible
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.execution import execution_faults
from support.oracles.joint import least_time
from support.problems.random_instances import seeded
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.problems.residual_networks import residual_problem

Spans = list[tuple[int, int]]


def plans(
    problem: Problem, ranges: Spans | None = None, transfers: float = 0.0, **options: int
) -> list[JointPlan]:
    """Return every plan that a short search offers."""
    found: list[JointPlan] = []
    options = {"coolings": 3, "steps": 60, "workers": 1, **options}
    joint_search(
        problem,
        time_limit=60.0,
        ranges=ranges,
        transfers=transfers,
        on_improvement=found.append,
        **options,
    )
    return found


def require_good(problem: Problem, found: list[JointPlan]) -> None:
    network = problem.computed
    assert network is not None
    before = None
    for plan in found:
        assert execution_faults(network, plan.execution) == []
        scheduled = problem.executed(plan.execution)
        assert check(scheduled, plan.schedule) == []
        assert before is None or plan.schedule.makespan < before
        before = plan.schedule.makespan
        program = program_from_json(plan.execution.program, "program")
        assert program == plan.program
        assert program.strategy(network).order == plan.execution.runs


def problems(seed: int, offload: bool = True) -> Problem:
    rng = seeded(seed)
    if seed % 2:
        problem = recompute_problem(rng, checkpoint_chain(rng, rng.randint(2, 7)))
    else:
        problem = recompute_problem(rng, random_network(rng, rng.randint(3, 7)))
    return replace(problem, offload=offload)


@pytest.mark.parametrize("seed", range(6))
def test_all_that_is_offered_is_legal(seed: int) -> None:
    problem = problems(seed, offload=seed % 4 < 2)
    require_good(problem, plans(problem, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "link"), [(Fraction(1, 3), Link.SIMPLEX), (Fraction(1, 2), Link.DUPLEX)]
)
def test_never_worse_than_offloading_alone(part: Fraction, link: Link) -> None:
    problem = residual_problem(6, part, link=link)
    found = plans(problem, steps=200)
    require_good(problem, found)
    alone: list[int] = []
    try:
        require_possible(problem.plain())
        set_search(
            problem.plain(),
            time_limit=0.5,
            on_improvement=lambda schedule: alone.append(schedule.makespan),
        )
    except MethodError:
        return
    assert found[-1].schedule.makespan <= min(alone)


@pytest.mark.slow
@pytest.mark.parametrize("part", [Fraction(2, 5), Fraction(3, 4)])
def test_never_worse_than_a_segment_a_block(part: Fraction) -> None:
    problem = residual_problem(6, part, offload=False)
    network = problem.computed
    assert network is not None
    # The stem, then blocks of seven: two convolutions, norms and activations, and the sum.
    blocks = Program([Segment(first, first + 6) for first in range(1, 43, 7)])
    strategy = blocks.strategy(network).without_unread(network)
    trace = strategy.expand(network).trace
    found = plans(problem, steps=200)
    require_good(problem, found)
    if trace.peak_memory <= problem.platform.memory:
        assert found[-1].schedule.makespan <= trace.compute_time
    assert found[-1].schedule.makespan < 1.34 * network.compute_time


@pytest.mark.slow
def test_both_are_better_than_either() -> None:
    problem = residual_problem(8, Fraction(2, 5))
    assert problem.computed is not None
    both = plans(problem, steps=300)[-1].schedule.makespan
    alone = plans(replace(problem, offload=False), steps=300)[-1].schedule.makespan
    moved = plans(problem, ranges=[], steps=300)
    assert both < alone
    assert both < moved[-1].schedule.makespan
    assert moved[-1].program.segments == ()


def programs(count: int) -> Iterator[Program]:
    """Yield every program whose segments lie among the first computations."""
    spans = [(first, last) for first in range(count) for last in range(first, count)]
    kept = list(
        chain.from_iterable(combinations(range(count), number) for number in range(count + 1))
    )
    for number in range(count + 1):
        for chosen in combinations(spans, number):
            if all(_apart(one, other) for one, other in combinations(chosen, 2)):
                for keep in kept:
                    yield Program(_tree(sorted(chosen, key=lambda s: (s[0], -s[1])), set(keep)))


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    crosses = one[0] < other[0] <= one[1] < other[1]
    return not crosses and not other[0] < one[0] <= other[1] < one[1]


def _tree(spans: Spans, kept: set[int]) -> list[Segment]:
    segments = []
    while spans:
        (first, last), *rest = spans
        inner = [span for span in rest if span[1] <= last]
        spans = [span for span in rest if span[0] > last]
        inside = {c for span in inner for c in range(span[0], span[1] + 1)}
        own = [c for c in range(first, last + 1) if c in kept and c not in inside]
        segments.append(Segment(first, last, tuple(own), tuple(_tree(inner, kept))))
    return segments


def least_of_programs(problem: Problem, count: int) -> int | None:
    """Return the least ticks of any program that fits, where nothing leaves."""
    network = problem.computed
    assert network is not None
    best: int | None = None
    seen = set()
    for program in programs(count):
        strategy = program.strategy(network).without_unread(network)
        ticks = sum(network.computations[c].duration for c in strategy.order)
        if (best is not None and ticks >= best) or strategy in seen:
            continue
        seen.add(strategy)
        if strategy.expand(network).trace.peak_memory <= problem.platform.memory:
            best = ticks
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_best_program_of_tiny_networks(seed: int) -> None:
    rng = seeded(seed)
    if seed % 2:
        problem = recompute_problem(rng, checkpoint_chain(rng, 4))
    else:
        problem = recompute_problem(rng, random_network(rng, 4, in_place=False))
    problem = replace(problem, offload=False)
    found = plans(problem, coolings=4, steps=100)
    least = least_of_programs(problem, 4)
    assert (found[-1].schedule.makespan if found else None) == least


@pytest.mark.slow
def test_against_all_executions_of_tiny_networks() -> None:
    """What no program can do is rarely needed; whatever is found is never below the optimum."""
    equal = feasible = 0
    for seed in range(9):
        rng = seeded(seed)
        network = checkpoint_chain(rng, 3) if seed % 2 else random_network(rng, 3)
        problem = replace(recompute_problem(rng, network), offload=seed % 3 != 0)
        least = least_time(problem, most=1 if problem.offload else 2)
        found = plans(problem, coolings=4, steps=100, transfers=0.005)
        if not found:
            continue
        feasible += 1
        makespan = found[-1].schedule.makespan
        if not problem.offload:
            assert least is not None
            assert makespan >= least
        equal += least is not None and makespan <= least
    assert feasible >= 7
    # All of them, when this was written.
    assert equal >= feasible - 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_seed_gives_the_same_plans(workers: int) -> None:
    problem = residual_problem(5, Fraction(1, 2), bandwidth=Fraction(10))
    first, again, other = (
        [plan.schedule for plan in plans(problem, seed=seed, workers=workers, coolings=2)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first[-1].makespan <= 1.2 * other[-1].makespan


def test_segments_are_among_the_ranges() -> None:
    problem = residual_problem(6, Fraction(1, 2))
    allowed = {(first, first + 6) for first in range(1, 43, 7)} | {(1, 14), (15, 28)}
    found = plans(problem, ranges=sorted(allowed), steps=150)
    require_good(problem, found)

    def spans(segments: tuple[Segment, ...]) -> Spans:
        return [span for each in segments for span in ((each.first, each.last), *spans(each.inner))]

    used = {span for plan in found for span in spans(plan.program.segments)}
    assert used <= allowed
    assert len(used) > 2


@pytest.mark.slow
def test_it_stops_at_the_target() -> None:
    problem = residual_problem(6, Fraction(1, 2))
    reached = plans(problem, steps=150)[-1].schedule.makespan
    again = plans(problem, steps=150, coolings=1000, target=reached)
    assert again[-1].schedule.makespan <= reached


@pytest.mark.slow
def test_it_goes_on_from_what_is_known() -> None:
    problem = residual_problem(8, Fraction(2, 5))
    good = plans(problem, steps=400)[-1]
    found: list[JointPlan] = []
    joint_search(
        problem,
        time_limit=60.0,
        coolings=1,
        steps=1,
        transfers=0.0,
        known=[Program([Segment(1, 99)]), good.program],
        on_improvement=found.append,
    )
    # What stays is not part of a program.
    assert found[-1].schedule.makespan <= 1.05 * good.schedule.makespan
    assert plans(problem, steps=1, coolings=1)[-1].schedule.makespan > good.schedule.makespan


@pytest.mark.slow
@pytest.mark.parametrize("part", [Fraction(1, 5), Fraction(2, 5)])
@pytest.mark.parametrize("seed", range(1))
def test_never_longer_than_the_combined_program(seed: int, part: Fraction) -> None:
    rng = seeded(seed)
    base = cnn_chain(10, seed)
    chain = base.chain
    assert chain is not None
    saved = [int(size * rng.choice((1, 1.5, 2.5))) for size in chain.activation[1:]]
    network = CheckpointChain(
        chain.forward, chain.backward, chain.activation, saved, chain.gradient
    )
    problem = replace(base, network=network, recompute=Recompute.ANY)
    problem = problem.with_memory(problem.memory_at(part))
    combined = [combined_plan(problem, 50, bare=bare).atomic(problem) for bare in (False, True)]
    found = plans(problem, coolings=4, steps=300, transfers=0.01)
    require_good(problem, found)
    assert found[-1].schedule.makespan <= min(each.makespan for each in combined)


def test_what_a_cooling_has_found_is_told_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is interrupted in the midst of its first cooling loses nothing."""
    problem = residual_problem(6, Fraction(1, 2))
    rounds, run = 0, search.JointAnnealer.run

    def counted(annealer, *arguments):
        nonlocal rounds
        rounds += 1
        if rounds == 50:
            raise KeyboardInterrupt
        return run(annealer, *arguments)

    def told(taking: float) -> list[int]:
        nonlocal rounds
        rounds, found = 0, []
        monkeypatch.setattr(search, "TAKING", taking)
        with pytest.raises(KeyboardInterrupt):
            joint_search(
                problem,
                time_limit=1e6,
                coolings=1,
                steps=100,
                transfers=0.0,
                on_improvement=lambda plan: found.append(plan.schedule.makespan),
            )
        return found

    monkeypatch.setattr(search, "RARELY", 0.0)
    monkeypatch.setattr(search.JointAnnealer, "run", counted)
    at_the_end, polled = told(1e9), told(0.0)
    # What nobody asked for before comes when it is interrupted.
    assert at_the_end[-1] == polled[-1] < at_the_end[-2]
    assert set(at_the_end) < set(polled)
