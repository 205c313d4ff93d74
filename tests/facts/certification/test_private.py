"""Libraries of one's own: which problems are the same, how they are called, what is taken in."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.certification.methods import solve
from offcert.certification.records import add, find_problem, insert
from offcert.core.errors import InputError
from offcert.instances.library import Library
from offcert.questions.schedule.files import problem_to_json
from support.problems.random_instances import random_problem


def test_limits_of_one_problem_make_a_family(tmp_path: Path) -> None:
    library, problem = Library(tmp_path), random_problem(5)
    named = replace(problem, name="ResNet 50/stages: 8x3")
    for percent in (50, 0):
        at = named.with_memory(named.memory_at(Fraction(percent, 100)))
        entry = insert(library, at)
        assert entry.name == f"ResNet_50_stages_8x3-m{percent}"
        assert entry.problem == replace(at, name=entry.name)
        # Whatever it is called.
        assert insert(library, replace(at, name="other")).digest == entry.digest
        found = find_problem(library, replace(at, name="x"))
        assert found is not None
        assert found.name == entry.name
    beyond = insert(library, named.with_memory(10**6))
    assert beyond.label == "1000000"
    again = Library(tmp_path)
    (family,) = again.families()
    assert [entry.label for entry in family.entries] == ["m0", "m50", "1000000"]
    assert family.origin == 'Added as "ResNet 50/stages: 8x3".'
    # What has such a name already keeps it.
    first = family.entries[0].problem
    (tmp_path / "other").mkdir()
    assert insert(Library(tmp_path / "other"), first).name == first.name


def test_other_numbers_under_a_name_that_is_there_are_refused(tmp_path: Path) -> None:
    library = Library(tmp_path)
    insert(library, replace(random_problem(5), name="net"))
    before = (tmp_path / "net.json").read_text()
    with pytest.raises(InputError, match='another problem called "net"'):
        insert(library, replace(random_problem(6), name="net"))
    assert (tmp_path / "net.json").read_text() == before


def test_what_is_impossible_is_taken_in_without_a_record(tmp_path: Path) -> None:
    library = Library(tmp_path)
    problem = replace(random_problem(5), name="tight")
    problem = problem.with_memory(problem.trace.least_memory - 1)
    certificate = solve(problem, "bounds").to_json()
    with pytest.raises(InputError, match="not in the library; --new"):
        add(library, certificate)
    entry = add(library, certificate, new=True, group="mine")
    assert entry.record.value is None
    assert entry.record.bounds == ()
    assert library.family_of(entry.name).group == "mine"
    # Now it is known, and the certificate says nothing of it.
    with pytest.raises(InputError, match="does not improve"):
        add(library, certificate, new=True)


def test_a_problem_alone_is_new_or_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path)
    document = problem_to_json(random_problem(5))
    with pytest.raises(InputError, match="a problem without a certificate"):
        add(library, document)
    assert add(library, document, new=True).name in library.names()
    with pytest.raises(InputError, match="format must be"):
        add(library, {"format": "something"}, new=True)
