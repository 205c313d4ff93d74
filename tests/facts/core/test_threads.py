"""Doing things at the same time: results, their order, and what becomes of errors."""

import threading

import pytest

from offcert.core.threads import cores, in_threads


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert list(in_threads(lambda item: item * item, range(50), workers)) == [
        item * item for item in range(50)
    ]


def test_threads_run_at_the_same_time() -> None:
    # Either would wait for ever for the other if they did not.
    both = threading.Barrier(2, timeout=60)
    assert sorted(in_threads(lambda item: both.wait(), range(2), 2)) == [0, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_in_the_place_of_its_item_and_ends_the_rest(workers: int) -> None:
    begun, failed = [], threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item >= 3:
            failed.wait(0.05)
            raise ValueError(item)
        return item

    results = in_threads(work, range(1000), workers)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"^3$"):
        next(results)
    assert len(begun) < 1000


def test_there_is_a_processor() -> None:
    assert cores() >= 1
