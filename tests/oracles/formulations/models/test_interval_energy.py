"""Energy windows: every one that is considered holds, and counts each transfer at its length."""

from __future__ import annotations

import pytest

from offcert.core.platform import Kind
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.models.interval_cpsat import solve
from offcert.formulations.models.interval_data import (
    Instant,
    IntervalData,
    instants,
    prepare,
)
from offcert.formulations.models.interval_energy import Window, candidate_windows
from offcert.questions.schedule.schedule import Schedule
from support.problems.random_instances import mixed_problem, random_problem, two_rates
from support.seeds import by_seeds


class Literals:
    """What a schedule makes of the model's literals on a grid of one tick."""

    def __init__(self, data: IntervalData, schedule: Schedule) -> None:
        self.data, self.schedule = data, schedule
        tensor_of = {gap.number: gap.tensor for gap in data.gaps}
        self.left_at = {
            tensor_of[item.gap]: item.end
            for item in schedule.transfers
            if item.kind is Kind.OFFLOAD and item.gap in tensor_of
        }
        self.back_from = {
            item.gap: item.start for item in schedule.transfers if item.kind is Kind.PREFETCH
        }

    def evicted(self, index: int) -> bool:
        gap = self.data.gaps[index]
        return gap.number in self.back_from and gap.tensor in self.left_at

    def left(self, index: int, instant: Instant) -> bool:
        gap, starts = self.data.gaps[index], self.schedule.starts
        opened = self.schedule.ends[gap.before] if gap.before >= 0 else 0
        time = starts[instant.operation]
        if instant.at_end:
            time += self.data.durations[instant.operation] - 1
        return self.evicted(index) and max(opened, self.left_at[gap.tensor]) <= time

    def stays(self, index: int, instant: Instant) -> bool:
        time = self.schedule.starts[instant.operation]
        duration = self.data.durations[instant.operation]
        time += duration if instant.at_end else min(duration, 1)
        return self.evicted(index) and self.back_from[self.data.gaps[index].number] >= time

    def slack(self, window: Window) -> int:
        """Cells by which a window is longer than the transfers that must lie in it."""
        points, starts = instants(self.data), self.schedule.starts
        energy = sum(cells * self.evicted(index) for index, cells in window.evicted)
        energy += sum(cells * self.left(index, points[i]) for index, i, cells in window.left)
        energy += sum(cells * self.stays(index, points[i]) for index, i, cells in window.stays)
        opens = starts[window.opens] if window.opens >= 0 else 0
        return starts[window.closes] - opens - window.slack - energy


def in_evicted(data: IntervalData, window: Window, index: int, duplex: bool) -> int:
    """Cells of a gap's transfers that lie in a window if the gap is evicted at all."""
    gap = data.gaps[index]
    assert gap.after <= window.closes
    out = gap.offload_time if gap.writer >= window.opens else 0
    back = gap.prefetch_time if gap.before >= window.opens else 0
    if duplex:
        return out if window.left else back
    return out + back


@by_seeds(8000, 8400, 29)
def test_transfers_count_at_the_length_of_their_direction(seeds: range) -> None:
    counted = {"left": 0, "stays": 0, "evicted": 0}
    for seed in seeds:
        problem = two_rates(random_problem(seed))
        duplex = problem.platform.duplex
        data = prepare(problem, 1, longest_makespan(problem))
        assert data is not None
        for window in candidate_windows(data, duplex):
            for index, _, cells in window.left:
                assert cells == data.gaps[index].offload_time
            for index, _, cells in window.stays:
                assert cells == data.gaps[index].prefetch_time
            for index, cells in window.evicted:
                assert cells == in_evicted(data, window, index, duplex), (problem.name, window)
            counted["left"] += len(window.left)
            counted["stays"] += len(window.stays)
            counted["evicted"] += len(window.evicted)
    assert min(counted.values()) >= 2


@pytest.mark.slow
@by_seeds(9000, 9200, 29)
def test_no_window_excludes_a_schedule_and_some_are_tight(seeds: range) -> None:
    windows = tight = 0
    for seed in seeds:
        problem = mixed_problem(seed)
        schedule = solve(problem, energy=False).schedule
        assert schedule is not None
        data = prepare(problem, 1, schedule.makespan)
        assert data is not None
        literals = Literals(data, schedule)
        for window in candidate_windows(data, problem.platform.duplex):
            slack = literals.slack(window)
            assert slack >= 0, (problem.name, window)
            windows += 1
            tight += slack == 0
    assert windows >= 118
    assert tight >= 40
