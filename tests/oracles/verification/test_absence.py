"""What verification adds up along a trace, against the definition, operation by operation."""

import random
from itertools import combinations

import pytest

from offcert.core.platform import Link
from offcert.core.result import Bound, Evidence
from offcert.formulations.combinatorial.large_tensors import (
    large_tensors_bound,
    sizes_worth_counting,
)
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification import absence
from offcert.verification.absence import cheapest_cover
from offcert.verification.findings import recheck
from offcert.verification.fractional import LinkWork, fluid_time, recompute
from support.problems.long_problems import long_problem
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds


def held(problem: Problem, operation: int) -> int:
    return problem.trace.operations[operation].workspace + sum(
        tensor.size
        for tensor in problem.trace.tensors
        if tensor.uses[0] <= operation <= tensor.uses[-1]
    )


def absentees(problem: Problem, operation: int) -> list[int]:
    return [
        tensor.size
        for tensor in problem.trace.tensors
        if tensor.uses[0] < operation < tensor.uses[-1]
        and operation not in tensor.uses
        and tensor.evictable
        and tensor.size > 0
    ]


@pytest.mark.parametrize("seed", range(300))
def test_sums_are_those_of_the_definition(seed: int) -> None:
    problem = mixed_problem(seed, 8)
    operations = range(len(problem.trace))
    least = [held(problem, o) - sum(absentees(problem, o)) for o in operations]
    resident = sum(tensor.size for tensor in problem.trace.tensors if tensor.uses[0] < 0)
    needed, decisive = absence.least_memory(problem)
    assert needed == max(*least, resident)
    assert decisive == (-1 if needed == resident else least.index(needed))
    needs = [max(0, held(problem, o) - problem.platform.memory) for o in operations]
    assert absence.needs(problem) == tuple(needs)
    covers = [cheapest_cover(absentees(problem, o), needs[o]) for o in operations]
    assert absence.whole_tensors(problem) == tuple(covers)


@by_seeds(0, 200, 29)
def test_large_tensors_count_as_wholes_and_others_byte_by_byte(seeds: range) -> None:
    raised = lower = 0
    for seed in seeds:
        problem = mixed_problem(seed, 8)
        needs, whole = absence.needs(problem), absence.whole_tensors(problem)
        for smallest in (1, 4, 7, 100):
            found = absence.large_tensors(problem, smallest)
            assert found is not None
            for operation, need in enumerate(needs):
                sizes = absentees(problem, operation)
                large = [size for size in sizes if size >= smallest]
                sand = sum(sizes) - sum(large)
                sums = {sum(p) for n in range(len(large) + 1) for p in combinations(large, n)}
                amounts = {s + min(sand, max(0, need - s)) for s in sums}
                assert found[operation] == min(amount for amount in amounts if amount >= need)
                raised += need < found[operation]
                lower += found[operation] < whole[operation]
            assert found == whole or smallest > 1
    assert min(raised, lower) >= 63


def test_answers_belong_to_the_problem_that_was_asked_about() -> None:
    """The last answer is kept, and equal problems are rare; other limits must not get it."""
    problem = mixed_problem(6, 8)
    tight = problem.with_memory(problem.trace.least_memory)
    assert absence.needs(tight) != absence.needs(problem)
    assert max(absence.needs(problem.with_memory(10**6))) == 0
    assert absence.needs(tight) == absence.needs(tight.with_memory(tight.platform.memory))


def moved_by(ready: list[tuple[int, int]], need: int, per_byte: int) -> int:
    """Serve one after the other."""
    free = 0
    for time, size in ready:
        part = min(size, need)
        if part:
            free = max(free, time) + part * per_byte
        need -= part
    return free


def test_a_link_works_through_what_is_ready() -> None:
    rng = random.Random(0)
    for _ in range(300):
        count, per_byte = rng.randint(1, 9), rng.choice((1, 3))
        times = sorted(rng.randint(0, 30) for _ in range(count))
        link = LinkWork(count, per_byte)
        sizes = [0] * count
        for _ in range(12):
            place = rng.randrange(count)
            sizes[place] = 0 if sizes[place] else rng.randint(1, 9)
            link.put(place, times[place], sizes[place])
            need = rng.randint(0, sum(sizes))
            expected = moved_by(list(zip(times, sizes, strict=True)), need, per_byte)
            assert link.finish(need) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("nested", "link"), [(True, Link.SIMPLEX), (False, Link.DUPLEX)])
def test_bounds_of_long_traces_are_computed_again(nested: bool, link: Link) -> None:
    problem = long_problem(1, 5_000, 2_500, nested=nested, link=link)
    values = {
        method: recompute(method, problem)
        for method in ("prop3", "fractional", "prop3-subset-sum", "fractional-subset-sum")
    }
    assert problem.trace.compute_time <= values["prop3"] <= values["fractional"]
    assert values["fractional"] <= values["fractional-subset-sum"]


@pytest.mark.slow
def test_the_bounds_with_large_tensors_that_are_found_are_established_again() -> None:
    checked = 0
    for problem in (*(mixed_problem(seed, 8) for seed in range(30)), long_problem(2, 4_000, 2_000)):
        if problem.trace.least_memory > problem.platform.memory:
            continue
        for smallest in sizes_worth_counting(problem):
            assert recheck(large_tensors_bound(problem, smallest), problem) is None
            checked += 1
    assert checked > 30


def test_a_bound_with_large_tensors_must_be_what_its_size_gives() -> None:
    problem = next(p for seed in range(30) if (p := mixed_problem(seed, 6)).trace.gaps)
    smallest = max(problem.trace.gap_sizes)
    amounts = absence.large_tensors(problem, smallest)
    assert amounts is not None
    value = fluid_time(problem, amounts)

    def fault(value: int, details: dict[str, object], problem: Problem = problem) -> str | None:
        bound = Bound("fractional-large-tensors", value, Evidence.PROVED, details)
        return recheck(bound, problem)

    assert fault(value, {"smallest": smallest}) is None
    assert "the computation gives" in (fault(value + 1, {"smallest": smallest}) or "")
    assert "at least 1" in (fault(value, {"smallest": 0}) or "")
    assert "missing" in (fault(value, {}) or "")
    assert "not known" in (fault(value, {"smallest": smallest, "largest": 3}) or "")
    relaxed = Problem("p", problem.network, problem.platform, Transfers.INTERRUPTIBLE)
    assert "no proof is known" in (fault(value, {"smallest": smallest}, relaxed) or "")
    lacking = problem.with_memory(problem.trace.least_memory - 1)
    assert "no schedule exists" in (fault(value, {"smallest": smallest}, lacking) or "")
