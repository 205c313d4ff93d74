"""A room that costs much says why in its first docstring."""

import ast

import pytest

from benchmarks.lines import PACKAGES, ROOT, sizes

# Arbitrary. A capability of more lines has to give its reason.
MUCH = 2_000

LARGE = sorted(
    path.parent
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if path.parent.parent != ROOT and sizes(path.parent)[1] > MUCH
)


def test_some_rooms_are_large():
    assert len(LARGE) > 10


@pytest.mark.parametrize("room", LARGE, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_large_room_says_why(room):
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert said is not None
    paragraphs = [each for each in said.split("\n\n") if each.startswith("Its size: ")]
    assert len(paragraphs) == 1
    assert len(paragraphs[0].split()) >= 12
