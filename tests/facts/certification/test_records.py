"""Records improve only through certificates that verify, and only for the better."""

import copy
import json
import multiprocessing
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.certification.records import add, improve
from offcert.certification.search import UnsoundError
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.instances.library import Entry, Family, Library, default_library, make_entry
from offcert.instances.records import KnownBound, Record
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from offcert.verification.findings import recheck
from offcert.verification.limits import BeyondLimitsError

NAME = "cnn-12-1-m10"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """One family of which nothing is known."""
    base = default_library().family_of(NAME)
    problem = base.problem
    fresh = [
        make_entry(problem, base.name, entry.label, entry.problem.platform.memory)
        for entry in base.entries
    ]
    found = Library(tmp_path)
    found.write(Family(base.name, base.group, base.origin, problem, tuple(fresh)))
    return found


@cache
def text(method: str) -> str:
    problem = default_library().load(NAME)
    found = certify(problem, time_limit=30) if method == "certify" else solve(problem, method)
    return json.dumps(found.to_json())


def certificate(method: str = "certify") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(method))
    return loaded


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in document.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


def reopened(library: Library) -> Entry:
    return Library(library.folder).entry(NAME)


def test_what_is_found_first_becomes_the_record(library: Library) -> None:
    greedy = certificate("greedy")
    add(library, greedy)
    record = reopened(library).record
    assert record.value == greedy["objective"]
    assert record.lower_bound == greedy["lower_bound"]
    assert record.value_by is not None
    assert record.value_by.startswith("greedy, offcert ")
    assert record.status is SolveStatus.FEASIBLE
    assert record.plan is not None
    assert simulate(reopened(library).problem, record.plan).makespan == record.value
    others = [entry for entry in library.entries() if entry.name != NAME]
    assert [entry.record for entry in others] == [Record(), Record()]


def test_a_better_certificate_improves_it_and_a_worse_one_is_refused(library: Library) -> None:
    add(library, certificate("greedy"))
    add(library, certificate())
    record = reopened(library).record
    assert record.status is SolveStatus.OPTIMAL
    assert record.value == certificate()["objective"]
    assert record.value < certificate("greedy")["objective"]
    assert record.best is not None
    assert record.best.bound.evidence is Evidence.PROVED
    before = (library.folder / "cnn-12-1.json").read_text()
    for method in ("greedy", "certify"):
        with pytest.raises(InputError, match=f"the record of {NAME} is value {record.value}"):
            add(library, certificate(method))
    assert (library.folder / "cnn-12-1.json").read_text() == before


def test_a_record_says_when_it_was_improved_and_on_what(library: Library) -> None:
    add(library, certificate("greedy"), hardware="an abacus")
    found = reopened(library).record.improved
    assert found is not None
    assert found.hardware == "an abacus"
    assert abs((date.fromisoformat(found.date) - datetime.now(UTC).date()).days) <= 1
    # What is not said of the next one is not said of the record any more.
    add(library, certificate())
    assert reopened(library).record.improved != found
    stored = library.folder / "cnn-12-1.json"
    assert "abacus" not in stored.read_text()
    stored.write_text(stored.read_text().replace('"improved":{"date":"', '"improved":{"day":"'))
    with pytest.raises(InputError, match="improved"):
        reopened(library)


def test_what_another_program_stored_meanwhile_is_kept(library: Library) -> None:
    assert library.record(NAME) == Record()
    add(Library(library.folder), certificate())
    with pytest.raises(InputError, match="does not improve"):
        add(library, certificate("greedy"))
    assert reopened(library).record.value == certificate()["objective"]


def test_a_better_bound_alone_improves_it(library: Library) -> None:
    add(library, certificate("sequential"))
    worse = reopened(library).record
    add(library, certificate("pivot"))
    better = reopened(library).record
    assert worse.lower_bound is not None
    assert better.lower_bound is not None
    assert better.lower_bound > worse.lower_bound
    bounds_only = copy.deepcopy(certificate("sequential"))
    bounds_only |= {"schedule": None, "objective": None, "gap": None, "status": "UNKNOWN"}
    with pytest.raises(InputError, match="does not improve"):
        add(library, resealed(bounds_only))


def tampered(change: str) -> dict[str, Any]:
    document = certificate()
    if change == "objective":
        document["objective"] -= 1
    elif change == "shorter operation":
        document["schedule"]["operations"][-1]["end"] -= 1
        document["objective"] -= 1
    elif change == "bound":
        document["bounds"][0]["value"] += 1
    elif change == "memory":
        document["problem"]["memory"] += 1
    elif change == "no transfers":
        document["schedule"]["transfers"] = []
    return document if change == "objective" else resealed(document)


@pytest.mark.parametrize(
    "change", ["objective", "shorter operation", "bound", "memory", "no transfers"]
)
def test_a_tampered_certificate_is_refused(library: Library, change: str) -> None:
    with pytest.raises(InputError, match="the certificate does not verify: "):
        add(library, tampered(change))
    assert reopened(library).record == Record()


