"""Who may import whom (see CONTRIBUTING.md, "The house"), and what a help text must not load."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import networkx
import pytest

import offcert
from offcert.cli.lab import SUMMARIES
from offcert.core.lab import PARTS
from offcert.proofs.devices_certificate import DEVICES_PROOFS
from offcert.proofs.placement_certificate import PLACEMENT_PROOFS
from offcert.proofs.questions import QUESTIONS
from offcert.proofs.registry import PROOFS

ROOT = Path(offcert.__file__).parent
# What everybody may use: what questions are about, and the questions.
ASKED = ("core", "questions")
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "questions": {"core"},
    "proofs": {*ASKED},
    "verification": {*ASKED, "proofs"},
    "formulations": {*ASKED, "proofs"},
    "heuristics": {*ASKED},
    "instances": {*ASKED},
    "certification": {*ASKED, "proofs", "verification", "formulations", "heuristics", "instances"},
    "campaign": {
        *ASKED,
        "proofs",
        "verification",
        "formulations",
        "heuristics",
        "instances",
        "certification",
    },
    "runtime": {*ASKED},
    "training": {*ASKED, "proofs", "certification", "runtime"},
    "report": {*ASKED, "proofs", "verification", "certification"},
}
# The command line may import all of them, inside the functions that run a command.
ALLOWED["cli"] = {*ALLOWED}
# Anybody may say of which version a document is.
ANYBODY = {"_version"}
SOLVERS = {"ortools", "pulp", "scipy"}


def lab_modules() -> list[Path]:
    return sorted((ROOT.parent / "offcert_lab").rglob("*.py"))


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@cache
def imported(path: Path) -> tuple[str, ...]:
    return tuple(_imported_of(path.read_text()))


def _imported_of(text: str) -> Iterator[str]:
    """Yield what a file imports: at its top, later, for types only, or by a name it writes out.

    Whole modules that are imported for types only are what rows name, and are loaded by `BY_NAME`.
    """
    tree = ast.parse(text)
    rows = {id(node) for node in imported_for_rows(tree)}
    for node in ast.walk(tree):
        if id(node) in rows:
            continue
        if isinstance(node, ast.Call):
            yield from named_in(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield node.module or ""
            # What is imported may be a module itself.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_for_rows(tree: ast.Module) -> Iterator[ast.Import]:
    """Yield the imports of modules for `offcert.core.later.Later`, which nothing else can use."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (each for each in node.body if isinstance(each, ast.Import))


