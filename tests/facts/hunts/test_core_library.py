"""The challenge of the library: graded problems of the hard core, each made again to the byte."""

import re
from collections import Counter
from functools import cache

import pytest

from offcert.core.result import Evidence, SolveStatus
from offcert.formulations.labels.pivot.bound import default_pivots
from offcert.formulations.labels.pivot.model import nested
from offcert.instances.library import FOLDER, Family, default_library
from offcert.questions.schedule.files import problem_digest
from offcert_lab.hunts import phase
from offcert_lab.hunts.effort import ProofEffort, effort
from offcert_lab.hunts.phase import CoreProblems

GRADES = ("core-1s", "core-10s", "core-60s", "core-open")
# By the names of the files: to read them all takes seconds, and every process would.
NAMES = sorted(path.stem for path in FOLDER.glob("core-*.json"))


@cache
def families() -> dict[str, Family]:
    return {family.name: family for family in default_library().families(group="core-*")}


def source_of(family: Family) -> dict[str, object]:
    source = family.entries[0].problem.source
    assert source is not None
    return dict(source)


def test_every_grade_has_its_problems() -> None:
    assert list(families()) == NAMES
    counts = Counter(family.group for family in families().values())
    assert set(counts) == set(GRADES)
    assert min(counts["core-1s"], counts["core-10s"], counts["core-open"]) >= 6
    assert counts["core-60s"] >= 4
    assert all(len(family.entries) == 1 for family in families().values())


@pytest.mark.parametrize("name", NAMES)
def test_each_is_made_again_from_its_source(name: str) -> None:
    family = families()[name]
    source = source_of(family)
    assert source["generator"] == CoreProblems.kind
    assert source["ended"] == ("complete" if source["points"] == 0 else "points")
    assert problem_digest(CoreProblems.again(source)) == family.entries[0].digest
    assert re.search(r"; graded: (optimal in|gap) .* one thread, offcert", family.origin)


def test_efforts_of_the_sources_are_those_of_the_problems() -> None:
    checked = 0
    for family in families().values():
        source = source_of(family)
        if len(family.problem.trace) <= 16:
            labels = int(str(source["labels"]))
            limits = (labels // part for part in phase._PARTS)
            tries = (effort(family.entries[0].problem, limit) for limit in limits)
            # The first of them that closes it, as in the search.
            found = next((found for found in tries if found.gap == 0), None)
            assert found is not None
            # How many labels that takes changes with the pivot program; the optimum does not.
            told = ProofEffort(**source["effort"])  # type: ignore[arg-type]
            assert (found.value, found.lower_bound) == (told.value, told.lower_bound)
            assert told.labels <= labels * len(default_pivots(nested(family.problem)))
            checked += 1
    assert checked >= 3


def test_records_agree_with_grades_and_with_what_the_searches_saw() -> None:
    for family in families().values():
        record, source = family.entries[0].record, source_of(family)
        told = ProofEffort(**source["effort"])  # type: ignore[arg-type]
        assert record.value is not None
        assert record.lower_bound is not None
        # Searches may be beaten, but what they proved may not be refuted.
        assert told.lower_bound <= record.value <= told.value
        assert record.lower_bound <= told.value
        if family.group != "core-open":
            assert record.status is SolveStatus.OPTIMAL
            assert record.best is not None
        assert any(known.bound.evidence is Evidence.PROVED for known in record.bounds)
