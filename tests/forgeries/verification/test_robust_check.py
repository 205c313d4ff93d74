"""Forged claims about boxes of uncertain times are refused, each with its place."""

from dataclasses import replace

import pytest

from offcert.certification.ladder import certify
from offcert.core.result import Bound, Evidence
from offcert.instances.library import load
from offcert.proofs.certificate import Certificate, Robust
from offcert.questions.schedule.problem import Transfers
from offcert.verification.document import verify


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    found = certify(load("cnn-12-1-m10").with_uncertainty("10%,link=5%"), time_limit=20)
    assert verify(found).valid
    return found


def faults(certificate: Certificate, claim: Robust | None) -> list[str]:
    return verify(replace(certificate, robust=claim)).faults


@pytest.mark.slow
def test_the_time_at_the_slowest_is_exactly_what_is_said(certificate: Certificate) -> None:
    claim = certificate.robust
    assert claim is not None
    for wrong in (-1, 1):
        (said,) = faults(certificate, replace(claim, longest=claim.objective + wrong))
        assert said == (
            f"robust.objective: the plan takes {claim.objective} ticks at the slowest corner, not "
            f"{claim.objective + wrong}"
        )


def test_bounds_hold_at_the_fastest(certificate: Certificate) -> None:
    claim = certificate.robust
    assert claim is not None
    # What is proved for the times that the problem says proves nothing for shorter ones.
    said = faults(certificate, replace(claim, bounds=certificate.result.bounds))
    assert len(said) == len(certificate.result.bounds)
    assert all(each.startswith("robust.bounds[") for each in said)
    best = claim.bounds[-1]
    raised = (*claim.bounds[:-1], replace(best, value=best.value + 1))
    assert len(faults(certificate, replace(claim, bounds=raised))) == 1
    word = Bound("interval-cpsat", best.value, Evidence.ATTESTED, {"solver": "CP-SAT"})
    (said_of_word,) = faults(certificate, replace(claim, bounds=(word,)))
    assert said_of_word == "robust.bounds: interval-cpsat is claimed, and not proved"


def test_without_a_box_there_is_nothing_to_claim(certificate: Certificate) -> None:
    exact = replace(certificate, problem=replace(certificate.problem, uncertainty=None))
    assert verify(exact).faults == ["robust: the problem's times are exact"]
    # A box without a claim is no fault: single methods make none.
    assert verify(replace(certificate, robust=None)).valid
    wider = replace(certificate, problem=certificate.problem.with_uncertainty("11%,link=5%"))
    assert any(fault.startswith("robust.objective: ") for fault in verify(wider).faults)


def test_where_transfers_pause_nothing_is_claimed() -> None:
    problem = load("cnn-12-1-m10").with_uncertainty("10%")
    found = certify(replace(problem, transfers=Transfers.FRACTIONAL), time_limit=5)
    assert found.robust is None
    assert verify(found).valid
