"""Pieces between which nothing is away: their optima add up, as brute force has them."""

from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.pieces import (
    classes_of,
    joined,
    pieces_bound,
    pieces_of,
)
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert.verification.findings import recheck
from offcert.verification.fractional import pieces
from support.oracles.schedules import brute_force
from support.problems.passes import passes
from support.problems.random_instances import FAMILIES, loose_trace, mixed_problem
from support.seeds import by_seeds


@by_seeds(0, 40)
def test_optima_of_pieces_add_up_to_that_of_the_step(seeds: range) -> None:
    for seed in seeds:
        problem = passes(seed, same=seed % 2 == 0)
        found = list(pieces(problem))
        assert sum(len(piece.trace) for piece in found) == len(problem.trace)
        assert len(found) > 1
        optimum = brute_force(problem)
        optima = [brute_force(piece) for piece in found]
        assert optimum == sum(each for each in optima if each is not None)
        bound = pieces_bound(problem)
        if bound is None:
            assert len(pieces_of(problem)) < 2
            continue
        assert optimum is not None
        assert fractional_bound(problem).value <= bound.value <= optimum
        assert recheck(bound, problem) is None
        more = Bound(bound.method, bound.value + 1, Evidence.PROVED, bound.details)
        assert recheck(more, problem) is not None


@by_seeds(0, 120, 60)
def test_what_leaves_before_its_gap_is_in_no_later_piece(seeds: range) -> None:
    """Tensors with arbitrary uses: many are written, and used, long before their only gap."""
    divided = 0
    for seed in seeds:
        problem = mixed_problem(5 * seed + FAMILIES.index(loose_trace), 5)
        bound = pieces_bound(problem)
        optimum = brute_force(problem)
        assert optimum is not None
        if bound is None:
            continue
        divided += 1
        assert bound.value <= optimum
        assert recheck(bound, problem) is None
    assert divided


@by_seeds(40, 60)
def test_plans_of_pieces_join_to_one_that_takes_as_long_as_all_of_them(seeds: range) -> None:
    for seed in seeds:
        problem = passes(seed, same=True)
        parts = pieces_of(problem)
        plans: dict[int, Plan] = {}
        length = problem.trace.compute_time
        for part, group in classes_of(parts):
            for piece in group:
                plans[piece.first] = sequential(part)
                length += simulate(part, sequential(part)).makespan - part.trace.compute_time
        whole = simulate(problem, joined((piece, plans[piece.first]) for piece in parts))
        assert whole.makespan == length


def test_a_gap_over_the_moment_or_a_copy_that_outlives_it_is_no_cut() -> None:
    operations = [Operation("o", 1) for _ in range(6)]
    two = [Tensor("x", 1, (0, 2)), Tensor("y", 1, (3, 5))]

    def begins(*more: Tensor) -> list[int]:
        problem = Problem("p", Trace(operations, [*two, *more]), Platform(9, 1))
        return [piece.first for piece in pieces_of(problem)]

    assert begins() == [0, 3]
    # It may be away from 2 to 3, or from both 1 and 4 with one copy on the host.
    assert begins(Tensor("z", 1, (1, 4))) == [0]
    assert begins(Tensor("z", 1, (0, 2, 3, 5))) == [0]
    # It may leave before 3, while 2 uses it, though it has no gap there.
    assert begins(Tensor("z", 1, (1, 2, 3, 5))) == [0]
    assert begins(Tensor("z", 1, (-1, 0, 1, 2, 3, 5))) == [0]
    # Used on both sides of the moment, or not evictable, it stays.
    assert begins(Tensor("z", 1, (1, 2, 3, 4))) == [0, 3]
    assert begins(Tensor("z", 1, (1, 4), evictable=False)) == [0, 3]
