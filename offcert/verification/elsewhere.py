"""A certificate's plan on another problem: another machine, other times, other memory.

The plan is an execution, and an order of all operations and transfers. It is legal elsewhere if the
other problem has the same computations and tensors, admits the execution, and has the memory that
the order takes; times do not matter for that. Followed as early as the order allows
(`offcert.verification.replay`), it gives a schedule there, which the checker examines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any

from offcert.core.documents import naming
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.messages import short_repr
from offcert.core.network import Network
from offcert.core.result import Bound, Bounded, Evidence
from offcert.core.trace import Trace
from offcert.core.uncertainty import executed_on
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.proof import ALL
from offcert.proofs.questions import SCHEDULE
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.files import problem_from_json
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.document import read_within, verify_within
from offcert.verification.execution import legality_faults
from offcert.verification.fractional import recompute
from offcert.verification.joint.verifier import proved_by
from offcert.verification.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from offcert.verification.replay import replay


@dataclass(frozen=True)
class Elsewhere(Bounded):
    """The outcome of a certificate's plan on another problem.

    Attributes
    ----------
    problem : Problem
        The other problem.
    fault : str or None
        Why the plan is not legal there; None if it is.
    schedule : Schedule or None
        The plan's schedule on that problem.
    execution : Execution or None
        The execution that is scheduled, where computations run again; None if everything runs once.
    peak : int or None
        Most bytes on the device at any moment of that schedule.
    bounds : tuple of Bound
        Proved ones on that problem, the certificate's own proofs with that problem's numbers among
        them.
    unverified : tuple of str
        Bounds that could not be computed within the limits, each with the reason.
    """

    problem: Problem
    fault: str | None = None
    schedule: Schedule | None = None
    execution: Execution | None = None
    peak: int | None = None
    bounds: tuple[Bound, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        """Whether the plan is legal there."""
        return self.fault is None

    @property
    def objective(self) -> int | None:
        """Ticks of the schedule there, or its bytes where these are minimised; None if illegal."""
        if self.schedule is None:
            return None
        return self.peak if self.problem.minimise is Minimise.MEMORY else self.schedule.makespan


def verify_on(
    certificate: Certificate | str | PathLike[str],
    problem: Problem | Certificate | str | PathLike[str],
    limits: Limits = UNLIMITED,
) -> Elsewhere:
    """Follow a certificate's plan on another problem: whether it is legal there, and how good.

    Parameters
    ----------
    certificate : Certificate or path
        The certificate with the plan. Its bounds are not verified.
    problem : Problem, Certificate or path
        Where the plan is to be followed: the same computations and tensors, with other durations,
        sizes, rates or memory. A problem without choices, as a profile is, lets as much run again
        as the certificate's own. What a certificate of it has proved counts there.
    limits : Limits
        Seconds and memory that the bounds may take.

    Raises
    ------
    InputError
        If a file cannot be read, or the certificate has no plan with whole transfers.
    """
    allowance = limits.begin()
    plan_of = certificate
    if isinstance(plan_of, str | PathLike):
        plan_of = read_certificate(Path(plan_of))
    if not isinstance(plan_of, Certificate):
        raise InputError(f"certificate must be a path or a Certificate, not {short_repr(plan_of)}")
    other, known = _other(problem, limits, allowance)
    schedule = plan_of.result.schedule
    if not isinstance(schedule, Schedule):
        pieces = "has no schedule" if schedule is None else "moves tensors in pieces"
        raise InputError(f"the certificate {pieces}, so there is no plan to follow elsewhere")
    found = check(plan_of.executed, schedule)
    if found:
        return Elsewhere(other, f"it is not valid on its own problem: {found[0]}")
    fault = structure_fault(plan_of.problem, other)
    if fault is not None:
        return Elsewhere(other, fault)
    if not known and other.recompute is Recompute.NONE:
        # A profile is about a machine; the certificate has the question.
        chain = plan_of.problem.recompute is Recompute.CHAIN
        network = chain and isinstance(other.network, Network)
        asked = Recompute.ANY if network else plan_of.problem.recompute
        other = replace(other, recompute=asked)
    elsewhere = _followed(plan_of, schedule, other)
    if not elsewhere.legal:
        return elsewhere
    bounds, unverified = _bounds(plan_of, other, allowance)
    new = (bound for bound in bounds if bound.method not in {each.method for each in known})
    return replace(elsewhere, bounds=(*known, *new), unverified=unverified)


def _other(source: Any, limits: Limits, allowance: Allowance) -> tuple[Problem, tuple[Bound, ...]]:
    """Return the other problem, and what a certificate of it has proved."""
    if isinstance(source, Problem):
        return source, ()
    if isinstance(source, Certificate):
        document: Any = source.to_json()
    elif isinstance(source, str | PathLike):
        document = read_within(Path(source), limits)
    else:
        raise InputError(f"problem must be a path, Problem or Certificate: {short_repr(source)}")
    if not (isinstance(document, dict) and document.get("format") == SCHEDULE.format):
        with naming(source):
            return problem_from_json(document), ()
    verification = verify_within(document, allowance)
    if verification.faults:
        raise InputError(f"the certificate of the other problem: {verification.faults[0]}")
    said: Certificate = verification.certificate
    computed = {
        (bound.method, bound.value)
        for bound in verification.bounds
        if bound.evidence is Evidence.PROVED and bound.finding == "computed again"
    }
    known = (bound for bound in said.result.bounds if (bound.method, bound.value) in computed)
    return said.problem, tuple(known)


def structure_fault(ours: Problem, other: Problem) -> str | None:
    """Return the first thing that two problems do not have in common, or None.

    Sizes, durations, workspaces and everything about the platform may differ.
    """
    again = ours.recompute is not Recompute.NONE
    mine, theirs = (each.computed if again else each.trace for each in (ours, other))
    if isinstance(mine, Network):
        if not isinstance(theirs, Network):
            return "the other problem has a trace, which does not say what is computed from what"
        return _first_difference(
            ("computation", [(c.name, c.reads, c.writes) for c in mine.computations]),
            [(c.name, c.reads, c.writes) for c in theirs.computations],
        ) or _first_difference(
            ("value", [(v.name, v.base) for v in mine.values]),
            [(v.name, v.base) for v in theirs.values],
        )
    assert isinstance(mine, Trace)
    assert isinstance(theirs, Trace)
    return _first_difference(
        ("operation", [(o.name,) for o in mine.operations]), [(o.name,) for o in theirs.operations]
    ) or _first_difference(
        ("tensor", [(t.name, t.uses) for t in mine.tensors]),
        [(t.name, t.uses) for t in theirs.tensors],
    )


def _first_difference(
    ours: tuple[str, list[tuple[Any, ...]]], theirs: list[tuple[Any, ...]]
) -> str | None:
    what, mine = ours
    for index, (one, other) in enumerate(zip_longest(mine, theirs)):
        if one is None or other is None:
            there = "there is none on the other problem" if other is None else "is one too many"
            return f"{what} {index} ({(one or other)[0]}): {there}"
        if one[0] != other[0]:
            return f"{what} {index} is {one[0]}, but {other[0]} on the other problem"
        if one != other:
            differs = "its uses" if what == "tensor" else "what it reads, writes or lies in"
            return f"{what} {index} ({one[0]}): {differs} differ on the other problem"
    return None


def _followed(certificate: Certificate, schedule: Schedule, other: Problem) -> Elsewhere:
    """Follow a plan in its fixed order on another problem of the same structure."""
    ours, execution = certificate.problem, certificate.result.execution
    runs, there = other.plain(), None
    if execution is not None:
        again, admits = execution.repeated, other
        if other.recompute is Recompute.NONE:
            if again:
                said = f"{again} operations run again, and the problem lets nothing run again"
                return Elsewhere(other, said)
            admits = replace(other, recompute=Recompute.ANY)
        assert ours.computed is not None
        assert other.computed is not None
        there = executed_on(execution, ours.computed, other.computed)
        faults = legality_faults(ours, execution) or legality_faults(admits, there)
        if faults:
            return Elsewhere(other, faults[0])
        runs = admits.executed(there)
    before = certificate.executed.trace
    try:
        moves = _moved(schedule.plan(before), before, runs.trace)
        if other.minimise is Minimise.MEMORY:
            runs = _least(runs, moves, other.deadline)
        found = replay(runs, moves)
    except PlanError as error:
        return Elsewhere(other, str(error))
    faults = check(runs, found)
    if other.deadline is not None and found.makespan > other.deadline:
        faults = [f"it takes {found.makespan} ticks, and the deadline is {other.deadline}"]
    if faults:
        return Elsewhere(other, faults[0])
    return Elsewhere(other, None, found, there, peak(runs, found))


def _moved(plan: Plan, trace: Trace, other: Trace) -> Plan:
    """Return a plan with the numbers that its gaps have in another trace."""
    moves = []
    for move in plan.moves:
        gap = trace.gaps[move.gap]
        number = other.gap_numbers.get((gap.tensor, gap.before, gap.after))
        if number is None:
            raise PlanError(f"{trace.tensors[gap.tensor].name} may not leave the device there")
        moves.append(Move(move.kind, number, move.before))
    return Plan(moves)


def _least(problem: Problem, plan: Plan, deadline: int | None) -> Problem:
    """Return the problem with the least memory in which a plan ends by the deadline, if any does.

    With less memory it ends no earlier, so the limit can be halved again and again.
    """

    def fits(memory: int) -> bool:
        try:
            found = replay(problem.with_memory(memory), plan)
        except PlanError:
            return False
        return deadline is None or found.makespan <= deadline

    low, high = 0, problem.trace.peak_memory
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return problem.with_memory(high)


def _bounds(
    certificate: Certificate, problem: Problem, allowance: Allowance
) -> tuple[tuple[Bound, ...], tuple[str, ...]]:
    """Return bounds that verification computes itself, and those for which it had no time."""
    if problem.minimise is Minimise.MEMORY:
        return (_proved("least-memory-run", problem.least_memory),), ()
    found: list[Bound] = []
    unverified = []
    if problem.recompute is not Recompute.NONE or problem.transfers is not Transfers.ATOMIC:
        found.append(_proved("computing", problem.trace.compute_time))
    for name, value in _values(certificate, problem, allowance):
        if isinstance(value, str):
            unverified.append(f"{name}: {value}")
        else:
            found.append(_proved(name, value))
    return tuple(found), tuple(unverified)


def _values(
    certificate: Certificate, problem: Problem, allowance: Allowance
) -> Iterable[tuple[str, int | str]]:
    """Yield names of bounds on time with their values, or why there is none."""
    pausing = problem.transfers is not Transfers.ATOMIC
    for name, kind in PROOFS.items():
        if not kind.at_once or kind.proof is not Computed or kind.misfit(problem) is not None:
            continue
        # Where transfers may pause, others hold on some links only.
        if pausing and kind.transfers != ALL:
            continue
        try:
            yield name, recompute(name, problem, allowance)
        except BeyondLimitsError as error:
            yield name, str(error)
    for bound in certificate.result.bounds:
        joint = PROOFS.get(bound.method)
        if joint is None or joint.proof is not JointProof or joint.misfit(problem) is not None:
            continue
        if bound.evidence is not Evidence.PROVED:
            continue
        try:
            yield bound.method, proved_by(problem, JointProof.read(bound.details), allowance)
        except BeyondLimitsError as error:
            yield bound.method, str(error)
        except InputError:
            # Multipliers of one machine may be worth nothing on another.
            continue


def _proved(method: str, value: int) -> Bound:
    return Bound(method, value, Evidence.PROVED, Computed().write())
