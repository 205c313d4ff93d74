"""Problems of sizes that nobody has captured, and the plans that steps of such sizes follow."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import nn

from offcert.certification.ladder import certify
from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.profiling.profile import profile
from offcert.training.buckets import choose_buckets, replayed, with_times_like
from offcert.training.foretold import between, beyond, grown
from offcert.training.growth import Sizes
from offcert.training.planner import first_call

pytestmark = pytest.mark.slow


class Skips(nn.Module):
    """Down and up again with skips, as a UNet, and attention; called with a whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 3, padding=1)
        self.down = nn.Conv1d(8, 16, 3, stride=2, padding=1)
        self.middle = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.up = nn.Conv1d(24, 4, 3, padding=1)

    def forward(self, noisy: torch.Tensor, timestep: int) -> torch.Tensor:
        high = self.first(noisy).sin() * (1 + timestep / 1000)
        low = self.middle(self.down(high).relu().mT).mT
        large = nn.functional.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.up(torch.cat([large, high], 1))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, int]) -> torch.Tensor:
    return model(*batch).square().mean()


@cache
def model() -> nn.Module:
    torch.manual_seed(1)
    return Skips()


@cache
def problem_of(rows: int, length: int, timestep: int = 3) -> Problem:
    step = TrainingStep(model(), loss_of, (torch.randn(rows, 4, length), timestep))
    return profile(step, hardware="v100-pcie", recompute="none")


