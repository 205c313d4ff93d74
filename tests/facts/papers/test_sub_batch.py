"""Eqs. 6 to 8: least memory against brute force, and sub-batches against enumeration."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from offcert.core.errors import InputError
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import Round
from offcert_lab.modnn.networks import modnn_network
from offcert_lab.modnn.tasks import step_round
from papers.sub_batch import (
    held_memory,
    least_memory,
    regular,
    select_sub_batch,
    task_memory,
    window_memory,
    window_width,
    workspaces,
)
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem, seeded

# Five tasks; weights of 100; b images.
TABLE = [(1, (0, 1)), (2, (1, 2, 4)), (4, (2, 3)), (8, (3, 4))]


def by_hand(images: int, workspace: tuple[int, ...] = (0, 3, 0, 5, 0)) -> Round:
    operations = [Operation(f"o{i}", 1) for i in range(5)]
    tensors = [Tensor("weights", 100, (-1, 4), evictable=False)]
    tensors += [Tensor(f"t{i}", size * images, uses) for i, (size, uses) in enumerate(TABLE)]
    menu = Menu(
        {
            i: (Alternative("lean", 9), Alternative("fast", 5, size * min(images, 4)))
            for i, size in enumerate(workspace)
        }
    )
    return Round(images, 1, Trace(operations, tensors), menu)


def test_tasks_of_one_image_by_hand() -> None:
    found = by_hand(1)
    # Eq. 6: tasks use t0; t0 t1; t1 t2; t2 t3; t1 t3.
    assert task_memory(found.trace, found.menu) == (1, 3, 6, 12, 10)
    assert set(held_memory(found.trace)) == {100}
    # Eq. 7.
    assert least_memory(found.trace, found.menu) == 112
    assert task_memory(found.chosen(found.menu.fastest())) == (1, 6, 6, 17, 10)


def test_windows_by_hand() -> None:
    found = by_hand(1)
    spaces = workspaces(found)
    assert spaces == [0, 3, 0, 5, 0]
    # Two tasks at a time, most in the second: t0 t1 | t1 t2 | t1 t2 t3; the last one begins with
    # t1 t2 t3, as o4 needs t1. The workspaces are 3, 3, 5, 5.
    assert window_memory(found.trace, spaces, Fraction(2, 5)) == 100 + 14 + 5
    # Three: t0 is gone before t3 is made, so that not all four count together.
    assert window_memory(found.trace, spaces, Fraction(3, 5)) == 100 + 14 + 5
    # Any part of a task is a task; all tasks together are what is there at a time.
    assert window_memory(found.trace, spaces, Fraction(1, 100)) == 100 + 12 + 5
    assert window_memory(found.trace, spaces, Fraction(1)) == 100 + 14 + 5
    assert window_memory(found.trace, [0] * 5, Fraction(1)) == found.trace.peak_memory


def test_updates_are_tasks_that_nobody_draws() -> None:
    names = ("FP a", "FP b", "BP1 b", "BP2 b", "BP1 a", "BP2 a")
    trace = Trace([Operation(name, 1) for name in names], [])
    # A quarter of six tasks and two updates.
    assert window_width(trace, Fraction(1, 4)) == 2
    assert window_width(trace, Fraction(26, 100)) == 3
    assert window_width(trace, Fraction(1)) == 6


@pytest.mark.parametrize("seed", range(30))
def test_the_least_memory_is_the_least_memory(seed: int) -> None:
    drawn = mixed_problem(seed, 3)
    rng = seeded(seed)
    menu = Menu({rng.randrange(len(drawn.trace)): [Alternative("a", 1, 3), Alternative("b", 0, 7)]})
    least = least_memory(drawn.trace, menu)
    for limit, possible in ((least, True), (least - 1, False)):
        if limit < 0:
            continue
        found = [
            brute_force(
                replace(
                    Problem("t", menu.chosen(drawn.trace, choice), drawn.platform).with_memory(
                        limit
                    )
                )
            )
            for choice in product(*(range(len(row)) for _, row in menu.offers))
        ]
        assert any(each is not None for each in found) is possible
    assert menu.chosen(drawn.trace, menu.leanest()).least_memory == least


def slow_window(found: Round, spaces: list[int], alpha: Fraction) -> int:
    """Return Eq. 8 by its definition."""
    count = len(found.trace)
    updates = sum(each.name.startswith("BP2") for each in found.trace.operations)
    width = min(count, -int(-(count + updates) * alpha // 1))
    values = []
    for first in range(count - width + 1):
        tasks = range(first, first + width)
        used = [
            tensor
            for tensor in found.trace.tensors
            if tensor.evictable and any(use in tasks for use in tensor.uses)
        ]
        live = max(
            sum(each.size for each in used if each.uses[0] <= task <= each.uses[-1])
            for task in tasks
        )
        values.append(live + max(spaces[task] for task in tasks) + held_memory(found.trace)[first])
    return max(values)


@pytest.mark.parametrize("alpha", [Fraction(1, 20), Fraction(15, 100), Fraction(1, 2), Fraction(1)])
def test_windows_are_what_eq_8_says(alpha: Fraction) -> None:
    found = step_round(modnn_network("resnet34", 64), 3)
    spaces = workspaces(found)
    assert window_memory(found.trace, spaces, alpha) == slow_window(found, spaces, alpha)


def test_selection_is_enumeration() -> None:
    # A workspace grows with the images up to four of them, so what fits at b fits at less.
    for memory in range(100, 700, 20):
        found = select_sub_batch(by_hand, 32, memory, Fraction(2, 5))
        fits = [
            size
            for size in range(1, 33)
            if window_memory(by_hand(size).trace, workspaces(by_hand(size)), Fraction(2, 5))
            <= memory
        ]
        largest = max(fits, default=1)
        assert found.fits is bool(fits)
        # Profiling with more images may have asked for more workspace.
        assert found.size <= regular(largest, 32)
        if largest >= 4:
            assert found.size == regular(largest, 32)


def test_sizes_are_regular() -> None:
    assert [regular(size, 256) for size in (1, 3, 31, 32, 63, 64, 127, 191, 192, 255, 256)] == [
        *(1, 2, 16, 32, 32, 64, 64, 128, 192, 192, 256)
    ]
    assert regular(100, 100) == 100


def test_profiling_need_not_come_to_rest() -> None:
    # With many images the fastest algorithm needs a workspace; with few it needs none. So many are
    # selected from what few say, and few from what many say; only eight fit by what eight say.
    def profile(images: int) -> Round:
        return by_hand(images, (0, 0, 0, 30 if images > 8 else 0, 0))

    memory = 100 + 14 * 16 + 10
    found = select_sub_batch(profile, 16, memory, Fraction(2, 5))
    assert found.iterations == ((16, 8), (8, 16))
    assert found.size == 8
    assert found.fits
    for images, fits in ((8, True), (16, False)):
        asked = window_memory(profile(images).trace, workspaces(profile(images)), Fraction(2, 5))
        assert (asked <= memory) is fits


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="alpha must be above 0"):
        select_sub_batch(by_hand, 4, 100, Fraction(0))
    with pytest.raises(InputError, match="batch must be at least 1"):
        select_sub_batch(by_hand, 0, 100)
