"""What is said while training: a line a plan, and the first step by it."""

import logging
import re

import pytest
import torch
from torch import nn

import offcert
from offcert.runtime.follow.offload import Offload

LINE = re.compile(
    r"plan for .*: peak ([0-9.]+) KiB → ([0-9.]+) KiB, predicted ([0-9.]+) × "
    r"\([0-9.]+ µs a step\), time proved within ([0-9.]+) %, ([0-9.]+) KiB leave in a step, "
    r"nothing runs again, "
    r"host ([0-9.]+) KiB, found in [0-9.]+ s; "
    r"on the CPU copies are synchronous, and a step takes longer than predicted"
)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Sigmoid())]
    return nn.Sequential(*layers)


def train(training: Offload, steps: int) -> None:
    with training:
        for _ in range(steps):
            training.model(torch.ones(16, 64)).mean().backward()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "offcert.training"]


def test_a_plan_of_a_certificate_is_one_line_and_its_first_step_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "offcert.training")
    model = network()
    problem = offcert.profile(model, "16x64", hardware="v100-pcie", loss="mean")
    certificate = offcert.certify(problem.with_memory("25%"), time_limit=5, workers=1)
    result = certificate.result
    assert result.schedule is not None
    training = offcert.offload(model, certificate, count=True)
    (line,) = lines(caplog)
    match = LINE.fullmatch(line)
    assert match is not None, line
    before, after, slowdown, within, leaves, host = map(float, match.groups())
    assert before == pytest.approx(problem.trace.peak_memory / 1024, abs=0.01)
    assert after <= certificate.problem.platform.memory / 1024 + 0.01
    makespan = result.schedule.makespan
    assert slowdown == pytest.approx(makespan / problem.trace.compute_time, abs=0.01)
    assert within == pytest.approx(100 * (1 - result.proved_bound / makespan), abs=0.01)
    (made,) = training.step_plans
    moved = sum(made.trace.tensors[each].size for row in made.prediction.releases for each in row)
    assert leaves == pytest.approx(moved / 1024, abs=0.01)
    assert host == pytest.approx(training.host.pool / 1024, abs=0.01)
    assert training.promises[0]["peak"] == pytest.approx(1024 * after, abs=6)
    train(training, 3)
    _, first = lines(caplog)
    assert first.startswith("the first step by a plan: planned, peak ")
    counted, predicted = re.findall(r"([0-9.]+) MiB (?:counted|predicted)", first)
    assert float(counted) <= float(predicted)


def test_a_plan_that_is_made_on_the_way_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "offcert.training")
    training = offcert.offload(
        network(),
        "auto",
        memory="50%",
        time_limit=2,
        recompute="none",
        background=False,
    )
    # Studied, counted twice, timed three times, and by the plan.
    train(training, 8)
    assert training.steps == {"studied": 1, "planned": 7}
    plans = [line for line in lines(caplog) if line.startswith("plan for ")]
    assert len(plans) == len(training.promises) == len(training.step_plans) == 1
    # The makeshift promises nothing; what was measured by the plan follows what it promises.
    studied, makeshift, searching, plan, first = lines(caplog)
    assert studied.startswith("recorded Sequential: 17 operations, peak ")
    assert re.search(r"searching for a plan .* within .* KiB, for 2 s at most", searching)
    assert makeshift.startswith("the first step by a plan without a certificate: planned")
    assert plan == plans[0]
    assert first.startswith("the first step by a plan: planned")


def test_what_the_proof_is_about_is_only_what_is_proved() -> None:
    from dataclasses import replace

    from offcert.core.result import Bound, Evidence
    from offcert.training.feedback import plan_numbers

    model = network()
    problem = offcert.profile(model, "16x64", hardware="v100-pcie", loss="mean")
    certificate = offcert.solve(problem.with_memory("25%"), "greedy")
    assert certificate.result.schedule is not None
    makespan = certificate.result.schedule.makespan
    bounds = Bound("somebody", makespan, Evidence.ATTESTED), Bound("prop3", 1, Evidence.PROVED)
    claimed = replace(certificate, result=replace(certificate.result, bounds=bounds))
    (program,) = offcert.offload(model, claimed).step_plans
    assert plan_numbers(claimed, program)["proved_within"] == pytest.approx(1 - 1 / makespan)
