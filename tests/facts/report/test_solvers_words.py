"""What only a solver says is never to be read as a proof: in text, JSON, pictures, tables."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

import offcert
from offcert.campaign.standing import describe_rows
from offcert.core.result import Bound, Evidence
from offcert.instances.cnn import cnn_chain
from offcert.report.frontier import frontier_svg, frontier_table
from offcert.report.gantt import gantt_svg
from offcert.report.text import certificate_summary, describe_certificate

PROBLEM = cnn_chain(6, 0).with_memory("20%")
PLAN = offcert.solve(PROBLEM, "greedy")
VALUE = PLAN.result.objective
assert VALUE is not None
PROVED = PLAN.result.proved_bound


def certificate(evidence: Evidence) -> offcert.Certificate:
    claim = Bound("interval-cpsat", VALUE or 0, evidence, {"solver": "CP-SAT", "version": "9"})
    bounds = (Bound("prop3", PROVED - 1, Evidence.PROVED), claim)
    status = offcert.SolveStatus.OPTIMAL
    return replace(PLAN, result=replace(PLAN.result, bounds=bounds, status=status))


@pytest.mark.parametrize("evidence", list(Evidence))
def test_every_line_with_such_a_bound_says_whose_word_it_is(evidence: Evidence) -> None:
    text = describe_certificate(certificate(evidence))
    said = [line for line in text.splitlines() if "OPTIMAL" in line or "gap" in line]
    said += [line for line in text.splitlines() if "lower bound" in line]
    assert len(said) == 3
    proved = evidence is Evidence.PROVED
    assert all((f"({evidence})" in line) != proved for line in said)


@pytest.mark.parametrize("evidence", list(Evidence))
def test_json_has_the_evidence_and_what_is_proved(evidence: Evidence) -> None:
    document = certificate_summary(certificate(evidence))
    assert document["evidence"] == str(evidence)
    expected = VALUE if evidence is Evidence.PROVED else PROVED - 1
    assert document["proved_bound"] == expected
    assert document["lower_bound"] == VALUE


def test_pictures_and_tables_say_it() -> None:
    claimed = certificate(Evidence.ATTESTED)
    drawn = ElementTree.tostring(gantt_svg(claimed), encoding="unicode")
    assert "(attested)" in drawn
    assert "(attested)" in frontier_table([claimed])
    bands = {}
    for evidence in (Evidence.ATTESTED, Evidence.PROVED):
        root = frontier_svg({"one": [certificate(evidence)]})
        bands[evidence] = [path.get("d") for path in root.iter("path") if path.get("fill-opacity")]
    # The band down from the schedule ends at what is proved.
    assert bands[Evidence.ATTESTED] != bands[Evidence.PROVED]


def test_a_campaign_says_it() -> None:
    row = {
        "problem": "p",
        "digest": "d",
        "method": "certify",
        "memory": 1,
        "memory_percent": None,
        "recompute": None,
        "status": "OPTIMAL",
        "makespan": 10,
        "lower_bound": 10,
        "evidence": "attested",
    }
    assert "0 % (attested)" in describe_rows([row])
    assert "attested" not in describe_rows([{**row, "evidence": "proved"}])
