"""A certificate's plan on another problem: legal or not, its time, its peak, the bound there."""

import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from offcert.certification.methods import solve
from offcert.cli import main
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.library import load
from offcert.proofs.certificate import Certificate
from offcert.proofs.kinds.multipliers import JointProof
from offcert.questions.schedule.check import check
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.simulate import simulate
from offcert.verification.elsewhere import verify_on
from offcert.verification.execution import execution_faults
from offcert.verification.joint.verifier import proved_by
from offcert.verification.limits import UNLIMITED
from support.oracles.joint import least_time
from support.oracles.schedules import brute_force
from support.problems.joint import joint_bounds_of, solvable
from support.problems.joint_certificates import (
    certificate_of,
    checkpointed,
    least_memory_certificate,
    random_certificate,
)
from support.problems.random_instances import tiny_problems
from support.problems.random_plans import with_durations


@pytest.fixture(scope="module")
def chain() -> Certificate:
    return solve(load("cnn-12-1-m10"), "pivot")


def test_at_home_it_is_the_certificates_own_schedule(chain: Certificate) -> None:
    found = verify_on(chain, chain.problem)
    assert found.legal
    assert found.objective == chain.result.objective
    # Without the certificate of the problem, what verification computes itself; with it, all.
    assert found.lower_bound < chain.result.lower_bound
    known = verify_on(chain, chain)
    assert known.lower_bound == chain.result.lower_bound
    assert known.gap == 0


def test_a_faster_link_makes_it_as_fast_as_computing(chain: Certificate) -> None:
    faster = chain.problem.with_bandwidth(1000 * chain.problem.platform.bandwidth)
    found = verify_on(chain, faster)
    assert found.objective == found.lower_bound == faster.trace.compute_time
    assert found.peak is not None
    assert found.peak <= chain.problem.platform.memory
    enough = faster.with_memory(found.peak)
    assert verify_on(chain, enough).legal


def test_too_little_memory_is_named_by_operation_and_bytes(chain: Certificate) -> None:
    least = chain.problem.with_memory(chain.problem.least_memory)
    found = verify_on(chain, least)
    assert (found.schedule, found.objective) == (None, None)
    assert found.fault is not None
    assert "lacks" in found.fault
    assert not verify_on(chain, replace(chain.problem, offload=False)).legal


def changed(trace: Trace, operation: str | None = None, uses: tuple[int, ...] = ()) -> Trace:
    operations, tensors = list(trace.operations), list(trace.tensors)
    if operation is not None:
        operations[3] = Operation(operation, 1)
    if uses:
        tensors[2] = Tensor(tensors[2].name, 5, uses)
    return Trace(operations, tensors)


def test_the_first_difference_of_structure_is_named(chain: Certificate) -> None:
    trace = chain.problem.trace
    for other, sentence in (
        (changed(trace, "F99"), "operation 3 is F3, but F99 on the other problem"),
        (changed(trace, None, (0, 7)), "tensor 2 (x2): its uses differ on the other problem"),
        (
            Trace([*trace.operations, Operation("more", 1)], trace.tensors),
            f"operation {len(trace)} (more): is one too many",
        ),
        (
            Trace(trace.operations, trace.tensors[:-1]),
            f"tensor {len(trace.tensors) - 1} ({trace.tensors[-1].name}): there is none on the "
            "other problem",
        ),
    ):
        found = verify_on(chain, replace(chain.problem, network=other))
        assert found.fault == sentence


@pytest.mark.slow
def test_bounds_there_never_exceed_brute_force() -> None:
    compared = 0
    for seed, problem in enumerate(tiny_problems(60, seed=7)):
        plan = sequential(problem)
        result = Result(SolveStatus.FEASIBLE, simulate(problem, plan))
        certificate = Certificate(replace(problem, network=problem.trace), result, "sequential")
        rng = random.Random(seed)
        durations = [rng.choice((0, d, 2 * d, d + 3)) for d in problem.trace.durations]
        platform = replace(
            problem.platform,
            bandwidth=problem.platform.bandwidth * rng.choice((Fraction(1, 2), 3)),
            memory=problem.platform.memory + rng.randint(-1, 2),
        )
        other = with_durations(problem, durations, platform)
        found = verify_on(certificate, other)
        if found.legal:
            best = brute_force(other)
            assert best is not None
            assert found.schedule is not None
            assert not check(other, found.schedule)
            assert found.lower_bound <= best <= found.schedule.makespan
            compared += 1
    assert compared > 20


