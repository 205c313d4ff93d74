import copy
import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.core.chain import Chain
from offcert.core.documents import canonical_digest, make_folder, write_atomically, write_json
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.files import (
    problem_digest,
    problem_from_json,
    problem_to_json,
    read_problem,
    write_problem,
)
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds


def chain_document() -> dict[str, Any]:
    chain = Chain([1, 2], [3, 4], [5, 6, 7], [8, 9, 10], [1, 1], [2, 2], ["a", "b"])
    return problem_to_json(Problem("p", chain, Platform(100, Fraction(3, 2))))


def trace_document() -> dict[str, Any]:
    chain = problem_from_json(chain_document())
    return problem_to_json(Problem("p", chain.trace, chain.platform, source={"model": "x"}))


@by_seeds(0, 60, 30)
def test_a_problem_survives_a_round_trip(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        problem = mixed_problem(seed)
        write_problem(tmp_path / "p.json", problem)
        again = read_problem(tmp_path / "p.json")
        assert again == problem
        assert problem_digest(again) == problem_digest(problem)


def test_the_digest_is_the_same_on_every_machine() -> None:
    assert problem_digest(problem_from_json(chain_document())) == (
        "a0a15d5615e8a23b86c40e336b37d2c2ecfb27bdd1ae25947cbe6182ea3777a1"
    )


def test_stages_without_names_are_numbered() -> None:
    named = chain_document()
    named["chain"]["names"] = ["0", "1"]
    bare = copy.deepcopy(named)
    del bare["chain"]["names"]
    assert problem_from_json(bare) == problem_from_json(named)
    assert problem_digest(problem_from_json(bare)) == problem_digest(problem_from_json(named))
    # Files are written whole, as ever.
    assert problem_to_json(problem_from_json(bare)) == named
    bare["chain"]["names"] = None
    with pytest.raises(InputError, match=r"chain\.names must be a list, not null"):
        problem_from_json(bare)


def test_one_rate_given_twice_is_one_rate() -> None:
    document = chain_document()
    assert "prefetch_bandwidth" not in document
    twice = problem_from_json({**document, "prefetch_bandwidth": "6/4"})
    assert problem_to_json(twice) == document
    assert twice == problem_from_json(document)
    assert problem_to_json(twice.with_bandwidth(Fraction(3, 2), Fraction(3, 2))) == document


def test_a_second_rate_is_part_of_the_document_and_of_the_digest() -> None:
    one = problem_from_json(chain_document())
    two = problem_from_json({**chain_document(), "prefetch_bandwidth": "5/2"})
    assert two.platform.rate(Kind.OFFLOAD) == Fraction(3, 2)
    assert two.platform.rate(Kind.PREFETCH) == Fraction(5, 2)
    assert problem_to_json(two)["prefetch_bandwidth"] == "5/2"
    exchanged = two.with_bandwidth(Fraction(5, 2), Fraction(3, 2))
    assert len({problem_digest(problem) for problem in (one, two, exchanged)}) == 3


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0/1", "prefetch_bandwidth must be more than 0, not 0"),
        ("fast", 'prefetch_bandwidth must look like "numerator/denominator", not "fast"'),
        (3, "prefetch_bandwidth must be a string, not 3"),
        (None, "prefetch_bandwidth must be a string, not null"),
        ("1/1000000000000000000000", "prefetch_bandwidth 1/1000000000000000000000 is so low"),
    ],
)
def test_a_wrong_second_rate_is_named(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem_from_json({**chain_document(), "prefetch_bandwidth": value})


def test_the_digest_does_not_depend_on_the_layout() -> None:
    assert canonical_digest({"a": 1, "b": "é"}) == canonical_digest({"b": "é", "a": 1})
    assert canonical_digest([1, 2]) != canonical_digest([2, 1])


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON document that is a value in an object."""
    found = []
    items = document.items() if isinstance(document, dict) else []
    for key, value in items:
        found.append((*path, key))
        found += places(value, (*path, key))
    if isinstance(document, list) and document and isinstance(document[0], dict):
        found += places(document[0], (*path, 0))
    return found


def parent_of(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


@pytest.mark.parametrize("document", [chain_document(), trace_document()], ids=["chain", "trace"])
def test_a_missing_field_is_named(document: dict[str, Any]) -> None:
    for path in places(document):
        if path[0] == "source" or path == ("chain", "names"):
            continue
        broken = copy.deepcopy(document)
        del parent_of(broken, path)[path[-1]]
        with pytest.raises(InputError) as caught:
            problem_from_json(broken)
        assert str(path[-1]) in str(caught.value)


@pytest.mark.parametrize("document", [chain_document(), trace_document()], ids=["chain", "trace"])
def test_a_field_of_the_wrong_kind_is_named(document: dict[str, Any]) -> None:
    for path in places(document):
        if path[:1] == ("source",) and len(path) > 1:
            continue
        for wrong in (None, 1.5, -1, "?", [], {}, [None], True):
            broken = copy.deepcopy(document)
            old = parent_of(broken, path)[path[-1]]
            legal = {"source": (None, {}), "name": ("?",), "evictable": (True,)}
            if wrong in legal.get(str(path[-1]), ()) and type(wrong) is not int:
                continue
            if wrong == old or (isinstance(wrong, list) and isinstance(old, list) and not wrong):
                continue
            parent_of(broken, path)[path[-1]] = wrong
            with pytest.raises(InputError):
                problem_from_json(broken)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "x", 'format must be "offcert-problem", not "x"'),
        (("version",), 9, "version 9 of offcert-problem is not known"),
        (("memory",), -5, "memory must be at least 0, not -5"),
        (("bandwidth",), "1/0", "denominator of 0"),
        (("bandwidth",), "0/1", "bandwidth must be more than 0"),
        (("bandwidth",), "1.5", 'must look like "numerator/denominator"'),
        (("bandwidth",), "1/" + "1" + 30 * "0", "so low that moving everything would take"),
        (("bandwidth",), "1" * 5000, 'must look like "numerator/denominator"'),
        (("bandwidth",), "٣/1", 'must look like "numerator/denominator"'),
        (("memory",), 10**18 * 3, "memory must be less than 2**61"),
        (("memory",), 10**4000, "memory must fit into 64 bits"),
        (("link",), "wifi", 'link must be one of "simplex", "duplex", not "wifi"'),
        (
            ("transfers",),
            "slow",
            'transfers must be one of "atomic", "interruptible", "fractional", not "slow"',
        ),
        (("units", "time"), "s", 'units.time must be "ns" or "tick"'),
        (("chain", "forward"), [1], r"chain.backward must have 1 entries"),
        (("chain", "forward"), [1, -2], r"chain.forward[1] must be at least 0, not -2"),
        (("chain", "gradient"), [1, 2], r"chain.gradient must have 3 entries for 2 stages, not 2"),
        (("chain", "names"), ["a", 3], r"chain.names[1] must be a string"),
        (("chain", "names"), ["a"], r"chain.names must have 2 entries for 2 stages, not 1"),
        (("extra",), 1, 'the field "extra" is not known'),
        (("trace",), {}, 'either "chain" or "trace"'),
    ],
)
def test_the_sentence_names_field_place_and_value(
    path: tuple[Any, ...], value: Any, message: str
) -> None:
    document = chain_document()
    parent_of(document, path)[path[-1]] = value
    with pytest.raises(InputError) as caught:
        problem_from_json(document)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN}', "NaN is not a number that JSON allows"),
        ('{"a": 1e999}', "1e999 is larger than any number can be here"),
        ('{"a": 1, "a": 2}', 'the field "a" is given twice'),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_problem_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_problem(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.json cannot be read"):
        read_problem(tmp_path / "nothing.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.json"]
    with pytest.raises(InputError, match="cannot be written"):
        write_json(path / "p.json", {})


def test_an_unfinished_file_is_not_beside_the_others(tmp_path: Path) -> None:
    """Who lists the folder while somebody writes must not take half a file for one."""
    seen: list[list[Path]] = []

    def write(temporary: Path) -> None:
        temporary.write_text("half")
        seen.append([*tmp_path.glob("*.json"), *tmp_path.glob(".*.json")])
        assert temporary.suffix == ".json"

    write_atomically(tmp_path / "p.json", write)
    assert seen == [[]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.json"]
    assert (tmp_path / "p.json").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_written_is_plain_json(tmp_path: Path) -> None:
    write_problem(tmp_path / "p.json", problem_from_json(chain_document()))
    assert json.loads((tmp_path / "p.json").read_text()) == chain_document()


def test_a_folder_whose_name_no_folder_can_have_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be the name of a file"):
        make_folder(Path("a\0b"))
