"""What holds for all tests: which are slow, in which order they run, and what they need."""

import gc
import os
import sys

import pytest

# Networks are tiny, and workers have a processor each: threads would only wait for each other,
# which takes several times as long. Libraries read this when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# TorchInductor would compile and load a program for each set of instructions before its first
# kernel; what is fused, and when buffers live, is the same in kernels without any of them.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
# What a search finds must not depend on which kernels other tests have had compiled.
os.environ.setdefault("OFFCERT_COMPILE", "wait")

# What is collected stays: to look for garbage in it while it is made took a third of that time.
gc.disable()

_modules = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark journeys as slow, and begin with what takes longest, so that two workers end together.

    The README's first command compiles most of what there is to compile, which is kept. The tests
    beside it begin with those that need none of it, so that they need not compile it too.
    """
    for item in items:
        if "journeys" in item.path.parts:
            item.add_marker("slow")
    items.sort(key=lambda item: ("test_readme" not in item.nodeid, "runtime/" not in item.nodeid))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("cuda") is not None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of what the garbage collector goes through.

    They are millions of objects that live as long as this process, and tests that ask whether
    something is left behind collect a few times each.
    """
    _keep_what_is_loaded()
    # Tests make and drop thousands of small objects, and few cycles: to look for them as often as
    # by default took a twentieth of the time of all tests.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Do the same with what is loaded late: compilers and models bring a thousand modules."""
    if len(sys.modules) > _modules + 200:
        _keep_what_is_loaded()


def _keep_what_is_loaded() -> None:
    global _modules
    gc.collect()
    gc.freeze()
    _modules = len(sys.modules)
