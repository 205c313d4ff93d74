from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.ladder import certify
from offcert.certification.ladders import joint as choice
from offcert.certification.ladders.joint import LADDERS
from offcert.certification.ladders.plain import plain_ladder_for
from offcert.certification.method import Method
from offcert.certification.methods import METHODS, solve
from offcert.certification.rung import Rung
from offcert.certification.search import Search, SearchProgress, UnsoundError
from offcert.core.chain import Chain
from offcert.core.errors import InputError, MethodError
from offcert.core.platform import Link
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.trace import Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.library import default_library, load
from offcert.proofs.registry import witness
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from support.oracles.schedules import brute_force
from support.problems.long_problems import long_problem
from support.problems.random_instances import mixed_problem, random_problem
from support.seeds import by_seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_certify_finds_and_proves_the_optimum_of_tiny_problems(seed: int) -> None:
    problem = mixed_problem(seed, 4)
    certificate = certify(problem, time_limit=30, workers=1)
    optimum = brute_force(problem)
    if optimum is None:
        assert certificate.result.status is SolveStatus.INFEASIBLE
    else:
        assert certificate.result.objective == optimum
        assert certificate.result.status is SolveStatus.OPTIMAL
    assert verify(certificate.to_json()).faults == []


def with_convolutions(problem: Problem) -> Problem:
    """Return the problem with names that call every other operation a convolution."""
    trace = problem.trace
    names = [("conv", "pool")[o % 2] + str(o) for o in range(len(trace))]
    if (chain := problem.chain) is not None:
        return replace(
            problem,
            network=Chain(
                chain.forward,
                chain.backward,
                chain.activation,
                chain.gradient,
                chain.forward_workspace,
                chain.backward_workspace,
                names[: len(chain)],
            ),
        )
    operations = [
        replace(operation, name=name)
        for operation, name in zip(trace.operations, names, strict=True)
    ]
    return replace(problem, network=Trace(operations, trace.tensors))


def as_tasks(problem: Problem) -> Problem:
    """Return the problem with names as if the first half of its operations were forward tasks."""
    trace = problem.trace
    kinds = ("FP", "BP1")
    operations = [
        replace(each, name=f"{kinds[2 * i >= len(trace)]} l{i}")
        for i, each in enumerate(trace.operations)
    ]
    return replace(problem, network=Trace(operations, trace.tensors))


# The others are put to the test in test_joint_methods. Those that other tests add have no name.
PLAIN = [
    method.name for method in METHODS.values() if method.name and Recompute.NONE in method.recompute
]


@pytest.mark.slow
@pytest.mark.parametrize("method", PLAIN)
@by_seeds(0, 60, 60)
def test_every_method_respects_the_optimum(seeds: range, method: str) -> None:
    ran = 0
    # Some are for few networks only.
    for seed in seeds:
        if ran == 7:
            break
        problem = mixed_problem(seed, 4)
        if METHODS[method].relaxed_only:
            problem = replace(problem, transfers=Transfers.INTERRUPTIBLE)
        if method == "vdnn-conv":
            problem = with_convolutions(problem)
        if method == "vdnn-tasks":
            problem = as_tasks(problem)
        try:
            certificate = solve(problem, method, time_limit=1, workers=1)
        except MethodError:
            continue
        ran += 1
        optimum = brute_force(problem)
        if optimum is None:
            assert certificate.result.status is SolveStatus.INFEASIBLE
            continue
        result = certificate.result
        assert result.lower_bound <= optimum
        if problem.transfers is Transfers.ATOMIC:
            assert result.objective is None or result.objective >= optimum
        assert verify(certificate.to_json()).faults == []
    assert ran >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL])
def test_relaxed_transfers_get_only_bounds_that_hold_for_them(kind: Transfers) -> None:
    for seed in range(20):
        atomic = mixed_problem(seed, 5)
        relaxed = Problem("p", atomic.network, atomic.platform, kind)
        certificate = certify(relaxed, time_limit=20, workers=1)
        methods = {bound.method for bound in certificate.result.bounds}
        rounded = {"prop3-subset-sum"} if kind is Transfers.INTERRUPTIBLE else set()
        assert methods <= {"prop3", "fractional", "fluid-exact"} | rounded
        assert not certificate.notes.refuted
        assert certificate.result.status is SolveStatus.OPTIMAL
        if certificate.result.objective is not None:
            optimum = brute_force(atomic)
            assert optimum is not None
            assert certificate.result.lower_bound <= optimum
        assert verify(certificate.to_json()).faults == []


