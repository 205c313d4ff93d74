"""What the allocator took beside what was planned."""

from fractions import Fraction

from offcert.questions.schedule.training_record import AllocatorPeaks


def test_a_plan_can_be_kept_while_the_allocator_holds_more_than_the_limit():
    found = AllocatorPeaks(0, 820, 1100)
    assert found.peak_error(800) == Fraction(20, 800)
    assert found.fragmentation == Fraction(280, 1100)
    assert found.beside(1000, 800) == {
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
    assert AllocatorPeaks(0, 600, 700).peak_error(800) == Fraction(-1, 4)
    empty = AllocatorPeaks(0, 0, 0)
    assert (empty.peak_error(0), empty.fragmentation) == (0, 0)
