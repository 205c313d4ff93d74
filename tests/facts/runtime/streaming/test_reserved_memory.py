"""What the device's allocator has reserved: both numbers in the report, and a limit for it."""

import warnings
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Platform
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.simulated import SimulatedDevice
from offcert.training import offload as train_by
from offcert_lab.engines.allocator import CachingAllocator
from support.runtime.stream_steps import Layers, On, captured_problem, evicting, mean

SEGMENT = 4096


def followed(device=None, **options):
    """Return a model, and the context of a plan that moves all there is to move."""
    model = Layers()
    problem = captured_problem(model)
    return model, follow(model, evicting(problem), problem, FollowOptions(device=device, **options))


def simulated(**options):
    # Segments of 4 KiB: of these, tensors of the steps take a part.
    return SimulatedDevice(allocator=CachingAllocator(None, "simulated", 1), **options)


def test_a_report_has_what_is_in_use_and_what_is_reserved():
    device = simulated()
    model, made = followed(device, count=True)
    with made:
        assert made.report.memory is None
        mean(model, torch.randn(4, 8)).backward()
        reading = made.report.memory
        # The loss was still there.
        assert replace(reading, allocated=0, requested=0) == device.memory()
        assert 0 < reading.peak_allocated < reading.peak_reserved == SEGMENT
        assert "reserved" in str(made.report)
        # The peaks are the program's, who has not begun anew.
        before = device.allocate(made.report.limit)
        del before
        mean(model, torch.randn(4, 8)).backward()
        assert made.report.memory.peak_allocated == reading.peak_allocated
        # Unless they hid what a step takes.
        before = device.allocate(2 * SEGMENT)
        del before
        assert device.memory().peak_allocated >= 2 * SEGMENT
        mean(model, torch.randn(4, 8)).backward()
        assert made.report.memory.peak_allocated == reading.peak_allocated
        assert made.report.planned


def test_nothing_is_known_on_the_cpu_where_no_limit_can_be_given():
    model, made = followed()
    with made:
        mean(model, torch.randn(4, 8)).backward()
        assert made.report.memory is None
        assert "reserved" not in str(made.report)
    with pytest.raises(InputError, match="reserved_memory is for devices; the model is on the CPU"):
        followed(reserved_memory=10**9)
    with pytest.raises(InputError, match='reserved_memory "16" needs a unit'):
        followed(simulated(), reserved_memory="16")


def test_a_step_for_which_more_is_reserved_has_not_followed_its_plan():
    for limit, kind in ((SEGMENT, "planned"), (SEGMENT - 1, "deviating")):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model, made = followed(simulated(), count=True, reserved_memory=limit)
            with made:
                for _ in range(3):
                    mean(model, torch.randn(4, 8)).backward()
            assert made.steps == {kind: 3}
            assert f"reserved of {limit / 2**20:.2f} MiB" in str(made.report)
        assert [str(each.message).split(" (")[0] for each in told] == (
            []
            if kind == "planned"
            else ["a step did not follow its plan: the device's allocator has reserved 4096 bytes"]
        )
    model, made = followed(simulated(), count=True, strict=True, reserved_memory="4095B")
    with made, pytest.raises(PlanError, match=r"has reserved 4096 bytes .* may reserve 4095"):
        mean(model, torch.randn(4, 8)).backward()


def test_what_others_have_reserved_and_left_is_no_memory_of_the_step():
    device = simulated()
    model, made = followed(device, count=True, reserved_memory=SEGMENT)
    with made:
        for _ in range(2):
            # A validation, for example.
            held = device.allocate(10 * SEGMENT)
            del held
            assert device.memory().reserved > SEGMENT
            mean(model, torch.randn(4, 8)).backward()
            assert made.report.planned
        # What is in use is.
        held = device.allocate(10 * SEGMENT)
        mean(model, torch.randn(4, 8)).backward()
        assert made.steps == {"planned": 2, "deviating": 1}
        with pytest.warns(OffloadWarning, match="has reserved"):
            mean(model, torch.randn(4, 8)).backward()
        del held


def test_a_plan_that_is_made_on_the_way_leaves_out_what_is_reserved_in_vain():
    torch.manual_seed(0)
    model = nn.Sequential(*[x for _ in range(8) for x in (nn.Linear(8, 8), nn.Sigmoid())])
    device = simulated(platform=Platform(0, Fraction(12)))
    budget = 30_000
    asked = {"hardware": "v100-pcie", "time_limit": 0.5, "recompute": "none", "count": True}
    asked["background"] = False
    optimiser = torch.optim.SGD(model.parameters())
    with train_by(
        model, "auto", device=device, reserved_memory=budget, optimiser=optimiser, **asked
    ) as made:
        for turn in range(4):
            if turn == 0:
                # Of a segment of 4 KiB.
                held = device.allocate(10)
            model(torch.randn(32, 8)).square().mean().backward()
            if turn == 0:
                del held
            optimiser.zero_grad()
        assert made.report.planned
        assert made.report.reserved_limit == budget
    (certificate,) = made.certificates
    uncounted = sum(certificate.problem.source["uncounted"].values())
    left = budget - uncounted - certificate.problem.platform.memory
    # The loss and its gradient lie in the same segment.
    assert left == SEGMENT - 10 - 2 * 4


@pytest.mark.cuda
def test_on_cuda_the_limit_holds_for_what_pytorch_has_reserved():
    on = On("cuda")
    model = Layers()
    problem = captured_problem(model)
    plan, device = evicting(problem), on.device(problem)
    made = follow(
        on.put(model), plan, problem, FollowOptions(device=device, reserved_memory="1GiB")
    )
    with made:
        for _ in range(2):
            held = torch.empty(2**31, dtype=torch.uint8, device="cuda")
            del held
            mean(model, on.randn(4, 8)).backward()
            assert made.report.planned
            assert made.report.memory.peak_reserved == torch.cuda.max_memory_reserved()
            assert made.report.memory.peak_allocated == torch.cuda.max_memory_allocated()
