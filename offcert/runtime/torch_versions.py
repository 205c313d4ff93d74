"""The versions of PyTorch with which offcert was tried; what is said of others."""

from __future__ import annotations

import warnings
from importlib import metadata

from offcert.core.errors import InputError

# All fast tests of the runtime and of training were run from the one to the other: the table in
# docs/install.md, by benchmarks/versions.py.
OLDEST = "2.11"
NEWEST = "2.15"


class UntriedVersionWarning(UserWarning):
    """A PyTorch that is newer than all that offcert was tried with."""


def check_version(found: str) -> None:
    """Warn of a PyTorch that is newer than all that were tried; refuse one that is older."""
    numbers = _numbers(found)
    if numbers < _numbers(OLDEST):
        raise InputError(f"torch {found} is too old: offcert needs torch {OLDEST} or newer")
    if numbers > _numbers(NEWEST):
        warnings.warn(
            f"torch {found} is newer than all that offcert was tried with, which are {OLDEST} to "
            f"{NEWEST}: a step that it carries out otherwise is noticed as ever, and says so",
            UntriedVersionWarning,
            stacklevel=2,
        )


def check_installed() -> None:
    """Check the PyTorch that is installed, if there is one, without loading it."""
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return
    check_version(found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
