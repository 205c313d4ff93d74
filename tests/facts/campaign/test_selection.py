"""Problems by file and by pattern, limits by list and by range."""

import random
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.campaign.selection import find_subjects, parse_limits, percent_of
from offcert.core.errors import InputError
from offcert.instances.cnn import cnn_chain
from offcert.instances.library import default_library
from offcert.questions.schedule.files import problem_digest, write_problem
from offcert.questions.schedule.problem import parse_memory
from support.problems.random_instances import tiny_problems


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("0:100:25", ["0%", "25%", "50%", "75%", "100%"]),
        ("0:10:4", ["0%", "4%", "8%"]),
        ("12.5%:13%:0.25%", ["12.5%", "12.75%", "13%"]),
        ("5:5:1", ["5%"]),
        ("25%, 4GiB,0:10:10", ["25%", "4GiB", "0%", "10%"]),
        ("25%,0:50:25", ["25%", "0%", "50%"]),
        ("4096", ["4096"]),
        ("0:0.000002:0.000001", ["0%", "0.000001%", "0.000002%"]),
    ],
)
def test_limits(text: str, limits: list[str]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:100", 'a range such as "0:100:5", in percent, or .*, not "0:100"'),
        ("a:b:c", 'not "a:b:c"'),
        ("10:0:5", "must go up"),
        ("0:10:0", "must go up"),
        ("0:100:0.001", "has 100001 limits"),
        ("1GiB:2GiB:1%", "in percent"),
        ("2GiB:1GiB:1GiB", "must go up"),
        ("1GiB:2GiB:0B", "must go up"),
        ("1B:1GiB:1B", "has 1073741824 limits"),
        ("1.5B:2B:1B", "must be a whole number of bytes"),
        ("0:1..5:1", "in percent"),
    ],
)
def test_ranges_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_limits(text)


def test_a_percentage_stays_what_was_asked_for() -> None:
    base = default_library().family("resnet50-224-b32").problem
    for text in ("0%", "0.5%", "12.5%", "25%", "33.3%", "100%"):
        limited = base.with_memory(parse_memory(text, base))
        assert percent_of(limited) == float(text[:-1])


def test_a_percentage_names_exactly_its_limit() -> None:
    rng = random.Random(5)
    for problem in tiny_problems(200):
        least, peak = problem.trace.least_memory, problem.trace.peak_memory
        limited = problem.with_memory(rng.randint(max(0, least - 3), peak + 3))
        percent = percent_of(limited)
        if percent is None:
            assert limited.platform.memory < least == peak
        elif least < peak:
            exact = Fraction(percent).limit_denominator(10**9)
            assert problem.memory_at(exact / 100) == limited.platform.memory
            assert (percent < 0) == (limited.platform.memory < least)


def test_files_and_families(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    write_problem(path, cnn_chain(4, 0))
    mine, *others = find_subjects([str(path), str(path), "library:cnn-8-[01]"])
    assert mine.name == "mine"
    assert mine.own_limits() == (cnn_chain(4, 0).platform.memory,)
    assert [subject.name for subject in others] == ["cnn-8-0", "cnn-8-1"]


def test_a_librarys_limits_are_its_entries() -> None:
    family = default_library().family("cnn-8-0")
    [subject] = find_subjects(["library:cnn-8-0"])
    assert len(family.entries) > 1
    by_memory = {entry.problem.platform.memory: entry.digest for entry in family.entries}
    assert subject.own_limits() == tuple(sorted(by_memory))
    for memory, digest in by_memory.items():
        assert problem_digest(subject.at(memory)) == digest
    between = max(by_memory) + 1
    assert subject.at(between).platform.memory == between
    assert subject.at(between).name == "cnn-8-0"


def test_what_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no family of the library matches "cnn-9-\\*"'):
        find_subjects(["library:cnn-9-*"])
    with pytest.raises(InputError, match="cannot be read"):
        find_subjects([str(tmp_path / "none.json")])
    path = tmp_path / "cnn-8-0.json"
    write_problem(path, cnn_chain(4, 0))
    with pytest.raises(InputError, match=f'two different problems are called "cnn-8-0".*{path}'):
        find_subjects(["library:cnn-8-0", str(path)])


def test_ranges_of_sizes_are_in_bytes() -> None:
    gib = 2**30
    assert parse_limits("1GiB:2GiB:0.5GiB") == [f"{n * gib // 2}B" for n in (2, 3, 4)]
    assert parse_limits("10B:15B:2B,25%") == ["10B", "12B", "14B", "25%"]
