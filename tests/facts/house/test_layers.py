"""Tests lie in four layers, and inside of each in the rooms of what they test."""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from support.docs.docs_pages import ROOT

TESTS = ROOT / "tests"
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
LAYERS = {"facts", "oracles", "forgeries", "journeys"}
# What is tested beside the package: the house itself, and what tests share.
BESIDE = {"house", "support", "papers", "benchmarks", "check", "docs"}


def test_every_test_lies_in_a_layer() -> None:
    assert len(FILES) > 300
    assert {path.parts[0] for path in FILES} == LAYERS


def test_rooms_of_a_layer_are_those_of_the_packages() -> None:
    """In journeys, the README, the tutorials and the wheel stand for themselves."""
    packages = (ROOT / "offcert", ROOT / "offcert_lab")
    rooms = {path.name for package in packages for path in package.iterdir() if path.is_dir()}
    for path in FILES:
        room = path.parts[1]
        assert room in rooms | BESIDE or (path.parts[0] == "journeys" and len(path.parts) == 2), (
            path
        )


def test_tests_of_the_runtime_lie_in_the_folders_of_the_runtime() -> None:
    found = [path for path in FILES if path.parts[1] == "runtime"]
    assert len(found) > 70
    for path in found:
        assert (ROOT / "offcert").joinpath(*path.parts[1:-1]).is_dir(), path


def test_names_of_files_are_unique() -> None:
    """Pytest imports them by their names alone."""
    assert not [name for name, count in Counter(path.name for path in FILES).items() if count > 1]


# What puts something in the place of something else for a test.
REPLACING = {"setattr", "delattr", "setitem", "delitem", "patch", "object", "patch.dict"}
LAST = {name.rpartition(".")[2] for name in REPLACING}


def private_names_replaced(text: str) -> Iterator[str]:
    """Yield what a file replaces that has a private name, or is part of something private."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if getattr(function, "attr", getattr(function, "id", "")) not in LAST:
            continue
        names = ast.unparse(function).split(".")
        if not REPLACING & {names[-1], ".".join(names[-2:])}:
            continue
        for given in node.args[:2]:
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                parts = given.value.split(".")
            else:
                parts = [part for part in ast.walk(given) if isinstance(part, ast.Attribute)]
                parts = [part.attr for part in parts]
            if any(part.startswith("_") and not part.startswith("__") for part in parts):
                yield ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        'monkeypatch.setattr(module, "_SECONDS", 1)',
        'patch.setattr("offcert.certification.interrupts._TICK", 1)',
        'monkeypatch.setattr(module._Private, "public", 1)',
        'setattr(thing, "_name", 1)',
        'mock.patch.object(module, "_name", 1)',
        "mock.patch.dict(module._SECONDS, {})",
    ],
)
def test_a_private_name_that_is_replaced_is_found(text: str) -> None:
    assert list(private_names_replaced(text)) == [ast.unparse(ast.parse(text))]
    public = text.replace("_SECONDS", "SECONDS").replace("_TICK", "TICK").replace("_name", "name")
    assert not list(private_names_replaced(public.replace("_Private", "Public")))


@pytest.mark.slow
def test_no_test_replaces_a_private_name() -> None:
    """What a test has to change is an argument, a field, or a public name of the package."""
    found = {
        str(path.relative_to(TESTS)): list(private_names_replaced(path.read_text()))
        for path in TESTS.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


# Seeds that a test may go through without saying so in its name. Arbitrary.
MOST_SEEDS = 30


def long_loops_over_seeds(text: str) -> Iterator[str]:
    """Yield the loops of a file over more seeds than that, where their number is written out."""
    tests = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
    for node in (each for test in tests for each in ast.walk(test) if "test_" in test.name):
        if not isinstance(node, ast.For | ast.comprehension):
            continue
        ranged = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"
        if ast.unparse(node.target) == "seed" and ranged:
            numbers = [each.value for each in node.iter.args if isinstance(each, ast.Constant)]
            known = len(numbers) == len(node.iter.args)
            if known and len(range(*numbers)) > MOST_SEEDS:
                yield f"for seed in {ast.unparse(node.iter)}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for seed in range(31): pass", 1),
        ("all(seed for seed in range(100, 200))", 1),
        ("for seed in range(300, 330): pass", 0),
        ("for seed in seeds: pass", 0),
    ],
)
def test_long_loops_over_seeds_are_found(text: str, found: int) -> None:
    assert len(list(long_loops_over_seeds(f"def test_it():\n    {text}"))) == found


def test_random_cases_have_their_seeds_in_their_names() -> None:
    """So that one that fails can be run alone; see `support.seeds.by_seeds`."""
    found = {
        str(path): loops
        for path in FILES
        if path.parts[0] in ("oracles", "forgeries")
        and (loops := list(long_loops_over_seeds((TESTS / path).read_text())))
    }
    assert found == {}
