"""The versions that a report of a fault needs: ``offcert doctor --versions``."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from offcert._version import __version__

_PACKAGES = (
    "offcert-lab",
    "numpy",
    "numba",
    "scipy",
    "ortools",
    "pulp",
    "torch",
    "transformers",
    "accelerate",
)


class ShowVersions(argparse.Action):
    """An option that prints the versions and ends, as ``--version`` does."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *parsed: Any, **option: Any) -> NoReturn:
        """Print a line for each, and end."""
        print("\n".join(f"{name} {found}" for name, found in versions().items()))
        parser.exit()


def versions() -> dict[str, str]:
    """Return the versions of this program, of Python, of the system and of what is used."""
    return {
        "offcert": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    } | {name: _installed(name) for name in _PACKAGES}


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
