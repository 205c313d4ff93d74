"""The checker of pieces and a replay from moment to moment find the same rules and bytes."""

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from offcert.questions.schedule import check_fluid as checker
from offcert.questions.schedule import presence as segments
from offcert.questions.schedule.presence import ByteFlow, CommonDenominator, Rational
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule
from support.oracles.replay_pieces import Replayed, replay_pieces
from support.problems.fluid_schedules import fluid_cases

RULES = {
    "numbers": r"^piece |no integer| operation (starts|ends) for ",
    "order": r"^operation .* starts at ",
    "duration": r"^operation .* lasts ",
    "rate": r"where the link can move",
    "link": r"uses the link until",
    "written": r"before its tensor is written",
    "gone": r"after its tensor is gone",
    "first": r"first evicted gap",
    "amount": r"are (offloaded|prefetched)$",
    "opened": r"before its gap at",
    "needed": r"after its tensor is needed",
    "early": r"have come back",
    "memory": r"^memory ",
}
HELD = re.compile(r"memory (before|during) operation (\d+)\b.* at (\S+) holds (\S+),")


def found_by_checker(problem: Problem, schedule: FluidSchedule) -> Replayed:
    """Return what the checker's sentences say, as far as a replay says it, too."""
    faults = checker.check_fluid(problem, schedule)
    broken = {next(rule for rule, words in RULES.items() if re.search(words, f)) for f in faults}
    broken.discard("memory")
    held = [found.groups() for found in map(HELD.match, faults) if found]
    full = {(word, int(number), Fraction(most)) for word, number, _, most in held}
    return Replayed(broken, set() if broken else full)


@pytest.mark.slow
def test_the_same_rules_and_the_same_bytes() -> None:
    seen: Counter[str] = Counter()
    for problem, schedule in fluid_cases(500):
        found = found_by_checker(problem, schedule)
        assert found == replay_pieces(problem, schedule), (problem, schedule)
        seen.update(found.broken)
        seen["memory"] += bool(found.full)
        seen["valid"] += not found.broken and not found.full
        seen["between bytes"] += any(most.denominator > 1 for *_, most in found.full)
    assert seen["valid"] > 50
    assert set(seen) == {*RULES, "valid", "between bytes"}
    assert min(seen.values()) > 5, seen


@pytest.mark.slow
def test_rationals_of_which_no_common_part_is_known_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "LONGEST", 0)
    assert not _differs()


def _uncapped(segment: ByteFlow) -> ByteFlow:
    """More is off the device than returns."""
    return segment._replace(amount=max(segment.amount, 2 * segment.amount))


def _late(segment: ByteFlow) -> ByteFlow:
    """Bytes return, or are off, only when their piece has ended."""
    return segment._replace(start=(segment.start + segment.end) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [_uncapped, _late])
def test_the_comparison_sees_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[ByteFlow], ByteFlow]
) -> None:
    def absent_at(
        found: list[ByteFlow], places: list[tuple[int, Rational]], clock: CommonDenominator
    ) -> list[Rational]:
        return segments.absent_at(list(map(broken, found)), places, clock)

    monkeypatch.setattr(segments, "LONGEST", 0)
    assert not _differs()
    monkeypatch.setattr(checker, "absent_at", absent_at)
    assert _differs()


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        # Bytes may return before they have left; operations and pieces may overlap.
        ("moved_by", lambda pieces, times: [Fraction(0)] * len(times)),
        ("operation_faults", lambda *_: []),
        ("pairwise", lambda _: ()),
    ],
)
def test_the_comparison_sees_a_rule_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, rule: str, broken: Callable[..., object]
) -> None:
    monkeypatch.setattr(checker, rule, broken)
    assert _differs()


def _differs() -> bool:
    return any(
        found_by_checker(problem, schedule) != replay_pieces(problem, schedule)
        for problem, schedule in fluid_cases(300, 5)
    )
