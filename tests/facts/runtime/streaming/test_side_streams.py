"""A backward pass that does some of its work in a stream of its own."""

import copy

import torch

from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.streaming.stream_mover import StreamMover
from support.runtime.captured import require_same
from support.runtime.stream_steps import (
    Layers,
    On,
    captured_problem,
    evicting,
    moved_by,
    tight,
    trained,
)


class _Aside(SimulatedDevice):
    """Operators run in the stream ``out`` where the test says so."""

    is_aside = False
    # By how many copies back more that stream knows that they have ended.
    learnt = 0

    @property
    def compute(self):
        return self.out if self.is_aside else super().compute


def _sine(device):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, gradient):
            device.out.wait(device.compute.record())
            device.is_aside = True
            before = device.out.knows[device.back.index]
            (x,) = ctx.saved_tensors
            device.learnt += device.out.knows[device.back.index] - before
            found = gradient * torch.cos(x)
            device.is_aside = False
            device.compute.wait(device.out.record())
            return found

    return Sine.apply


class WaitsWhenAsked(StreamMover):
    """Waits for nothing before it is asked for."""

    def _await(self, step, action, operation):
        pass


def test_it_waits_for_what_is_asked_for_there_before_our_stream_has_waited(monkeypatch):
    device = _Aside()
    model = Layers(5, _sine(device))
    problem = captured_problem(model)
    on, plan = On("simulated"), evicting(problem)
    expected = [state for _, state in trained(on, copy.deepcopy(model), steps=1)]
    with (
        moved_by(monkeypatch, WaitsWhenAsked),
        follow(model, plan, tight(problem, plan), FollowOptions(device=device)) as made,
    ):
        found = [state for _, state in trained(on, model, steps=1)]
        assert made.report.planned
        assert made.report.late_bytes > 0
    assert device.learnt > 0
    require_same(expected[0], found[0])
    on.settled(device)
