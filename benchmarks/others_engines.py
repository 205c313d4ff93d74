"""Engines of other projects, as they are in their repositories, audited before and after fixes.

``python benchmarks/others_engines.py --trl GIT_DIR --torchtune GIT_DIR`` reads single files out of
clones at stated commits, and runs ``OffloadActivations`` on the simulated device: with programs of
ours, and with those of torchtune's own tests, which need a GPU otherwise. It prints a table: how
many faults each has, and where. Nothing of these projects is in this repository.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from offcert_lab.engines import audit_engine

# Commits: before trl#7195; before and after torchtune#1860 and #1936, which fixes #1867; its last.
TRL = ("f2cd57710ae345ea6428ae95363267fcf38a3dc8",)
TORCHTUNE = ("3ca0d309c~1", "3ca0d309c", "9eced211b~1", "9eced211b", "bd2a0fc7c")
TRL_FILE = "trl/models/activation_offloading.py"
TORCHTUNE_FILE = "torchtune/training/_activation_offloading.py"
TESTS_FILE = "tests/torchtune/training/test_activation_offloading.py"
TESTS = (
    "test_offloading_works_with_view_outputs",
    "test_offloading_works_with_view_ac_cached_buffers",
)


class Network(nn.Module):
    """A small language model without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.output = nn.Linear(32, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return self.output(hidden)


def train(make: Callable[[], Any], *, inside: bool) -> Any:
    """Train three steps on one sequence; the labels are a view that begins at the second token."""
    torch.manual_seed(0)
    model = Network().cuda()
    tokens = torch.randint(0, 16, (1, 64), device="cuda")
    engine = make()
    for _ in range(3):
        with engine:
            logits = model(tokens).view(-1, 16)
            labels = nn.functional.pad(tokens, (0, 1), value=-100)[..., 1:].contiguous()
            loss = nn.functional.cross_entropy(logits, labels.view(-1))
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
    return [each.grad for each in model.parameters()]


def programs(module: Any) -> dict[str, Callable[[], Any]]:
    """Return programs for an engine, by name."""

    def make() -> Any:
        found = module.OffloadActivations(use_streams=True)
        for name in ("min_offload_size", "min_tensor_size_bytes"):
            if hasattr(found, name):
                setattr(found, name, 64)
        return found

    def other_stream() -> Any:
        engine, other = make(), torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            found = train(lambda: engine, inside=True)
        torch.cuda.synchronize()
        return found

    return {
        "backward after the block": lambda: train(make, inside=False),
        "backward in the block": lambda: train(make, inside=True),
        "in another stream": other_stream,
    }


@contextmanager
def stand_ins() -> Iterator[None]:
    """Let packages that the files import be there, as far as they use them."""
    found = {
        "torchao": {"__version__": "0.9.0"},
        "torchao.quantization": {"NF4Tensor": type("NF4Tensor", (), {})},
        "torchao.dtypes": {},
        "torchao.dtypes.nf4tensor": {"NF4Tensor": type("NF4Tensor", (), {})},
        "torchtune": {},
        "torchtune.modules": {"TiedLinear": type("TiedLinear", (), {})},
        "torchtune.utils": {"get_logger": lambda *level: None},
        "torchtune.training": {},
        "tests": {},
        "tests.test_utils": {"gpu_test": lambda **count: lambda test: test},
    }
    for name, values in found.items():
        module = types.ModuleType(name)
        module.__dict__.update(values, __path__=[])
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in found:
            del sys.modules[name]


def load(text: str, name: str, folder: Path) -> Any:
    """Import a file's text as a module, so that lines are those of the file."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    module = types.ModuleType(name)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def read(repository: Path, commit: str, file: str) -> str:
    """Return a file at a commit."""
    command = ["git", "-C", str(repository), "show", f"{commit}:{file}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def audits(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, str, Any]]:
    """Yield project, commit, program and what was found."""
    for commit in TRL if options.trl else ():
        module = load(read(options.trl, commit, TRL_FILE), "trl_engine", folder)
        for name, program in programs(module).items():
            yield "trl", commit, name, audit_engine(program, orders=options.orders)
    for commit in TORCHTUNE if options.torchtune else ():
        module = load(read(options.torchtune, commit, TORCHTUNE_FILE), "torchtune_engine", folder)
        found = programs(module)
        sys.modules["torchtune.training"].__dict__["OffloadActivations"] = module.OffloadActivations
        tests = load(read(options.torchtune, TORCHTUNE[3], TESTS_FILE), "torchtune_tests", folder)
        found = {"backward after the block": found["backward after the block"]}
        found |= {name: getattr(tests, name) for name in TESTS}
        for name, program in found.items():
            yield "torchtune", commit, name, audit_engine(program, orders=options.orders)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trl", type=Path, help="clone of huggingface/trl")
    parser.add_argument("--torchtune", type=Path, help="clone of meta-pytorch/torchtune")
    parser.add_argument("--orders", type=int, default=4, help="legal orders to carry out")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, stand_ins():
        for project, commit, name, found in audits(options, Path(folder)):
            rows.append({"project": project, "commit": commit, "program": name, **found.to_json()})
            faults = [f"{each.fault}, line {each.second.place.line}" for each in found.findings]
            different = f"{found.different} of {found.orders} orders differ"
            if not options.json:
                said = "; ".join(faults) or found.failed or "clean"
                print(f"{project} {commit[:11]}  {name}: {said} ({different})", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
