"""Engines that wait for all that they must: nothing is found, and no order computes otherwise."""

import copy

import pytest
import torch

from offcert.runtime.compiled.operators import RELOAD
from offcert.runtime.device.cuda import CudaStream
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert_lab.engines import Fault, audit_engine
from support.engines.clean import CLEAN, AsyncOperators, two_streams_backward
from support.engines.small import batch, gradients, network
from support.runtime.stream_steps import Layers, captured_problem, evicting, mean, tight


@pytest.mark.parametrize("engine", CLEAN, ids=lambda engine: engine.__name__)
def test_a_right_engine_is_clean(engine):
    found = audit_engine(engine, orders=6)
    assert found.clean, str(found)
    assert found.works > 2


def own(reports):
    """Return two steps of offcert's own engine for CUDA, as a function."""
    torch.manual_seed(0)
    plain = Layers()
    problem = captured_problem(plain)
    plan = evicting(problem)
    problem = tight(problem, plan)

    def train():
        model = copy.deepcopy(plain).cuda()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        with follow(model, plan, problem, FollowOptions(count=False)) as made:
            for _ in range(2):
                optimiser.zero_grad()
                mean(model, torch.randn(4, 8, device="cuda")).backward()
                optimiser.step()
                reports.append(made.report)
        return model

    return train


@pytest.mark.slow
def test_our_own_engine_is_clean():
    reports = []
    found = audit_engine(own(reports), orders=3)
    assert found.clean, str(found)
    assert all(each.planned and each.offloaded_bytes for each in reports)
    assert found.peaks.pinned > 0


@pytest.mark.slow
def test_our_own_engine_without_its_waits_is_not(monkeypatch):
    monkeypatch.setattr(CudaStream, "wait", lambda stream, event: None)
    found = audit_engine(own([]), orders=0)
    assert {Fault.RACE, Fault.RELEASED} <= {each.fault for each in found.findings}
    assert {each.second.place.file for each in found.findings} >= {"offcert/runtime/device/cuda.py"}


def test_a_backward_pass_in_two_streams_is_two():
    """Without autograd's own waits the program that is clean would not be."""
    found = audit_engine(two_streams_backward, orders=0)
    assert len(found.streams) == 1
    assert found.peaks.device_late > found.peaks.device


class Hasty(AsyncOperators):
    """The operators of compiled plans, whose copies back nobody waits for."""

    def unpack(self, packed):
        return RELOAD(*packed)


def hasty():
    model = network()
    with Hasty():
        loss = model(batch()).square().mean()
    loss.backward()
    return gradients(model)


def test_operators_of_compiled_plans_have_to_be_waited_for():
    found = audit_engine(hasty, orders=0)
    assert Fault.RACE in {each.fault for each in found.findings}
