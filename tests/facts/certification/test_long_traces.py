"""The ladder on long traces: what runs, when it looks at the clock, and what it then knows."""

import time
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest

from offcert.certification.ladder import certify
from offcert.certification.ladders.joint import LADDERS
from offcert.certification.rung import MOST_GAPS, MOST_OPERATIONS, is_fine, is_long
from offcert.certification.search import SearchProgress
from offcert.core.platform import Link
from offcert.core.result import Evidence
from offcert.instances.library import default_library
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify
from support.problems.long_problems import long_problem


class Clock:
    """Time that only passes when somebody looks at it, always by as much."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.now = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        self.now += self.step
        return self.now


@pytest.fixture
def at_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Clock]:
    def begin(step: float) -> Clock:
        clock = Clock(step)
        monkeypatch.setattr(time, "monotonic", clock.monotonic)
        return clock

    return begin


@cache
def by_stages() -> dict[str, Problem]:
    """Return a problem of each family of the library that is not by modules or operators."""
    library = default_library()
    # Files have the names of families, and the others' take long to read.
    names = [path.stem for path in library.folder.glob("*.json")]
    wanted = [name for name in names if not name.endswith(("-modules", "-operators"))]
    return {name: library.family(name).problem for name in wanted}


def steps_of(problem: Problem, **options: float) -> list[str]:
    steps: list[str] = []

    def note(progress: SearchProgress) -> None:
        if progress.step not in steps:
            steps.append(progress.step)

    certify(problem, workers=1, progress=note, **options)
    return steps


@pytest.mark.slow
def test_by_stages_only_the_deepest_densenet_cut_at_dense_layers_is_long() -> None:
    assert len(by_stages()) > 100
    long = {name for name, problem in by_stages().items() if is_long(problem)}
    assert long == {"densenet201-layers-224", "densenet201-layers-500"}
    assert is_long(long_problem(0, MOST_OPERATIONS + 2, 50))
    assert is_long(long_problem(0, 300, MOST_GAPS + 1))


@pytest.mark.parametrize("nested", [True, False])
def test_without_any_time_there_is_a_schedule_and_a_proved_bound(nested: bool) -> None:
    problem = long_problem(4, 2_000, 800, nested=nested)
    certificate = certify(problem, time_limit=1e-9, workers=1)
    result = certificate.result
    assert result.schedule is not None
    assert check(problem, result.schedule) == []
    assert result.lower_bound >= problem.trace.compute_time
    assert all(bound.evidence is Evidence.PROVED for bound in result.bounds)
    assert steps_of(problem, time_limit=1e-9) == ["sequential", "combinatorial bounds"]


@pytest.mark.slow
@pytest.mark.parametrize("link", Link)
def test_a_few_seconds_leave_next_to_nothing_open(link: Link) -> None:
    problem = long_problem(4, 1_000, 400, link=link)
    certificate = certify(problem, time_limit=20.0, target_gap=0.001, workers=1)
    assert certificate.result.gap <= Fraction(1, 1000)
    assert certificate.result.schedule is not None
    assert check(problem, certificate.result.schedule) == []
    assert verify(certificate.to_json()).faults == []


@pytest.mark.slow
def test_no_rung_goes_on_long_after_its_time(at_clock: Callable[[float], Clock]) -> None:
    """However many rungs there are, each looks at the clock, and ends when its time is over."""
    problem = long_problem(4, 1_000, 400, memory=Fraction(1, 10))
    certify(problem, time_limit=1.0, workers=1)  # compiles
    for seconds in (5.0, 25.0):
        clock = at_clock(1.0)
        result = certify(problem, time_limit=seconds, workers=1).result
        # What is left over is a look or two for each rung.
        assert seconds <= result.runtime <= seconds + 2.0 * len(LADDERS["long traces"])
        assert clock.looks > seconds


def test_a_round_on_a_long_trace_takes_no_longer_than_on_a_short_one() -> None:
    from offcert.heuristics.orders.order_search import length_of_round

    short, long = long_problem(0, 300, 100), long_problem(0, 3_000, 1_000)
    assert length_of_round(short, 10_000) == 10_000
    size = len(long.trace) + len(long.trace.gaps)
    assert 0 < length_of_round(long, 10_000) * size <= 10_000 * 1_000


@pytest.mark.slow
def test_traces_with_many_operations_between_gaps_are_fine_and_the_rest_of_the_library_is_not() -> (
    None
):
    assert is_fine(long_problem(0, 150, 60))
    assert not is_fine(long_problem(0, 100, 40))
    assert not is_fine(long_problem(0, 150, 120))
    for name, problem in by_stages().items():
        assert not is_fine(problem), name
