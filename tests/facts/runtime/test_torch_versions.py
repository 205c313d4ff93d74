"""PyTorch's private names stand in one file, and exist; other versions are told."""

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.runtime import torch_private
from offcert.runtime.torch_versions import NEWEST, OLDEST, UntriedVersionWarning, check_version

ROOT = Path(torch_private.__file__).parents[2]
HOME = "offcert.runtime.torch_private"
HOMES = (HOME, "offcert.runtime.compiled.torch_compiler")
# Where else, and why.
ELSEWHERE = {
    # A hook is called a thousand times a step: what it asks first must not be another call.
    "offcert/runtime/watch/module_hooks.py": {"torch.compiler._is_compiling_flag"},
}
# A backend of the compiler is made of its names.
COMPILED = "offcert/runtime/compiled/"
# There only while a graph becomes kernels.
MEANWHILE = {"torch._inductor.virtualized.V.graph.is_backward"}
NAME = re.compile(r"torch(\.\w+)+")


def private(name: str) -> bool:
    """Whether a name of PyTorch is private; operators, which graphs and modes see, are not."""
    parts = name.split(".")
    if parts[0] != "torch" or parts[1:2] == ["ops"]:
        return False
    return any(re.match(r"_[^\W_]", part) for part in parts)


def named(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of PyTorch in a file, as attributes, imports and strings."""
    torch = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                # What our own files hand on has private names of its own.
                module = "torch" if node.module in HOMES else node.module
                torch[each.asname or each.name] = f"{module}.{each.name}"
                yield f"{module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                torch[each.asname or each.name.split(".")[0]] = (
                    each.name if each.asname else each.name.split(".")[0]
                )
                yield each.name
        elif isinstance(node, ast.Constant) and NAME.fullmatch(str(node.value)):
            yield str(node.value)
    for node in ast.walk(tree):
        base: Any = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(node, ast.Attribute) and isinstance(base, ast.Name) and base.id in torch:
            yield ast.unparse(node).replace(base.id, torch[base.id], 1)


def names_of(path: Path) -> set[str]:
    return {name for name in named(ast.parse(path.read_text())) if private(name)}


FILES = {
    each.relative_to(ROOT).as_posix(): names_of(each)
    for each in (ROOT / "offcert/runtime").rglob("*.py")
}


def test_private_names_of_torch_stand_in_one_file() -> None:
    files = [each for each in (ROOT / "offcert").rglob("*.py") if "runtime" not in each.parts]
    found = FILES | {each.relative_to(ROOT).as_posix(): names_of(each) for each in files}
    del found["offcert/runtime/torch_private.py"]
    found = {where: names for where, names in found.items() if not where.startswith(COMPILED)}
    assert {where: names for where, names in found.items() if names} == ELSEWHERE


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch._C._storage_Use_Count(0)",
        "import torch._dynamo",
        "from torch.utils import _pytree as tree",
        "from torch import fx\nfx._utils",
        "import sys\nsys.modules.get('torch._dynamo.utils')",
        f"from {HOMES[1]} import partitioners\npartitioners._size_of",
    ],
)
def test_ways_to_name_them_are_found(text: str) -> None:
    assert [name for name in named(ast.parse(text)) if private(name)]


@pytest.mark.parametrize("where", sorted(where for where, names in FILES.items() if names))
def test_every_private_name_exists(where: str) -> None:
    assert [name for name in FILES[where] - MEANWHILE if not exists(name)] == []


def exists(name: str) -> bool:
    """Whether PyTorch has something of this name, its modules loaded as far as there are any."""
    found: Any = import_module("torch")
    path = "torch"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(found, part):
            # What our own files hand on has no place of its own there.
            ours = [each for each in map(import_module, HOMES) if hasattr(each, part)]
            if path == f"torch.{part}" and ours:
                found = getattr(ours[0], part)
                continue
            try:
                import_module(path)
            except ImportError:
                return False
        found = getattr(found, part)
    return True


def test_every_setting_that_is_compared_exists() -> None:
    for getter, setter in torch_private.FLAGS.values():
        assert torch_private.of_core(getter)
        assert torch_private.of_core(setter)


def test_a_newer_torch_is_warned_of() -> None:
    major, minor = NEWEST.split(".")
    with pytest.warns(
        UntriedVersionWarning, match=rf"torch {major}\.{int(minor) + 1}\.0\+cu130 is"
    ):
        check_version(f"{major}.{int(minor) + 1}.0+cu130")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(f"{NEWEST}.9+cu130")
        check_version(f"{OLDEST}.0a0+git0")


def test_an_older_torch_is_refused() -> None:
    with pytest.raises(InputError, match=rf"torch 2\.6\.1 is too old: .* {OLDEST} or"):
        check_version("2.6.1")


def test_the_warning_comes_once_a_process(tmp_path: Path) -> None:
    installed = tmp_path / "torch-9.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.1.0\n")
    text = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "import offcert.runtime.plan.predict, offcert.runtime.hardware.model"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stderr.count("UntriedVersionWarning: torch 9.1.0 is newer") == 1


def test_what_is_asked_for_is_what_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["torch"] == [f"torch>={OLDEST}"]
