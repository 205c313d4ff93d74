"""The documentation: its links lead somewhere, and what it tells readers to type exists."""

import argparse
import ast
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import offcert
from offcert.cli.command_line import parser as commands
from offcert.core.errors import InputError
from support.docs.docs_pages import DOCS, FORMATS, MARKDOWN, PAGES, ROOT, anchors, links, tokens


def fault_of(target: str, page: Path) -> str | None:
    """Return what is wrong with a link on a page, or None."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        well_formed = parts.scheme == "https" and "." in parts.netloc and " " not in target
        return None if well_formed else "an external link must be of https"
    linked = page if not parts.path else (page.parent / parts.path).resolve()
    if not linked.exists():
        return f"there is no {linked}"
    if ROOT not in linked.parents:
        return f"{linked} is not part of the project"
    if parts.fragment and parts.fragment not in anchors(linked.read_text(encoding="utf-8")):
        return f"there is no {parts.fragment} on {linked.name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    found = links(page.read_text(encoding="utf-8"))
    faults = {target: fault_of(target, page) for target in found}
    assert not {target: fault for target, fault in faults.items() if fault}


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("no-such-page.md", "there is no"),
        ("problem.md#no-such-heading", "there is no no-such-heading"),
        ("#no-such-heading", "there is no no-such-heading"),
        ("http://example.org/", "must be of https"),
        ("https://localhost", "must be of https"),
        ("../../../etc", "is"),
    ],
)
def test_links_that_lead_nowhere_are_found(target: str, fault: str) -> None:
    assert fault in str(fault_of(target, FORMATS / "index.md"))


def test_anchors_are_those_of_github() -> None:
    text = "# A `b.c` d, e!\n\n## Twice\n\n## Twice\n\n(named)=\n\n```\n# code\n```\n"
    assert anchors(text) == {"a-bc-d-e", "twice", "twice-1", "named"}


def test_every_page_is_in_the_table_of_contents() -> None:
    listed: set[Path] = set()
    for page in DOCS.rglob("index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            for name in names:
                listed |= set(page.parent.glob(f"{name}.md"))
    pages = {page for page in DOCS.rglob("*.md") if page != DOCS / "index.md"}
    assert pages <= listed, sorted(str(page) for page in pages - listed)


def shell_commands() -> list[tuple[str, str]]:
    """Return what the pages tell readers to type, with the page; the tutorials are executed."""
    found = []
    for page in (*sorted(DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md"):
        parsed = MARKDOWN.parse(page.read_text(encoding="utf-8"))
        text = "".join(t.content for t in parsed if t.type == "fence" and t.info == "sh")
        lines = text.replace("\\\n", " ").splitlines()
        found += [(page.name, line) for line in lines if line.strip()]
    return found


@pytest.mark.parametrize(("page", "command"), shell_commands())
def test_commands_on_the_pages_are_those_that_there_are(page: str, command: str) -> None:
    program, first, *rest = shlex.split(command)
    if program == "offcert":
        # Raises if there is no such command or option.
        commands().parse_args([first, *rest])
    elif program == "python":
        assert first.startswith("benchmarks/")
        source = (ROOT / first).read_text()
        for option in rest:
            assert not option.startswith("--") or f'"{option}"' in source, option
    else:
        assert program == "make"
        assert re.search(f"^{first}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def words_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the commands and the options of a parser and of those below it."""
    found = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= {name} | words_of(below)
    return found


def test_commands_in_the_text_are_those_that_there_are() -> None:
    known = words_of(commands())
    count = 0
    for page in PAGES:
        for token in tokens(page.read_text(encoding="utf-8")):
            if token.type == "code_inline" and token.content.startswith("offcert "):
                first, *rest = token.content.split()[1:]
                asked = {first, *(word for word in rest if word.startswith("--"))}
                # A name in capitals stands for what a reader puts there.
                assert {word for word in asked if not word.isupper()} <= known, token.content
                count += 1
    assert count > 30


def test_a_command_that_is_not_there_is_found() -> None:
    assert len(shell_commands()) > 12
    for command in ("offcert certify problem.json --no-such-option", "offcert no-such-command x"):
        with pytest.raises((InputError, SystemExit)):
            test_commands_on_the_pages_are_those_that_there_are("page", command)
    with pytest.raises(AssertionError):
        test_commands_on_the_pages_are_those_that_there_are("page", "make no-such-target")


def test_files_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"(?:offcert|tests|benchmarks|docs)/[\w./]*\w", text)
    places = {name for name in named if not re.search("NAME|FAMILY|_$", name)}
    assert len(places) > 25
    assert not [place for place in places if not (ROOT / place).exists()]
    for name in re.findall(r"`(_?[A-Z]{4,})`", text):
        if name != "NAME":
            assert any(
                f"\n{name}" in path.read_text() for path in (ROOT / "offcert").rglob("*.py")
            ) or any(f"\n{name}" in path.read_text() for path in (ROOT / "tests").rglob("*.py")), (
                name
            )


def test_the_citation_has_what_its_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == offcert.__version__
    assert citation["type"] == "software"
    assert all(set(author) == {"name"} for author in citation["authors"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["license"] == project["license"] == "Apache-2.0"


def test_the_changelog_begins_with_this_version_and_names_each_area_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    latest = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    assert latest.startswith(offcert.__version__)
    areas = re.findall(r"^### (.*)$", latest, re.MULTILINE)
    assert len(areas) == len(set(areas)) > 3


def test_names_of_the_interface_that_pages_use_exist() -> None:
    for page in PAGES:
        for name in re.findall(
            r"`((?:offcert|papers)(?:\.\w+)+)`", page.read_text(encoding="utf-8")
        ):
            assert _resolves(name), f"{page.name}: {name}"


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_each_framework_has_code_that_python_can_read() -> None:
    text = (DOCS / "integrations.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(#([\w-]+)\) \|", text))
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    blocks = {
        each.split("\n")[0]: re.findall(r"```python\n(.*?)```", each, re.DOTALL)
        for each in sections
    }
    assert named == {name.lower().replace(" ", "-") for name in blocks} - {"tensorboard-and-w&b"}
    for name, (*found,) in blocks.items():
        if "W&B" in name:
            continue
        (code,) = found
        assert 3 <= len(code.splitlines()) <= 12
        tree = ast.parse(code)
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom):
                path = ROOT / Path(*str(each.module).split(".")).with_suffix(".py")
                classes = {
                    n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)
                }
                assert {alias.name for alias in each.names} <= classes
