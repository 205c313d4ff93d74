"""The site: it is built without a warning, and says what registries and commands know."""

import json
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

import offcert
from offcert.proofs.any_certificate import Notes, Settings
from offcert.proofs.placement_certificate import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.proofs.registry import CLAIMS, PROOFS
from support.browser import installed, opened
from support.docs.docs_pages import DOCS, ROOT
from support.docs.typed_commands import command_names


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
        for name in proof.record().forms:
            assert f">{name}</span>" in page
    for name in (*Settings.__dataclass_fields__, *Notes.__dataclass_fields__):
        assert f">{name}</span>" in page


def test_the_site_says_what_the_registry_of_bounds_on_pools_knows(site: Path) -> None:
    page = (site / "formats" / "placement.html").read_text()
    for kind in (*PLACEMENT_PROOFS.values(), *PLACEMENT_CLAIMS.values()):
        assert kind.method in page
        assert f'href="../theory/{kind.page}.html"' in page
    for proof in {kind.proof for kind in PLACEMENT_PROOFS.values()}:
        for name in proof.record().forms:
            assert f">{name}</span>" in page


def test_the_site_has_every_name_of_the_front_door(site: Path) -> None:
    page = (site / "api" / "index.html").read_text()
    for name in offcert.__all__:
        assert f">{name}</span>" in page, name


def test_the_site_has_the_help_of_every_command(site: Path) -> None:
    page = (site / "commands.html").read_text()
    for name in command_names():
        assert f'href="#offcert-{name}' in page, name
    assert "--prefetch-bandwidth" in page


def test_the_site_has_a_page_into_which_files_are_dropped(site: Path) -> None:
    viewer = (site / "viewer.html").read_text(encoding="utf-8")
    assert 'href="viewer.html"' in (site / "pages.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', viewer)
    known = json.loads(data)
    for method in (*PROOFS, *CLAIMS):
        about, page = known["kinds"][method]
        assert about
        # Where its links lead.
        assert (site / known["docs"] / "theory" / f"{page}.html").is_file()


def test_no_page_needs_a_network(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|link)[^>]*(?:src|href)="(?:https?:)?//[^"]*""")
    for page in site.rglob("*.html"):
        assert loads.findall(page.read_text()) == [], page.name
    formulas = (site / "theory" / "exact-sums.html").read_text()
    assert formulas.count("<math ") > 50
    assert "$" not in re.sub(r"<(?:script|style).*?</(?:script|style)>", "", formulas, flags=re.S)


def test_formulas_that_cannot_be_drawn_are_no_formulas() -> None:
    mathml = runpy.run_path(str(DOCS / "_ext" / "mathml.py"))["mathml"]
    assert ">A</mi><mo" in mathml(r"A'_i \Bigl\{ x", block=False)
    assert ">{</mo>" in mathml(r"A'_i \Bigl\{ x", block=False)
    assert "<munder><mo>max</mo>" in mathml(r"\max_o a \tag{2}", block=True)
    assert "<mtext>(2)</mtext>" in mathml(r"\max_o a \tag{2}", block=True)
    for unknown in (r"\bigl\langle x", r"\nosuchcommand x"):
        with pytest.raises(ValueError, match="cannot be converted"):
            mathml(unknown, block=False)


def test_blocks_have_buttons_that_copy_commands_without_prompts(site: Path) -> None:
    script = (site / "_static" / "copybutton.js").read_text()
    assert "formatCopyText(text, '$ ', false, true, true" in script
    assert "copybutton.js" in (site / "tutorials" / "optimality.html").read_text()


def test_notebooks_of_the_gallery_are_the_tutorials_executed(site: Path) -> None:
    """Whoever changes a tutorial executes its notebook again."""
    notebooks = runpy.run_path(str(DOCS / "_ext" / "notebooks.py"))
    for name in notebooks["NAMES"]:
        page = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
        notebook = json.loads((DOCS / "gallery" / f"{name}.ipynb").read_text(encoding="utf-8"))
        sources = [cell["source"] for cell in notebook["cells"]]
        assert sources == [cell["source"] for cell in notebooks["cells_of"](page)], name
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        printed = [output for cell in code for output in cell["outputs"]]
        assert len(printed) >= 4
        shown = (site / "gallery" / f"{name}.html").read_text()
        assert shown.count("data:image/svg+xml;base64,") == sum(
            "image/svg+xml" in output.get("data", {}) for output in printed
        )


@pytest.mark.skipif(installed() is None, reason="no Chromium (Debian: chromium-headless-shell)")
def test_a_search_for_the_batch_size_finds_training_first(site: Path, tmp_path: Path) -> None:
    with opened(site / "search.html", tmp_path, "?q=batch+size") as page:
        deadline = time.monotonic() + 30
        while not page.value("document.querySelectorAll('ul.search li a').length"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert page.text("ul.search li a") == "A language model on one card"