def test_what_takes_too_much_to_verify_is_refused_with_the_reason(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> str | None:
        raise BeyondLimitsError("the search is too large")

    monkeypatch.setattr("offcert.verification.findings.recheck", give_up)
    with pytest.raises(InputError, match=r"does not verify: .*the search is too large"):
        add(library, certificate())


def test_a_certificate_of_another_problem_is_refused(library: Library) -> None:
    problem = default_library().load("cnn-12-2-m10")
    with pytest.raises(InputError, match='problem "cnn-12-2-m10" that is not in the library'):
        add(library, solve(problem, "sequential").to_json())
    nearly = default_library().load(NAME)
    nearly = nearly.with_memory(nearly.platform.memory + 1)
    with pytest.raises(InputError, match="not in the library"):
        add(library, solve(nearly, "sequential").to_json())
    with pytest.raises(InputError, match='"format" is missing'):
        add(library, {})


def attested(value: int, evidence: Evidence = Evidence.ATTESTED) -> KnownBound:
    return KnownBound(Bound("interval-cpsat", value, evidence, {"solver": "CP-SAT"}), "someone")


def test_a_claim_that_a_schedule_refutes_is_dropped(library: Library) -> None:
    greedy = certificate("greedy")["objective"]
    optimum = certificate()["objective"]
    library.store(NAME, Record(greedy, None, "someone", (attested(optimum + 1),)))
    record = add(library, certificate()).record
    assert record.value == record.lower_bound == optimum
    assert all(known.by != "someone" for known in record.bounds)


def test_a_proof_that_a_schedule_refutes_is_a_program_error(library: Library) -> None:
    greedy = certificate("greedy")["objective"]
    wrong = attested(certificate()["objective"] + 1, Evidence.PROVED)
    library.store(NAME, Record(greedy, None, "someone", (wrong,)))
    with pytest.raises(UnsoundError, match="exceeds the value"):
        add(library, certificate())


def test_the_best_proved_bound_stays_beside_a_higher_claim(library: Library) -> None:
    document = certificate("bounds")
    highest = document["lower_bound"]
    claim = {"method": "stage-milp", "value": highest + 1, "evidence": "attested"}
    claim["details"] = {"solver": "HiGHS", "nodes": 17}
    document["bounds"].append(claim)
    document["lower_bound"] = highest + 1
    record = add(library, resealed(document)).record
    assert (record.lower_bound, record.proved_bound) == (highest + 1, highest)
    assert record.best is not None
    assert record.best.bound.details == {"solver": "HiGHS"}
    # Proving what was only claimed is an improvement too.
    assert add(library, certificate()).record.proved_bound == certificate()["objective"]


def test_one_who_is_first_stays_the_author(library: Library) -> None:
    first = certify(library.load(NAME), time_limit=30).result.bounds[-1]
    assert first.value == certificate()["lower_bound"]
    library.store(NAME, Record(bounds=(KnownBound(first, "someone"),)))
    record = add(library, certificate()).record
    assert record.value_by != "someone"
    assert [known.by for known in record.bounds] == ["someone"]


def test_a_long_proof_stays_in_its_certificate(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcert.certification.records.LONGEST_PROOF", 20)
    best = add(library, certificate()).record.best
    assert best is not None
    assert best.bound.method in ("atomic-heads", "pivot")
    assert best.bound.evidence is Evidence.PROVED
    assert list(best.bound.details) == ["omitted"]
    assert best.bound.details["omitted"] > 20


@pytest.mark.slow
def test_proved_bounds_of_small_problems_hold_when_computed_again() -> None:
    methods = set()
    for entry in [*default_library().entries(largest=24)][1::2]:
        for known in entry.record.bounds:
            if known.bound.evidence is Evidence.PROVED and "omitted" not in known.bound.details:
                assert recheck(known.bound, entry.problem) is None, entry.name
                methods.add(known.bound.method)
    assert {"prop3", "fractional-subset-sum", "pivot"} <= methods


@pytest.mark.slow
def test_nothing_is_lost_when_many_write_at_once_and_readers_never_fail(tmp_path: Path) -> None:
    """Each of six processes improves six records of one file, all at the same time."""
    base = default_library().family_of(NAME)
    memories = [base.entries[-1].problem.platform.memory + step for step in range(36)]
    fresh = [make_entry(base.problem, base.name, f"{m}", m) for m in memories]
    Library(tmp_path).write(Family(base.name, base.group, base.origin, base.problem, tuple(fresh)))
    found = [verify(solve(entry.problem, "sequential").to_json()) for entry in fresh]
    context = multiprocessing.get_context("fork")
    together = context.Barrier(6)

    def add_some(first: int) -> None:
        library = Library(tmp_path)
        library.names()
        together.wait(60)
        for verification in found[first::6]:
            improve(library, verification)

    writers = [context.Process(target=add_some, args=(first,)) for first in range(6)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        assert len(Library(tmp_path).names()) == len(fresh)
        reads += 1
    assert [writer.exitcode for writer in writers] == [0] * 6
    assert reads > 0
    values = [entry.record.value for entry in Library(tmp_path).entries()]
    assert values == [verification.certificate.result.objective for verification in found]
    assert [path.name for path in tmp_path.glob("[!.]*")] == [f"{base.name}.json"]


def test_what_a_killed_writer_left_is_no_family(library: Library) -> None:
    (library.folder / f".{NAME}-x7f2.json").write_text("{")
    assert NAME in library.names()


def test_one_who_never_stops_writing_is_named(library: Library) -> None:
    with (
        Library(library.folder).locked(),
        pytest.raises(InputError, match=r"another program has been writing to it for 0\.05 s"),
    ):
        add(Library(library.folder, patience=0.05), certificate("greedy"))
    assert reopened(library).record == Record()
