"""The sweep finds what the definition finds, word for word, in valid and broken schedules."""

from collections import Counter
from collections.abc import Callable

import pytest

from offcert.questions.schedule import check as checker
from offcert.questions.schedule import presence
from support.oracles import check as check_oracle
from support.problems.schedules import cases

check = checker.check


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_same_faults_in_the_same_words(seed: int) -> None:
    seen: Counter[str] = Counter()
    for problem, schedule in cases(1500, seed):
        faults = check(problem, schedule)
        assert faults == check_oracle.check(problem, schedule), (problem, schedule)
        seen["valid"] += not faults
        seen["link"] += any("uses the link" in fault for fault in faults)
        for place in ("start", "operation", "the prefetch"):
            seen[place] += any(f"memory at {place}" in fault for fault in faults)
        # What takes too much though nothing else is wrong.
        seen["memory only"] += bool(faults) and all("memory at" in fault for fault in faults)
    assert seen["valid"] > 200
    assert min(seen["memory only"], seen["link"], seen["the prefetch"], seen["operation"]) > 100


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
    ],
)
def test_the_comparison_sees_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch, module: object, rule: str, broken: Callable[[int], int]
) -> None:
    monkeypatch.setattr(module, rule, broken)
    assert any(
        check(problem, schedule) != check_oracle.check(problem, schedule)
        for problem, schedule in cases(1000)
    )
