"""What docs/claims.md publishes holds: its certificates verify, and methods do what it says."""

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from offcert.campaign.selection import percent_of
from offcert.certification.methods import solve
from offcert.core.documents import read_json
from offcert.core.platform import Kind
from offcert.core.result import Evidence
from offcert.heuristics.evictions.dynprog import algorithm_1
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.document import Verification, verify_file
from offcert_lab.comparisons.points import CERTIFY, MethodOutcome, Point
from offcert_lab.hunts.adversarial.values import ordered_optimum
from papers.claims.exhibits import EXHIBITS_FORMAT, LARGEST
from papers.claims.judge import Outcome
from papers.claims.offloading import CLAIMS
from papers.claims.theory import THEORY

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = DOCS / "certificates"
INDEX = read_json(FOLDER / "index.json")
PAGE = (DOCS / "claims.md").read_text(encoding="utf-8")
FILES = sorted({item["certificate"] for item in INDEX["exhibits"]})
RERUN = ("greedy", "dynprog", "vdnn", "tflms")
BY_KEY = {claim.key: claim for claim in CLAIMS}


@cache
def verified(name: str) -> Verification:
    return verify_file(FOLDER / name)


@cache
def makespan(name: str, method: str) -> int | None:
    result = solve(verified(name).certificate.problem, method, workers=1).result
    return result.objective


def exhibits(theory: bool) -> list[Any]:
    keys = {claim.key for claim in THEORY}
    chosen = [item for item in INDEX["exhibits"] if (item["claim"] in keys) is theory]
    return [pytest.param(item, id=item["claim"]) for item in chosen]


def test_the_index_the_page_and_the_folder_name_the_same_files() -> None:
    assert INDEX["format"] == EXHIBITS_FORMAT
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted([*FILES, "index.json"])
    assert sorted(set(re.findall(r"\]\(certificates/([^)]*)\)", PAGE))) == FILES
    assert FILES


def test_the_certificates_are_small() -> None:
    sizes = [(FOLDER / name).stat().st_size for name in FILES]
    assert max(sizes) <= LARGEST
    assert sum(sizes) < 2**20


def test_every_claim_is_on_the_page_and_every_picture_is_there() -> None:
    for claim in (*CLAIMS, *THEORY):
        assert f"### {claim.key}\n" in PAGE
        assert claim.statement in PAGE
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", PAGE):
        assert (DOCS / picture).is_file()


@pytest.mark.parametrize("name", FILES)
def test_a_published_certificate_verifies(name: str) -> None:
    found = verified(name)
    assert found.valid, found.faults
    assert found.certificate.result.objective is not None


@pytest.mark.parametrize("exhibit", exhibits(theory=False))
def test_a_claim_fails_where_the_page_says_so(exhibit: dict[str, Any]) -> None:
    """Everything that decides it is computed again, from the certificate's problem."""
    name, claim = exhibit["certificate"], BY_KEY[exhibit["claim"]]
    methods = [*RERUN, *(["autoswap"] if "autoswap" in claim.key else [])]
    methods += [method for method in exhibit["makespans"] if ":" in method]
    found = {method: makespan(name, method) for method in methods}
    assert found == {method: exhibit["makespans"].get(method) for method in methods}
    certificate = verified(name).certificate
    problem, result = certificate.problem, certificate.result
    trace = problem.trace
    proved = [bound.value for bound in result.bounds if bound.evidence is Evidence.PROVED]
    cells = {
        method: (MethodOutcome("NO_PLAN" if own is None else "FEASIBLE", own),)
        for method, own in found.items()
    }
    cells[CERTIFY] = (
        MethodOutcome("FEASIBLE", result.objective, result.lower_bound, max(proved, default=0)),
    )
    point = Point(
        problem=problem.name,
        digest="",
        network=(problem.source or {}).get("model"),
        image=None,
        batch=None,
        memory=problem.platform.memory,
        minimum=trace.least_memory,
        peak=trace.peak_memory,
        percent=percent_of(problem) or 0.0,
        compute=trace.compute_time,
        rates=(problem.platform.rate(Kind.OFFLOAD), problem.platform.rate(Kind.PREFETCH)),
        cells=cells,
    )
    (case,) = claim.cases([point])
    assert case.outcome is Outcome.FAILS


@pytest.mark.parametrize("exhibit", exhibits(theory=True))
def test_a_theorem_fails_where_the_page_says_so(
    exhibit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = verified(exhibit["certificate"]).certificate
    problem, result = certificate.problem, certificate.result
    assert problem.chain is not None
    assert result.objective is not None
    platform = problem.platform
    if exhibit["claim"] == "lemma-3":
        ordered = ordered_optimum(problem)
        assert ordered is not None
        assert result.objective < ordered
    elif exhibit["claim"] == "proposition-1":
        assert isinstance(result.schedule, Schedule)
        monkeypatch.syspath_prepend(str(DOCS.parent / "benchmarks"))
        theory = importlib.import_module("claims_theory")
        stated = theory.no_wait(problem, result.schedule)
        assert stated is None or result.objective < stated
    elif exhibit["claim"] == "algorithm-1":
        value, _ = algorithm_1(problem.chain, platform.memory, platform.rate(Kind.OFFLOAD))
        assert result.objective < value
    else:
        assert exhibit["claim"] == "theorem-1-as-printed"
        # The memory is mV, and V ticks are the paper's unit of time.
        assert result.lower_bound > 2 * platform.memory
