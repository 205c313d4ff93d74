"""What the allocator took beside what was planned."""

from fractions import Fraction

from offcert.runtime.device.allocation import Allocation
from offcert.runtime.device.interface import MemoryReading


def _of(limit, planned, allocated, reserved):
    return Allocation(limit, planned, MemoryReading(0, 0, allocated, reserved))


def test_a_plan_can_be_kept_while_the_allocator_holds_more_than_the_limit():
    found = _of(1000, 800, 820, 1100)
    assert (found.allocated_over, found.reserved_over) == (0, 100)
    assert found.peak_error == Fraction(20, 800)
    assert found.fragmentation == Fraction(280, 1100)
    assert found.to_json() == {
        "limit": 1000,
        "planned_peak": 800,
        "allocated_peak": 820,
        "reserved_peak": 1100,
        "allocated_over": 0,
        "reserved_over": 100,
        "peak_error_ppm": 25_000,
        "fragmentation_ppm": 254_545,
    }


def test_less_than_planned_is_an_error_too_and_nothing_is_divided_by_zero():
    assert _of(1000, 800, 600, 700).peak_error == Fraction(-1, 4)
    empty = _of(0, 0, 0, 0)
    assert (empty.peak_error, empty.fragmentation) == (0, 0)
