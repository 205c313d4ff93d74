"""Verification of a step's certificate: its rounds, and cases that leave no choice out.

That a step takes as long as its rounds together, and that a bound for the relaxation of all choices
is one for each, is argued in docs/theory/modnn.md. What a round's certificates are about is derived
here from the definition of the choices, with none of the code that made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from offcert.core.messages import cut
from offcert.core.result import Evidence
from offcert.core.trace import Operation, Trace
from offcert.proofs.certificate import Certificate
from offcert.proofs.questions import SCHEDULE
from offcert.proofs.split_certificate import Case, CaseDivision, SplitCertificate
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.split.menu import Alternative
from offcert.questions.split.problem import Round, SplitProblem
from offcert.verification.findings import Verification, examined, recheck
from offcert.verification.limits import Allowance, BeyondLimitsError
from offcert.verification.schedules import check_schedule

_PARTS = ("duration", "workspace")


def check_split(
    verification: Verification[SplitCertificate], document: Any, allowance: Allowance
) -> None:
    """Check the rounds, one by one, and that their cases leave no choice out."""
    certificate = verification.certificate
    _compare(verification)
    intact = not verification.faults
    for split, row in enumerate(certificate.cases):
        for number, case in enumerate(row):
            place = f"bounds[{split}][{number}]"
            each = certificate.problem.splits[split].rounds[number]
            _check_case(verification, place, each, case, {}, allowance if intact else None)
    for number, answer in enumerate(certificate.rounds):
        assert certificate.split is not None
        place = f"rounds[{number}]"
        each = certificate.problem.splits[certificate.split].rounds[number]
        found = _platform_faults(certificate, answer.certificate.problem)
        found += choice_faults(each, answer.choice, answer.certificate.problem)
        if answer.certificate.result.schedule is None:
            found.append("it has no schedule")
        verification.faults += [f"{place}: {fault}" for fault in found]
        inner = document["rounds"][number]["certificate"]
        _check_round(verification, place, answer.certificate, inner, allowance)


def _compare(verification: Verification[SplitCertificate]) -> None:
    """Add a fault if the bound exceeds the objective."""
    certificate = verification.certificate
    objective, bound = certificate.objective, certificate.lower_bound
    if objective is not None and (bound is None or bound > objective):
        verification.faults.append(
            f"lower_bound: {bound} is no bound on the objective, {objective}"
        )


def _check_round(
    verification: Verification[SplitCertificate],
    place: str,
    certificate: Certificate,
    document: Any,
    allowance: Allowance,
) -> None:
    found = examined(certificate, SCHEDULE, document, check_schedule, allowance)
    verification.faults += [f"{place}: {fault}" for fault in found.faults]
    verification.unverified += [f"{place}: {each}" for each in found.unverified]


def _platform_faults(certificate: SplitCertificate, problem: Problem) -> list[str]:
    """Whether a round is scheduled on the step's platform, and nothing else is left open."""
    step = certificate.problem
    faults = []
    if problem.platform != step.platform:
        faults.append(f"it is about {problem.platform!r}, not {step.platform!r}")
    if problem.transfers is not step.transfers:
        faults.append(f"its transfers are {problem.transfers}, not {step.transfers}")
    if problem.units != step.units:
        faults.append("its units are not the step's")
    if (
        not isinstance(problem.network, Trace)
        or problem.recompute is not Recompute.NONE
        or problem.minimise is not Minimise.TIME
        or not problem.offload
    ):
        faults.append("it is not about the time of a trace")
    return faults


def choice_faults(each: Round, choice: tuple[int, ...], problem: Problem) -> list[str]:
    """Return why a problem is not what a choice makes of a round.

    Every operation on the menu must take the time and the workspace of the alternative that is
    named, every other one its own, and the tensors must be the round's.
    """
    rows = each.menu.of
    if len(choice) != len(rows):
        return [f"choice must have {len(rows)} entries, not {len(choice)}"]
    wanted: dict[int, Alternative] = {}
    for place, number in zip(sorted(rows), choice, strict=True):
        if number >= len(rows[place]):
            return [f"alternative {number} of operation {place} is not on the menu"]
        wanted[place] = rows[place][number]
    faults = _tensor_faults(each.trace, problem.trace)
    if faults:
        return faults
    for index, operation in enumerate(each.trace.operations):
        found = problem.trace.operations[index]
        way = wanted.get(index)
        time, workspace = operation.duration, operation.workspace
        if way is not None:
            time, workspace = way.duration, way.workspace
        if (found.duration, found.workspace) != (time, workspace):
            faults.append(
                f"operation {index} ({found.name}) takes {found.duration} ticks and "
                f"{found.workspace} units of workspace, but what is chosen takes {time} and "
                f"{workspace}"
            )
    return faults


