"""Every exact model of atomic transfers agrees with every other one, and with brute force.

The pairs, and on how many problems each is compared (`test_every_pair_...` counts them):

- All models are compared with brute force on the same problems, so a pair agrees on those that both
  can solve. `pair_problems` has at least 100 for each pair: 100 of all families (both links,
  different rates per direction, several gaps a tensor, second evictions that cost no offload), and
  as many more on simplex links with nested gaps as make 100 for `pivot` and `stage-milp`, which
  are exact on those only.
- `time-indexed-cpsat` and `time-indexed-milp` solve these problems in their own file.

Interruptible and fractional transfers: `fluid-exact` and a program by ticks that shares nothing
with it, on 100 problems a kind (`test_fluid_exact`); the fractional bound and
`fluid-exact` in rational time, which are one value on chains, on 100 (here); ordered schedules
by `fluid-exact`, all sets and Algorithm 1, on 100 (`test_fluid_exact`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

from offcert.core.errors import MethodError
from offcert.core.platform import Link
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.formulations.fluid.exact import solve_fluid
from offcert.formulations.labels.pivot import pivot_bound
from offcert.formulations.labels.pivot.model import nested
from offcert.formulations.models import interval_cpsat, stage_milp
from offcert.questions.schedule.problem import Problem, Transfers
from support.problems.random_instances import cnn_chain, problem_on, seeded, spiky_chain, two_rates
from support.problems.short_problems import pair_problems, simplex_problems
from support.seeds import by_seeds

# What each model returns: the value of its schedule and its bound, None if it is not exact here.
Solver = Callable[[Problem], tuple[int | None, int] | None]


def _pivot(problem: Problem) -> tuple[int | None, int] | None:
    try:
        outcome = pivot_bound(problem, upper_bound=10**9, time_limit=60.0, max_labels=10**6)
    except MethodError:
        return None
    assert outcome.complete
    return None if outcome.schedule is None else outcome.schedule.makespan, outcome.lower_bound


def _stage(problem: Problem) -> tuple[int | None, int] | None:
    outcome = stage_milp.solve(problem, exact=True)
    return (outcome.objective, outcome.lower_bound) if outcome.details["exact"] else None


def _interval(problem: Problem) -> tuple[int | None, int]:
    outcome = interval_cpsat.solve(problem, workers=1)
    return outcome.objective, outcome.lower_bound


SOLVED_HERE: dict[str, Solver] = {
    "interval-cpsat": _interval,
    "stage-milp": _stage,
    "pivot": _pivot,
}
# Compared with brute force on the same problems in a file of their own.
ELSEWHERE = ("time-indexed-cpsat", "time-indexed-milp")
MODELS = (*SOLVED_HERE, *ELSEWHERE)


def applies(name: str, problem: Problem) -> bool:
    """Whether a model is exact on a problem, from what the problem is."""
    if name not in ("stage-milp", "pivot"):
        return True
    if name == "stage-milp" and problem.platform.link is Link.DUPLEX:
        return False
    try:
        nested(problem)
    except MethodError:
        return name == "stage-milp"
    return True


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(2))
@pytest.mark.parametrize("name", SOLVED_HERE)
def test_every_model_finds_what_brute_force_finds(name: str, batch: int) -> None:
    solved = 0
    for problem, best in [*pair_problems(), *simplex_problems()][batch::2]:
        found = SOLVED_HERE[name](problem)
        assert (found is not None) == applies(name, problem), problem.name
        if found is not None:
            assert found == (best, best), (problem.name, found, best)
            solved += 1
    assert solved >= 20


@pytest.mark.slow
def test_every_pair_of_models_is_compared_on_100_problems_or_more() -> None:
    together: Counter[tuple[str, str]] = Counter()
    traits: Counter[str] = Counter()
    waiting = 0
    problems = [*pair_problems(), *simplex_problems()]
    for problem, best in problems:
        able = [name for name in MODELS if applies(name, problem)]
        together.update(combinations(able, 2))
        trace = problem.trace
        traits["duplex"] += problem.platform.duplex
        traits["two rates"] += problem.platform.prefetch_bandwidth is not None
        traits["several gaps"] += len({gap.tensor for gap in trace.gaps}) < len(trace.gaps)
        traits["chain"] += problem.chain is not None
        waiting += best > trace.compute_time
    assert len({problem.name for problem, _ in problems}) == len(problems)
    for pair in combinations(MODELS, 2):
        assert together[pair] >= 100, pair
    assert min(traits[name] for name in ("duplex", "two rates", "several gaps")) >= 20
    # Where nothing has to wait, a model that forgets everything but the operations is right, too.
    assert waiting >= len(problems) // 2


@pytest.mark.slow
@by_seeds(0, 100, 50)
def test_two_ways_to_the_fractional_optimum_of_chains_agree(seeds: range) -> None:
    """In rational time: in closed form, and by amounts per tensor."""
    waiting = 0
    for seed in seeds:
        rng = seeded(seed)
        network = (cnn_chain, spiky_chain)[seed % 2](rng, rng.randint(2, 6))
        problem = problem_on(rng, network, f"chain-{seed}")
        problem = two_rates(problem) if seed % 4 < 2 else problem
        closed = fractional_bound(problem).value
        relaxed = replace(problem, transfers=Transfers.FRACTIONAL)
        assert solve_fluid(relaxed, whole_ticks=False).bound == closed, problem.name
        waiting += closed > problem.trace.compute_time
    assert waiting >= 15
