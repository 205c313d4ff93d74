"""Plans made on the way that may take only so much of the host's memory."""

import random
import warnings
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import nn

from offcert.certification.ladder import certify
from offcert.core.errors import InputError, NoPlanError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import host_residences_in_order
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.watch.guard import OffloadWarning
from offcert.training import host_room, offload, search
from offcert.training.host_room import certify_within_host
from offcert.verification.document import verify
from support.runtime.counted_search import counted_search

FAST = {"memory": "40%", "time_limit": 1.0, "hardware": "slow-link", "background": False}


@pytest.fixture(autouse=True)
def _slow_link(monkeypatch):
    slow = replace(HARDWARE["v100-pcie"], name="slow-link", link_bandwidth=10**9)
    monkeypatch.setitem(HARDWARE, slow.name, slow)


def network():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh()) for _ in range(4)]
    return nn.Sequential(*blocks, nn.Linear(32, 4)).train()


def gradients(model, rows, inputs):
    """Return the gradients of a step with so many rows of the same inputs."""
    model.zero_grad()
    model(inputs[:rows]).square().mean().backward()
    return [each.grad.clone() for each in model.parameters()]


def trained(steps=(64, 64, 64), **options):
    """Train under plans made on the way; every gradient must be that of plain training."""
    model, plain = network(), network()
    inputs = torch.randn(max(steps), 32)
    with offload(model, "auto", **{**FAST, **options}) as training:
        for rows in steps:
            pairs = zip(gradients(model, rows, inputs), gradients(plain, rows, inputs), strict=True)
            assert all(torch.equal(*pair) for pair in pairs)
        training.needs = training.host
    return training


def test_what_the_host_has_no_room_for_is_computed_again(monkeypatch):
    for module in (search, host_room):
        monkeypatch.setattr(module, "certify", counted_search)
    free = trained()
    assert free.needs.pool > 0
    [unlimited] = free.certificates
    # At some time the host holds as much in all plans in which nothing runs again.
    lacking = unlimited.problem.trace.peak_memory - unlimited.problem.platform.memory
    for room in (lacking // 2, 0):
        within = trained(host_memory=room)
        assert within.needs.pool <= room
        assert within.needs.spilled == 0
        assert within.steps["planned"] == 1
        [certificate] = within.certificates
        assert verify(certificate.to_json()).valid
        assert certificate.result.execution.repeated > 0
        assert any(not value.evictable for value in certificate.problem.computed.values)
        # Less may leave, so what holds of all plans holds of these.
        assert certificate.result.objective >= unlimited.result.lower_bound
    assert within.report.offloaded_bytes == 0


def test_what_no_plan_can_keep_to_is_said_and_training_goes_on():
    with pytest.warns(OffloadWarning, match="no plan fits: every plan takes at least .* bytes"):
        training = trained(host_memory=1000, recompute="none")
    assert training.certificates == []
    assert training.steps == {"studied": 1, "unplanned": 2}


def test_what_is_too_much_goes_into_a_file(tmp_path):
    with warnings.catch_warnings(action="error"):
        training = trained(host_memory=10_000, host_spill=str(tmp_path), recompute="none")
    assert training.needs.pool - training.needs.spilled <= 10_000 < training.needs.pool
    assert training.steps["planned"] == 2


def test_plans_share_what_the_host_has():
    alone = trained((32, 32), recompute="none").needs.pool
    with pytest.warns(OffloadWarning, match="every plan takes at least"):
        training = trained((32, 32, 64, 64), host_memory=alone + 1000, recompute="none")
    assert training.needs.pool == alone
    assert len(training.certificates) == 1
    spilling = {"host_memory": alone + 1000, "host_spill": True, "recompute": "none"}
    training = trained((32, 32, 64, 64), **spilling)
    assert training.steps["planned"] == 2
    assert training.needs.pool - training.needs.spilled <= alone + 1000 < training.needs.pool


def test_memory_by_way_of_which_copies_go_to_files_is_shared_too():
    device = SimulatedDevice()
    spilling = {"host_memory": 44_000, "host_spill": True, "recompute": "none", "device": device}
    training = trained((32, 32, 64, 64), **spilling)
    assert training.steps["planned"] == 2
    assert training.needs.staging > 0
    assert training.needs.held <= 44_000 < training.needs.pool


def _pool(certificate):
    trace = certificate.problem.trace
    schedule = certificate.result.schedule
    stays = host_residences_in_order(trace, schedule.plan(trace))
    return max(
        sum(each.size for _, each in stays if each.start <= now < each.end)
        for now in range(len(trace) + 1)
    )


def _random_problem(rng):
    count = rng.randint(4, 7)
    tensors = [
        Tensor(f"x{index}", rng.randint(1, 4) * 64, tuple(sorted(rng.sample(range(count), 2))))
        for index in range(rng.randint(2, 5))
    ]
    trace = Trace([Operation(f"o{n}", rng.randint(1, 5)) for n in range(count)], tensors)
    memory = rng.randint(trace.least_memory, trace.peak_memory)
    return Problem("random", trace, Platform(memory, 64))


def test_limits_are_refused_only_if_no_plan_keeps_to_them_and_kept_otherwise():
    rng = random.Random(1)
    refused = kept = 0
    for _ in range(8):
        problem = _random_problem(rng)
        best = certify(problem, time_limit=2.0)
        least = problem.trace.peak_memory - problem.platform.memory
        takes = _pool(best)
        assert takes >= least
        same = certify_within_host(problem, takes, 2.0, _pool)
        assert same.result.objective == best.result.objective
        if least:
            refused += 1
            with pytest.raises(NoPlanError, match=rf"at least .* \({least} bytes\), but may"):
                certify_within_host(problem, least - 1, 0.4, _pool)
        for room in range(least, takes, 64):
            with suppress(NoPlanError):
                found = certify_within_host(problem, room, 0.4, _pool)
                assert _pool(found) <= room
                assert found.result.objective >= best.result.objective
                kept += 1
    assert refused > 2
    assert kept > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host_memory": "8"}, 'host_memory "8" needs a unit'),
        ({"host_memory": -1}, 'host_memory must be bytes, or a text such as "6GiB", not -1'),
        ({"host_spill": True}, "host_spill needs host_memory"),
    ],
)
def test_bad_limits_are_named(given, message):
    with pytest.raises(InputError, match=message):
        offload(network(), "auto", **FAST, **given)
