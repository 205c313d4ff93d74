"""Faults of engines that people have described in public, found in programs of our own making."""

from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from offcert_lab.engines import Fault, audit_engine
from support.engines import trl_4280

PROGRAMS = {
    "trl_7195_stream": Fault.RACE,
    "trl_7195_clone": Fault.RACE,
    "axolotl_3833": Fault.RELEASED,
    "torchtitan_2581": Fault.RACE,
    "megatron_7398": Fault.RACE,
    "deepspeed_5606": Fault.RACE,
    "deepspeed_8186_writes": Fault.RACE,
    "deepspeed_8186_reuse": Fault.RELEASED,
    "deepspeed_8186_reload": Fault.ALLOCATED,
    "deepspeed_7898": Fault.RACE,
    "deepspeed_8207": Fault.HOST_READ,
    "torchtune_1867": Fault.RELEASED,
}


def marked(module, mark):
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fault_that_was_described_is_found(name):
    module = import_module(f"support.engines.{name}")
    found = audit_engine(partial(module.step, False), orders=4)
    assert PROGRAMS[name] in {each.fault for each in found.findings}
    # All that is found is the fault, on its lines, and in the file.
    assert {each.first.place.line for each in found.findings} == marked(module, "first")
    assert {each.second.place.line for each in found.findings} == marked(module, "second")
    files = {use.place.file for each in found.findings for use in (each.first, each.second)}
    assert {Path(file).name for file in files} == {Path(module.__file__).name}
    # It is no theory: an order that its events allow computes something else.
    assert any("if the second runs first" in each.shown for each in found.findings)
    assert found.unrepeated == 0


def test_an_engine_that_fails_by_itself_says_where():
    found = audit_engine(partial(trl_4280.step, False), orders=1)
    (line,) = marked(trl_4280, "fails")
    assert f"trl_4280.py:{line}: the engine fails with ValueError: 1 tensors" in found.failed
    assert (found.findings, found.clean) == ([], False)


@pytest.mark.parametrize("name", [*PROGRAMS, "trl_4280"])
def test_mended_it_is_clean(name):
    module = import_module(f"support.engines.{name}")
    found = audit_engine(partial(module.step, True), orders=4)
    assert found.clean, str(found)
    assert found.unrepeated == 0