def test_between_two_captures_lies_what_a_third_one_finds_or_more():
    small, large = problem_of(3, 8), problem_of(3, 40, 7)
    found, real = between(small, large, Fraction(1, 2)), problem_of(3, 24)
    assert first_call(found)[0][0] == first_call(real)[0][0]
    for one, other in zip(found.trace.tensors, real.trace.tensors, strict=True):
        assert (one.uses, one.evictable) == (other.uses, other.evictable)
        assert one.size >= other.size
    for one, other in zip(found.trace.operations, real.trace.operations, strict=True):
        assert one.workspace >= other.workspace
    # Only scores of attention are products of lengths: 12 x 12, not the mean of 4 x 4 and 20 x 20.
    more = {a.size - b.size for a, b in zip(found.trace.tensors, real.trace.tensors, strict=True)}
    scores = 4 * 3 * 2 * ((4 * 4 + 20 * 20) // 2 - 12 * 12)
    assert len(more) > 1
    assert all(each % scores == 0 for each in more)
    assert between(small, large, Fraction(1)).network == large.network


def test_a_step_that_nobody_captured_follows_its_plan_within_the_limit():
    problem = between(problem_of(3, 8), problem_of(3, 40), Fraction(1, 2))
    problem = problem.with_memory("10%")
    planned = copy.deepcopy(model())
    plain = copy.deepcopy(planned)
    moved = []
    with follow(
        planned, certify(problem, time_limit=1, workers=1), options=FollowOptions(count=True)
    ) as training:
        for number, length in enumerate((24, 24, 10, 22)):
            batch, state = (torch.randn(3, 4, length), number), torch.get_rng_state()
            for each in (plain, planned):
                torch.set_rng_state(state)
                each.zero_grad()
                loss_of(each, batch).backward()
            pairs = zip(plain.parameters(), planned.parameters(), strict=True)
            assert all(torch.equal(one.grad, other.grad) for one, other in pairs)
            assert training.report.planned
            assert training.report.peak <= problem.platform.memory
            moved.append(training.report.offloaded_bytes)
    assert training.steps == {"planned": 4}
    assert moved[0] == moved[1] > moved[3] > moved[2] > 0


def test_what_differs_in_more_than_numbers_has_nothing_between():
    other = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    step = TrainingStep(other, lambda model, batch: model(batch).sum(), torch.randn(2, 4))
    with pytest.raises(InputError, match="steps differ in more than sizes and times: see "):
        between(profile(step, hardware="v100-pcie"), problem_of(3, 40), Fraction(1, 2))


def test_beyond_two_captures_lies_what_a_third_one_finds_or_more():
    small, large = problem_of(3, 32), problem_of(3, 40, 7)
    found, real = beyond(small, large, (32, 40, 72)), problem_of(3, 72)
    assert first_call(found)[0][0] == first_call(real)[0][0]
    pairs = list(zip(found.trace.tensors, real.trace.tensors, strict=True))
    for one, other in pairs:
        assert (one.uses, one.evictable) == (other.uses, other.evictable)
        assert one.size >= other.size
    for one, other in zip(found.trace.operations, real.trace.operations, strict=True):
        assert one.workspace >= other.workspace
        assert one.duration >= other.duration
    assert sum(one.size == other.size for one, other in pairs) > len(pairs) / 2


def test_a_number_that_is_foretold_is_at_least_any_sum_of_powers():
    sums = itertools.product(range(0, 7, 3), repeat=4)
    for constant, *powers in sums:

        def number(length, constant=constant, powers=powers):
            return constant + sum(f * length ** (k + 1) for k, f in enumerate(powers))

        assert grown(number(5), number(7), (5, 7, 11)) >= number(11)
    assert grown(7, 7, (5, 7, 14)) == 7
    assert grown(3 * 5**2, 3 * 7**2, (5, 7, 14)) == 3 * 14**2
    with pytest.raises(InputError, match="grow to"):
        grown(1, 5000, (5, 7, 14))


def test_a_smaller_size_gets_a_plan_where_that_of_the_largest_moves_in_vain():
    problems = [problem_of(3, length) for length in (8, 32, 40)]
    limit = problems[1].trace.peak_memory
    assert limit < problems[2].trace.peak_memory
    slow = replace(problems[2].platform, memory=limit, bandwidth=Fraction(1, 100))
    limited = [replace(each, platform=slow) for each in problems]
    certificates = [certify(each, time_limit=1, workers=1) for each in limited]
    for smaller in limited[:2]:
        assert smaller.trace.compute_time < replayed(certificates[2], smaller)
        assert replayed(certificates[2], smaller) <= certificates[2].result.objective
    choice = choose_buckets(certificates, [5, 5, 1], 2)
    assert choice.numbers == (1, 2)
    assert choice.ticks == sum(
        count * replayed(certificates[plan], each)
        for count, plan, each in zip((5, 5, 1), (1, 1, 2), limited, strict=True)
    )
    assert choice.compute <= choice.bound <= choice.ticks < choice.with_one
    with pytest.raises(InputError, match="2 counts for 3 certificates"):
        choose_buckets(certificates, [5, 5], 2)


def test_times_of_the_model_are_corrected_as_the_largest_step_was_measured():
    modelled, small = problem_of(3, 40), problem_of(3, 8)
    operations = [replace(o, duration=3 * o.duration) for o in modelled.trace.operations]
    timed = replace(modelled, network=replace(modelled.trace, operations=operations))
    found = with_times_like(small, modelled, timed)
    pairs = zip(found.trace.operations, small.trace.operations, strict=True)
    assert all(one.duration == 3 * other.duration for one, other in pairs)


def test_sizes_lie_on_the_line_along_which_most_steps_change():
    sizes = Sizes()
    sizes.captured(problem_of(3, 40))
    for length in (10, 16, 24, 32):
        for _ in range(8):
            sizes.saw(first_call(problem_of(3, length)))
    assert not sizes.wants(first_call(problem_of(3, 24)))
    # Fewer rows are no way to be small that most steps go.
    assert not sizes.wants(first_call(problem_of(1, 10)))
    assert sizes.wants(first_call(problem_of(3, 10)))
    assert sizes.ends is None
    sizes.captured(problem_of(3, 8))
    small, large = sizes.ends
    sizes.saw(first_call(problem_of(1, 24)))
    rows = sizes.candidates(small, large)
    assert rows == [(Fraction(n - 8, 32), 8 + (n == 24)) for n in (10, 16, 24, 32)] + [(1, 0)]
    sizes.chose()
    assert sizes.ends is None
    assert step_plan(large.with_memory("100%"), certify(large).result.schedule).is_idle
