"""Whose code a module holds: PyTorch's and Python's, an installed package's, or the user's own."""

import sys
from types import ModuleType

import pytest

from offcert.runtime.segments.code import home


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        ("/usr/lib/python3/dist-packages/some_package/layers.py", "installed"),
        ("/home/user/.local/lib/python3.11/site-packages/some_package/layers.py", "installed"),
        # What an environment inherits from the one below it.
        ("/opt/base/lib/python3.11/site-packages/some_package/layers.py", "installed"),
        ("/home/user/project/some_package/layers.py", "own"),
        (None, "own"),
    ],
)
def test_packages_of_all_environments_are_installed(
    monkeypatch: pytest.MonkeyPatch, file: str | None, whose: str
) -> None:
    module = ModuleType("some_package.layers")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, module.__name__, module)
    home.cache_clear()
    assert home(module.__name__) == whose
    home.cache_clear()


def test_the_standard_library_and_pytorch_keep_no_state_and_a_descriptor_is_no_home() -> None:
    assert {home("collections.abc"), home("torch.nn.modules.linear")} == {"stateless"}
    assert home(property()) == "own"
