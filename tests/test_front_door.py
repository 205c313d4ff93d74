"""`import offcert`: what users find there, what it costs, and what it says to wrong arguments."""

import ast
import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from random_instances import random_problem

import offcert
from offcert.certify.ladder import certify
from offcert.core.errors import MissingPackageError
from offcert.verify.document import Verification

ROOT = Path(offcert.__file__).parent


def run(code: str) -> str:
    """Return what a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_loads_nothing_else() -> None:
    code = (
        "import sys, offcert\n"
        "heavy = {'numpy', 'numba', 'torch', 'scipy', 'ortools', 'pulp', 'matplotlib'}\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in heavy | {'offcert'}))\n"
        "problem = offcert.Problem('p', offcert.Chain([1], [1], [1, 1], [0, 0]), "
        "offcert.Platform(9, 1))\n"
        "print(repr(problem) and sorted(heavy & set(sys.modules)))"
    )
    assert run(code).splitlines() == ["['offcert']", "[]"]


def test_types_and_values_come_from_the_same_places() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed) == offcert.__all__
    for name, module in typed.items():
        value = getattr(offcert, name)
        if name in ("certify", "verify"):
            value = getattr(import_module(module), name)
            assert inspect.signature(getattr(offcert, name)) == inspect.signature(value)
            assert getattr(offcert, name).__doc__ == value.__doc__
        assert value.__module__ == module
        assert name in dir(offcert)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        offcert.nonsense  # noqa: B018


def test_nobody_inside_uses_it() -> None:
    """Else the test of what verification reaches would not see what comes through it."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == "offcert":
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.attr] if node.value.id == "offcert" else []
            assert set(names) <= {"__version__"}, f"{path} uses {names}"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import offcert.certify.ladder, offcert.verify.document",
        "from offcert.certify.ladder import certify\nfrom offcert.verify import document",
        "from offcert import certify, verify",
    ],
)
def test_rooms_answer_calls_whatever_was_imported_first(before: str) -> None:
    code = (
        f"{before}\nimport offcert\n"
        "chain = offcert.Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])\n"
        "problem = offcert.Problem('p', chain, offcert.Platform(13, 2))\n"
        "certificate = offcert.certify(problem, time_limit=5)\n"
        "print(offcert.verify(certificate).valid, certificate.result.objective)\n"
        "import offcert.certify.ladder\n"
        "print(offcert.certify is __import__('sys').modules['offcert.certify'])"
    )
    assert run(code).splitlines() == ["True 18", "True"]


def test_verify_takes_files_certificates_and_documents(tmp_path: Path) -> None:
    certificate = certify(random_problem(3), time_limit=5)
    certificate.write(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    for claim in (certificate, document, tmp_path / "c.json", str(tmp_path / "c.json")):
        verification = offcert.verify(claim)
        assert isinstance(verification, Verification)
        assert verification.valid
    document["objective"] += 1
    assert not offcert.verify(document).valid


@pytest.mark.parametrize("name", ["profile", "offload", "TrainingStep"])
def test_without_torch_it_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(vars(offcert), name, raising=False)
    function = getattr(offcert, name)
    sentence = rf"{name} needs PyTorch, .* pip install 'offcert\[torch\]'"
    for kind in (MissingPackageError, ImportError, offcert.OffcertError):
        with pytest.raises(kind, match=sentence):
            function("resnet18")
    monkeypatch.undo()
    assert getattr(offcert, name) is not function
