"""Certificates of steps that claim what does not follow: every check refuses what only it sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.splitting import certify_split
from offcert.core.computations import Computation
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.proofs.split_certificate import CaseDivision, Leaf, RoundAnswer, SplitCertificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import Round, Split, SplitProblem
from offcert.verification.document import verify
from offcert.verification.limits import Limits

# Within 14 bytes b runs beside x, which takes 8, in 9 ticks without workspace or in 3 with 6.
TRACE = Trace(
    [Operation("a", 5), Operation("b", 9), Operation("c", 1), Operation("d", 2)],
    [Tensor("x", 8, (0, 2)), Tensor("y", 4, (2, 3))],
)
MENU = Menu(
    {
        1: [Alternative("lean", 9), Alternative("fast", 3, 6)],
        3: [Alternative("lean", 4), Alternative("fast", 2, 1)],
    }
)


TIME = "it is not about the time of a trace"
TENSORS = "its tensors are not the round's"


@cache
def certificate() -> SplitCertificate:
    """Return the certificate of a step of one round, which runs twice."""
    split = Split([Round(1, 2, TRACE, MENU)])
    step = SplitProblem("forged", (split,), Platform(14, Fraction(1)))
    found = certify_split(step, time_limit=5, workers=1)
    assert (found.split, found.objective, found.lower_bound) == (0, 22, 22)
    assert found.rounds[0].choice == (1, 1)
    return found


def faults_of(forged: SplitCertificate) -> list[str]:
    return verify(json.loads(json.dumps(forged.to_json()))).faults


def answered(found: Certificate, choice: tuple[int, ...] = (1, 1)) -> SplitCertificate:
    """Return the certificate with another choice or certificate for its round."""
    return replace(certificate(), rounds=(RoundAnswer(choice, found),))


def own() -> Problem:
    problem: Problem = certificate().rounds[0].certificate.problem
    return problem


def test_the_certificate_itself_is_valid() -> None:
    assert faults_of(certificate()) == []


def network(trace: Trace) -> Network:
    """Return computations that take as long as the operations, and make nothing."""
    return Network([Computation(each.name, each.duration) for each in trace.operations], [])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda p: p.with_memory(15), "it is about <Platform"),
        (lambda p: p.with_bandwidth(Fraction(2)), "it is about <Platform"),
        (lambda p: replace(p, transfers="fractional"), "its transfers are fractional, not atomic"),
        (lambda p: replace(p, units=Units("ns", "B")), "its units are not the step's"),
        (lambda p: replace(p, offload=False), TIME),
        (lambda p: replace(p, minimise="memory", deadline=20), TIME),
        (lambda p: replace(p, network=network(p.trace)), TIME),
        (lambda p: changed(p, tensors=[Tensor("x", 7, (0, 2)), TRACE.tensors[1]]), TENSORS),
        (lambda p: changed(p, tensors=[Tensor("x", 8, (0, 1)), TRACE.tensors[1]]), TENSORS),
        (lambda p: changed(p, tensors=[Tensor("x", 8, (0, 2), False), TRACE.tensors[1]]), TENSORS),
        (lambda p: changed(p, tensors=TRACE.tensors[:1]), TENSORS),
        (
            lambda p: changed(p, operations=[*p.trace.operations, Operation("e", 0)]),
            "it has 5 oper",
        ),
        (lambda p: changed(p, 0, Operation("a", 4)), "operation 0 (a) takes 4 ticks and 0 units"),
        (
            lambda p: changed(p, 1, Operation("b", 2, 6)),
            "operation 1 (b) takes 2 ticks and 6 units",
        ),
        (
            lambda p: changed(p, 1, Operation("b", 3, 5)),
            "operation 1 (b) takes 3 ticks and 5 units",
        ),
    ],
)
def test_a_round_of_another_problem_is_refused(
    change: Callable[[Problem], Problem], fault: str
) -> None:
    """Its certificate is true, and the derived fields say what follows from it."""
    found = certify(change(own()), time_limit=5, workers=1)
    faults = faults_of(answered(found))
    assert any(each.startswith(f"rounds[0]: {fault}") for each in faults), faults
    others = [each for each in faults if not each.startswith("lower_bound: ")]
    assert len(others) == 1 or fault == TIME


def changed(problem: Problem, *operation: Any, **parts: Any) -> Problem:
    """Return a problem with other operations or tensors."""
    operations = list(parts.get("operations", problem.trace.operations))
    if operation:
        index, new = operation
        operations[index] = new
    trace = Trace(operations, parts.get("tensors", problem.trace.tensors))
    return replace(problem, network=trace)


@pytest.mark.parametrize(
    ("choice", "fault"),
    [
        ((1,), "choice must have 2 entries, not 1"),
        ((1, 1, 0), "choice must have 2 entries, not 3"),
        ((2, 1), "alternative 2 of operation 1 is not on the menu"),
        ((0, 1), "operation 1 (b [fast]) takes 3 ticks and 6 units of workspace, but"),
    ],
)
def test_a_choice_that_is_not_what_runs_is_refused(choice: tuple[int, ...], fault: str) -> None:
    faults = faults_of(answered(certificate().rounds[0].certificate, choice))
    assert [each.startswith(f"rounds[0]: {fault}") for each in faults] == [True], faults


def test_a_round_is_verified_as_by_itself() -> None:
    given = certificate().rounds[0].certificate
    schedule = given.result.schedule
    assert isinstance(schedule, Schedule)
    early = Schedule([max(0, each - 1) for each in schedule.starts], schedule.ends, ())
    forged = replace(given, result=replace(given.result, schedule=early))
    assert any("rounds[0]: " in each for each in faults_of(answered(forged)))
    # A bound that no proof gives.
    more = Bound("fractional", 12, Evidence.PROVED)
    forged = replace(given, result=replace(given.result, bounds=(more,)))
    assert any(each.startswith("rounds[0]: bounds[0]") for each in faults_of(answered(forged)))
    without = replace(given, result=Result(SolveStatus.UNKNOWN, None, given.result.bounds))
    assert "rounds[0]: it has no schedule" in faults_of(answered(without))


def test_what_the_limits_leave_open_in_a_round_is_open_in_the_step() -> None:
    document = answered(certify(own(), time_limit=5, workers=1)).to_json()
    left = verify(json.loads(json.dumps(document)), Limits(seconds=1e-9)).unverified
    assert any(each.startswith("rounds[0]: bounds[") for each in left), left


# One tick more than the least of all choices; less than what `slow` takes.
FALSE = Bound("fractional", 12, Evidence.PROVED)


@cache
def slow() -> SplitCertificate:
    """Return a certificate whose schedule is not the best, so that it contradicts no bound."""
    trace = MENU.chosen(TRACE, (0, 1))
    found = certify(replace(own(), network=trace), time_limit=5, workers=1)
    forged = replace(answered(found, (0, 1)), cases=((Leaf(),),))
    assert (forged.objective, forged.lower_bound, faults_of(forged)) == (34, 22, [])
    return forged


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        # More than it takes, in any part of the tree.
        (Leaf((FALSE,)), "bounds[0][0].bounds[0] (fractional): "),
        (
            CaseDivision(1, (((0, 1), Leaf((FALSE,))),)),
            "bounds[0][0].parts[0].bounds[0] (fractional)",
        ),
        (
            CaseDivision(1, (((0,), Leaf()), ((1,), CaseDivision(3, (((0, 1), Leaf((FALSE,))),))))),
            "bounds[0][0].parts[1].parts[0].bounds[0] (fractional): ",
        ),
        (CaseDivision(1, (((0, 1), Leaf()),), (FALSE,)), "bounds[0][0].bounds[0] (fractional): "),
        # An alternative that nobody answers for: here, or within a case that leaves both.
        (
            CaseDivision(1, (((0,), Leaf()),)),
            "bounds[0][0]: no case is about alternative 1 of oper",
        ),
        (
            CaseDivision(3, (((0, 1), CaseDivision(1, (((0,), Leaf()),))),)),
            "bounds[0][0].parts[0]: no case is about alternative 1 of operation 1",
        ),
        # A part that is about what its case has left to another.
        (
            CaseDivision(1, (((0,), CaseDivision(1, (((0, 1), Leaf()),))), ((1,), Leaf()))),
            "bounds[0][0].parts[0].parts[0]: it is about what is no part of its case",
        ),
        (
            Leaf((replace(FALSE, value=1, evidence=Evidence.ATTESTED),)),
            "bounds[0][0].bounds[0] (fractional): only proved bounds count here",
        ),
        (Leaf((replace(FALSE, value=1, method="no-such"),)), "bounds[0][0].bounds[0] (no-such): "),
    ],
)
def test_cases_that_do_not_hold_are_refused(case: Leaf | CaseDivision, fault: str) -> None:
    faults = faults_of(replace(slow(), cases=((case,),)))
    assert [each.startswith(fault) for each in faults] == [True], faults


def test_a_bound_above_the_schedule_is_refused() -> None:
    faults = faults_of(replace(certificate(), cases=((Leaf((FALSE,)),),)))
    assert faults == ["lower_bound: 24 is no bound on the objective, 22"]
    # Nothing fits, and yet there is a schedule.
    problem = certificate().problem.with_memory(2)
    faults = faults_of(replace(certificate(), problem=problem))
    assert "lower_bound: None is no bound on the objective, 22" in faults


def test_bounds_of_parts_may_use_what_all_cases_around_them_say() -> None:
    # Lean, and lean: no tensor has to leave, so it takes 5 + 9 + 1 + 4.
    lean = Bound("fractional", 19, Evidence.PROVED)
    inner = CaseDivision(3, (((0,), Leaf((lean,))), ((1,), Leaf())))
    case = CaseDivision(1, (((0,), inner), ((1,), Leaf())))
    assert faults_of(replace(slow(), cases=((case,),))) == []
    for swapped in (CaseDivision(3, (((1,), Leaf((lean,))), ((0,), Leaf()))), Leaf((lean,))):
        case = CaseDivision(1, (((0,), swapped), ((1,), Leaf())))
        assert len(faults_of(replace(slow(), cases=((case,),)))) == 1


def test_alternatives_too_large_for_the_memory_count_only_where_there_is_no_other() -> None:
    huge = Menu({1: [Alternative("fast", 3, 6), Alternative("huge", 1, 15)]})
    step = SplitProblem("huge", (Split([Round(1, 1, TRACE, huge)]),), Platform(14, Fraction(1)))
    found = certify_split(step, time_limit=5, workers=1)
    assert (found.objective, found.lower_bound) == (11, 11)
    lean = Bound("fractional", 11, Evidence.PROVED)
    assert faults_of(replace(found, cases=((Leaf((lean,)),),))) == []
    case = CaseDivision(1, (((0,), Leaf((lean,))), ((1,), Leaf((replace(lean, value=9),)))))
    place = "bounds[0][0].parts[1].bounds[0] (fractional)"
    said = f"{place}: no schedule exists, so there is no bound"
    assert faults_of(replace(found, cases=((case,),))) == [said]