def _check_case(
    verification: Verification[SplitCertificate],
    place: str,
    each: Round,
    case: Case,
    allowed: dict[int, frozenset[int]],
    allowance: Allowance | None,
) -> None:
    """Check that cases leave no choice out, and that every bound holds for all choices of its case.

    `allowed` are the alternatives that the cases around it leave, of the operations that they
    divide. Without an allowance, since the document was changed, nothing is computed again.
    """
    if isinstance(case, CaseDivision):
        offered = frozenset(range(len(each.menu.of[case.operation])))
        before = allowed.get(case.operation, offered)
        named = [frozenset(positions) for positions, _ in case.parts]
        left_out = before - frozenset().union(*named)
        if left_out:
            verification.faults.append(
                f"{place}: no case is about alternative {min(left_out)} of operation "
                f"{case.operation}"
            )
        for number, (part, (_, inner)) in enumerate(zip(named, case.parts, strict=True)):
            here = f"{place}.parts[{number}]"
            if part - before:
                verification.faults.append(f"{here}: it is about what is no part of its case")
                continue
            narrower = allowed | {case.operation: part}
            _check_case(verification, here, each, inner, narrower, allowance)
    if allowance is None or not case.bounds:
        return
    problem = relaxation(verification.certificate.problem, each, allowed)
    for number, bound in enumerate(case.bounds):
        here = f"{place}.bounds[{number}] ({cut(bound.method)})"
        if bound.evidence is not Evidence.PROVED:
            verification.faults.append(f"{here}: only proved bounds count here")
            continue
        try:
            fault = recheck(bound, problem, allowance)
        except (BeyondLimitsError, MemoryError) as error:
            verification.unverified.append(f"{here}: {error or 'the memory is used up'}")
            continue
        if fault is not None:
            verification.faults.append(f"{here}: {fault}")


def relaxation(step: SplitProblem, each: Round, allowed: Mapping[int, Iterable[int]]) -> Problem:
    """Return a problem whose bounds are bounds for every choice of a case.

    No operation takes longer, or more workspace, than any alternative that the case leaves it and
    that could be part of a schedule.
    """
    present = list(_present(each.trace))
    operations = []
    for index, operation in enumerate(each.trace.operations):
        row = each.menu.of.get(index)
        if row is None:
            operations.append(operation)
            continue
        ways = [row[number] for number in allowed.get(index, range(len(row)))]
        room = step.platform.memory - present[index]
        # If none can run, neither can the round, and any bound holds.
        ways = [way for way in ways if way.workspace <= room] or ways
        time, workspace = (min(getattr(way, part) for way in ways) for part in _PARTS)
        operations.append(Operation(operation.name, time, workspace))
    trace = Trace(operations, each.trace.tensors)
    return Problem(step.name, trace, step.platform, step.transfers, step.units)


def _tensor_faults(offered: Trace, found: Trace) -> list[str]:
    if len(offered) != len(found):
        return [f"it has {len(found)} operations, not {len(offered)}"]
    ours, theirs = (
        [(tensor.size, tensor.uses, tensor.evictable) for tensor in trace.tensors]
        for trace in (offered, found)
    )
    return [] if ours == theirs else ["its tensors are not the round's"]


def _present(trace: Trace) -> Iterator[int]:
    """Yield, for each operation, the bytes of the tensors that must be there while it runs."""
    rows = [0] * len(trace)
    for tensor in trace.tensors:
        if tensor.evictable:
            stretches = [(use, use) for use in tensor.uses]
        else:
            stretches = [(tensor.uses[0], tensor.uses[-1])]
        for begin, end in stretches:
            for operation in range(max(begin, 0), end + 1):
                rows[operation] += tensor.size
    yield from rows
