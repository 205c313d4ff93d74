from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.units import (
    Units,
    format_gap,
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
)
from offcert.questions.schedule.problem import parse_memory
from support.problems.random_instances import random_problem

NS = Units("ns", "B")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096B", 4096),
        ("6GiB", 6 * 2**30),
        ("1.5 kB", 1500),
        ("0.5KiB", 512),
        ("2TB", 2 * 10**12),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.5B", "4096", "1e9", "6 gib", "3 GB/s", "nan"])
def test_bad_sizes_are_refused_by_value(text: str) -> None:
    with pytest.raises(InputError, match=text or "size"):
        parse_size(text)


def test_a_percentage_lies_between_the_least_and_the_peak_memory() -> None:
    problem = random_problem(5)
    least, peak = problem.trace.least_memory, problem.trace.peak_memory
    assert peak > least
    assert parse_memory("0%", problem) == least
    assert parse_memory("100%", problem) == peak
    assert parse_memory("50 %", problem) == least + (peak - least) // 2
    assert parse_memory("12.5%", problem) == least + (peak - least) // 8
    for text in ("200%", "100.1 %"):
        with pytest.raises(InputError, match=f'memory must be at most 100%, .*, not "{text}"'):
            parse_memory(text, problem)
    with pytest.raises(InputError, match='not "-5%"'):
        parse_memory("-5%", problem)


def test_a_number_alone_is_asked_for_its_unit_where_it_could_mean_two_things() -> None:
    synthetic = random_problem(5)
    assert parse_memory("25", synthetic) == 25
    with pytest.raises(InputError) as caught:
        parse_memory("25", replace(synthetic, units=NS))
    assert str(caught.value) == (
        'memory "25" needs a unit: "25%" (of the way from the least that is feasible to the peak), '
        '"25MiB", "25GiB" or bytes, "25B"'
    )
    assert parse_memory("25B", replace(synthetic, units=NS)) == 25
    with pytest.raises(
        InputError, match=r'^budget "16" needs a unit: "16GiB", "16MB" or bytes, "16B"$'
    ):
        parse_size("16", "budget")


def test_rates_become_bytes_a_nanosecond() -> None:
    assert parse_bandwidth("12.2GB/s", NS) == Fraction(122, 10)
    assert parse_bandwidth("1GiB/s", NS) == Fraction(2**30, 10**9)
    assert parse_bandwidth("3/2", Units()) == Fraction(3, 2)


@pytest.mark.parametrize("text", ["0", "1/0", "fast", "12GB", "0GB/s", "-3", "1" * 5000])
def test_bad_rates_are_refused_by_value(text: str) -> None:
    with pytest.raises(InputError, match=text[:50]):
        parse_bandwidth(text, NS)


def test_a_rate_in_seconds_needs_ticks_in_nanoseconds() -> None:
    with pytest.raises(InputError, match="needs a problem in ns and B"):
        parse_bandwidth("12.2GB/s", Units())


def test_people_read_short_numbers() -> None:
    assert format_size(3 * 2**30, NS) == "3.00 GiB"
    assert format_size(3, Units()) == "3"
    assert format_time(1_500_000, NS) == "1.500 ms"
    assert format_time(999, NS) == "999 ns"


def test_two_numbers_that_differ_never_look_the_same() -> None:
    assert format_time(1_016_404, NS, beside=1_016_000) == "1.0164 ms"
    assert format_time(1_016_000, NS, beside=1_016_404) == "1.0160 ms"
    assert format_time(1_016_404, NS, beside=1_016_404) == "1.016 ms"
    assert format_time(10**9 + 1, NS, beside=10**9) == "1.000000001 s"
    for size in (2**10, 2**20, 2**30, 2**40):
        assert format_size(size + 1, NS, beside=size) != format_size(size, NS, beside=size + 1)


@pytest.mark.parametrize(
    ("gap", "text"),
    [(0.0, "0.0000 %"), (0.01126, "1.1260 %"), (5.14e-7, "0.0001 %"), (3e-7, "3.0e-05 %")],
)
def test_a_gap_is_0_only_where_there_is_none(gap: float, text: str) -> None:
    assert format_gap(gap) == text
