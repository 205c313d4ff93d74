"""Proofs of fluid bounds as they are found: what they reach, and what stops them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.platform import Link
from offcert.formulations.combinatorial.relaxations import fractional_bound, required_absent
from offcert.formulations.common.linear_model import LinearModel
from offcert.formulations.common.linear_solvers import solve_linear
from offcert.formulations.fluid.dual import KINDS, Dual, Rates, Relaxation, rates
from offcert.formulations.fluid.milp import fluid_bound
from offcert.formulations.fluid.tree import Branch, Leaf, prove
from offcert.questions.schedule.problem import Problem, Transfers
from support.oracles.schedules import brute_force
from support.problems.random_instances import (
    FAMILIES,
    cnn_chain,
    mixed_problem,
    problem_on,
    random_problem,
    seeded,
)
from support.seeds import by_seeds


def middling(seed: int) -> Problem:
    """A problem of up to 14 stages, too large for brute force."""
    rng = seeded(seed)
    return problem_on(rng, FAMILIES[seed % 5](rng, rng.randint(6, 14)), f"middling-{seed}")


@pytest.mark.slow
@by_seeds(0, 220, 55)
def test_proofs_reach_what_the_solver_claims_and_stay_below_the_optimum(seeds: range) -> None:
    branched = 0
    for seed in seeds:
        problem = mixed_problem(seed + 9000, largest=4)
        best = brute_force(problem)
        assert best is not None
        whole = bool(seed // 5 % 2)
        required = required_absent(problem, whole)
        claim = fluid_bound(problem, required=required)
        linear = prove(problem, whole=whole, branching=False)
        tree = prove(problem, whole=whole)
        assert claim.optimal
        assert linear.complete
        assert tree.complete
        assert linear.value == fluid_bound(problem, required=required, relax=True).value
        assert tree.value == claim.value
        assert linear.value <= tree.value <= best, problem.name
        branched += tree.value > linear.value
    assert branched >= 2


def test_on_chains_the_linear_program_proves_the_fractional_optimum() -> None:
    for seed in range(20):
        rng = seeded(seed)
        problem = problem_on(rng, cnn_chain(rng, rng.randint(3, 15)), "chain")
        assert prove(problem, branching=False).value == fractional_bound(problem).value


def test_real_magnitudes_lose_nothing() -> None:
    """Multipliers of simple fractions are recovered exactly, so not even one tick is lost."""
    for seed in range(12):
        rng = seeded(seed)
        small = problem_on(rng, cnn_chain(rng, 6), "small")
        chain = small.chain
        assert chain is not None
        large = replace(
            chain,
            forward=tuple(10**7 * time + 1 for time in chain.forward),
            activation=tuple((10**9 + 7) * size for size in chain.activation),
            gradient=tuple((10**9 + 7) * size for size in chain.gradient),
        )
        platform = replace(
            small.platform,
            memory=small.platform.memory * (10**9 + 7),
            bandwidth=small.platform.bandwidth * Fraction(10**9 + 7, 10**7),
        )
        problem = Problem("large", large, platform)
        assert prove(problem, branching=False).value == fractional_bound(problem).value


def separable(problem: Problem, required: Sequence[int]) -> LinearModel:
    """The facts that are weighed, with growth instead of totals, and with whole choices mixed.

    For each tensor, how much of it is first evicted at each gap and again later: the convex hull of
    its choices, to which the multipliers' bound belongs.
    """
    trace, model = problem.trace, LinearModel()
    slow = float(1 / problem.platform.bandwidth)
    sizes = [float(trace.gap_size(gap)) * slow for gap in range(len(trace.gaps))]
    first = [model.column(0, 1) for _ in trace.gaps]
    later = [model.column(0, 1) for _ in trace.gaps]
    for tensor in {gap.tensor for gap in trace.gaps}:
        mine = [index for index, gap in enumerate(trace.gaps) if gap.tensor == tensor]
        model.row([(first[index], 1.0) for index in mine], 0, 1)
        for place, index in enumerate(mine):
            model.row([*((first[g], 1.0) for g in mine[:place]), (later[index], -1.0)], 0)
    out: list[tuple[int, float]] = []
    back: list[tuple[int, float]] = []

    def move(limit: list[tuple[int, float]], time: float) -> None:
        x, y = model.column(0, 1e9), model.column(0, 1e9)
        for pair in ((x,), (y,)) if problem.platform.link is Link.DUPLEX else ((x, y),):
            model.row([*limit, *((column, -1.0) for column in pair)], -time)
        out.append((x, 1.0))
        back.append((y, -1.0))

    for o, duration in enumerate(trace.durations):
        move([(model.column(0, 1e9, cost=1.0), 1.0)], 0.0)
        gone = [(first[i], sizes[i]) for i, gap in enumerate(trace.gaps) if gap.before < o]
        again = [(later[i], sizes[i]) for i, gap in enumerate(trace.gaps) if gap.before < o]
        due = [
            (column[i], -sizes[i])
            for i, gap in enumerate(trace.gaps)
            for column in (first, later)
            if gap.after <= o
        ]
        need = required[o] * slow
        model.row([*((column, 1.0) for column, _ in back), *due], 0)
        model.row([*out, *again, *back], need)
        move([], float(duration))
        writers = [trace.tensors[gap.tensor].uses[0] for gap in trace.gaps]
        written = [(first[i], sizes[i]) for i, writer in enumerate(writers) if writer < o]
        model.row([*written, *((column, -1.0) for column, _ in out)], 0)
        model.row([*gone, *again, *back], need)
        model.row([*out, *again, *back], need)
    return model


@pytest.mark.slow
def test_the_bound_lies_between_two_other_linear_programs() -> None:
    """HiGHS on the rows of the program, and CBC on rows written down separately."""
    equal = 0
    for seed in range(24):
        problem = random_problem(seed + 400)
        required = required_absent(problem)
        answer = solve_linear(separable(problem, required))
        proved = prove(problem, branching=False).value
        assert fluid_bound(problem, relax=True).value <= proved
        assert proved - 1 < problem.trace.compute_time + answer.bound + 1e-4
        equal += proved > problem.trace.compute_time + answer.bound - 1e-4
    assert equal >= 20


def test_a_limit_leaves_a_weaker_proof() -> None:
    problem = middling(55)
    root = prove(problem, branching=False)
    whole = prove(problem)
    none = prove(problem, time_limit=0.0)
    assert not none.complete
    assert none.value == problem.trace.compute_time
    assert none.tree == [Leaf(0)]
    values = [prove(problem, node_limit=nodes).value for nodes in (1, 3, 9, 20_000)]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (root.value, whole.value)
    assert root.value < whole.value
    assert not prove(problem, node_limit=3).complete


def test_a_target_ends_the_search() -> None:
    problem = middling(55)
    root, whole = prove(problem, branching=False), prove(problem)
    reached = prove(problem, target=root.value)
    assert len(reached.tree) == 1
    assert reached.complete
    nothing = prove(problem, target=problem.trace.compute_time)
    assert nothing.complete
    assert nothing.statistics["programs"] == 0
    aimed = prove(problem, target=whole.value)
    assert aimed.value == whole.value
    assert len(aimed.tree) <= len(whole.tree)


@pytest.mark.parametrize("calls", [0, 1, 2, 5])
def test_an_interrupt_leaves_a_tree(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = middling(55)
    solve, count = Relaxation.solve, [0]

    def interrupted(self: Relaxation, *arguments: Any) -> Any:
        count[0] += 1
        if count[0] > calls:
            raise KeyboardInterrupt
        return solve(self, *arguments)

    monkeypatch.setattr(Relaxation, "solve", interrupted)
    proof = prove(problem)
    assert proof.interrupted
    assert not proof.complete
    branches = sum(isinstance(node, Branch) for node in proof.tree)
    assert len(proof.tree) == 2 * branches + 1
    monkeypatch.undo()
    assert problem.trace.compute_time <= proof.value <= prove(problem).value
    assert (proof.value > problem.trace.compute_time) == (calls > 0)


def test_middling_trees_end_and_agree_with_the_solver() -> None:
    for seed in (3, 24, 26, 28, 49, 53):
        problem = middling(seed)
        claim = fluid_bound(problem).value
        proof = prove(problem, target=claim)
        assert proof.complete
        assert proof.value == claim > prove(problem, branching=False).value


def test_a_mode_that_the_transfers_do_not_allow_is_refused() -> None:
    problem = random_problem(7)
    with pytest.raises(ValueError, match="whole"):
        prove(replace(problem, transfers=Transfers.INTERRUPTIBLE), whole=True)
    with pytest.raises(ValueError, match="fractional"):
        prove(replace(problem, transfers=Transfers.FRACTIONAL))


@by_seeds(0, 200, 50)
def test_any_multipliers_give_a_bound(seeds: range) -> None:
    """However they are chosen: rounding may change them at will without making a bound wrong."""
    rng = seeded(5)
    above = 0
    for seed in seeds:
        problem = mixed_problem(seed + 700, largest=3)
        best = brute_force(problem)
        assert best is not None
        dual = Dual(problem, required_absent(problem, subset_sum=True))
        weights = [
            [rng.choice((0.0, 0.0, 0.0, rng.random())) for _ in problem.trace.durations]
            for _ in KINDS
        ]
        # The rows that push against each other: due with opened, available with the last two.
        o = rng.randrange(len(problem.trace))
        if rng.random() < 0.7:
            weights = [[0.0] * len(problem.trace) for _ in KINDS]
            weights[rng.choice((2, 3, 4))][o] = weights[1][o] = rng.random()
        bound = dual.bound(dual.rounded(weights))
        assert bound <= best, problem.name
        above += bound > problem.trace.compute_time
    assert above >= 1


@by_seeds(0, 60, 30)
def test_what_lacks_room_is_named(seeds: range) -> None:
    found = 0
    for seed in seeds:
        problem = mixed_problem(seed + 300)
        required = required_absent(problem)
        dual = Dual(problem, required)
        kept = dict.fromkeys(range(len(problem.trace.gaps)), False)
        assert dual.impossible({}) is None
        lacking = dual.impossible(kept)
        assert (lacking is None) == (max(required) == 0)
        if lacking is not None:
            assert required[lacking] > 0
            found += 1
    assert found >= 14


def test_the_link_is_asked_in_one_place() -> None:
    problem = random_problem(7).with_bandwidth(Fraction(7, 5))
    assert rates(problem) == Rates(Fraction(5, 7), 1, 1)
