"""The sweep over pieces finds what the definition finds, word for word."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from offcert.questions.schedule import check_fluid as checker
from offcert.questions.schedule import presence as segments
from offcert.questions.schedule.presence import Flow, Grid, Rational
from support.oracles import check_fluid as check_fluid_oracle
from support.problems.fluid_schedules import fluid_cases

check_fluid = checker.check_fluid


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_the_same_faults_in_the_same_words(seed: int) -> None:
    seen: Counter[str] = Counter()
    for problem, schedule in fluid_cases(500, seed):
        faults = check_fluid(problem, schedule)
        assert faults == check_fluid_oracle.check_fluid(problem, schedule), (problem, schedule)
        seen["valid"] += not faults
        for words in ("uses the link", "have come back", "memory during", "memory before"):
            seen[words] += any(words in fault for fault in faults)
        seen["memory only"] += bool(faults) and all("memory" in fault for fault in faults)
        seen["between ticks"] += any("/" in fault.split("holds")[0] for fault in faults)
    assert seen["valid"] > 50
    assert min(seen.values()) > 20, seen


@pytest.mark.slow
def test_rationals_of_which_no_common_part_is_known_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "LONGEST", 0)
    assert not _differs()


def _uncapped(segment: Flow) -> Flow:
    """More is off the device than returns."""
    return segment._replace(amount=max(segment.amount, 2 * segment.amount))


def _late(segment: Flow) -> Flow:
    """Bytes return, or are off, only when their piece has ended."""
    return segment._replace(start=(segment.start + segment.end) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [_uncapped, _late])
def test_the_comparison_sees_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[Flow], Flow]
) -> None:
    def absent_at(
        found: list[Flow], places: list[tuple[int, Rational]], clock: Grid
    ) -> list[Rational]:
        return segments.absent_at(list(map(broken, found)), places, clock)

    monkeypatch.setattr(segments, "LONGEST", 0)
    assert not _differs()
    monkeypatch.setattr(checker, "absent_at", absent_at)
    assert _differs()


def test_the_comparison_sees_bytes_that_return_before_they_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checker, "moved_by", lambda pieces, times: [Fraction(0)] * len(times))
    assert _differs()


def _differs() -> bool:
    return any(
        check_fluid(problem, schedule) != check_fluid_oracle.check_fluid(problem, schedule)
        for problem, schedule in fluid_cases(300, 5)
    )
