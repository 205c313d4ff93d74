"""The site: it is built without a warning, and says what registries and commands know."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import offcert
from offcert.proofs.placement.registry import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.proofs.registry import CLAIMS, PROOFS
from offcert.proofs.settings import Notes, Settings
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
    for name in command_names():
        assert f'href="#offcert-{name}' in page, name
    assert "--prefetch-bandwidth" in page
