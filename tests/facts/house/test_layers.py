"""Tests lie in four layers, and inside of each in the rooms of what they test."""

from collections import Counter

from support.docs.docs_pages import ROOT

TESTS = ROOT / "tests"
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
LAYERS = {"facts", "oracles", "forgeries", "journeys"}
# What is tested beside the package: the house itself, and what tests share.
BESIDE = {"house", "support", "papers", "benchmarks", "check", "docs"}


def test_every_test_lies_in_a_layer() -> None:
    assert len(FILES) > 300
    assert {path.parts[0] for path in FILES} == LAYERS


def test_rooms_of_a_layer_are_those_of_the_package() -> None:
    """In journeys, the README, the tutorials and the wheel stand for themselves."""
    rooms = {path.name for path in (ROOT / "offcert").iterdir() if path.is_dir()}
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
