"""AUTOSWAP: scores and choices by hand, and what the optimiser must and must not change."""

import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import optuna
import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions import autoswap as autoswap_module
from offcert.heuristics.evictions.autoswap import SCORES, autoswap, priority_scores, scaled, select
from offcert.heuristics.evictions.rules import greedy_gaps
from offcert.heuristics.orders.ordered import ordered_makespan
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.optimum import against_the_optimum
from support.problems.random_instances import (
    mixed_problem,
    seeded,
    spiky_chain,
    tiny_problems,
    trace_with_internals,
)
from support.seeds import by_seeds

CHAIN = Chain([4, 1, 9, 2, 1], [1, 1, 1, 1, 1], [2, 4, 3, 1, 1, 1], [0] * 6)


def problem(memory: int, back: Fraction | None = None) -> Problem:
    return Problem("p", CHAIN, Platform(memory, Fraction(1), prefetch_bandwidth=back))


def test_the_scores_by_hand():
    # F_0 to F_4 start at 0 4 5 14 16, B_4 to B_0 at 17 18 19 20 21. x_0 is idle from 4 to 21.
    # Above the limit of 10 there are -4 -1 0 1 2 bytes, and the same in reverse.
    doa, aoa, wdoa, swdoa = priority_scores(problem(10))
    assert doa.tolist() == [17 - 4, 15 - 8, 5 - 6, 2 - 2]
    assert aoa.tolist() == [13 * 2, 7 * 4, -1 / 3, 0]
    assert wdoa.tolist() == [5, 7, 7, 4]
    # x_1 first; without its 4 bytes, x_3 is the best, then x_2.
    assert swdoa.tolist() == [-72, 7, -15, -4]


def test_each_direction_has_its_rate():
    doa = priority_scores(problem(10, back=Fraction(2)))[0]
    assert doa.tolist() == [17 - 3, 15 - 6, 5 - 5, 2 - 2]


def test_scores_are_scaled_to_the_same_range():
    values = scaled(np.array([[2.0, 4.0, 3.0], [5.0, 5.0, 5.0]]))
    assert values.tolist() == [[0, 1, 0.5], [0, 0, 0]]


def test_the_best_candidates_at_the_peak_leave_until_it_fits():
    scores = priority_scores(problem(10))
    assert select(problem(10), scores[0].tolist()) == [0]
    assert select(problem(10), scores[1].tolist()) == [1]
    assert select(problem(8), scores[0].tolist()) == [0, 1]
    # Without x_1, the peak of 9 bytes is at F_1 and B_1, where only x_0 can be absent.
    assert select(problem(7), [0, 3, 2, 1]) == [1, 0]
    assert select(problem(6), [0, 3, 2, 1]) is None
    assert select(problem(12), [1, 1, 1, 1]) == []


def test_on_chains_the_longest_absence_is_greedys_choice():
    # The offloading paper, §6.2: AUTOSWAP often does the same as GREEDY.
    same = total = 0
    for seed in range(8):
        for percent in (0, 5, 10, 25, 50):
            chain = cnn_chain(24, seed)
            chain = chain.with_memory(chain.memory_at(Fraction(percent, 100)))
            chosen = select(chain, priority_scores(chain)[0].tolist())
            assert chosen is not None
            same += sorted(chosen) == sorted(greedy_gaps(chain))
            total += 1
    assert same > total // 2


@pytest.mark.slow
@by_seeds(0, 120, 120)
def test_plans_are_valid_and_no_worse_than_any_score_alone(seeds):
    moved = 0
    for seed in seeds:
        current = mixed_problem(seed, 7)
        try:
            plan = autoswap(current, trials=6)
        except MethodError:
            continue
        schedule = simulate(current, plan)
        assert check(current, schedule) == []
        if not plan.moves:
            continue
        moved += 1
        for alone in scaled(priority_scores(current)):
            chosen = select(current, alone.tolist())
            assert chosen is not None
            value = ordered_makespan(current, chosen)
            assert value is None or schedule.makespan <= value
    assert moved > 70


def network(seed: int) -> Problem:
    """Return a problem on which the scores disagree."""
    rng = seeded(seed)
    trace = (trace_with_internals, spiky_chain)[seed % 2](rng, 10)
    current = Problem(f"n-{seed}", trace, Platform(10**6, Fraction(1, 2)))
    return current.with_memory(current.memory_at(Fraction(rng.randint(1, 9), 10)))


@pytest.mark.slow
def test_mixing_scores_can_be_better_than_all_of_them():
    better = 0
    for seed in range(12):
        current = network(seed)
        few, many = (
            simulate(current, autoswap(current, trials=trials)).makespan
            for trials in (len(SCORES), 30)
        )
        assert many <= few
        better += many < few
    assert better >= 2


@pytest.mark.slow
def test_no_schedule_is_shorter_than_the_optimum():
    total, worse = against_the_optimum(
        tiny_problems(80, seed=6, largest=4), lambda problem: autoswap(problem, trials=8)
    )
    assert total > 40
    assert worse > 5


def test_the_seed_decides_which_weights_are_tried(monkeypatch):
    tried: list[Sequence[float]] = []

    def recorded(problem: Problem, priority: Sequence[float]) -> list[int] | None:
        tried.append(priority)
        return select(problem, priority)

    monkeypatch.setattr(autoswap_module, "select", recorded)
    runs, plans = [], []
    for seed in (0, 0, 1):
        tried.clear()
        plans.append(autoswap(network(6), trials=25, seed=seed))
        runs.append(list(tried))
    assert runs[0] == runs[1]
    assert plans[0] == plans[1]
    assert runs[0][: len(SCORES)] == runs[2][: len(SCORES)]
    assert runs[0][len(SCORES) :] != runs[2][len(SCORES) :]


def test_nothing_is_printed_and_optunas_settings_stay(capfd):
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        autoswap(network(0), trials=8)
        assert capfd.readouterr() == ("", "")
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(level)


def test_nothing_leaves_if_the_peak_fits():
    assert autoswap(problem(12)) == Plan()


def test_errors_say_what_is_wrong(monkeypatch):
    with pytest.raises(MethodError, match="at least 4 trials, not 3"):
        autoswap(problem(10), trials=3)
    with pytest.raises(MethodError, match=r"a seed from 0 to .* not -1"):
        autoswap(problem(10), seed=-1)
    with pytest.raises(MethodError, match="no plan exists below 7 bytes"):
        autoswap(problem(6))
    trace = Trace([Operation(str(i), 1) for i in range(6)], [Tensor("x", 1, (0, 2, 5))])
    with pytest.raises(MethodError, match="AUTOSWAP needs a trace in which every tensor has at"):
        autoswap(Problem("p", trace, Platform(0, Fraction(1))))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MethodError, match=r'not installed: pip install "\.\[autoswap\]"'):
        autoswap(problem(10))