def named_in(call: ast.Call) -> Iterator[str]:
    """Yield the module of a call of `import_module` that writes its name out."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in ("import_module", "__import__") or not call.args:
        return
    if isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value)


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
                assert parts[1] in ALLOWED[room] | ANYBODY | {room}, f"{path} imports {name}"
            assert parts[0] not in ("papers", "offcert_lab"), f"{path} imports {name}"
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


KINDS = (*PROOFS.values(), *PLACEMENT_PROOFS.values(), *DEVICES_PROOFS.values())


def named_by_questions(*fields: str) -> set[str]:
    """Return the modules that rows of the registry of questions name in some of their fields."""
    rows = [getattr(question, field) for question in QUESTIONS.values() for field in fields]
    return {row.name.rpartition(".")[0] for row in rows if row is not None}


# Who loads what has a name that it does not write out, and where the names come from.
BY_NAME: dict[str, set[str]] = {
    # Every verifier that a registry names.
    "verification/findings.py": {kind.verifier.name.rpartition(".")[0] for kind in KINDS},
    "campaign/preload_search.py": {
        "offcert.formulations.fluid.milp",
        "offcert.formulations.models.interval_cpsat",
        "offcert.formulations.models.stage_milp",
    },
    "verification/document.py": named_by_questions("checker", "certificate"),
    "proofs/any_certificate.py": named_by_questions("reader", "writer"),
    "certification/climbing.py": named_by_questions("ladder"),
    "certification/placing.py": named_by_questions("placer") | named_by_questions("host"),
    "cli/choose.py": named_by_questions("text"),
    "cli/devices.py": named_by_questions("text"),
    "cli/searching.py": named_by_questions("text"),
    "cli/place.py": named_by_questions("placed", "certificate"),
    "cli/plot.py": named_by_questions("picture", "snapshot", "certificate"),
    "certification/running.py": named_by_questions("answers"),
    "cli/verify.py": {
        *named_by_questions("text"),
        "offcert.report.findings",
        "offcert.verification.document",
        "offcert.verification.outward.check",
        "offcert.verification.pivot.check",
    },
    # Entry points of the lab.
    "cli/lab.py": set(),
    "core/lab.py": set(),
    # The user's own code.
    "core/options.py": set(),
    # What the front door names, and no room.
    "core/notebook.py": set(),
}


def test_the_lab_uses_the_package_and_no_study() -> None:
    """The other way, the package finds commands of the lab by entry points."""
    assert len(lab_modules()) > 25
    for path in lab_modules():
        assert not [name for name in imported(path) if name.split(".")[0] == "papers"], path
    for path in modules():
        assert not [name for name in imported(path) if name.split(".")[0] == "offcert_lab"], path


def test_what_the_lab_names_for_the_package_is_there() -> None:
    """Every entry point, and every command that the package knows by name without the lab."""
    project = tomllib.loads((ROOT.parent / "lab" / "pyproject.toml").read_text())["project"]
    assert project["version"] == offcert.__version__
    assert project["dependencies"] == [f"offcert=={offcert.__version__}"]
    points = project["entry-points"]
    for group, names in SUMMARIES.items():
        assert points[group].keys() == names.keys()
        assert all(callable(import_module(module).add) for module in points[group].values())
    for value in points[PARTS].values():
        module, _, name = value.partition(":")
        assert callable(getattr(import_module(module), name))


@pytest.mark.slow
def test_who_imports_by_names_is_known() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in modules()
        if path != ROOT / "__init__.py"
        and re.search("load|import_module", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and looks_up(node)
    }
    assert found == set(BY_NAME)
    for names in BY_NAME.values():
        assert all(home(name) for name in names)


# Calls of `Later.load`, and of entry points; other files have functions of this name.
LATER = re.compile(
    r"(.*question\.\w+|[A-Z]+\.text|kind\.verifier|placer|says|drawn|points?|.*\[name\])"
    r"\.load\(\)"
)


def looks_up(call: ast.Call) -> bool:
    """Return whether a call loads what has a name that is not written out."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "import_module":
        return not isinstance(call.args[0], ast.Constant)
    return name == "load" and LATER.fullmatch(ast.unparse(call)) is not None


def home(name: str) -> Path | None:
    """Return the file of a module of ours, or None of any other name."""
    folder = ROOT.parent.joinpath(*name.split("."))
    found = [path for path in (folder / "__init__.py", folder.with_suffix(".py")) if path.exists()]
    return found[0] if found and ROOT in found[0].parents else None


def used_by(path: Path) -> set[Path]:
    """Return the files whose contents a file uses: neither its own nor the packages it lies in."""
    names = {*imported(path), *BY_NAME.get(path.relative_to(ROOT).as_posix(), ())}
    around = {folder / "__init__.py" for folder in path.parents}
    return {found for name in names if (found := home(name))} - around - {path}


def circles(files: Iterable[Path]) -> list[set[Path]]:
    """Return the sets of files each of which uses all others, by way of others or directly."""
    graph = networkx.DiGraph((path, used) for path in files for used in used_by(path))
    return [found for found in networkx.strongly_connected_components(graph) if len(found) > 1]


def test_no_modules_use_each_other() -> None:
    """Neither when they are loaded, nor later, nor for types only, nor by name."""
    assert not circles(modules())


def test_folders_of_the_runtime_do_not_use_each_other() -> None:
    """Each is below those that use it: devices at the bottom, what `offcert train` runs on top."""
    runtime = ROOT / "runtime"
    graph = networkx.DiGraph(
        (path.relative_to(runtime).parts[0], used.relative_to(runtime).parts[0])
        for path in runtime.rglob("*.py")
        for used in used_by(path)
        if runtime in used.parents
    )
    graph.remove_edges_from([(name, name) for name in graph])
    assert len(graph) > 12
    assert networkx.is_directed_acyclic_graph(graph)


def test_questions_use_each_other_one_way() -> None:
    """Splits and devices ask for schedules in the end; what a schedule uses can be placed."""
    folder = ROOT / "questions"
    uses = {
        (path.parent.name, used.parent.name)
        for path in folder.rglob("*.py")
        for used in used_by(path)
        if folder in used.parents and used.parent != path.parent
    }
    assert uses == {("split", "schedule"), ("devices", "schedule"), ("schedule", "placement")}


