"""The pages of the documentation, and what stands on them."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FORMATS = DOCS / "formats"
MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
TARGET = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)
# What stands in the table of a page "formats" as a field: `name`, or several of them.
FIELD = re.compile(r"`([\w.….\[\]]+)`")
# What a reader asks a document for.
READING = re.compile(
    r'(?:\.(?:get|optional|integers?|each|read(?:_all|_in)?)\(\s*(?:\w+, )?"'
    # A form of a record's field is its keyword.
    r"|\b(?=\w+=(?:forms\.)?(?:Absent|OrNull|Integer\w*|Rational|Member|Table|Each|Object|[A-Z_]+)\b(?!\.)))(\w+)"
)


def tokens(text: str) -> Iterator[Token]:
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or ()


def links(text: str) -> list[str]:
    """Return the targets of links and pictures, those in code left out."""
    found = [token.attrGet("href") or token.attrGet("src") for token in tokens(text)]
    return [str(target) for target in found if target is not None]


def slug(heading: str) -> str:
    """Return a heading's anchor, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(text: str) -> frozenset[str]:
    """Return what a link into a page may name: its headings, and the targets written into it."""
    found: set[str] = set()
    parsed = MARKDOWN.parse(text)
    for token, after in pairwise(parsed):
        if token.type == "heading_open":
            plain = "".join(part.content for part in after.children or ())
            name = anchor = slug(plain)
            number = 0
            while anchor in found:
                number += 1
                anchor = f"{name}-{number}"
            found.add(anchor)
    return frozenset(found) | frozenset(TARGET.findall(text))


def json_blocks(page: str) -> list[str]:
    parsed = MARKDOWN.parse((FORMATS / f"{page}.md").read_text(encoding="utf-8"))
    return [token.content for token in parsed if token.type == "fence" and token.info == "json"]


def fields(page: str) -> set[str]:
    """Return the names that make up those of the fields in a page's tables."""
    text = (FORMATS / f"{page}.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    names = [name for row in rows for name in FIELD.findall(row)]
    return {part.removesuffix("[]") for name in names for part in name.split(".")}


def keys(value: object, free: tuple[str, ...]) -> set[str]:
    """Return all names of fields in a JSON value, but for what is in fields that hold anything."""
    if isinstance(value, list):
        return set().union(*(keys(item, free) for item in value))
    if not isinstance(value, dict):
        return set()
    inside = [keys(item, free) for name, item in value.items() if name not in free]
    return set(value).union(*inside)
