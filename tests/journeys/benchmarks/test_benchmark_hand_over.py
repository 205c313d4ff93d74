"""The benchmark that hands proofs at rates alone over to links whose directions slow each other."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.result import Bound, Evidence
from offcert.instances.library import Entry, Library, default_library
from offcert.instances.records import KnownBound, Record

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FAMILY = "vgg19-duplex-500"


@pytest.fixture
def benchmark_(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("hand_over")


def with_records(library: Library, slowed: Record, alone: Record) -> list[Entry]:
    """Write two problems that differ in the slow-down alone, with these records."""
    family = default_library().family(FAMILY)
    names = [f"{FAMILY}-m10", f"{FAMILY}-m10_alone"]
    entries = [next(each for each in family.entries if each.name == name) for name in names]
    written = [
        replace(entry, record=record)
        for entry, record in zip(entries, (slowed, alone), strict=True)
    ]
    library.write(replace(family, entries=tuple(written)))
    return written


def known(entry: Entry, bound: Bound) -> Record:
    return replace(entry.record, bounds=(KnownBound(bound, "somebody"),))


def test_a_proof_and_a_plan_at_rates_alone_close_the_problem_with_the_slow_down(
    benchmark_: ModuleType, tmp_path: Path
) -> None:
    original = {entry.name: entry for entry in default_library().family(FAMILY).entries}
    alone = original[f"{FAMILY}-m10_alone"]
    assert alone.record.proved_bound == alone.record.value
    library = Library(tmp_path)
    entries = with_records(library, Record(), alone.record)
    improved = benchmark_.hand_over(library, *entries)
    assert improved is not None
    assert improved.record.value == improved.record.proved_bound == alone.record.value
    again = next(each for each in Library(tmp_path).entries() if each.name == improved.name)
    assert again.record == improved.record
    assert benchmark_.hand_over(library, again, alone) is None


def test_a_proof_that_does_not_hold_is_not_handed_over(
    benchmark_: ModuleType, tmp_path: Path
) -> None:
    alone = next(e for e in default_library().family(FAMILY).entries if "m10_alone" in e.name)
    first = alone.record.bounds[0].bound
    lie = replace(first, details={**first.details, "front_limit": 0, "back_limit": 0})
    assert first.evidence is Evidence.PROVED
    library = Library(tmp_path)
    entries = with_records(library, Record(), known(alone, lie))
    assert benchmark_.hand_over(library, *entries) is None
    assert next(iter(Library(tmp_path).entries())).record == Record()
