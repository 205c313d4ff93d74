"""Who may import whom (design document, §1), and what must not be loaded for a help text."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import offcert

ROOT = Path(offcert.__file__).parent
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "proofs": {"core"},
    "verify": {"core", "proofs"},
    "formulations": {"core", "proofs"},
    "heuristics": {"core"},
    "instances": {"core"},
    "certify": {"core", "proofs", "verify", "formulations", "heuristics", "instances"},
    "hunts": {"core", "proofs", "verify", "formulations", "heuristics", "instances", "certify"},
    "campaign": {"core", "proofs", "verify", "formulations", "heuristics", "instances", "certify"},
    "runtime": {"core"},
    "training": {"core", "proofs", "certify", "runtime"},
    "report": {"core", "proofs", "verify", "certify"},
}
# The command line may import all of them, inside the functions that run a command.
ALLOWED["cli"] = {*ALLOWED, "__version__"}
SOLVERS = {"ortools", "pulp", "scipy"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@cache
def imported(path: Path) -> tuple[str, ...]:
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield node.module or ""
            # What is imported may be a module itself.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


@cache
def files_of(name: str) -> list[Path]:
    """Return what importing a name of ours loads: the packages on the way, and the module."""
    parts = name.split(".")
    folders = [ROOT.parent.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    files = [folder / "__init__.py" for folder in folders] + [folders[-1].with_suffix(".py")]
    return [file for file in files if file.exists()]


def reached(begin: Iterable[Path]) -> set[Path]:
    """Return every file of ours that is loaded with these, at any depth."""
    found: set[Path] = set()
    waiting = list(begin)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            # The front door loads nothing itself, and nobody inside uses it: test_front_door.
            for name in () if path == ROOT / "__init__.py" else imported(path):
                if name.split(".")[0] == "offcert":
                    waiting += files_of(name)
    return found


def foreign(begin: Iterable[Path]) -> set[Path]:
    """Return what verification would share with what finds and simulates, if it loads these."""
    may = {ROOT / "core", ROOT / "proofs", ROOT / "verify"}
    return {
        path
        for path in reached(begin)
        if path.name == "simulate.py"
        or not ((path.parent == ROOT and path.name == "__init__.py") or may & set(path.parents))
    }


VERIFY = sorted((ROOT / "verify").rglob("*.py"))


def test_verification_reaches_the_core_and_the_proofs_only() -> None:
    assert len(VERIFY) > 25
    assert not foreign(VERIFY)


@pytest.mark.parametrize(
    "planted",
    [
        "from offcert.formulations.labels.outward.model import NOTHING",
        "from offcert.formulations.labels import atomic_heads",
        "import offcert.formulations.labels.matched_heads.bound as bound",
        "def late():\n    from offcert.formulations.labels.pivot_outward import cut",
        "from offcert.certify.search import Search",
        "from offcert.core.simulate import simulate",
        "from offcert import heuristics",
    ],
)
def test_planted_imports_are_found(planted: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted)
    # With what verification itself loads, which has been seen to be clean, it would be the same.
    assert foreign([file])


def test_what_verification_loads_is_the_core_and_the_proofs_only(tmp_path: Path) -> None:
    """Also what it imports by a name that it reads: a verifier by the registry's."""
    certificates = sorted((ROOT.parent / "docs" / "certificates").glob("theory-*.json"))
    assert len(certificates) >= 3
    code = (
        "import sys\nfrom offcert.proofs.registry import PROOFS\n"
        "from offcert.verify.document import verify_file\n"
        "from offcert.core.named import named\n"
        "for kind in PROOFS.values(): named('verify', kind.verifier)\n"
        f"for path in {[str(path) for path in certificates]!r}: assert verify_file(path).valid\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('offcert.')}\n"
        "assert rooms == {'core', 'proofs', 'verify'}, rooms\n"
        "assert 'offcert.core.simulate' not in sys.modules\n"
        "assert not {'torch', 'ortools', 'pulp', 'scipy.optimize'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_finders_and_simulators_do_not_know_the_verifiers() -> None:
    for room in ("core", "proofs", "formulations", "heuristics", "instances"):
        for path in reached((ROOT / room).rglob("*.py")):
            assert ROOT / "verify" not in path.parents, path


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
        "heavy = {'torch', 'ortools', 'scipy', 'numba', 'numpy', 'matplotlib', 'rich'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "offcert" in run.stdout


@pytest.mark.parametrize("package", ["offcert.core.files", "offcert.verify.document"])
def test_people_who_only_verify_load_no_torch(package: str) -> None:
    code = f"import sys, {package}\nsys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_who_reads_and_writes_platforms_names_a_rate_without_its_direction() -> None:
    """Everything else asks `Platform.rate` or `Platform.transfer_time`, which want to know it."""
    core = {"core/platform.py", "core/problem.py", "core/platform_json.py", "core/step_json.py"}
    may = core | {"cli/searching.py", "runtime/measurement.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in modules()
        if "bandwidth" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("bandwidth", "prefetch_bandwidth")
    }
    assert found == may


def test_files_stay_short() -> None:
    long = {str(path): lines for path in modules() if (lines := path.read_text().count("\n")) > 400}
    assert not long
