"""What searches found and the library ships: both values computed again, one search repeated."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Kind
from offcert.core.result import Evidence, SolveStatus
from offcert.formulations.fluid.exact import solve_fluid
from offcert.heuristics.evictions.dynprog import algorithm_1
from offcert.instances.library import FOLDER, default_library
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem, Transfers
from offcert_lab.hunts.adversarial import values
from offcert_lab.hunts.adversarial.chains import AdversarialChains
from support.oracles.fluid import ordered_optimum, tick_optimum
from support.oracles.schedules import brute_force

LEMMA_3 = "adversarial-ordered-interruptible"
# By the names of the files: to read them all takes seconds, and every process would.
FILES = sorted(path.stem for path in FOLDER.glob("adversarial-*.json"))
NAMES = [name for name in FILES if not name.startswith("adversarial-checkpoint-")]


def facts(problem: Problem) -> tuple[str, str, int, int]:
    source = dict(problem.source or {})
    return source["against"], source["by"], source["over"], source["under"]


def test_every_method_and_bound_that_was_beaten_is_there() -> None:
    entries = list(default_library().entries(group="adversarial"))
    assert sorted(entry.name for entry in entries) == NAMES
    against = {facts(entry.problem)[0] for entry in entries}
    methods = {"greedy", "sequential", "dynprog", "dynprog-exact", "vdnn", "vdnn-all", "tflms"}
    expected = {*methods, "ordered", *values.BOUNDS}
    # The pivot program is exact.
    assert expected - {"pivot"} <= against


@pytest.mark.parametrize("name", NAMES)
def test_both_values_are_what_the_source_says(name: str) -> None:
    entry = default_library().entry(name)
    against, by, over, under = facts(entry.problem)
    assert over > under
    assert by == "optimum"
    bound = against in values.BOUNDS
    assert values.value(against, entry.problem) == (under if bound else over)
    best = over if bound else under
    assert entry.record.status is SolveStatus.OPTIMAL
    assert entry.record.value == best
    atomic = entry.problem.transfers is Transfers.ATOMIC
    if atomic:
        assert brute_force(entry.problem) == best
        assert entry.record.best is not None
        assert entry.record.best.bound.evidence is Evidence.PROVED
    chain = entry.problem.chain
    assert chain is not None
    assert len(chain) >= 4
    assert min(chain.forward + chain.backward) >= 1


def test_greedy_is_shipped_at_more_than_three_times_the_optimum() -> None:
    _, _, over, under = facts(default_library().load("adversarial-greedy"))
    assert over >= 3 * under


@pytest.mark.parametrize("name", [LEMMA_3, f"{LEMMA_3}-small"])
def test_lemma_3_is_refuted_by_programs_that_share_nothing_with_the_search(name: str) -> None:
    """All sets, each in its order, on one side; a valid schedule and unit ticks on the other."""
    problem = default_library().load(name)
    chain, platform = problem.chain, problem.platform
    assert chain is not None
    _, _, over, under = facts(problem)
    rates = platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)
    assert ordered_optimum(chain, platform.memory, rates) == over
    assert math.ceil(algorithm_1(chain, platform.memory, rates[0])[0]) == over
    outcome = solve_fluid(problem)
    assert outcome.schedule is not None
    assert check_fluid(problem, outcome.schedule) == []
    assert outcome.schedule.makespan == under
    if name != LEMMA_3:
        assert tick_optimum(problem, under) == under
        assert tick_optimum(problem, under - 1) is None
        assert max(value for row in numbers_of(chain) for value in row) <= 5


def numbers_of(chain: Chain) -> list[tuple[int, ...]]:
    return [
        chain.forward,
        chain.backward,
        chain.activation,
        chain.gradient,
        chain.forward_workspace,
        chain.backward_workspace,
    ]


def test_order_costs_more_than_in_the_first_counterexample_and_with_fewer_stages() -> None:
    problem = default_library().load(LEMMA_3)
    _, _, over, under = facts(problem)
    assert Fraction(over, under) > Fraction(251, 219)
    assert problem.chain is not None
    assert len(problem.chain) < 7


def test_order_costs_whole_transfers_as_well() -> None:
    problem = replace(default_library().load(LEMMA_3), transfers=Transfers.ATOMIC)
    assert brute_force(problem) == 66
    assert brute_force(problem, ordered=True) == 76


def test_a_search_finds_what_is_shipped() -> None:
    problem = default_library().load("adversarial-prop3")
    again = AdversarialChains.again(dict(problem.source or {}))
    assert problem_digest(replace(again, name=problem.name)) == problem_digest(problem)
