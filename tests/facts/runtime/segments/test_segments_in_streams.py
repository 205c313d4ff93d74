"""Segments that run again, while streams move what they keep and what they are given."""

import random
import threading
from fractions import Fraction

import pytest
from test_segment_traps import BLOCKS, KEEPING, Three

from offcert.core.platform import Platform
from offcert.runtime.simulated import SimulatedDevice
from offcert.runtime.streaming.step_events import forecast
from support.runtime.captured import mean_step, random_plan
from support.runtime.joint_training import compare_joint


def some_of(seed):
    """Return what evicts a random half of the gaps of a problem."""
    return lambda problem: random_plan(problem.trace, random.Random(seed), stay=0.4)


def streamed(placed, seed, loop=None, exactly=True):
    devices = []

    def device(problem):
        rates = Fraction(1 + seed), Fraction(5, 1 + seed)
        link = ("simplex", "duplex")[seed % 2]
        devices.append(SimulatedDevice(Platform(0, rates[0], link, rates[1])))
        return devices[0]

    step = mean_step(Three(), 6, 8)
    found = compare_joint(
        step, placed, plan=some_of(seed), loop=loop, steps=2, device=device
    ).require_followed(exactly=exactly)
    assert all(report.offloaded_bytes > 0 for report in found.reports)
    assert devices[0].races == []
    assert devices[0].crossings == 0
    assert devices[0].pinned_bytes == 0
    return found


# Keeping watches operators while the forward pass runs: those of the engine are not the program's.
@pytest.mark.parametrize("placed", [BLOCKS, KEEPING], ids=["blocks", "keeping"])
@pytest.mark.parametrize("seed", range(2))
def test_segments_and_streams(placed, seed):
    found = streamed(placed, seed)
    made = found.offload.step_plans[0]
    # The device copies at other rates than the problem's: it is the order that is kept.
    expected = forecast(made.problem, made.timetable)
    for times in found.times:
        assert {t.gap for t in times.transfers} == {t.gap for t in expected.transfers}
        assert len(times.ends) == len(made.trace)


def test_a_segment_runs_again_in_another_thread():
    # As on CUDA, where autograd has a thread for each device.
    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        loss = model(batch).square().mean()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        optimiser.step()
        return loss.detach().clone()

    # Only the thread that entered the context counts bytes.
    streamed(KEEPING, 1, loop, exactly=False)
