"""Grids: windows hold every optimal schedule, cells are rounded down, default grids fit."""

from __future__ import annotations

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.formulations.common.grid import longest_makespan
from offcert.formulations.common.time_grid import TimeGrid, build_grid, choose_grid
from offcert.formulations.models import interval_cpsat, time_indexed
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from support.problems.random_instances import cnn_chain, counterexample, problem_on, seeded
from support.problems.short_problems import short_problems


def starts_outside(problem: Problem, grid: TimeGrid, schedule: Schedule) -> list[str]:
    """Return the items of a schedule whose rounded starts lie outside their windows."""
    gaps = {gap.number: gap for gap in grid.gaps}
    found = [
        f"operation {o}"
        for o, (start, item) in enumerate(zip(schedule.starts, grid.operations, strict=True))
        if not item.first <= start // grid.grid <= item.last
    ]
    for transfer in schedule.transfers:
        gap = gaps.get(transfer.gap)
        if gap is None:
            found.append(f"gap {transfer.gap} is missing")
            continue
        item = gap.prefetch if transfer.kind is Kind.PREFETCH else grid.offloads[gap.tensor]
        if not item.first <= transfer.start // grid.grid <= item.last:
            found.append(f"{transfer.kind} of gap {transfer.gap}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("cell", [1, 2, 3, 5])
def test_windows_hold_a_schedule_at_the_upper_bound(cell: int) -> None:
    """Optimal schedules of another model, whose useless evictions are few, fit with no room."""
    for problem, best in short_problems(1000, 30):
        schedule = interval_cpsat.solve(problem).schedule
        assert schedule is not None
        assert schedule.makespan == best
        grid = build_grid(problem, cell, best)
        assert grid is not None
        late = [name for name in starts_outside(problem, grid, schedule) if "operation" in name]
        assert late == [], problem.name


def test_windows_below_the_optimum_can_be_empty() -> None:
    problem = counterexample()
    assert build_grid(problem, 1, 219) is not None
    assert build_grid(problem, 1, 0) is None


def test_lengths_are_rounded_down_and_distances_recover_part_of_it() -> None:
    problem = problem_on(seeded(3), cnn_chain(seeded(4), 6), "distances")
    grid = build_grid(problem, 7, longest_makespan(problem))
    assert grid is not None
    durations = problem.trace.durations
    assert [item.length for item in grid.operations] == [d // 7 for d in durations]
    assert grid.distances
    for a, b, cells in grid.distances:
        assert cells == sum(durations[a:b]) // 7
        assert cells > sum(d // 7 for d in durations[a:b])
    assert build_grid(problem, 1, longest_makespan(problem)).distances == ()  # type: ignore[union-attr]


def test_a_chosen_grid_keeps_the_number_of_variables() -> None:
    problem = problem_on(seeded(5), cnn_chain(seeded(6), 12), "long")
    upper = longest_makespan(problem)
    for variables in (500, 2000, 10**7):
        cell = choose_grid(problem, upper, variables)
        grid = build_grid(problem, cell, upper)
        assert grid is not None
        items = len(grid.operations) + len(grid.offloads) + len(grid.gaps)
        assert grid.variables <= variables + 2 * items
    assert choose_grid(problem, upper, 10**7) == 1


def test_a_grid_that_is_far_too_fine_is_refused_with_one_that_would_do() -> None:
    problem = counterexample()
    scaled = problem.with_bandwidth(problem.platform.bandwidth / 10**6)
    with pytest.raises(InputError, match=r"grid must be at least about \d+ ticks here, not 1:"):
        time_indexed.solve(scaled, grid=1)
    assert time_indexed.solve(scaled, time_limit=0.0).details["grid"] > 1


def test_a_grid_below_one_tick_is_refused() -> None:
    with pytest.raises(InputError, match="grid must be at least 1"):
        build_grid(counterexample(), 0, 300)
