"""The page: verdicts follow the table, failures have their certificates, bytes repeat."""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert_lab.comparisons.points import points_of
from papers.claims.document import Report, write_report
from papers.claims.exhibits import LARGEST, exhibits_to_json
from papers.claims.facts import facts_of
from papers.claims.offloading import CLAIMS
from papers.claims.theory import THEORY, Experiment
from support.problems.campaign_tables import rows, table

EXPERIMENTS = [
    Experiment("lemma-3", "fine", Fraction(19), 19, 19, "theory/fine.json"),
    Experiment("lemma-3", "small", Fraction(19), 17, 17, "theory/small.json"),
    Experiment("theorem-2", "chain", Fraction(9), 9, 9, "theory/chain.json"),
]


def groups(**methods: Any) -> list[list[dict[str, Any]]]:
    certified = {"makespan": 81, "lower_bound": 81, "certificate": "certificates/c.json"}
    return [
        rows("n-chain", 120, **({"certify": certified, "greedy": 90, "vdnn": 100} | methods)),
        rows("n", 120, certify=80, greedy=90, vdnn=100),
    ]


def page(folder: Path, *made: list[dict[str, Any]], figure: str | None = None) -> Report:
    frame = table(*made)
    facts = facts_of(frame, EXPERIMENTS)
    return write_report(points_of(frame, Fraction(2)), EXPERIMENTS, facts, folder, figure)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("certificates/c.json", "theory/small.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"digest": name}))
    return tmp_path


def section(text: str, key: str) -> str:
    found = re.search(rf"^### {key}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_verdicts_and_numbers_come_from_the_table(folder: Path) -> None:
    text = page(folder, *groups()).text
    own = section(text, "greedy-vdnn")
    assert "On chains: **confirmed**; holds in 1 of 1. Closest to failing: n-chain at 20 %" in own
    assert "GREEDY takes 0.900 × the time of VDNN" in own
    assert "Each case is a limit. The claim holds there if GREEDY's makespan is at most" in own
    text = page(folder, *groups(vdnn=89)).text
    own = section(text, "greedy-vdnn")
    assert "On chains: **refuted**; holds in 0 of 1, fails in 1. Worst: n-chain at 20 %" in own
    assert "On traces: **confirmed**" in own
    row = "[GREEDY is better than VDNN in all cases.](#greedy-vdnn) | §6.2, Fig. 5–12 | refuted |"
    assert row in text


def test_every_claim_has_its_row_and_its_section(folder: Path) -> None:
    text = page(folder, *groups()).text
    for claim in (*CLAIMS, *THEORY):
        assert f"(#{claim.key})" in text
        assert claim.statement in section(text, claim.key)
    assert "500 slots are enough in practice.](#dynprog-slots) | §5.3.2 | cannot be decided" in text


def test_blocks_are_a_variant_beside_the_chains(folder: Path) -> None:
    blocks = rows("n-blocks", 120, certify=80, greedy=101, vdnn=100, network="densenet121")
    text = page(folder, *groups(), blocks).text
    own = section(text, "greedy-vdnn")
    assert "On chains: **confirmed**; holds in 1 of 1." in own
    assert "On traces: **confirmed**; holds in 1 of 1." in own
    assert "On blocks: **refuted**; holds in 0 of 1, fails in 1." in own
    assert "| claim | place | on chains | on traces | on blocks |" in text
    assert "(#greedy-vdnn) | §6.2, Fig. 5–12 | confirmed | confirmed | refuted |" in text
    # A claim about ResNets says nothing of blocks.
    assert "On blocks" not in section(text, "dynprog-depth-resnet")
    assert (
        "(#dynprog-depth-resnet) | §7, Fig. 6–11 | cannot be decided | cannot be decided | – |"
        in text
    )
    assert "on blocks" not in page(folder, *groups()).text


def test_theorems_are_judged_on_instances(folder: Path) -> None:
    found = page(folder, *groups())
    own = section(found.text, "lemma-3")
    assert "**refuted**; holds in 1 of 2, fails in 1. Worst: small, stated 19, optimum 17" in own
    assert "[theory-small.json](certificates/theory-small.json)" in own
    assert "**confirmed on 1 instances**" in section(found.text, "theorem-2")
    assert "**cannot be decided**" in section(found.text, "theorem-3-no")


def test_a_failure_has_its_certificate_if_that_is_there_and_small(folder: Path) -> None:
    failing = groups(vdnn=89)
    found = page(folder, *failing)
    assert "(certificates/n-chain-m20.json)" in section(found.text, "greedy-vdnn")
    exhibit = next(item for item in found.exhibits if item.claim == "greedy-vdnn")
    assert exhibit.source == folder / "certificates/c.json"
    index = exhibits_to_json(found.exhibits)["exhibits"]
    assert {
        "claim": "greedy-vdnn",
        "certificate": "n-chain-m20.json",
        "makespans": {"certify": 81, "greedy": 90, "vdnn": 89},
    } in index
    (folder / "certificates/c.json").write_text(json.dumps({"digest": "c"}) + " " * LARGEST)
    assert "Certificate" not in section(page(folder, *failing).text, "greedy-vdnn")
    (folder / "certificates/c.json").unlink()
    assert "Certificate" not in section(page(folder, *failing).text, "greedy-vdnn")


def test_claims_that_hold_have_no_certificate_of_a_failure(folder: Path) -> None:
    assert "Certificate" not in section(page(folder, *groups()).text, "greedy-vdnn")


def test_the_same_table_gives_the_same_bytes(folder: Path) -> None:
    first, second = groups()
    assert page(folder, first, second).text == page(folder, second, first).text
    assert page(folder, first, second).text.endswith("\n")


def test_the_figure_is_shown_if_there_is_one(folder: Path) -> None:
    assert "![" not in page(folder, *groups()).text
    assert "](claims-224.png)" in page(folder, *groups(), figure="claims-224.png").text


def test_a_table_of_traces_alone_is_enough(folder: Path) -> None:
    text = page(folder, rows("n", 120, certify=80, greedy=90, vdnn=100)).text
    assert "On chains: **cannot be decided**; no cell of the table speaks of it." in text
    assert "On chains:\n" not in text


def test_the_certificate_is_of_the_worst_failure(folder: Path) -> None:
    def at(memory: int, vdnn: int) -> list[dict[str, Any]]:
        certified = {"makespan": 81, "lower_bound": 81, "certificate": "certificates/c.json"}
        return rows("n-chain", memory, certify=certified, greedy=200, vdnn=vdnn)

    found = page(folder, at(120, 190), at(130, 120), at(140, 180))
    exhibit = next(item for item in found.exhibits if item.claim == "greedy-vdnn")
    assert exhibit.name == "n-chain-m30.json"


def test_every_verdict_names_what_it_rests_on(folder: Path) -> None:
    found = page(folder, *groups())
    tables, theorems = found.evidence
    (row,) = [each for each in tables.of("greedy-vdnn") if each.case.startswith("n-chain")]
    assert row.figures == {
        "problem": "n-chain@120",
        "lower": 81,
        "best": 81,
        "greedy": 90,
        "vdnn": 100,
    }
    assert row.certificate == "certificates/c.json"
    assert "- Rests on: the table in [offloading.jsonl.xz](evidence/offloading.jsonl.xz), 1" in (
        section(found.text, "greedy-vdnn")
    )
    assert [(each.case, each.certificate) for each in theorems.of("lemma-3")] == [
        ("fine", None),
        ("small", "theory/small.json"),
    ]
    assert (
        "1 certificate in [theory.jsonl.xz](evidence/theory.jsonl.xz), 1 certificate that was"
        in (section(found.text, "lemma-3"))
    )
