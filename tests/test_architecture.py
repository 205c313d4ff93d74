"""Who may import whom (design document, §1), and what must not be loaded for a help text."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import offcert

ROOT = Path(offcert.__file__).parent
ALLOWED = {
    "core": set(),
    "formulations": {"core"},
    "heuristics": {"core"},
    "instances": {"core"},
    "certify": {"core", "formulations", "heuristics", "instances"},
    "campaign": {"core", "formulations", "heuristics", "instances", "certify"},
    "runtime": {"core"},
    "training": {"core", "certify", "runtime"},
    "report": {"core", "certify"},
}
SOLVERS = {"ortools", "pulp", "scipy"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""


def rooms() -> list[str]:
    return sorted(entry.name for entry in ROOT.iterdir() if (entry / "__init__.py").exists())


def test_every_room_has_its_rule() -> None:
    assert set(rooms()) <= set(ALLOWED)
    assert len(modules()) > 40


@pytest.mark.parametrize("room", rooms())
def test_arrows_between_rooms(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "offcert" and len(parts) > 1:
                assert parts[1] in ALLOWED[room] | {room}, f"{path} imports {name}"
            if parts[0] == "torch":
                assert room in ("runtime", "training"), f"{path} imports torch"
            if parts[0] in SOLVERS:
                assert room == "formulations", f"{path} imports {name}"


def test_independent_verification_imports_neither_simulator_nor_solver() -> None:
    independent = {ROOT / "certify" / "verify.py"}
    while True:
        names = {name for path in independent for name in imported(path)}
        paths = {
            ROOT.parent / f"{name.replace('.', '/')}.py"
            for name in names
            if name.startswith("offcert.")
        }
        if paths <= independent:
            break
        independent |= paths
    assert ROOT / "certify" / "pivot_search.py" in independent
    for path in independent:
        assert path.parent.name not in ("formulations", "heuristics", "pivot"), path
        assert path.name != "simulate.py"


def test_the_checker_imports_no_simulator() -> None:
    assert not set(imported(ROOT / "core" / "check.py")) & {
        "offcert.core.simulate",
        "numba",
        "numpy",
    }


@pytest.mark.parametrize("arguments", [["--help"], ["certify", "--help"], ["--version"]])
def test_help_loads_neither_torch_nor_a_solver_nor_a_compiler(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom offcert.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'ortools', 'scipy', 'numba', 'numpy', 'matplotlib'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "offcert" in run.stdout


@pytest.mark.parametrize("package", ["offcert.core.files", "offcert.certify.verify"])
def test_people_who_only_verify_load_no_torch(package: str) -> None:
    code = f"import sys, {package}\nsys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_who_reads_and_writes_platforms_names_a_rate_without_its_direction() -> None:
    """Everything else asks `Platform.rate` or `Platform.transfer_time`, which want to know it."""
    core = {"core/platform.py", "core/problem.py", "core/files.py"}
    may = core | {"cli.py", "runtime/measurement.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("bandwidth", "prefetch_bandwidth")
    }
    assert found == may


def test_files_stay_short() -> None:
    long = {str(path): lines for path in modules() if (lines := path.read_text().count("\n")) > 400}
    assert not long
