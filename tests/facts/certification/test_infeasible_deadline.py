"""A deadline below the computing time: there is no schedule, and the certificate says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.documents import canonical_digest
from offcert.core.result import SolveStatus
from offcert.proofs.certificate import certificate_from_json
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.report.text import certificate_summary, describe_certificate
from offcert.verification.document import verify
from support.problems.joint_certificates import chain_problem, network_problem


def within(problem: Problem, spare: int, again: Recompute = Recompute.ANY) -> Problem:
    """Return the problem of least memory in so many ticks more than the computing takes."""
    deadline = problem.trace.compute_time + spare
    return replace(problem, minimise=Minimise.MEMORY, deadline=deadline, recompute=again)


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in document.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


@pytest.mark.parametrize("again", [Recompute.NONE, Recompute.ANY])
@pytest.mark.parametrize("given", [chain_problem, network_problem])
def test_it_is_infeasible_and_verifies(given: Callable[[], Problem], again: Recompute) -> None:
    problem = within(given(), -1, again)
    certificate = certify(problem, time_limit=1)
    result = certificate.result
    assert result.status is SolveStatus.INFEASIBLE
    assert result.infeasibility is not None
    assert (result.infeasibility.operation, result.infeasibility.lacking) == (-1, 1)
    assert result.infeasibility.needed == problem.trace.compute_time
    assert result.summary() == "INFEASIBLE: the computing lacks 1"
    assert "however much memory there is" in describe_certificate(certificate)
    assert certificate_summary(certificate)["infeasibility"]["lacking"] == 1
    document = certificate.to_json()
    assert verify(document).valid
    assert certificate_from_json(document).result.infeasibility == result.infeasibility
    # One tick more, and everything that stays is a schedule.
    assert certify(within(given(), 0, again), time_limit=1).result.schedule is not None


def test_methods_say_so_too() -> None:
    found = solve(within(network_problem(), -3), "rematerialisation")
    assert found.result.infeasibility is not None
    assert found.result.infeasibility.lacking == 3
    assert verify(found.to_json()).valid


def test_it_cannot_be_claimed_or_concealed() -> None:
    late = certify(within(chain_problem(), -1), time_limit=1)
    assert late.result.infeasibility is not None
    document = late.to_json()
    concealed = resealed(document | {"infeasibility": None, "status": "UNKNOWN"})
    assert any("must say so" in fault for fault in verify(concealed).faults)
    for name, value in (("needed", 1), ("lacking", 2), ("name", "F1"), ("operation", 0)):
        wrong = document | {"infeasibility": document["infeasibility"] | {name: value}}
        assert any(
            "not what the document says" in fault for fault in verify(resealed(wrong)).faults
        )
    feasible = within(chain_problem(), 0)
    claimed = replace(late, problem=feasible).to_json()
    assert any("ends by the deadline" in fault for fault in verify(claimed).faults)
    unlimited = replace(late, problem=replace(feasible, deadline=None)).to_json()
    assert any("memory is the objective" in fault for fault in verify(unlimited).faults)


def test_bytes_without_a_schedule_that_takes_no_more_are_refused() -> None:
    feasible = within(chain_problem(), 0)
    document = certify(feasible, time_limit=1).to_json()
    assert verify(document).valid
    # The proved bound alone would pass for the optimum.
    claimed = document | {"schedule": None, "objective": document["lower_bound"]}
    claimed |= {"status": "OPTIMAL", "gap": "0/1"}
    claimed.pop("execution", None)
    assert verify(resealed(claimed)).faults == ["objective: there is no schedule that attains it"]