def scaled(network: Network, rng: random.Random) -> Network:
    """Return a network of the same structure, with other sizes, workspaces and durations."""
    computations = [
        replace(
            each,
            duration=each.duration + rng.randint(0, 3),
            workspace=each.workspace * rng.choice((1, 2)),
        )
        for each in network.computations
    ]
    factor = rng.choice((1, 2))
    return Network(computations, [replace(v, size=factor * v.size) for v in network.values])


def test_executions_take_the_other_networks_numbers() -> None:
    for seed in range(20):
        certificate = random_certificate(seed)
        network = certificate.problem.computed
        assert network is not None
        other = replace(certificate.problem, network=scaled(network, random.Random(seed)))
        found = verify_on(certificate, other.with_memory(4 * other.peak_memory))
        assert found.fault is None
        assert found.execution is not None
        assert not execution_faults(other.network, found.execution)  # type: ignore[arg-type]
        runs = found.execution.runs
        assert other.computed is not None
        expected = sum(other.computed.computations[run].duration for run in runs)
        assert found.execution.trace.compute_time == expected


def test_what_runs_again_is_legal_only_where_something_may() -> None:
    """A profile lets run again what the certificate's problem lets; a certificate says itself."""
    certificate = checkpointed()
    plain = replace(certificate.problem, recompute=Recompute.NONE)
    profiled = verify_on(certificate, plain)
    assert profiled.objective == certificate.result.objective
    assert profiled.lower_bound <= verify_on(certificate, certificate).lower_bound
    roomy = plain.with_memory(plain.peak_memory)
    nothing_again = solve(roomy, "greedy")
    assert verify_on(certificate, nothing_again).fault == (
        "3 operations run again, and the problem lets nothing run again"
    )
    # An execution in which nothing runs again is legal there.
    network = roomy.computed
    assert network is not None
    again = replace(roomy, recompute=Recompute.ANY)
    once = certificate_of(again, Strategy.plain(network))
    assert verify_on(once, nothing_again).objective == roomy.trace.compute_time
    chain_only = replace(certificate.problem, recompute=Recompute.CHAIN)
    assert verify_on(certificate, chain_only).legal


@pytest.mark.slow
def test_multipliers_hold_on_another_machine() -> None:
    carried = above = 0
    for problem, _ in islice(solvable(0), 12):
        assert problem.computed is not None
        bound = joint_bounds_of(problem)[-1]
        rng = random.Random(problem.platform.memory)
        other = replace(problem, network=scaled(problem.computed, rng))
        other = other.with_memory(other.platform.memory + rng.randint(0, 3))
        value = proved_by(other, JointProof.read(bound.details), UNLIMITED.begin())
        best = least_time(other)
        if best is not None:
            carried += 1
            assert value <= best
            above += value > other.trace.compute_time
    assert carried >= 4
    assert above >= 1


def test_where_memory_is_minimised_it_is_the_least_of_the_order() -> None:
    certificate = least_memory_certificate()
    found = verify_on(certificate, certificate.problem)
    assert found.objective == certificate.result.objective
    assert found.problem.minimise is Minimise.MEMORY
    assert found.lower_bound == certificate.problem.least_memory
    assert found.schedule is not None
    late = replace(certificate.problem, deadline=found.schedule.makespan - 1)
    hurried = verify_on(certificate, late)
    # More memory may make the same order faster; computing alone may be too long.
    assert not hurried.legal or (hurried.objective or 0) > (found.objective or 0)


def test_the_command(
    chain: Certificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(name: str, problem: Problem) -> str:
        write_problem(tmp_path / name, problem)
        return str(tmp_path / name)

    mine = str(tmp_path / "c.json")
    chain.write(mine)
    slower = write("slow.json", chain.problem.with_bandwidth(chain.problem.platform.bandwidth / 2))
    assert main(["verify", mine, "--on", slower]) == 0
    text = capsys.readouterr().out
    assert text.startswith("LEGAL on cnn-12-1-m10\n  step time ")
    assert "times the compute time)" in text
    assert main(["verify", mine, "--on", slower, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["objective"] == said["makespan"] > said["lower_bound"] > 0
    assert said["gap"] == (said["objective"] - said["lower_bound"]) / said["objective"]
    tight = write("tight.json", chain.problem.with_memory(chain.problem.least_memory))
    assert main(["verify", mine, "--on", tight]) == 1
    assert capsys.readouterr().out.startswith("NOT LEGAL on cnn-12-1-m10\n  ")
    assert main(["verify", mine, "--on", str(tmp_path / "none.json")]) == 2
    with pytest.raises(InputError, match="certificate must be a path or a Certificate"):
        verify_on(3, chain.problem)  # type: ignore[arg-type]
