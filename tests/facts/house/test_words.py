"""How the package speaks: a docstring begins with its noun, a number says where it comes from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import offcert

ROOT = Path(offcert.__file__).parent
OUTSIDE = ("../offcert_lab", "../papers", "../check", "../benchmarks")
PRONOUN = re.compile(
    r"(What|Which|Who|Whose|It|Its|They|Their|Them|Those|That|This|These|There|Such)\b"
)
EMPTY = re.compile(r"\w+ what\b")
ORIGIN = re.compile(
    r"\b(measured|assumed|assumptions?|arbitrary|derived|by\s+definition|given\s+by)\b", re.I
)
NOWHERE = re.compile(r"\bDESIGN\b|\bdesign document\b")


def rooms() -> list[str]:
    return sorted(entry.name for entry in ROOT.iterdir() if (entry / "__init__.py").exists())


def beginnings(folder: Path, begins: re.Pattern[str]) -> list[str]:
    """Return the first lines of the docstrings below a folder that begin so, with their places."""
    return [
        f"{path.relative_to(folder)}:{line}: {text.splitlines()[0]}"
        for path in sorted(folder.rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text()))
        if begins.match(text)
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for place, each in enumerate(body):
            first = place == 0 and isinstance(node, owners)
            attribute = place > 0 and isinstance(body[place - 1], ast.Assign | ast.AnnAssign)
            if (first or attribute) and (text := text_of(each)) is not None:
                yield each.lineno, text


def text_of(statement: ast.stmt) -> str | None:
    """Return the text of a statement that is nothing else."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return None
    value = statement.value.value
    return value.strip() if isinstance(value, str) else None


def numeric(value: ast.expr | None) -> bool:
    """Whether an expression is a number that is written out, or a collection of such."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.BinOp(left=left, right=right):
            return numeric(left) and numeric(right)
        case ast.UnaryOp(operand=operand):
            return numeric(operand)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return bool(parts) and all(map(numeric, parts))
        case ast.Call(func=ast.Name(id="Fraction" | "int" | "float"), args=parts):
            return bool(parts) and all(map(numeric, parts))
    return False


def unexplained(text: str) -> list[str]:
    """Return the constants of a module of which nothing says where their numbers come from.

    The comment above the first of several lines of constants is for all of them.
    """
    tree, lines = ast.parse(text), text.split("\n")
    found = []
    above, end = "", -1
    for statement, after in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        comment = comment_above(lines, statement.lineno)
        if comment or statement.lineno != end + 1:
            above = comment
        end = statement.end_lineno or 0
        if numeric(statement.value):
            own = [line.partition("#")[2] for line in lines[statement.lineno - 1 : end]]
            if not ORIGIN.search(" ".join([above, *own, text_of(after) or ""])):
                found.append(ast.unparse(statement)[:60])
    return found


def comment_above(lines: list[str], number: int) -> str:
    """Return the comment that ends above a line, counted from 1."""
    begin = number - 1
    while begin > 0 and lines[begin - 1].startswith("#"):
        begin -= 1
    return " ".join(line[1:].strip() for line in lines[begin : number - 1])


@pytest.mark.parametrize("room", [*rooms(), *OUTSIDE])
def test_docstrings_begin_with_their_noun(room: str) -> None:
    found = beginnings(ROOT / room, re.compile(f"{PRONOUN.pattern}|{EMPTY.pattern}"))
    assert found == [], (
        'name it: "Bytes that ...", "Return the bytes that ...", not "Return what ..."'
    )


@pytest.mark.parametrize("room", rooms())
def test_numbers_say_where_they_come_from(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / room).rglob("*.py"))
        if (names := unexplained(path.read_text()))
    }
    assert found == {}, "measured (with what), assumed, arbitrary, derived, given by, by definition"


def test_nothing_points_to_a_document_that_is_not_here() -> None:
    texts = [*ROOT.rglob("*.py"), *ROOT.parent.glob("*.md"), *ROOT.parent.glob("docs/**/*.md")]
    found = [str(path) for path in texts if NOWHERE.search(path.read_text())]
    assert found == []


def test_what_is_found() -> None:
    module = '''"""What is done."""
# Seconds. Arbitrary.
A = 1.0
B: int = 2
# Seconds.
C = 3
D = (4, -5)  # Measured with a watch.

E = {"x": 6}
"""By definition."""
F = [Fraction(1, 7)]
G = "no number", 8
def function():
    """They do it."""
class Class:
    """Whatever it is."""
    field: int = 9
    """Those of the class."""
'''
    assert unexplained(module) == ["C = 3", "F = [Fraction(1, 7)]"]
    begun = [line for line, text in docstrings(ast.parse(module)) if PRONOUN.match(text)]
    assert sorted(begun) == [1, 14, 18]
    empty = ["Return what it is.", "Yields what is left.", "Says what."]
    named = ["Return the bytes.", "Return whether it is so.", "Return whatever it is."]
    assert [text for text in empty + named if EMPTY.match(text)] == empty


def terms() -> list[str]:
    """Return the terms of the glossary."""
    page = (ROOT.parent / "docs/theory/definitions.md").read_text()
    found = re.findall(r"^### (.+)$", page, re.M)
    return [word.strip().lower() for line in found for word in line.split(",")]


def test_the_glossary_defines_at_most_forty_terms_each_once() -> None:
    assert 30 < len(terms()) <= 40
    assert sorted(set(terms())) == sorted(terms())


def test_terms_of_the_glossary_are_used() -> None:
    pages = [path for path in ROOT.parent.glob("docs/**/*.md") if path.name != "definitions.md"]
    text = "\n".join(path.read_text().lower() for path in pages)
    unused = [term for term in terms() if not re.search(rf"\b{re.escape(term)}", text)]
    assert not unused


PRIVATE = "makeshift|outlook|barred|unread|clerk|relay|rehearsal"
"""Words of the code's own which readers need not learn."""


def test_pages_for_users_have_words_of_the_field() -> None:
    pages = [
        ROOT.parent / "README.md",
        *ROOT.parent.glob("docs/*.md"),
        *ROOT.parent.glob("docs/tutorials/*.md"),
        *ROOT.parent.glob("docs/formats/*.md"),
    ]
    found = {
        str(path.relative_to(ROOT.parent)): words
        for path in pages
        if (words := re.findall(rf"\b(?:{PRIVATE})\w*", path.read_text(), re.I))
    }
    assert not found


def test_messages_have_words_of_the_field() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        written = {(line, text) for line, text in docstrings(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.strip()
                said = " " in text and (node.lineno, text) not in written
                if said and re.search(rf"\b(?:{PRIVATE}|studied)\b", text, re.I):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert not found


def test_the_page_of_what_runs_again_names_what_is_there() -> None:
    page = (ROOT.parent / "docs/theory/running-again.md").read_text()
    names, rooms_of = 0, [""] * 3
    for row in re.findall(r"^\| (?:\d+ )?\|(.+)\|$", page, re.M):
        columns = [re.findall(r"`([\w.]+)`", column) for column in row.split("|")]
        if columns[0] and columns[0][0].startswith("offcert."):
            rooms_of = [column[0] for column in columns]
        elif len(columns) == 3:
            for room, column in zip(rooms_of, columns, strict=True):
                assert column, row
                for name in column:
                    module, *parts = name.split(".")
                    found = import_module(f"{room}.{module}")
                    for part in parts:
                        found = getattr(found, part)
                    names += 1
    assert names > 40
    tests = {path.name for path in (ROOT.parent / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+\.py)`", page)) <= tests