@pytest.mark.parametrize(
    "planted",
    [
        "from offcert.questions.schedule.problem import Problem",
        "def late():\n    from offcert.questions.schedule.problem import Problem",
        "if TYPE_CHECKING:\n    from offcert.questions.schedule.problem import Problem",
        "import_module('offcert.questions.schedule.problem')",
        "importlib.import_module('offcert.questions.schedule.problem').Problem",
    ],
)
def test_planted_circles_are_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the core's trace, which the problem is made of."""
    trace, real = ROOT / "core" / "trace.py", imported
    file = trace.read_text() + "\n" + planted

    def other(path: Path) -> tuple[str, ...]:
        return tuple(_imported_of(file)) if path == trace else real(path)

    monkeypatch.setattr(sys.modules[__name__], "imported", other)
    (found,) = circles(modules())
    assert {trace, ROOT / "questions" / "schedule" / "problem.py"} <= found


def foreign(begin: Iterable[Path]) -> set[Path]:
    """Return what verification would share with what finds and simulates, if it loads these."""
    may = {ROOT / room for room in ("core", "questions", "proofs", "verification")}
    door = {ROOT / "__init__.py", ROOT / "_version.py"}
    return {
        path
        for path in reached(begin)
        if path.name == "simulate.py" or not (path in door or may & set(path.parents))
    }


VERIFY = sorted((ROOT / "verification").rglob("*.py"))


def test_verification_reaches_questions_and_proofs_only() -> None:
    assert len(VERIFY) > 25
    assert not foreign(VERIFY)


@pytest.mark.parametrize(
    "planted",
    [
        "from offcert.formulations.labels.outward.model import NOTHING",
        "from offcert.formulations.labels import ends",
        "import offcert.formulations.labels.ends.targets as bound",
        "def late():\n    from offcert.formulations.labels.pivot import cut",
        "from offcert.certification.search import Search",
        "from offcert.questions.schedule.simulate import simulate",
        "from offcert import heuristics",
    ],
)
def test_planted_imports_are_found(planted: str, tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted)
    # With what verification itself loads, which has been seen to be clean, it would be the same.
    assert foreign([file])


@pytest.mark.slow
def test_what_verification_loads_is_questions_and_proofs_only(tmp_path: Path) -> None:
    """Also what it imports by a name that it reads: a verifier by the registry's."""
    certificates = sorted((ROOT.parent / "docs" / "certificates").glob("theory-*.json"))
    assert len(certificates) >= 3
    code = (
        "import sys\nfrom offcert.proofs.registry import PROOFS\n"
        "from offcert.verification.document import verify_file\n"
        "for kind in PROOFS.values(): kind.verifier.load()\n"
        f"for path in {[str(path) for path in certificates]!r}: assert verify_file(path).valid\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('offcert.')}\n"
        "assert rooms == {'_version', 'core', 'questions', 'proofs', 'verification'}, rooms\n"
        "assert 'offcert.questions.schedule.simulate' not in sys.modules\n"
        "assert not {'torch', 'ortools', 'pulp', 'scipy.optimize'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_finders_and_simulators_do_not_know_the_verifiers() -> None:
    for room in ("core", "questions", "proofs", "formulations", "heuristics", "instances"):
        for path in reached((ROOT / room).rglob("*.py")):
            assert ROOT / "verification" not in path.parents, path


def test_the_checker_imports_no_simulator() -> None:
    assert not set(imported(ROOT / "questions" / "schedule" / "check.py")) & {
        "offcert.questions.schedule.simulate",
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


@pytest.mark.parametrize(
    "package", ["offcert.questions.schedule.files", "offcert.verification.document"]
)
def test_people_who_only_verify_load_no_torch(package: str) -> None:
    code = f"import sys, {package}\nsys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_who_reads_and_writes_platforms_names_a_rate_without_its_direction() -> None:
    """Everything else asks `Platform.rate` or `Platform.transfer_time`, which want to know it."""
    may = {"core/platform.py", "questions/schedule/problem.py", "cli/searching.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in modules()
        if "bandwidth" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("bandwidth", "prefetch_bandwidth")
    }
    assert found == may


def test_files_stay_short() -> None:
    files = [*modules(), *lab_modules(), *(ROOT.parent / "papers").rglob("*.py")]
    long = {str(path): lines for path in files if (lines := path.read_text().count("\n")) > 400}
    assert not long
