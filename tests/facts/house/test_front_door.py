"""`import offcert`: what users find there, what it costs, and what it says to wrong arguments."""

import ast
import functools
import json
import math
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import offcert
from offcert.certification.ladder import certify
from offcert.core.chain import Chain
from offcert.core.errors import MissingPackageError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Trace
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import Verification
from offcert.verification.limits import BeyondLimitsError, Limits
from support.problems.random_instances import random_problem

ROOT = Path(offcert.__file__).parent


def run(code: str) -> str:
    """Return what a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_loads_next_to_nothing() -> None:
    """Only the version, and where the name of the module that draws for notebooks is put."""
    code = (
        "import sys, offcert\n"
        "heavy = {'numpy', 'numba', 'torch', 'scipy', 'ortools', 'pulp', 'matplotlib'}\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in heavy | {'offcert'}))\n"
        "problem = offcert.Problem('p', offcert.Chain([1], [1], [1, 1], [0, 0]), "
        "offcert.Platform(9, 1))\n"
        "print(repr(problem) and sorted(heavy & set(sys.modules)))"
    )
    assert run(code).splitlines() == [
        "['offcert', 'offcert._version', 'offcert.core', 'offcert.core.notebook']",
        "[]",
    ]


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
        assert value.__module__ == module
        assert name in dir(offcert)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        offcert.nonsense  # noqa: B018


def test_wheels_say_that_there_are_types() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["offcert"]
    assert (ROOT / "py.typed").read_bytes() == b""


def test_nobody_inside_uses_it() -> None:
    """Else the test of what verification reaches would not see what comes through it."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        # Few files name it at all, and parsing all of them takes seconds.
        front = re.search(r"^\s*(import offcert\b|from offcert import)", text, re.MULTILINE)
        # Rows name modules whole, and no name of the front door.
        text = re.sub(r"\boffcert(\.\w+){3,}", "row", text)
        for node in ast.walk(ast.parse(text)) if front else ():
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == "offcert":
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.asname for alias in node.names if alias.name == "offcert"]
                names = [name for name in names if name is not None]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.attr] if node.value.id == "offcert" else []
            assert not names, f"{path} uses {names}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        "",
        "from offcert.certification.ladder import certify\nimport offcert.verification.document",
    ],
)
def test_rooms_answer_calls_whatever_was_imported_first(before: str) -> None:
    code = (
        f"{before}\nimport offcert\n"
        "chain = offcert.Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])\n"
        "problem = offcert.Problem('p', chain, offcert.Platform(13, 2))\n"
        "certificate = offcert.certify(problem, time_limit=5)\n"
        "print(offcert.verify(certificate).valid, certificate.result.objective)\n"
        "print(offcert.certify.__module__, offcert.verify.__module__)"
    )
    assert run(code).splitlines() == [
        "True 18",
        "offcert.certification.ladder offcert.verification.document",
    ]


def test_verification_may_be_limited(tmp_path: Path) -> None:
    certificate = certify(PROBLEM, time_limit=5)
    certificate.write(tmp_path / "c.json")
    with pytest.raises(BeyondLimitsError, match="but only 100 may be read"):
        offcert.verify(tmp_path / "c.json", Limits(document=100))
    assert repr(offcert.verify(certificate)) == (
        "<Verification valid, 0 faults; OPTIMAL: 18 (proved)>"
    )


def test_rooms_are_handed_to_other_processes_as_functions_are() -> None:
    for room in (offcert.certify, offcert.verify):
        assert pickle.loads(pickle.dumps(room)) is room
    assert functools.partial(offcert.certify, time_limit=5)(PROBLEM).result.objective == 18


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
    sentence = rf"{name} needs PyTorch, .* pip install '\.\[torch\]'"
    for kind in (MissingPackageError, ImportError, offcert.OffcertError):
        with pytest.raises(kind, match=sentence):
            function("resnet18")
    monkeypatch.undo()
    assert getattr(offcert, name) is not function


