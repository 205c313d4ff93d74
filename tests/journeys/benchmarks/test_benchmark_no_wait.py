"""The no-wait policy, against schedules worked out by hand."""

import importlib
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.chain import Chain
from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.problem import Problem

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("no_wait")


def problem(memory: int, forward: tuple[int, ...] = (2, 2, 2)) -> Problem:
    """Three stages; x_0 and x_1 can leave, and F_2 needs 9 bytes if neither has."""
    chain = Chain(forward, (1, 1, 1), (4, 2, 3, 0), (0,) * 4)
    return Problem("hand", chain, Platform(memory, Fraction(1)))


def gap(instance: Problem, activation: int) -> int:
    sizes = [instance.trace.gap_size(number) for number in range(len(instance.trace.gaps))]
    return sizes.index({0: 4, 1: 2}[activation])


def test_without_transfers_operations_follow_each_other(no_wait: ModuleType) -> None:
    assert no_wait.no_wait_makespan(problem(9), []) == 9


def test_without_room_and_transfers_it_is_stuck(no_wait: ModuleType) -> None:
    assert no_wait.no_wait_makespan(problem(8), []) is None


def test_a_prefetch_as_early_as_it_can_be_costs_the_memory_of_what_follows(
    no_wait: ModuleType,
) -> None:
    """F_0 0-2, F_1 needs 4 + 2 + 3 and waits for x_0 to leave (0-4).

    Then F_1 4-6 holds 2 + 3 of 8 bytes, so x_0 cannot return before B_2 has ended; with 9 bytes it
    does so at once, in F_1, and F_2 still fits.
    """
    instance = problem(8)
    order = [(OUT, gap(instance, 0)), (BACK, gap(instance, 0))]
    # F_2 6-8, B_2 8-9 frees nothing of x_2, B_1 9-10 frees x_2 (3 bytes): x_0 returns 10-14.
    assert no_wait.no_wait_makespan(instance, order) == 15
    roomy = problem(9)
    # F_1 2-4; x_0 has left at 4 and returns 4-8 while F_2 4-6, B_2 6-7 and B_1 7-8 run.
    assert no_wait.no_wait_makespan(roomy, order) == 9


def test_an_order_of_the_link_is_kept(no_wait: ModuleType) -> None:
    """With 7 bytes F_1 waits for x_0; if x_1 goes first, it waits for both."""
    instance = problem(7, (2, 2, 2))
    zero, one = gap(instance, 0), gap(instance, 1)
    order = [(OUT, zero), (OUT, one), (BACK, one), (BACK, zero)]
    # Out 0-4 and 4-6, F_1 4-6; x_1 returns 6-8, F_2 6-8, B_2 8-9, B_1 9-10, x_0 10-14, B_0 14-15.
    assert no_wait.no_wait_makespan(instance, order) == 15
    other = [(OUT, one), (OUT, zero), (BACK, one), (BACK, zero)]
    # Out 2-4 and 4-8, F_1 8-10; x_1 returns 10-12, B_1 13-14, x_0 14-18, B_0 18-19.
    assert no_wait.no_wait_makespan(instance, other) == 19
