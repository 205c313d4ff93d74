"""Compiling kernels, and keeping them until a source that they were compiled from changes.

Numba's cache on disk looks at one file only, the one a function stands in. A kernel that calls a
function of another module, or reads a constant of it, would go on with the old one after that
module has changed: a search or a checker that runs what its source no longer says.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

import numba

_SETTINGS: Any = numba.config
_IMPORT = re.compile(r"^from ([\w.]+) import (\([^)]*\)|.*)$|^import ([\w.]+)", re.MULTILINE)
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


@overload
def compiled(function: Kernel, /, **options: Any) -> Kernel: ...
@overload
def compiled(**options: Any) -> Callable[[Kernel], Kernel]: ...
def compiled(function: Any = None, /, **options: Any) -> Any:
    """``numba.njit`` with a cache on disk that knows every module of the package imported.

    Parameters
    ----------
    function : callable, optional
        The function to compile; without it, a decorator is returned.
    **options
        What ``numba.njit`` takes besides ``cache``, and ``nogil``: threads may run beside it.
    """
    if function is None:
        return functools.partial(compiled, **options)
    before = _SETTINGS.CACHE_DIR
    package, file = _package_of(function)
    _SETTINGS.CACHE_DIR = str(Path(before or _cache_of(package)) / _digest_at_import(package, file))
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    finally:
        _SETTINGS.CACHE_DIR = before


def digest(package: Path, file: Path) -> str:
    """Of a module and of every module of its package that it imports, whichever way round."""
    sources: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = path.read_bytes()
            waiting += _imports(package, path)
    summed = hashlib.sha256()
    for path in sorted(sources):
        summed.update(f"{path.relative_to(package)} {len(sources[path])}\n".encode())
        summed.update(sources[path])
    return summed.hexdigest()[:16]


@functools.cache
def _imports(package: Path, file: Path) -> tuple[Path, ...]:
    found = []
    for module, names, plain in _IMPORT.findall(file.read_text()):
        module = module or plain
        below = [f"{module}.{name}" for name in re.findall(r"\w+", names)]
        found += [path for name in (module, *below) for path in _files_of(package, name)]
    return tuple(found)


# A module has many kernels; as it has been imported, it stays as it is.
_digest_at_import = functools.cache(digest)


def _files_of(package: Path, module: str) -> list[Path]:
    top, *parts = module.split(".")
    if top != package.name:
        return []
    place = package.joinpath(*parts)
    return [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]


def _package_of(function: Callable[..., Any]) -> tuple[Path, Path]:
    file = Path(function.__code__.co_filename).resolve()
    return file.parents[max(function.__module__.count(".") - 1, 0)], file


@functools.cache
def _cache_of(package: Path) -> Path:
    """Beside the sources, as Numba does it, or in the user's own where they cannot be written."""
    beside = package / "__pycache__" / "kernels"
    try:
        beside.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=beside).close()
    except OSError:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / package.name / "kernels"
    return beside


# Kernels are handed tuples of dozens of arrays. Counting references to each of them at every call
# would take most of the time; those that allocate nothing are compiled without.
plain = compiled(_nrt=False)
# Copying them at every call takes most of what is left: what a search calls for every label
# becomes part of it.
inlined = compiled(_nrt=False, forceinline=True)
