"""The checker and a replay tick by tick find the same rules broken, and the same bytes held."""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from offcert.core.platform import Link
from offcert.questions.schedule import check as checker
from offcert.questions.schedule import presence
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from support.oracles.replay import Replayed, replay
from support.problems.schedules import cases

RULES = {
    "numbers": r"no integer| operation (starts|ends) for ",
    "order": r"^operation .* starts at ",
    "duration": r"^operation .* lasts ",
    "pairs": r"does not exist|happens twice|leaves twice|has no offload|first evicted gap",
    "length": r"^the .* lasts ",
    "written": r"before its tensor is written",
    "left": r"before its tensor has left",
    "needed": r"after its tensor is needed",
    "link": r"uses the link until",
    "memory": r"^memory at ",
}
HELD = re.compile(r"memory at (?:the start of the step|.* at (\d+)) holds (\d+),")


def found_by_checker(problem: Problem, schedule: Schedule) -> Replayed:
    """Return what the checker's sentences say, as far as a replay says it, too."""
    faults = checker.check(problem, schedule)
    broken = {next(rule for rule, words in RULES.items() if re.search(words, f)) for f in faults}
    broken.discard("memory")
    held = [found.groups() for found in map(HELD.match, faults) if found]
    return Replayed(broken, set() if broken else {(int(at or 0), int(full)) for at, full in held})


def differ(problem: Problem, schedule: Schedule) -> bool:
    ours, theirs = found_by_checker(problem, schedule), replay(problem, schedule)
    if "length" in ours.broken & theirs.broken:
        # Whether the link is free depends on which of the two ends counts.
        ours.broken.discard("link")
        theirs.broken.discard("link")
    return ours != theirs


@pytest.mark.slow
def test_the_same_rules_and_the_same_bytes() -> None:
    seen: Counter[str] = Counter()
    for problem, schedule in cases(1200):
        assert not differ(problem, schedule), (problem, schedule)
        broken, full = replay(problem, schedule)
        seen.update(broken)
        seen["memory"] += bool(full)
        seen["valid"] += not broken and not full
    assert seen["valid"] > 200
    assert set(seen) == {*RULES, "valid"}
    assert min(seen.values()) > 15, seen


def test_links_whose_directions_slow_each_other_down() -> None:
    seen: Counter[bool] = Counter()
    for number, (problem, schedule) in enumerate(cases(300, 7)):
        rng = random.Random(number)
        if problem.platform.link is Link.DUPLEX:
            rates = [problem.platform.rate(kind) for kind in checker.Kind]
            slowed = replace(
                problem.platform,
                busy_bandwidth=rates[0] / rng.randint(1, 3),
                busy_prefetch_bandwidth=rates[1] / rng.randint(1, 3),
            )
            slow = replace(problem, platform=slowed)
            assert not differ(slow, schedule), (slow, schedule)
            seen[replay(slow, schedule) != replay(problem, schedule)] += 1
    assert min(seen.values()) > 5, seen


def _forgiving(problem: Problem, schedule: Schedule) -> list[int]:
    return [transfer.end - transfer.start for transfer in schedule.transfers]


@pytest.mark.parametrize(
    ("module", "rule", "broken"),
    [
        # Operations of no duration see what is prefetched at the same time.
        (checker, "_second", lambda tick: 2 * tick),
        # What is released at a tick is still there for operations of no duration.
        (checker, "_first", lambda tick: 2 * tick + 1),
        # A tensor in use by an operation counts as absent, or one after its gap's opener does not.
        (presence, "after", lambda operation: 2 * operation + 1),
        (presence, "after", lambda operation: 2 * operation + 3),
        (presence, "during", lambda operation: 2 * operation + 2),
        # Operations may overlap; transfers may be as short as they like; nothing is in the way.
        (checker, "operation_faults", lambda *_: []),
        (checker, "exact_durations", _forgiving),
        (checker, "pairwise", lambda _: ()),
    ],
)
def test_the_comparison_sees_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch, module: object, rule: str, broken: Callable[..., object]
) -> None:
    monkeypatch.setattr(module, rule, broken)
    assert any(differ(problem, schedule) for problem, schedule in cases(1000))
