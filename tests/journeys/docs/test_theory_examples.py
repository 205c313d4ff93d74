"""The worked examples of docs/theory: every number that a page asserts is computed again here.

A page's ``python`` blocks are one program, executed in order in one namespace. They hold the
page's numbers as assertions, so that text and code cannot part without a test that says so.
"""

import re
import traceback
from pathlib import Path

import pytest

from offcert.proofs.registry import CLAIMS, PROOFS

THEORY = Path(__file__).parents[3] / "docs" / "theory"
PAGES = sorted(THEORY.glob("*.md"))
# What opens a fence, and what is inside it up to the same fence.
FENCED = re.compile(
    r"^(?P<fence>`{3,})(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.M | re.S
)
# Pages that state no number of their own.
# The index, and what says where each rule stands; its names and tests are checked elsewhere.
WITHOUT_CODE = {"index", "running-again"}


def fences(page: Path) -> list[tuple[str, str, int]]:
    """Return the kind, text and first line's number of all fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        (match["kind"].strip(), match["text"], text.count("\n", 0, match.start("text")))
        for match in FENCED.finditer(text)
    ]


def program(page: Path) -> str:
    """Return the page's code, each block at its own line so that failures name the page's lines."""
    lines: list[str] = []
    for kind, text, line in fences(page):
        if kind == "python":
            lines += [""] * (line - len(lines)) + text.splitlines()
    return "\n".join(lines)


def run(code: str, name: str) -> None:
    """Execute a page's code; fail with the line of the page that is wrong."""
    try:
        exec(compile(code, name, "exec"), {"__name__": "theory"})
    except Exception as error:
        lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__)]
        names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        line = [line for line, file in zip(lines, names, strict=True) if file == name][-1:]
        said = code.splitlines()[line[0] - 1].strip() if line else code
        pytest.fail(f"{name}, line {line}: {said}\n{type(error).__name__}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_asserts_holds(page: Path) -> None:
    code = program(page)
    if page.stem in WITHOUT_CODE:
        assert "assert" not in code
        return
    assert code.count("assert ") >= 2, f"{page.name} has no worked example that is checked"
    # What is in the checkout, what comes with Python, and what plans are for.
    assert set(re.findall(r"^\s*(?:from|import) (\w+)", code, re.M)) <= {
        "offcert", "offcert_lab", "papers", "torch",
        "dataclasses", "fractions", "itertools", "math", "random",
    }  # fmt: skip
    run(code, page.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_well_formed(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    assert len(re.findall(r"^# ", text, re.M)) == 1, f"{page.name} needs one title"
    assert "```" not in text, f"{page.name} has a fence that does not end"
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
        linked = page if not target else page.parent / target
        assert linked.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(linked.read_text(encoding="utf-8")), f"{page.name}: #{anchor}"


def anchors(text: str) -> set[str]:
    """Return what a link may name in a page: what is marked, and headings."""
    headings = (title.lower() for title in re.findall(r"^#+ (.+)$", text, re.M))
    slugs = {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))


def test_a_wrong_number_is_found() -> None:
    with pytest.raises(pytest.fail.Exception, match="assert total == 5"):
        run("total = 2 + 2\nassert total == 5", "page.md")


def test_every_bound_is_in_the_table_with_its_page() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([^|]+) \|.*\]\(([\w-]+)\.md[^)]*\) \|$",
        (THEORY / "index.md").read_text(encoding="utf-8"),
        re.M,
    )
    kinds = PROOFS | CLAIMS
    assert {name: page for name, _, page in rows} == {
        name: kind.page for name, kind in kinds.items()
    }
    for name, evidence, _ in rows:
        assert evidence.startswith(kinds[name].evidence), name
