"""Limit after limit: every search begins with what less memory has found."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.ladder import FrontierProgress, certify, frontier
from offcert.certification.search import SearchProgress
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.verification.document import verify
from support.problems.joint_certificates import (
    chain_problem,
    checkpointed,
    least_memory_certificate,
)
from support.problems.random_instances import random_problem


def test_makespans_fall_with_memory_and_every_certificate_is_valid() -> None:
    problem = random_problem(5, 5)
    least, peak = problem.least_memory, problem.peak_memory
    limits = [peak, least, (least + peak) // 2, least, least - 1]
    found = list(frontier(problem, limits, time_limit=5.0, workers=1))
    assert [each.problem.platform.memory for each in found] == sorted(set(limits))
    assert found[0].result.status == "INFEASIBLE"
    makespans = [each.result.objective for each in found[1:]]
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[-1] == problem.trace.compute_time
    assert all(verify(each).valid for each in found)


@pytest.mark.slow
def test_a_search_begins_with_the_schedule_of_less_memory() -> None:
    told: list[SearchProgress] = []
    less = checkpointed()
    more = less.problem.with_memory(less.problem.platform.memory + 5)
    certificate = certify(more, time_limit=1.0, known=less, progress=told.append)
    known = [news.objective for news in told if news.step == "what is known"]
    first, best = less.result.schedule, certificate.result.objective
    assert first is not None
    # With more memory the same decisions may take less time, never more.
    assert known[-1] is not None
    assert known[-1] <= first.makespan
    assert best is not None
    assert best <= known[-1]
    assert verify(certificate).valid


def test_what_is_known_of_least_memory_keeps_its_bytes() -> None:
    known = least_memory_certificate()
    certificate = certify(known.problem, time_limit=1.0, known=known)
    assert certificate.result.objective is not None
    assert certificate.result.objective <= 23
    assert verify(certificate).valid


def test_schedules_in_pieces_are_begun_with_too() -> None:
    problem = replace(random_problem(2, 4), transfers=Transfers.INTERRUPTIBLE)
    low = problem.with_memory(problem.least_memory)
    found = list(frontier(low, [low.platform.memory, low.peak_memory], time_limit=5.0, workers=1))
    assert all(verify(each).valid for each in found)
    assert found[-1].result.objective == problem.trace.compute_time


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.with_memory(10), "known must be a certificate for at most 10 bytes, not 23"),
        (lambda p: replace(p, platform=Platform(99, Fraction(1))), "known is about four, which is"),
        (lambda p: replace(p, recompute=Recompute.CHAIN), "known is about four, which is another"),
    ],
)
def test_what_is_known_of_another_problem_is_refused(change: object, message: str) -> None:
    known = checkpointed()
    assert callable(change)
    with pytest.raises(InputError, match=message):
        certify(change(known.problem), known=known)


@pytest.mark.slow
def test_names_and_sources_make_no_other_problem() -> None:
    known = checkpointed()
    problem = replace(known.problem, name="again", source={"by": "hand"})
    certificate = certify(problem, time_limit=1.0, known=known)
    assert certificate.problem == problem
    schedule = certificate.result.schedule
    assert schedule is not None
    assert not check(certificate.executed, schedule)


def test_a_curve_where_memory_is_the_objective_is_refused() -> None:
    problem = replace(chain_problem(), minimise=Minimise.MEMORY)
    with pytest.raises(InputError, match="needs time as the objective, not memory"):
        next(frontier(problem, [30]))


def test_an_interrupt_ends_with_the_limit_at_hand() -> None:
    said: list[FrontierProgress] = []

    def tell(news: FrontierProgress) -> None:
        said.append(news)
        if news.number == 2 and news.news.objective is not None:
            raise KeyboardInterrupt

    problem = random_problem(5, 5)
    limits = [problem.least_memory, problem.least_memory + 1, problem.peak_memory]
    found = list(frontier(problem, limits, time_limit=5.0, workers=1, progress=tell))
    assert [each.notes.interrupted for each in found] == [False, True]
    assert {(news.number, news.limits) for news in said} == {(1, 3), (2, 3)}
    assert found[1].result.objective is not None, "what less memory has found is not lost"


def test_what_was_found_before_is_taken_unless_less_memory_does_better() -> None:
    problem = random_problem(5, 5)
    least, peak = problem.least_memory, problem.peak_memory
    before = {
        each.problem.platform.memory: each
        for each in frontier(problem, [least, peak], time_limit=5.0, workers=1)
    }
    asked: list[int] = []

    def found(limited: Problem) -> Certificate | None:
        asked.append(limited.platform.memory)
        return before.get(limited.platform.memory)

    again = list(frontier(problem, [least, peak], found=found, time_limit=5.0, workers=1))
    assert [a is b for a, b in zip(again, before.values(), strict=True)] == [True, True]
    # A limit that was left without a schedule is searched again.
    lost = replace(before[peak].result, schedule=None)
    before[peak] = replace(before[peak], result=lost)
    again = list(frontier(problem, [least, peak], found=found, time_limit=5.0, workers=1))
    assert again[-1].result.objective == problem.trace.compute_time
    assert asked == [least, peak] * 2
