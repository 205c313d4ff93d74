"""Certificates for boxes of uncertain times: brute force all over small boxes, and the claim."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from offcert.certification.ladder import certify
from offcert.certification.robust import longest
from offcert.cli import main
from offcert.core.errors import PlanError
from offcert.core.uncertainty import Spread, Uncertainty, executed_on, with_durations
from offcert.instances.library import load
from offcert.proofs.certificate import Certificate, Robust
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from offcert.verification.replay import replay
from support.oracles.joint import least_time
from support.oracles.schedules import brute_force
from support.problems.joint import joint_bounds_of, solvable
from support.problems.joint_certificates import checkpointed, random_certificate
from support.problems.random_instances import tiny_problems
from support.problems.random_plans import random_plan


def boxed(rng: random.Random, problem: Problem) -> Problem:
    """Put a box around a problem: some durations exact, some down to nothing or doubled."""
    parts = (Fraction(0), Fraction(1, 3), Fraction(1))
    spreads = tuple(
        Spread(rng.choice(parts), rng.choice(parts), pattern) for pattern in ("*[02468]", "*")
    )
    rate = problem.platform.bandwidth
    rates = (rate * rng.choice((1, Fraction(1, 2))), rate * rng.choice((1, 2)))
    most = problem.platform.memory + rng.randint(0, 3)
    return replace(problem, uncertainty=Uncertainty(spreads, None, rates, memory=most))


def inside(rng: random.Random, problem: Problem, count: int) -> Iterator[Problem]:
    """Draw problems of a box: its corners among them, and mixtures of them."""
    low, high = problem.corner(fastest=True), problem.corner(fastest=False)
    ranges = list(zip(low.trace.durations, high.trace.durations, strict=True))
    slow, fast = high.platform.bandwidth, low.platform.bandwidth
    yield from (low, high, replace(problem, uncertainty=None))
    for _ in range(count):
        durations = [rng.choice((a, b, rng.randint(a, b))) for a, b in ranges]
        platform = replace(
            high.platform,
            bandwidth=slow + (fast - slow) * Fraction(rng.randint(0, 4), 4),
            memory=rng.randint(high.platform.memory, low.platform.memory),
        )
        yield replace(high, network=with_durations(high.network, durations), platform=platform)


def test_no_point_of_a_box_is_outside_of_its_corners() -> None:
    points = 0
    for seed, problem in enumerate(tiny_problems(24, seed=11, largest=3)):
        rng = random.Random(seed)
        box = boxed(rng, problem)
        least, most = (brute_force(box.corner(fastest=each)) for each in (True, False))
        assert least is not None
        assert most is not None
        for point in inside(rng, box, 2):
            best = brute_force(point)
            assert best is not None
            assert least <= best <= most
            points += 1
    assert points == 24 * 5


@pytest.mark.slow
def test_a_plan_is_never_later_than_at_the_slowest_and_gets_stuck_everywhere_or_nowhere() -> None:
    ended = stuck = 0
    for seed, problem in enumerate(tiny_problems(250, seed=12)):
        rng = random.Random(seed)
        # With one memory everywhere, getting stuck does not depend on the point at all.
        box = boxed(rng, problem)
        assert box.uncertainty is not None
        box = replace(box, uncertainty=replace(box.uncertainty, memory=None))
        plan = random_plan(rng, problem.trace)
        try:
            slowest = replay(box.corner(fastest=False).plain(), plan)
        except PlanError:
            stuck += 1
            for point in inside(rng, box, 3):
                with pytest.raises(PlanError):
                    replay(point.plain(), plan)
            continue
        ended += 1
        for point in inside(rng, box, 5):
            found = replay(point.plain(), plan)
            assert all(a <= b for a, b in zip(found.starts, slowest.starts, strict=True))
            assert all(a <= b for a, b in zip(found.ends, slowest.ends, strict=True))
            late = {(t.kind, t.gap): t.start for t in slowest.transfers}
            assert all(t.start <= late[t.kind, t.gap] for t in found.transfers)
    assert ended > 50
    assert stuck > 30


@pytest.mark.slow
def test_joint_optima_lie_between_those_of_the_corners() -> None:
    for problem, _ in islice(solvable(40), 4):
        rng = random.Random(problem.platform.memory)
        box = boxed(rng, problem)
        ends = [least_time(box.corner(fastest=each)) for each in (True, False)]
        for point in islice(inside(rng, box, 2), 3, 5):
            best = least_time(point)
            assert best is not None
            assert ends[0] is not None
            assert ends[0] <= best
            assert ends[1] is None or best <= ends[1]


def test_executions_are_longest_at_the_slowest() -> None:
    for seed in range(12):
        certificate = random_certificate(seed)
        rng = random.Random(seed)
        box = boxed(rng, certificate.problem)
        schedule, execution = certificate.result.schedule, certificate.result.execution
        assert isinstance(schedule, Schedule)
        assert execution is not None
        most = longest(replace(certificate, problem=box), schedule)
        plan = schedule.plan(certificate.executed.trace)
        for point in inside(rng, box, 4):
            assert box.computed is not None
            assert point.computed is not None
            there = executed_on(execution, box.computed, point.computed)
            assert simulate(point.executed(there), plan).makespan <= most


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    problem = load("cnn-12-1-m10").with_uncertainty("10%,B*=2%,link=5%")
    return certify(problem, time_limit=20)


@pytest.mark.slow
def test_a_certificate_has_the_nominal_gap_and_the_robust_one(certificate: Certificate) -> None:
    claim, problem = certificate.robust, certificate.problem
    assert claim is not None
    assert certificate.result.gap == 0
    assert claim.lower_bound < certificate.result.lower_bound < claim.objective
    # The corners' own optima, which are certified on their own.
    ends = [certify(problem.corner(fastest=each), time_limit=20).result for each in (True, False)]
    assert claim.lower_bound == ends[0].lower_bound == ends[0].objective
    assert ends[1].objective is not None
    assert claim.objective >= ends[1].objective
    assert certificate.settings.time_limit == 20


@pytest.mark.slow
def test_what_runs_again_is_certified_in_a_box_too() -> None:
    certificate = checkpointed()
    schedule = certificate.result.schedule
    assert isinstance(schedule, Schedule)
    box = replace(certificate, problem=certificate.problem.with_uncertainty("50%"))
    fastest = box.problem.corner(fastest=True)
    claim = Robust(longest(box, schedule), tuple(joint_bounds_of(fastest)))
    assert fastest.trace.compute_time <= claim.lower_bound < schedule.makespan < claim.objective
    boxed = replace(box, robust=claim)
    assert verify(boxed).valid
    late = replace(boxed, robust=replace(claim, longest=claim.objective + 1))
    assert "robust.objective" in verify(late).faults[0]


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(tmp_path / "p.json"), str(tmp_path / "c.json")
    write_problem(source, load("cnn-12-1-m10"))
    call = ["certify", source, "--time-limit", "3", "-o", target, "--uncertainty", "10%,B*=2%"]
    assert main(call) == 0
    lines = capsys.readouterr().out.splitlines()
    (band,) = (line for line in lines if line.startswith("  uncertain    "))
    assert band.endswith(", whatever the times in the box are")
    assert any(line.startswith("  robust gap   ") for line in lines)
    assert main(["verify", target, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["robust"]["lower_bound"] < said["objective"] < said["robust"]["objective"]
    assert {each["finding"] for each in said["robust"]["bounds"]} == {"computed again"}
    assert main(["verify", target]) == 0
    assert " at the fastest: computed again" in capsys.readouterr().out
    for picture in ("c.svg", "c.png"):
        assert main(["plot", target, "-o", str(tmp_path / picture)]) == 0
    text = (tmp_path / "c.svg").read_text()
    band = band.removeprefix("  uncertain    ").partition(",")[0]
    assert f"uncertain times: {band}" in text
    assert main(["certify", source, "--uncertainty", "ten"]) == 2
