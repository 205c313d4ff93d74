"""A wheel holds all that the program needs, and works where the checkout is not to be found."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path

import pytest

import offcert

ROOT = Path(__file__).parents[2]
# Of the licence's text as https://www.apache.org/licenses/LICENSE-2.0.txt has it.
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
# Imports the program from the first of some folders, and what it depends on from the last one.
# Without `site` no editable installation puts the checkout on the path; -I leaves out the folder at
# hand and PYTHONPATH.
RUN = """
import sys
sys.path[:0] = {folders!r}
import offcert
assert offcert.__file__.startswith({folders!r}[0]), offcert.__file__
from offcert.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: nothing is left in the checkout, and nothing that lies there goes in."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return built(copy, ("offcert", "offcert_lab", "papers"), ".")


@pytest.fixture(scope="module")
def lab_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's, whose folder has a link to its sources."""
    copy = tmp_path_factory.mktemp("lab_source")
    shutil.copy(ROOT / "LICENSE", copy)
    return built(copy, ("lab", "offcert_lab"), "./lab")


def built(copy: Path, folders: Sequence[str], project: str) -> Path:
    """Return the wheel of a project, built from a copy of some folders."""
    leave = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in folders:
        shutil.copytree(ROOT / name, copy / name, ignore=leave, symlinks=True)
    return built_by_hook(copy / project, copy / "dist")


def built_by_hook(project: Path, folder: Path, kind: str = "wheel") -> Path:
    """Have what builds a project build a distribution into a folder, as `pip` does; return it."""
    folder.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, check=True)
    (made,) = (each for each in folder.iterdir() if each.suffix in (".whl", ".gz"))
    return made


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = built_by_hook(wheel.parents[1], tmp_path / "archive", "sdist")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    again = built_by_hook(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "again")
    names = [
        {name for name in zipfile.ZipFile(each).namelist() if not name.endswith("/RECORD")}
        for each in (wheel, again)
    ]
    assert names[0] == names[1]
    # Data that no list of modules names.
    assert {"offcert/py.typed", "offcert/instances/library/cnn-8-0.json"} <= names[1]
    assert any(name.startswith("offcert/report/web/") for name in names[1])


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_from(wheel, tmp_path_factory.mktemp("installed"))


def installed_from(wheel: Path, folder: Path) -> Path:
    """Return the folder after a wheel was installed into it."""
    # Few of the modules are imported here.
    plain = ("--no-deps", "--no-index", "--no-compile")
    pip("install", *plain, "--target", str(folder), str(wheel), cwd=folder)
    return folder


def pip(*arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def offcert_from(
    installed: Path, cwd: Path, arguments: Sequence[str], *beside: Path
) -> subprocess.CompletedProcess[str]:
    folders = [*map(str, (installed, *beside)), sysconfig.get_paths()["purelib"]]
    code = RUN.format(folders=folders, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=cwd,
        # A new installation would compile its kernels for minutes; they are Python, too.
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_holds_what_the_package_holds(wheel: Path) -> None:
    """And nothing of the studies, which lie beside it in the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
        metadata = message_from_bytes(
            archive.read(next(name for name in held if name.endswith(".dist-info/METADATA")))
        )
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "offcert").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".lock"
    }
    assert {name for name in held if ".dist-info/" not in name} == package
    assert {"offcert/py.typed", "offcert/instances/library/cnn-8-0.json"} <= package
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Version"] == offcert.__version__
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)


def test_the_lab_is_a_wheel_of_its_own(
    installed: Path, lab_wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without it, commands of the lab say what to install; with it, they are there."""
    with zipfile.ZipFile(lab_wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "offcert_lab").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == package
    for command in (("hunt", "solvers"), ("audit", "--engine", "a:b"), ("generate", "core")):
        without = offcert_from(installed, tmp_path, command)
        assert without.returncode == 2
        assert without.stderr.endswith("needs another package: pip install offcert-lab\n")
    lab = installed_from(lab_wheel, tmp_path_factory.mktemp("lab"))
    ran = offcert_from(installed, tmp_path, ("hunt", "solvers", "--problems", "1", "--json"), lab)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["problems"] == 1


def test_the_licence_is_the_whole_text() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE


def test_it_works_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        ran = offcert_from(installed, tmp_path, arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert offcert.__version__ in run("--version")
    listed = json.loads(run("library", "list", "--group", "cnn-8", "--json"))
    assert "cnn-8-0-m5" in json.dumps(listed)
    run("library", "get", "cnn-8-0-m5", "-o", "problem.json")
    run("certify", "problem.json", "--time-limit", "20", "--workers", "1", "-o", "certificate.json")
    verified = json.loads(run("verify", "certificate.json", "--json"))
    assert verified["valid"] is True
    forged = json.loads((tmp_path / "certificate.json").read_text())
    forged["lower_bound"] += 1
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    assert offcert_from(installed, tmp_path, ("verify", "forged.json")).returncode == 1


def test_the_checkout_is_not_to_be_found_there(tmp_path: Path) -> None:
    ran = offcert_from(tmp_path, tmp_path, ("--version",))
    assert ran.returncode == 1
    assert "No module named 'offcert'" in ran.stderr


def test_the_installed_command_is_the_same(installed: Path) -> None:
    script = (installed / "bin" / "offcert").read_text()
    assert "from offcert.cli import main" in script
