"""Joint bounds: what they say of problems that can be worked out by hand, and how they grow."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.joint import bound_computing, climb_joint
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.formulations.joint.bound import JointCuts, computing_bound, joint_bounds
from offcert.formulations.joint.room import contents, demands, grid_of, least_need, rooms
from offcert.questions.schedule.problem import Problem
from offcert.verification.findings import recheck
from support.oracles.joint import least_time
from support.problems.joint import joint_problem
from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
from support.seeds import by_seeds


def problem_of(network: Network, memory: int, **choices) -> Problem:
    return Problem(
        "hand", network, Platform(memory, Fraction(1), Link.SIMPLEX), recompute="any", **choices
    )


def value(problem: Problem, *moments: int, whole: bool = True) -> int:
    """Return the bound of a grid."""
    network = problem.computed
    assert network is not None
    found = JointCuts(problem, whole=whole).cut(grid_of(network, moments), 60)
    assert found is not None
    assert recheck(found, problem) is None
    return found.value


def spiked(repeatable: bool = True) -> Network:
    """Return a network in which two values have to be absent during a run in the middle."""
    return Network(
        [
            Computation("A", 4, writes=(0,), repeatable=repeatable),
            Computation("B", 6, reads=(0,), writes=(1,), repeatable=repeatable),
            Computation("S", 5, 4, repeatable=False),
            Computation("D", 3, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 2), Value("y", 2)],
    )


def test_what_share_runs_again_is_told() -> None:
    """Nothing may leave: both A and B run again behind S, so that their shares are 1."""
    told: list[dict[int, float]] = []
    list(joint_bounds(problem_of(spiked(), 4, offload=False), 60, tell=told.append))
    assert told == [pytest.approx({0: 1.0, 1: 1.0})]


def test_what_runs_again_needs_what_it_reads() -> None:
    """Nothing may leave: both A and B run again behind S, which takes all memory."""
    problem = problem_of(spiked(), 4, offload=False)
    assert value(problem, 4) == 18 + 4 + 6
    assert value(problem.with_memory(6), 4) == 18 + 4
    assert value(problem.with_memory(8), 4) == 18


def test_what_cannot_run_again_moves() -> None:
    """x leaves while B runs, y in the 2 ticks after B; both return behind S: 2 + 4 ticks more."""
    problem = problem_of(spiked(repeatable=False), 4)
    assert value(problem, *range(7)) == least_time(problem) == 18 + 6


def test_what_may_do_both_is_a_mixture() -> None:
    """Shares of a value may come by both ways, so that less is said; in each case it is one way."""
    problem = problem_of(spiked(), 4)
    assert value(problem, *range(7)) == 22
    assert problem.computed is not None
    grid = grid_of(problem.computed, range(7))
    decided = JointCuts(problem).cases(grid, 60)
    assert decided is not None
    assert recheck(decided, problem) is None
    assert decided.value == least_time(problem) == 24
    less = JointCuts(problem, target=23).cases(grid, 60)
    assert less is not None
    assert less.value == 23
    assert JointCuts(problem).cases(grid, 0) is None


@pytest.mark.parametrize(("duration", "between_spikes"), [(6, 7), (8, 8), (3, 4)])
def test_what_is_needed_between_spikes_comes_in_one_way(duration: int, between_spikes: int) -> None:
    """x is read between S and T, which take all memory: 8 ticks to come back, or A again and D.

    While B runs there is time enough for x to leave. Half of it in one way, half in the other would
    take less. From T on nothing is cut, so that x may come back in parts during T: 8 ticks.
    """
    network = Network(
        [
            Computation("A", duration, writes=(0,)),
            Computation("B", 20, reads=(0,), writes=(1,), repeatable=False),
            Computation("S", 5, 8, repeatable=False),
            Computation("D", 1, reads=(0,), repeatable=False),
            Computation("T", 5, 8, repeatable=False),
            Computation("E", 1, reads=(0,), repeatable=False),
        ],
        [Value("x", 8), Value("y", 0)],
    )
    problem = problem_of(network, 8)
    found = JointCuts(problem).between(60)
    assert found is not None
    assert recheck(found, problem) is None
    assert found.value == duration + 20 + 5 + between_spikes + 8
    best = least_time(problem)
    # D and E wait for x, which the bound does not know.
    assert best == duration + 20 + 5 + 5 + 2 * (min(duration, 8) + 1)
    mixed = JointCuts(problem).cut(grid_of(network, (1, 4, 5, 8)), 60)
    assert mixed is not None
    assert mixed.value < found.value
    assert JointCuts(problem.with_memory(16)).between(60) is None
    assert JointCuts(problem, whole=False).between(60) is None


def test_what_is_absent_has_left_before() -> None:
    """Half of x may be there while S runs: it is the other half that must have left by then."""
    network = Network(
        [
            Computation("A", 1, writes=(0,), repeatable=False),
            Computation("S", 1, 2, repeatable=False),
            Computation("D", 9, reads=(0,), repeatable=False),
        ],
        [Value("x", 4)],
    )
    problem = problem_of(network, 4, transfers="fractional")
    assert value(problem, 2, whole=False) == 12
    # It leaves when A has ended, and comes back before D starts.
    assert value(problem, *range(5), whole=False) == 1 + 2 + 1 + 2 + 9


def test_a_window_that_is_one_run_is_no_longer_than_it() -> None:
    """With a moment at the end of B, y has only the time between B and S to leave."""
    network = Network(
        [
            Computation("A", 9, writes=(0,), repeatable=False),
            Computation("S", 1, 5, repeatable=False),
            Computation("D", 1, reads=(0,), repeatable=False),
        ],
        [Value("x", 5)],
    )
    problem = problem_of(network, 5)
    # The link has 9 ticks before S starts if nobody knows that x is there only at their end.
    assert value(problem, 2) == 9 + 5
    assert value(problem, 1, 2, 3, 4) == 9 + 5 + 1 + 5 + 1


def test_what_was_changed_in_place_is_made_in_two_runs() -> None:
    """And moved by itself: what it was before is of no use to the reader."""
    network, once = changed(repeatable=True), changed(repeatable=False)
    known = contents(network, offload=True)
    assert known.reads == ((), (0,), (), (1,))
    assert known.size == (4, 4)
    assert demands(network, known) == [4, 4, 8, 4]
    assert value(problem_of(network, 4, offload=False), 4) == 7 + 5
    # It may begin to leave while R changes it, which is 2 ticks less for the link to wait.
    assert value(problem_of(once, 4), *range(7)) == 7 + 8 - 2


def changed(repeatable: bool) -> Network:
    return Network(
        [
            Computation("A", 3, writes=(0,), repeatable=repeatable),
            Computation("R", 2, reads=(0,), writes=(1,), repeatable=repeatable),
            Computation("S", 1, 4, repeatable=False),
            Computation("D", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 4), Value("x'", 0, base=0)],
    )


@pytest.mark.parametrize("seed", range(12))
def test_more_moments_never_say_less(seed: int) -> None:
    rng = random.Random(seed)
    network = checkpoint_chain(rng, 4) if seed % 2 else random_network(rng, 4)
    problem = replace(recompute_problem(rng, network), offload=bool(seed % 3))
    assert problem.computed is not None
    every = range(2 * len(problem.computed) - 1)
    few = sorted(rng.sample(every, 3))
    more = sorted({*few, *rng.sample(every, 4)})
    for whole in (False, True):
        found = [
            JointCuts(problem, whole=whole).cut(grid_of(problem.computed, moments), 60)
            for moments in (few, more, every)
        ]
        # Without an optimum there is no execution at all, also for finer cuts.
        values = [float("inf") if bound is None else bound.value for bound in found]
        assert values == sorted(values)


def test_whole_values_leave_less_room() -> None:
    problem = problem_of(spiked(), 7, offload=False)
    assert problem.computed is not None
    known = contents(problem.computed, offload=False)
    assert [least_need(problem.computed, known, c) for c in range(4)] == [2, 4, 4, 4]
    grid = grid_of(problem.computed, [4])
    (part,) = rooms(known, grid, 7, whole=False)
    (whole,) = rooms(known, grid, 7, whole=True)
    assert (part.most, whole.most) == (3, 2)
    (tight,) = rooms(known, grid, 5, whole=True)
    assert (tight.most, tight.too_large) == (0, {0, 1})


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_bounds_grow_and_begin_with_the_computing_time(seeds: range) -> None:
    seen = 0
    for seed in seeds:
        problem = joint_problem(seed)
        assert problem.computed is not None
        found = [computing_bound(problem), *joint_bounds(problem, 30)]
        values = [bound.value for bound in found]
        assert values[0] == problem.computed.compute_time
        assert values == sorted(set(values))
        assert all(recheck(bound, problem) is None for bound in found)
        seen += len(found) > 1
    assert seen >= 8


def test_no_time_gives_no_bound_but_the_computing_time() -> None:
    problem = problem_of(spiked(), 4, offload=False)
    assert list(joint_bounds(problem, 0.0)) == []
    assert recheck(computing_bound(problem), problem) is None


def test_without_moments_or_values_the_bound_is_the_computing_time() -> None:
    assert value(problem_of(spiked(), 4)) == 18
    empty = Network([Computation("A", 3), Computation("B", 4, 1)], [])
    assert value(problem_of(empty, 1)) == value(problem_of(empty, 1), 1, 2) == 7


def test_memory_for_everything_needs_no_program() -> None:
    assert list(joint_bounds(problem_of(spiked(), 100), 30)) == []


def test_steps_hand_bounds_to_a_search() -> None:
    search = Search(problem_of(spiked(), 4, offload=False), 60)
    bound_computing(search, Effort(1))
    assert search.proved_bound == 18
    climb_joint(search, Effort(20))
    assert search.proved_bound == search.lower_bound == 28


def test_what_a_run_discards_it_must_make_again() -> None:
    """A can keep x or y, but not both: it runs twice, half of which the linear program sees."""
    network = Network(
        [
            Computation("A", 4, writes=(0, 1), lean=0),
            Computation("B", 1, reads=(0,), repeatable=False),
            Computation("C", 1, reads=(1,), repeatable=False),
        ],
        [Value("x", 2), Value("y", 3)],
    )
    problem = problem_of(network, 3, offload=False)
    # At the start of B only x has to be there, and y may still be.
    assert value(problem, 1, whole=False) == value(problem, 1) == 6 + 2
    decided = JointCuts(problem).cases(grid_of(network, [1]), 60)
    assert decided is not None
    assert recheck(decided, problem) is None
    assert decided.value == least_time(problem) == 6 + 4
    assert value(problem.with_memory(5), *range(5)) == least_time(problem.with_memory(5)) == 6


def test_what_a_run_changes_in_place_is_no_output_of_its_own() -> None:
    network = Network(
        [
            Computation("A", 1, writes=(0,)),
            Computation("R", 2, reads=(0,), writes=(1, 2), lean=0),
            Computation("D", 1, reads=(0, 1, 2), repeatable=False),
        ],
        [Value("x", 5), Value("x'", 0, base=0), Value("s", 1)],
    )
    problem = problem_of(network, 6, offload=False)
    assert value(problem, *range(5)) == least_time(problem) == 4


def test_multipliers_of_large_numbers_fit_into_a_document() -> None:
    """Times near 10^15: a tick times a fine denominator takes more than 64 bits."""
    unit = 10**15
    chain = CheckpointChain(
        forward=[5 * unit - 3, 5 * unit + 1],
        backward=[5 * unit + 3, 9 * unit - 2],
        output=[4 * unit, 5 * unit - 3, 9 * unit + 3],
        saved=[12 * unit - 3, 9 * unit + 3],
        gradient=[4 * unit - 1, 0, 8 * unit + 2],
        backward_workspace=[9 * unit + 1, 0],
    )
    platform = Platform(29 * unit - 3, Fraction(1, 2), Link.SIMPLEX)
    problem = Problem("large", chain, platform, recompute="any")
    bounds = list(joint_bounds(problem, 20))
    assert max(bound.value for bound in bounds) > chain.network().compute_time
    assert [recheck(bound, problem) for bound in bounds] == [None] * len(bounds)
