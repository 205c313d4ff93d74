"""What two solvers attest rests on nothing but a schedule, and stands beside a record's proof."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from offcert.certification.records import add
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.library import FOLDER, Library, default_library
from offcert.instances.records import KnownBound, Record
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from papers.attest import attest
from support.problems.short_problems import pair_problems

NAME = "adversarial-stage-milp"
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """One problem, of which a schedule and a proof are known."""
    shutil.copy(FOLDER / f"{NAME}.json", tmp_path)
    found = Library(tmp_path)
    record = found.record(NAME)
    proofs = tuple(k for k in record.bounds if k.bound.evidence is Evidence.PROVED)
    found.store(NAME, replace(record, bounds=proofs))
    return found


def test_both_solvers_find_the_optimum_without_being_told_a_bound() -> None:
    asked = 0
    for problem, best in pair_problems()[:16]:
        if best == problem.trace.compute_time:
            continue
        certificate = attest(problem, simulate(problem, sequential(problem)), time_limit=20)
        assert certificate.result.objective == best, problem.name
        claims = {bound.method: bound for bound in certificate.result.bounds}
        assert set(claims) == {"interval-cpsat", "stage-milp"}
        assert {bound.value for bound in claims.values()} == {best}
        assert {bound.evidence for bound in claims.values()} == {Evidence.CROSS_ATTESTED}
        assert verify(certificate.to_json()).valid
        asked += 1
    assert asked >= 6


def test_the_second_is_not_asked_if_the_first_does_not_end() -> None:
    problem = default_library().load("cnn-24-0-m0")
    certificate = attest(problem, simulate(problem, sequential(problem)), time_limit=0.5)
    assert {bound.method for bound in certificate.result.bounds} <= {"interval-cpsat"}
    assert all(bound.evidence is Evidence.ATTESTED for bound in certificate.result.bounds)


def test_problems_of_another_kind_are_refused() -> None:
    problem = default_library().load(NAME)
    schedule = simulate(problem, sequential(problem))
    pausing = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    with pytest.raises(InputError, match=f"problem {NAME} cannot be attested: the models are for"):
        attest(pausing, schedule)


def attested_problem(problem: Problem) -> dict[str, object]:
    """Return the certificate of a problem as a JSON value."""
    return attest(problem, simulate(problem, sequential(problem)), time_limit=20).to_json()


def test_a_proved_record_keeps_both_claims_beside_the_proof(library: Library) -> None:
    before = library.record(NAME)
    document = attested_problem(library.load(NAME))
    record = add(library, document).record
    assert record.value == record.proved_bound == record.cross_attested_bound == before.value
    assert record.best == before.best
    claims = [k.bound for k in record.bounds if k.bound.evidence is Evidence.CROSS_ATTESTED]
    assert [bound.details["solver"] for bound in claims] == ["CP-SAT", "HiGHS"]
    with pytest.raises(InputError, match=r"\(proved\), cross-attested too, which the certificate"):
        add(library, document)
    assert Library(library.folder).record(NAME) == record


def test_claims_that_fall_short_of_the_proof_are_not_kept(library: Library) -> None:
    document = attested_problem(library.load(NAME))
    proof = library.record(NAME).bounds
    level = Evidence.CROSS_ATTESTED
    less = [
        KnownBound(Bound(method, 1, level, {"solver": solver}), "someone")
        for method, solver in (("interval-cpsat", "CP-SAT"), ("stage-milp", "HiGHS"))
    ]
    old = library.record(NAME)
    library.store(NAME, Record(old.value, old.plan, old.value_by, (*proof, *less)))
    record = add(library, document).record
    assert record.cross_attested_bound == record.value
    assert all(known.by != "someone" for known in record.bounds)


def test_every_cross_attested_record_of_the_library_has_both_its_claims() -> None:
    found = 0
    for entry in default_library().entries():
        level = Evidence.CROSS_ATTESTED
        claims = [k.bound for k in entry.record.bounds if k.bound.evidence is level]
        if claims:
            found += 1
            assert {bound.value for bound in claims} == {entry.record.lower_bound}, entry.name
            assert {str(bound.details["solver"]) for bound in claims} == {"CP-SAT", "HiGHS"}
            assert len({bound.method for bound in claims}) == 2
    assert found >= 80


def test_the_benchmark_asks_what_can_be_asked(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("attest")
    entry = library.entry(NAME)
    assert benchmark.left_out(entry, 30) is None
    assert benchmark.left_out(entry, 0) == "too large"
    answer = benchmark.ask(entry, 20.0, library)
    assert answer["attested"]
    assert set(answer["claims"].values()) == {entry.record.value}
    assert benchmark.left_out(library.refresh(NAME), 30) == "cross-attested already"
    unknown = replace(entry, record=Record())
    assert benchmark.left_out(unknown, 30) == "not known to be optimal"
    trivial = default_library().entry("three-partition-2-100-yes")
    assert benchmark.left_out(trivial, 30) == "as short as the computing"