@pytest.mark.slow
def test_what_whole_tensors_need_bounds_no_fractional_schedule() -> None:
    too_much = 0
    for seed in range(20):
        problem = replace(random_problem(seed, 5), transfers=Transfers.FRACTIONAL)
        optimum = solve(problem, "fluid-exact", time_limit=20).result.objective
        assert optimum is not None
        with pytest.raises(InputError, match="not fractional"):
            solve(problem, "fluid-milp")
        whole = solve(replace(problem, transfers=Transfers.INTERRUPTIBLE), "fluid-milp")
        too_much += whole.result.lower_bound > optimum
    assert too_much >= 2


def test_the_target_gap_ends_the_search() -> None:
    problem = random_problem(5)
    certificate = certify(problem, target_gap=0.99)
    assert certificate.result.gap <= 0.99
    assert {bound.method for bound in certificate.result.bounds} <= {
        *("prop3", "prop3-subset-sum", "fractional", "fractional-subset-sum")
    }


def test_progress_never_gets_worse() -> None:
    seen: list[SearchProgress] = []
    certify(random_problem(7, 5), time_limit=10, progress=seen.append)
    assert seen
    objectives = [p.objective for p in seen if p.objective is not None]
    assert objectives == sorted(objectives, reverse=True)
    bounds = [p.lower_bound for p in seen]
    assert bounds == sorted(bounds)


def test_an_interrupt_keeps_the_best_found_so_far() -> None:
    problem = random_problem(7, 5)

    def interrupt(progress: SearchProgress) -> None:
        if progress.objective is not None:
            raise KeyboardInterrupt

    certificate = certify(problem, progress=interrupt)
    assert certificate.notes.interrupted
    assert certificate.result.schedule is not None
    assert verify(certificate.to_json()).valid


def test_an_invalid_schedule_or_an_excessive_bound_is_never_accepted() -> None:
    problem = random_problem(7, 5)
    search = Search(problem, 10)
    valid = simulate(problem, sequential(problem))
    rushed = Schedule([0] * len(problem.trace), list(problem.trace.durations), valid.transfers)
    with pytest.raises(UnsoundError, match="invalid schedule"):
        search.offer(rushed)
    search.offer(valid)
    with pytest.raises(UnsoundError, match="exceeds the makespan"):
        search.add(Bound("wrong", valid.makespan + 1, Evidence.PROVED))


def test_a_solvers_claim_that_a_schedule_refutes_is_dropped_aloud() -> None:
    problem = random_problem(7, 5)
    search = Search(problem, 10)
    schedule = simulate(problem, sequential(problem))
    search.add(Bound("early", schedule.makespan + 9, Evidence.ATTESTED))
    with pytest.warns(UserWarning, match="early claimed that no schedule is shorter"):
        search.offer(schedule)
    with pytest.warns(UserWarning, match="late claimed"):
        search.add(Bound("late", schedule.makespan + 1, Evidence.ATTESTED))
    assert search.bounds == []
    assert search.refutations() == {
        "early": schedule.makespan + 9,
        "late": schedule.makespan + 1,
    }
    assert search.result().status is SolveStatus.FEASIBLE


def test_two_solvers_that_agree_attest_each_other() -> None:
    problem = random_problem(7, 5)
    search = Search(problem, 10)
    search.add(Bound("stage-milp", 5, Evidence.ATTESTED, {"solver": "HiGHS"}))
    search.add(Bound("interval-cpsat", 6, Evidence.ATTESTED, {"solver": "CP-SAT"}))
    evidence = {bound.method: bound.evidence for bound in search.result().bounds}
    assert evidence == {
        "stage-milp": Evidence.CROSS_ATTESTED,
        "interval-cpsat": Evidence.ATTESTED,
    }


@pytest.mark.parametrize(
    ("method", "solver"),
    [
        ("fluid-milp", "HiGHS"),  # the same solver
        ("stage-milp", "CP-SAT"),  # the same formulation
        ("stage-milp", "scipy"),  # a name that is none of the known ones
        ("prop3", "CP-SAT"),  # no solver's formulation
        ("interval-cpsat", None),
    ],
)
def test_what_is_not_independent_attests_nothing(method: str, solver: str | None) -> None:
    bounds = [
        Bound("stage-milp", 5, Evidence.ATTESTED, {"solver": "HiGHS"}),
        Bound(method, 6, Evidence.ATTESTED, {"solver": solver}),
    ]
    assert witness(bounds, 0) is None