CHAIN = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
PROBLEM = Problem("p", CHAIN, Platform(13, Fraction(2)))
OPERATION = Operation("a", 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: offcert.certify("x"), "problem must be a Problem, as .* return, not 'x'"),
        (lambda: offcert.solve(3, "greedy"), "problem must be a Problem, as .* return, not 3"),
        (
            lambda: offcert.certify(PROBLEM, time_limit=-1),
            "time_limit must be a positive number of seconds, not -1",
        ),
        (lambda: offcert.certify(PROBLEM, time_limit="5"), "time_limit must be a number, not '5'"),
        (
            lambda: offcert.certify(PROBLEM, time_limit=math.nan),
            "time_limit must be a positive number of seconds, not nan",
        ),
        (
            lambda: offcert.certify(PROBLEM, target_gap=2),
            "target_gap must be from 0 to below 1, not 2",
        ),
        (lambda: offcert.certify(PROBLEM, workers=0), "workers must be at least 1, not 0"),
        (lambda: offcert.certify(PROBLEM, workers=1.5), "workers must be an integer, not 1.5"),
        (lambda: offcert.certify(PROBLEM, seed="a"), "seed must be an integer, not 'a'"),
        (
            lambda: offcert.solve(PROBLEM, "bounds", seed=2**31),
            "seed must be from 0 to below 2\\*\\*31, not 2147483648",
        ),
        (lambda: offcert.solve(PROBLEM, "bounds", workers=True), "workers must be an integer"),
        (lambda: offcert.solve(PROBLEM, "bounds", grid=0), "grid must be at least 1, not 0"),
        (lambda: offcert.solve(PROBLEM, "magic"), 'method must be one of bounds, .*, not "magic"'),
        (lambda: offcert.solve(PROBLEM, ["bounds"]), r'not \["bounds"\]'),
        (lambda: offcert.verify(3), "certificate must be a path, a Certificate or .*, not 3"),
        (lambda: offcert.verify({}), 'the field "format" is missing'),
        (lambda: offcert.verify({}, 5), "limits must be Limits, not 5"),
        (lambda: offcert.read_problem(5), "path must be a string or a path, not 5"),
        (lambda: offcert.read_certificate(None), "path must be a string or a path, not None"),
        (lambda: offcert.read_problem("a\0b"), "cannot be the name of a file"),
        (lambda: offcert.write_problem(5, PROBLEM), "path must be a string or a path, not 5"),
        (lambda: PROBLEM.with_memory("lots"), 'memory must look like .*, not "lots"'),
        (lambda: PROBLEM.with_memory(1.5), "memory must be an integer, not 1.5"),
        (lambda: PROBLEM.with_bandwidth("3GB/s"), "needs a problem in ns and B"),
        (lambda: PROBLEM.with_bandwidth("1", "x"), 'prefetch bandwidth must look like .*, not "x"'),
        (lambda: Problem(3, CHAIN, PROBLEM.platform), "name must be a string, not 3"),
        (
            lambda: Problem("p", [], PROBLEM.platform),
            r"network must be a Trace, a Chain, .*, not \[\]",
        ),
        (lambda: Problem("p", CHAIN, 5), "platform must be a Platform, not 5"),
        (
            lambda: Problem("p", CHAIN, PROBLEM.platform, units="ns"),
            "units must be Units, not 'ns'",
        ),
        (lambda: Chain(3, [], [], []), "chain.forward must be a sequence, not 3"),
        (lambda: Chain([1], [1], [1, 1], [1, 1], names=[2]), r"chain.names\[0\] must be a string"),
        (lambda: Trace([3], []), r"trace.operations\[0\] must be an Operation, not 3"),
        (lambda: Trace([OPERATION], ["x"]), r"trace.tensors\[0\] must be a Tensor, not 'x'"),
        (lambda: Platform(1, 0.5), "bandwidth must be a rational, not 0.5"),
        (lambda: Platform(1, Fraction(-1, 2)), "bandwidth must be more than 0, not -1/2"),
    ],
)
def test_wrong_arguments_are_answered_in_one_sentence(
    call: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(offcert.InputError, match=sentence):
        call()


def test_limits_may_be_spelled_as_on_the_command_line() -> None:
    network = replace(PROBLEM, units=offcert.Units("ns", "B"))
    assert network.with_memory("12B").platform.memory == 12
    assert network.with_memory("50%") == network.with_memory(network.memory_at(Fraction(1, 2)))
    assert network.with_bandwidth("2GB/s", "3/2") == network.with_bandwidth(2, Fraction(3, 2))
    with pytest.raises(offcert.InputError, match='memory "25" needs a unit'):
        network.with_memory("25")
