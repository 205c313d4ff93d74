"""Oracles share no passage with the package: a fault that both have would pass every comparison."""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.docs.docs_pages import ROOT

# Statements in a row that count as a passage; the largest part of an oracle's that may stand in the
# package, too. Arbitrary; loops over operations and gaps look alike wherever they stand.
PASSAGE, MOST = 5, 0.1
ORACLES = sorted((ROOT / "tests" / "support" / "oracles").glob("[a-z]*.py"))

WORD = re.compile(
    r'[rbf]{0,2}"(?P<text>(?:[^"\\]|\\.)*)"|(?P<number>\b\d[\w.]*)|(?P<word>[A-Za-z_]\w*)'
)
SIMPLE = {"import", "from", "class", "@", "#"}


def shapes(text: str) -> list[str]:
    """Return the statements of a file without names, texts, numbers, imports and docstrings."""
    text = re.sub(r'^ *r?"""(?:.|\n)*?"""\n', "", text, flags=re.MULTILINE)
    found, begun = [], ""
    for line in text.splitlines():
        shape = line.split("  # ")[0].strip()
        if not begun and (not shape or shape.startswith(tuple(SIMPLE))):
            continue
        begun += WORD.sub(_without_name, shape)
        if sum(map(begun.count, "([{")) <= sum(map(begun.count, ")]}")):
            found.append(re.sub(r"\s|,(?=[)\]}])", "", begun))
            begun = ""
    return found


def _without_name(found: re.Match[str]) -> str:
    if found["word"]:
        return found["word"] if keyword.iskeyword(found["word"]) else "n"
    return "0" if found["number"] else "t"


def passages(found: list[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for first in range(len(found) - PASSAGE + 1):
        yield first, tuple(found[first : first + PASSAGE])


def shared(text: str, known: set[tuple[str, ...]]) -> float:
    """Return the part of a file's statements that stand in passages of others."""
    found = shapes(text)
    inside = {at + k for at, each in passages(found) if each in known for k in range(PASSAGE)}
    return len(inside) / max(1, len(found))


@pytest.fixture(scope="module")
def known() -> set[tuple[str, ...]]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "offcert").rglob("*.py"))
    return {passage for text in texts for _, passage in passages(shapes(text))}


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.stem)
def test_an_oracle_is_written_anew(path: Path, known: set[tuple[str, ...]]) -> None:
    assert shared(path.read_text(encoding="utf-8"), known) <= MOST


def test_a_copy_with_other_names_is_found(known: set[tuple[str, ...]]) -> None:
    """Also if only a part of the statements is copied, one long function and another."""
    copied = (ROOT / "offcert/questions/schedule/check.py").read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"self\.(\w+)", copied)), key=len):
        copied = re.sub(rf"\b{name}\b", f"other_{name}", copied)
    assert shared(copied, known) > 0.9
    own = (ROOT / "tests/support/oracles/replay.py").read_text(encoding="utf-8")
    lines = copied.splitlines(keepends=True)
    assert shared(own + "".join(lines[-120:-60]), known) > MOST
