"""The memory of a device, less what a trace does not count."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.questions.schedule.device_memory import (
    describe_uncounted,
    memory_beside,
    uncounted_bytes,
)
from offcert.questions.schedule.problem import Problem


def problem(source: object) -> Problem:
    chain = Chain([3, 4, 1], [1, 4, 2], [10, 2, 3, 0], [0] * 4)
    return Problem("p", chain, Platform(20, Fraction(2)), source=source)  # type: ignore[arg-type]


def test_what_is_left_beside_everything_else() -> None:
    taken = {"parameters": 100, "gradients": 60, "optimiser": 0}
    assert memory_beside(1000, taken) == 840
    assert memory_beside(160, taken) == 0
    with pytest.raises(InputError, match="must be at least 160 bytes, not 159: parameters 100 B"):
        memory_beside(159, taken)
    with pytest.raises(InputError, match="the optimiser's state, whose size is not known"):
        memory_beside(1000, {"parameters": 100})


def test_sizes_for_people_leave_out_what_is_not_there() -> None:
    assert describe_uncounted({"parameters": 3 * 2**20, "buffers": 0, "batch": 7}) == (
        "parameters 3.00 MiB, batch 7 B"
    )
    assert describe_uncounted({"buffers": 0}) == "nothing"


def test_the_source_says_what_is_not_counted() -> None:
    known = {"parameters": 4, "optimiser": 8}
    assert uncounted_bytes(problem({"uncounted": known})) == known
    for source in (None, {}, {"uncounted": None}):
        with pytest.raises(InputError, match="p does not say how many bytes its trace does not"):
            uncounted_bytes(replace(problem(None), source=source))
    with pytest.raises(InputError, match=r"source\.uncounted must be an object, not 3"):
        uncounted_bytes(problem({"uncounted": 3}))
    for size in (-1, 2.5, True, "4"):
        with pytest.raises(InputError, match=r"source\.uncounted\.batch must be a number of bytes"):
            uncounted_bytes(problem({"uncounted": {"batch": size}}))


def test_long_values_are_cut() -> None:
    long = "x" * 10**5
    for uncounted in (long, {long: 1.5}, {"batch": long}):
        with pytest.raises(InputError) as caught:
            uncounted_bytes(problem({"uncounted": uncounted}))
        assert len(str(caught.value)) < 400