def test_a_method_that_does_not_apply_says_so_alone_and_is_passed_over_in_the_ladder() -> None:
    problem = random_problem(4)
    assert problem.platform.duplex
    with pytest.raises(MethodError, match="one gap per tensor"):
        solve(problem, "pivot", time_limit=1)
    assert certify(problem, time_limit=10, workers=1).result.schedule is not None


@pytest.mark.parametrize("name", ["alexnet-duplex-224-m25", "alexnet-duplex-224-m25_alone"])
def test_a_network_on_a_link_that_runs_both_ways_is_closed_with_a_proof(name: str) -> None:
    verification = verify(certify(load(name), time_limit=60, workers=1).to_json())
    assert verification.valid
    result, record = verification.certificate.result, default_library().record(name)
    assert result.status is SolveStatus.OPTIMAL
    assert result.objective == record.value == record.proved_bound
    assert verification.evidence is Evidence.PROVED


def test_a_short_chain_on_such_a_link_is_for_matched_heads_too() -> None:
    chain = load("core-narrow-16-0")
    both_ways = replace(chain, platform=replace(chain.platform, link=Link.DUPLEX))
    assert [plain_ladder_for(each) for each in (chain, both_ways)] == ["distinct sizes", "duplex"]
    long = load("core-narrow-40-0")
    long = replace(long, platform=replace(long.platform, link=Link.DUPLEX))
    assert plain_ladder_for(long) == "distinct sizes"


def test_what_is_for_problems_that_are_nearly_closed_passes_others_over() -> None:
    search = Search(random_problem(3, 4), 60.0, 0.0)
    any_of_them, nearly, far = (
        Rung(Method(lambda search, effort: None), 1.0, "", **limits)
        for limits in ({}, {"open_to": 0.01}, {"open_from": 0.01})
    )
    rungs = any_of_them, nearly, far
    assert [rung.suits(search) for rung in rungs] == [True, False, True]
    search.workings.outward_open = 0.5
    assert [rung.suits(search) for rung in rungs] == [True, False, True]
    search.workings.outward_open = 0.001
    assert [rung.suits(search) for rung in rungs] == [True, True, False]


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(InputError, match='not "magic"'):
        solve(random_problem(7), "magic")


def test_the_goal_is_the_makespan_at_the_target_gap() -> None:
    search = Search(random_problem(7), 10, target_gap=0.1)
    search.add(Bound("a", 90, Evidence.PROVED))
    assert search.goal == 100
    assert Fraction(search.goal - 90, search.goal) <= Fraction(1, 10)


def test_a_rung_is_passed_over_where_it_is_of_no_use() -> None:
    """By what is open, by the trace, and by the seconds that it would get."""
    loose, nested = long_problem(1, 30, 10, nested=False), long_problem(1, 30, 10)
    far, early, short = (
        Rung(Method(lambda search, effort: None), 1.0, "", **limits)
        for limits in ({"gap_from": 0.1}, {"early_gaps_only": True}, {"most_operations": 29})
    )
    search = Search(loose, 60.0)
    assert [rung.suits(search) for rung in (far, early, short)] == [True, True, False]
    search = Search(nested, 60.0)
    search.offer(simulate(nested, sequential(nested)))
    assert search.objective is not None
    search.add(Bound("a", search.objective * 19 // 20, Evidence.PROVED))
    assert [rung.suits(search) for rung in (far, early)] == [False, False]
    apart = Rung(Method(lambda search, effort: None), 1.0, "", unnested_only=True)
    duplex = replace(nested, platform=replace(nested.platform, link=Link.DUPLEX))
    suited = [apart.suits(Search(problem, 60.0)) for problem in (loose, nested, duplex)]
    assert suited == [True, False, True]


def test_a_rung_is_not_begun_with_less_time_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def rung(name: str, needs: float) -> Rung:
        return Rung(Method(lambda search, effort: begun.append(name)), 0.5, "", needs=needs)

    rungs = rung("any", 0.0), rung("some", 20.0), rung("more", 40.0)
    monkeypatch.setitem(LADDERS, "tried", rungs)
    monkeypatch.setattr(choice, "ladder_for", lambda problem: "tried")
    certify(random_problem(7), time_limit=60.0)
    assert begun == ["any", "some"]
