"""The documentation: its links lead somewhere, its examples are read, and the site can be built."""

import argparse
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from joint_certificates import checkpointed, least_memory_certificate
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

import offcert
from offcert.campaign.storage import read_rows
from offcert.cli.program import COMMANDS
from offcert.cli.program import parser as commands
from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.core.files import problem_from_json
from offcert.core.placement_files import _COLUMNS
from offcert.instances.library import Library
from offcert.proofs.placement.registry import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.proofs.settings import Notes, Settings
from tests.test_architecture import ALLOWED

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FORMATS = DOCS / "formats"
MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
TARGET = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)
# What stands in the table of a page "formats" as a field: `name`, or several of them.
FIELD = re.compile(r"`([\w.….\[\]]+)`")


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


def anchors(text: str) -> set[str]:
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
    return found | set(TARGET.findall(text))


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


def test_the_reference_has_every_room_and_says_what_it_uses() -> None:
    text = (DOCS / "api" / "index.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| .* \| (.*) \|$", text, re.MULTILINE)
    said: dict[str, set[str]] = {}
    for room, uses in rows:
        above, _, but = uses.removeprefix("all above").partition(" but ")
        named = set(above.split(", ")) - {"", "nothing of ours"}
        said[room] = named if uses == above else set(said) - {but}
    assert said == {room: uses for room, uses in ALLOWED.items() if room != "cli"}
    for room in said:
        assert f"<!-- modules of offcert.{room} -->" in (DOCS / "api" / f"{room}.md").read_text()


def test_files_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"(?:offcert|tests|benchmarks|docs)/[\w./]*\w", text)
    places = {name for name in named if not re.search("NAME|_$", name)}
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


def test_the_changelog_has_this_version_and_known_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {offcert.__version__}" in text
    headings = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


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


READERS = {
    "problem": ("core/files.py", "core/platform_json.py"),
    "certificate": ("proofs/certificate.py", "proofs/schedule_json.py"),
    "library": ("instances/library.py", "instances/records.py"),
}
READING = re.compile(r'\.(?:get|optional|integers?|integer_lists|each)\(\s*"(\w+)"')


@pytest.mark.parametrize("page", READERS)
def test_every_field_that_a_reader_asks_for_is_explained(page: str) -> None:
    sources = "".join((ROOT / "offcert" / name).read_text() for name in READERS[page])
    asked = set(READING.findall(sources))
    assert len(asked) > 10
    assert asked <= fields(page)


def test_every_field_of_networks_and_executions_is_explained() -> None:
    source = (ROOT / "offcert" / "core" / "network_json.py").read_text()
    asked = set(READING.findall(source))
    assert {"computations", "repeatable", "lean", "runs", "program"} <= asked
    assert asked <= fields("problem") | fields("certificate")
    assert {"runs", "program", "execution"} <= fields("certificate")


def test_fields_of_a_certificate_with_an_execution_are_explained() -> None:
    for certificate in (checkpointed(), least_memory_certificate(45)):
        document = certificate.to_json()
        trace = document["execution"].pop("trace")
        free = ("problem", "versions", "settings", "details")
        assert keys(document, free) <= fields("certificate")
        assert keys(trace, ()) <= fields("problem")
        assert keys(document["problem"], ("source",)) <= fields("problem")


def test_every_field_of_documents_about_addresses_is_explained() -> None:
    names = ("core/placement_files.py", "proofs/placement/certificate.py")
    asked = set(READING.findall("".join((ROOT / "offcert" / name).read_text() for name in names)))
    assert {"residences", "capacity", "alignment", "addresses", "address"} <= asked
    # Gaps are refused, by their column.
    asked -= {"gaps"}
    assert asked - {"address"} <= fields("placement")
    assert asked - {"addresses"} <= fields("certificate") | fields("problem")
    (block,) = json_blocks("placement")
    document = json.loads(block)
    verification = offcert.verify(document)
    assert verification.valid, verification.faults
    assert document["problem"]["capacity"] == 8
    assert keys(document, ("versions", "settings", "details")) <= fields("placement") | fields(
        "certificate"
    )
    columns = {column for column in _COLUMNS if column != "gaps"}
    page = (FORMATS / "placement.md").read_text()
    assert all(f"`{column}`" in page for column in columns)


