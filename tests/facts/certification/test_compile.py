"""All kernels are compiled beforehand, and none by the clock of a search."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from offcert.certification.compile import GROUPS, compile_all
from offcert.certification.search import Search, SearchProgress
from offcert.certification.warm import KernelGroup, group_of
from offcert.cli import main
from offcert.core import compiled as kernels
from offcert.core.compiled import compiled
from offcert.core.errors import OffcertError
from offcert.instances.cnn import cnn_chain

# In a process of its own, in which nothing has been compiled or loaded.
_IMPORT_ALL = """
import importlib, pkgutil, offcert
for module in pkgutil.walk_packages(offcert.__path__, "offcert."):
    room = module.name.split(".")[1]
    if room not in ("runtime", "training", "cli", "report") and "__main__" not in module.name:
        if "preload" not in module.name:
            importlib.import_module(module.name)
from offcert.core.compiled import ENTERED, INNER
"""
_PROBLEMS = """
from dataclasses import replace
from offcert.core.platform import Link
from offcert.questions.schedule.problem import Transfers
from offcert.instances.cnn import cnn_chain
from offcert.instances.library import load

def at(chain, share):
    least = chain.trace.least_memory
    return chain.with_memory(least + int(share * (chain.trace.peak_memory - least)))

base = at(cnn_chain(16, 1), 0.05)
duplex = replace(base, platform=replace(base.platform, link=Link.DUPLEX))
network = load("resnet18-modules-m10")
fluid = replace(at(cnn_chain(8, 2), 0.1), transfers=Transfers.INTERRUPTIBLE)
"""
_AFTER_ALL = f"""{_IMPORT_ALL}{_PROBLEMS}
import json
from offcert.certification.compile import GROUPS, compile_group
from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.kernel_cache import _described
from offcert.verification.document import verify

for name in GROUPS:
    compile_group(name)

def overloads():
    return [f"{{name}} {{types}}" for name, kernel in ENTERED.items() for types in kernel.overloads]

reached, waiting = set(), list(ENTERED.values())
while waiting:
    kernel = waiting.pop()
    if id(kernel) not in reached:
        reached.add(id(kernel))
        waiting += [called for _, below in _described(kernel.py_func) for called in below]
dead = sorted(name for name, kernel in INNER.items() if id(kernel) not in reached)

missing = sorted(name for name, kernel in ENTERED.items() if not kernel.overloads)
before = overloads()
certificates = [certify(p, time_limit=0.3) for p in (base, duplex, network, fluid)]
for problem, method in ((base, "outward"), (base, "dynprog"), (network, "matched-heads")):
    certificates.append(solve(problem, method, time_limit=0.2))
valid = [verify(certificate.to_json()).valid for certificate in certificates]
later = [text for text in overloads() if text not in before]
print(json.dumps([missing, dead, len(INNER), later, valid]))
"""
_BY_THE_CLOCK = f"""{_PROBLEMS}
import json
from offcert.certification.ladder import certify
from offcert.certification.warm import KernelGroup
from offcert.certification.search import Search
from offcert.core.kernel_cache import KernelCache

searches, timed = [], []
begin, load_overload = Search.__init__, KernelCache.load_overload

def noting_begin(self, *arguments, **named):
    searches.append(self)
    begin(self, *arguments, **named)

def noting_load(self, signature, context):
    if not searches[-1].clock_stands_still:
        timed.append(self._kernel.py_func.__qualname__)
    return load_overload(self, signature, context)

Search.__init__, KernelCache.load_overload = noting_begin, noting_load
for problem in (network, duplex):
    certify(problem, time_limit=1.0)
print(json.dumps(timed))
"""


def _answer(code: str) -> Any:
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_what_is_compiled_beforehand_is_all_that_is_used() -> None:
    missing, dead, inner, later, valid = _answer(_AFTER_ALL)
    assert missing == []
    # And of those that only kernels call none is part of nothing.
    assert dead == []
    assert inner > 60
    assert later == []
    assert all(valid)


@pytest.mark.slow
def test_nothing_is_compiled_or_loaded_by_the_clock_of_a_search() -> None:
    assert _answer(_BY_THE_CLOCK) == []


@pytest.mark.slow
def test_the_command_says_what_was_there_already(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["compile", "--workers", "1", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        if document["compiled"] == 0:
            break
    assert document["compiled"] == 0
    assert document["found"] >= 40
    assert {group["name"] for group in document["groups"]} == set(GROUPS)
    assert document["cpu_seconds"] > 0 < document["wall_seconds"]


@pytest.mark.slow
def test_a_process_that_fails_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    # The process has none of this name.
    for name in list(GROUPS):
        monkeypatch.delitem(GROUPS, name)
    monkeypatch.setitem(GROUPS, "no such group", KernelGroup(1, ()))
    with pytest.raises(OffcertError, match=r"compiling no such group failed: KeyError"):
        compile_all(1)


def test_a_search_says_once_that_it_compiles() -> None:
    @compiled
    def fresh(values: np.ndarray) -> int:
        return int(values[0]) + len("a search says once that it compiles")

    name = next(name for name, kernel in kernels.ENTERED.items() if kernel is fresh)
    try:
        told: list[SearchProgress] = []
        problem = cnn_chain(8, 0).with_memory(10**12)
        search = Search(problem, 60.0, progress=told.append)
        told.clear()
        with search.untimed():
            fresh._cache.load_overload = lambda *_: None  # type: ignore[attr-defined]
            fresh(np.array([1]))
            fresh(np.array([1.0]))
        group, seconds = group_of(name)
        assert [news.step for news in told] == [f"compiling, once: {group}, about {seconds} s"]
    finally:
        del kernels.ENTERED[name]
