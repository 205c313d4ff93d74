"""Copies of state for what runs again are on the device: the report says their bytes."""

import gc

import torch
from torch import nn

from offcert.questions.schedule.plan import Plan
from offcert.runtime.segments.settings import HELD
from support.runtime.captured import mean_step
from support.runtime.joint_training import again, compare_joint

LARGE = 4 * 2**16


class Remembering(nn.Module):
    """Changes a large buffer, and has one that stays as it is."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("changes", torch.ones(2**16))
        self.register_buffer("stays", torch.ones(2**16))

    def forward(self, x):
        self.changes.add_(x.detach().mean())
        return self.linear(x).tanh() * self.changes.mean().item() * self.stays[0].item()


def followed(*segments):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Remembering(), nn.BatchNorm1d(8), nn.Linear(8, 8))
    step = mean_step(model, 6, 8)
    return compare_joint(step, again(*segments), plan=lambda _: Plan(), steps=3, tensors="real")


def test_copies_for_what_runs_again_are_in_the_report():
    before = HELD.live
    joint = followed("1")
    joint.require_followed()
    taken = [report.state_bytes for report in joint.reports]
    # As the buffer was, and a copy to change while it runs again; of both in the first step, in
    # which it is seen what changes.
    assert taken[0] >= 3 * LARGE
    assert taken[1] == taken[2]
    assert 2 * LARGE <= taken[2] < 2 * LARGE + 4096
    assert "0.50 MiB of state copied for it" in str(joint.reports[2])
    del joint
    gc.collect()
    assert HELD.live == before


def test_without_segments_nothing_is_copied():
    assert [report.state_bytes for report in followed().reports] == [0, 0, 0]