def test_another_version_is_refused_as_the_page_says() -> None:
    page = " ".join((FORMATS / "index.md").read_text().split())
    (sentence,) = re.findall(r"by its number: `(.*?)`", page)
    document = json.loads(json_blocks("problem")[0])
    with pytest.raises(InputError, match=re.escape(sentence)):
        problem_from_json(document | {"version": 2})
    with pytest.raises(InputError, match=r'"memroy" is not known'):
        problem_from_json(document | {"memroy": 20})


def test_the_problems_on_the_page_are_read_and_their_fields_explained() -> None:
    documents = [json.loads(block) for block in json_blocks("problem")]
    assert len(documents) == 4
    read = [problem_from_json(document) for document in documents]
    assert [problem.least_memory for problem in read] == [17, 7, 9, 24]
    assert [problem.peak_memory for problem in read] == [28, 10, 13, 28]
    written = [offcert.core.files.problem_to_json(problem) for problem in read]
    for document in (*documents, *written):
        assert keys(document, ("source",)) <= fields("problem")


def test_the_certificate_on_the_page_is_valid_and_its_fields_explained() -> None:
    (block,) = json_blocks("certificate")
    document = json.loads(block)
    verification = offcert.verify(document)
    assert verification.valid, verification.faults
    assert verification.certificate.result.objective == 24
    assert document["problem"]["chain"]["forward"] == [3, 2, 2, 1]
    # The settings and the proofs are from the registry; what claims hold besides is statistics.
    free = ("problem", "versions", "settings", "details")
    published = [json.loads(path.read_text()) for path in (DOCS / "certificates").glob("*-*.json")]
    assert any("pieces" in (each["schedule"] or {}) for each in published)
    for each in (document, *published):
        assert keys(each, free) <= fields("certificate")


def test_the_family_on_the_page_is_a_library_and_its_fields_explained(tmp_path: Path) -> None:
    (block,) = json_blocks("library")
    (tmp_path / "four.json").write_text(block)
    entry = Library(tmp_path).entry("four-m28")
    assert entry.record.value == entry.record.proved_bound == 24
    free = ("problem", "details")
    assert keys(json.loads(block), free) <= fields("library")


def test_the_table_on_the_page_is_read_and_its_columns_explained(tmp_path: Path) -> None:
    (block,) = json_blocks("table")
    path = tmp_path / "table.json"
    path.write_text(block)
    rows = read_rows(path)
    assert [row["makespan"] for row in rows] == [24, 21]
    assert set(rows[0]) <= fields("table")
    assert keys(read_json(path), ()) <= fields("table") | {"format", "version", "rows"}


def test_names_of_the_interface_that_pages_use_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`(offcert(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
            assert _resolves(name), f"{page.name}: {name}"


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with the options of `make docs`."""
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search("-m sphinx (.*) -j auto -d .* docs out/docs", makefile)
    assert recipe is not None
    options = [*recipe[1].split(), "-d", str(folder / "cache")]
    assert {"-W", "--keep-going"} <= set(options)
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    return folder / "html"


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert "<table" in (site / "formats" / "certificate.html").read_text()


def test_the_site_says_what_the_registry_knows(site: Path) -> None:
    page = (site / "formats" / "certificate.html").read_text()
    for kind in (*PROOFS.values(), *CLAIMS.values()):
        assert kind.method in page
        assert f'href="../theory/{kind.page}.html"' in page
    for proof in {kind.proof for kind in PROOFS.values()}:
        for rule in proof.rules():
            assert f">{rule.name}</span>" in page
    for name in (*Settings.__dataclass_fields__, *Notes.__dataclass_fields__):
        assert f">{name}</span>" in page


def test_the_site_says_what_the_registry_of_bounds_on_pools_knows(site: Path) -> None:
    page = (site / "formats" / "placement.html").read_text()
    for kind in (*PLACEMENT_PROOFS.values(), *PLACEMENT_CLAIMS.values()):
        assert kind.method in page
        assert f'href="../theory/{kind.page}.html"' in page
    for proof in {kind.proof for kind in PLACEMENT_PROOFS.values()}:
        for rule in proof.rules():
            assert f">{rule.name}</span>" in page


def test_the_site_has_every_name_of_the_front_door(site: Path) -> None:
    page = (site / "api" / "index.html").read_text()
    for name in offcert.__all__:
        assert f">{name}</span>" in page, name


def test_the_site_has_the_help_of_every_command(site: Path) -> None:
    page = (site / "commands.html").read_text()
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        assert f'href="#offcert-{name}' in page, name
    assert "--prefetch-bandwidth" in page
