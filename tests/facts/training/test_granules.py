"""Plans for a device whose allocator gives out whole granules leave room for that."""

import torch
from torch import nn

import offcert
from offcert.runtime.simulated import SimulatedDevice
from support.runtime.captured import mean_step


class Granules(SimulatedDevice):
    granule = 512


def limit_of(device, memory, rows=33):
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(100, 100), nn.Sigmoid())]
    training = offcert.offload(
        nn.Sequential(*layers),
        "auto",
        memory=memory,
        device=device(),
        hardware="v100-pcie",
        recompute="none",
        example=mean_step(nn.Sequential(*layers), rows, 100),
        time_limit=2,
        background=False,
    )
    (made,) = training.step_plans
    return made.limit


def test_the_limit_of_a_plan_is_less_what_blocks_are_larger():
    assert limit_of(SimulatedDevice, 110_000) == 110_000
    # Six results of 13,200 bytes and a gradient of 40,000 bytes are alive at once, whose blocks are
    # larger by 112 and by 448 bytes, and little else.
    left_out = 110_000 - limit_of(Granules, 110_000)
    assert 6 * 112 + 448 <= left_out < 110_000 // 64


def test_storages_smaller_than_granules_leave_the_limit_nearly_as_it_is():
    # Of 400 bytes each, in blocks of 512.
    assert limit_of(Granules, 42_600, rows=1) == 42_600 - 42_600 // 64
