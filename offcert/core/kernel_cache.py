"""Kernels on disk: found again as long as all that they were compiled from is the same.

Numba's own cache looks at one file, the one in which a function stands. A kernel that calls a
function of another module, or reads a constant of it, would go on with the old one after that
module has changed: a search or a checker that runs what its source no longer says. And a changed
docstring would compile a file's kernels again.

What is compared here is what is compiled: the kernel's own code and options, those of every kernel
that it calls, the values of the constants that they read, the fields of the tuples that they are
given, and the versions of the compilers. Comments, docstrings and line numbers are no part of it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import EnumMeta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.dispatcher import Dispatcher

from offcert.core.errors import MethodError

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows
    fcntl = None  # type: ignore[assignment]


# Whether kernels are only loaded now: one that is not on disk is an error then.
_ONLY_LOADING: ContextVar[bool] = ContextVar("only_loading", default=False)


class NotCompiledError(MethodError):
    """A kernel is not on disk, and was only to be loaded.

    Parameters
    ----------
    kernel : str
        Its name, with its module.

    Attributes
    ----------
    acts : tuple of str
        Names of the functions that compile it and what it is used with, as far as is known.
    """

    def __init__(self, kernel: str) -> None:
        super().__init__(f"{kernel} is not compiled yet")
        self.kernel = kernel
        self.acts: tuple[str, ...] = ()


@contextmanager
def only_loading() -> Iterator[None]:
    """Have kernels loaded in the block, and a `NotCompiledError` where one would be compiled."""
    before = _ONLY_LOADING.set(True)
    try:
        yield
    finally:
        _ONLY_LOADING.reset(before)


# The command line shows what is said here also where nothing else is.
LOG = logging.getLogger("offcert.compile")


class KernelCache:
    """The part of Numba's interface to a cache that a kernel uses.

    What is not found is compiled by one process at a time; others wait for it.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._lock: Any = None
        compile_kernel = kernel.compile

        def compile_and_release(signature: Any) -> Any:
            try:
                return compile_kernel(signature)
            finally:
                self._release()

        kernel.compile = compile_and_release

    @property
    def cache_path(self) -> str:
        """Where the files are."""
        return str(folder_of(self._kernel.py_func))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code compiled for these argument types, or None if there is none yet."""
        place = self._place(signature)
        found = None
        # Where nothing can be read or written it is compiled all the same, for this process alone.
        with suppress(OSError):
            found = place.load_overload(signature, context)
            if found is None and _ONLY_LOADING.get():
                function = self._kernel.py_func
                raise NotCompiledError(f"{function.__module__}.{function.__qualname__}")
            if found is None and self._lock is None:
                self._lock = _locked(place.lock)
                # Another process may just have compiled it.
                found = place.load_overload(signature, context)
        if found is None:
            _say_once(str(place.lock.parent))
        return found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep compiled code on disk, if there is room for it."""
        with suppress(OSError):
            self._place(signature).save_overload(signature, result)

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _place(self, signature: Any) -> _Place:
        summed = hashlib.sha256(kernel_digest(self._kernel).encode())
        given = signature.args if hasattr(signature, "args") else signature
        for kind in given:
            summed.update(_of_type(kind).encode())
        return _Place(self._kernel.py_func, summed.hexdigest()[:24])


@cache
def _say_once(folder: str) -> None:
    LOG.info("compiling kernels, seconds each, which are kept in %s", folder)


class _Place(FunctionCache):
    """Numba's cache for one combination of argument types, in files of its own.

    So two processes never write different code to the same file.
    """

    def __init__(self, function: Any, digest: str) -> None:
        folder = folder_of(function)
        self.lock = folder / f"{function.__name__}-{digest}.lock"

        class Locator(_CacheLocator):
            @classmethod
            def from_function(cls, function: Any, file: str) -> Locator:
                return cls()

            def get_cache_path(self) -> str:
                return str(folder)

            def get_source_stamp(self) -> str:
                return digest

            def get_disambiguator(self) -> str:
                return digest

        class Impl(CompileResultCacheImpl):
            def __init__(self, function: Any) -> None:
                locators: list[Any] = [Locator]
                self._locator_classes = locators
                super().__init__(function)

        self._impl_class = Impl
        super().__init__(function)


def _locked(path: Path) -> Any:
    """Return an open file that no other process has locked; closing it unlocks it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def kernel_digest(kernel: Any) -> str:
    """Return a SHA-256 digest that differs between kernels that are compiled to different code.

    Raises
    ------
    TypeError
        If it reads something of which that cannot be said; the message names it.
    """
    summed = hashlib.sha256(_versions().encode())
    seen: set[int] = set()
    waiting = [kernel]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        summed.update(repr(sorted(current.targetoptions.items(), key=str)).encode())
        for text, called in _described(current.py_func):
            summed.update(f"{text}\n".encode())
            waiting += called
    return summed.hexdigest()


@cache
def _versions() -> str:
    """Of the compilers, and of how they are used here."""
    ours = [Path(__file__).with_name(name).read_bytes() for name in ("compiled.py", "inner.py")]
    used = hashlib.sha256(b"".join(ours)).hexdigest()
    return f"{sys.version} {numba.__version__} {version('llvmlite')} {np.__version__} {used}"


def _described(function: FunctionType) -> Iterator[tuple[str, list[Any]]]:
    """Yield texts that say all that matters about a function, and the kernels that each means."""
    yield f"{function.__module__}.{function.__qualname__} {function.__defaults__!r}", []
    yield _of_code(function.__code__, function.__doc__), []
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = {name: cell.cell_contents for name, cell in cells}
    names = sorted(_names(function.__code__))
    values |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    package = function.__module__.split(".")[0]
    for name, value in values.items():
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] == package:
            # Numba reads a module's constants when it compiles.
            used = {below: getattr(value, below) for below in names if hasattr(value, below)}
        else:
            used = {"": value}
        for below, read in used.items():
            text, called = _of_value(read, f"{function.__module__}.{name}", package)
            yield f"{name}.{below} {text}", called


def _names(code: CodeType) -> set[str]:
    below = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*(_names(inner) for inner in below))


def _of_code(code: CodeType, doc: str | None = None) -> str:
    constants = list(code.co_consts)
    if doc is not None and constants[0] == doc:
        # In this place there is None otherwise.
        constants[0] = None
    texts = [
        _of_code(one) if isinstance(one, CodeType) else f"{type(one).__name__} {one!r}"
        for one in constants
    ]
    named = (code.co_varnames, code.co_names, code.co_freevars, code.co_cellvars)
    return f"{code.co_code.hex()} {texts} {named} {code.co_flags} {code.co_exceptiontable!r}"


def _of_value(value: Any, name: str, package: str) -> tuple[str, list[Any]]:
    """Return a text for a global or attribute as the compiler reads it, and the kernels in it."""
    if isinstance(value, Dispatcher):
        return f"kernel {value.py_func.__module__}.{value.py_func.__qualname__}", [value]
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return f"{type(value).__name__} {value!r}", []
    if isinstance(value, (tuple, frozenset)):
        parts = [_of_value(part, name, package) for part in value]
        called = [kernel for _, kernels in parts for kernel in kernels]
        return f"({', '.join(text for text, _ in parts)})", called
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}", []
    if isinstance(value, EnumMeta):
        every: Iterable[tuple[str, Any]] = value.__members__.items()
        members = [(name, one.value) for name, one in every]
        return f"{value.__name__} {members}", []
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return f"{value.__qualname__} {value._fields}", []
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if module is not None and module.split(".")[0] != package:
        # Of the standard library, of NumPy, of Numba: a version of these is one text.
        return f"{module}.{getattr(value, '__qualname__', '')}", []
    raise TypeError(f"a kernel reads {name}, which is {value!r}: nobody would see it change")


def _of_type(kind: Any) -> str:
    """Return a text of an argument's type; it says where a tuple's fields are."""
    text = f"{kind}"
    if hasattr(kind, "instance_class"):
        owner = kind.instance_class
        text += f" {owner.__module__}.{owner.__qualname__} {getattr(kind, 'fields', ())}"
    if isinstance(kind, Iterable):
        text += f" ({', '.join(_of_type(part) for part in kind)})"
    return text


def folder_of(function: Callable[..., Any]) -> Path:
    """Return where the kernels of a function's package are kept."""
    file = Path(function.__code__.co_filename).resolve()
    return _folder(file.parents[max(function.__module__.count(".") - 1, 0)])


@cache
def _folder(package: Path) -> Path:
    """Beside the sources, as Numba does it, or in the user's own where they cannot be written."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / f"{package.name}-{hashlib.sha256(bytes(package)).hexdigest()[:12]}"
    beside = package / "__pycache__" / "kernels"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (beside, home / package.name / "kernels"):
        if _is_writable(folder):
            return folder
    own = _own_temporary(package.name)
    if own is None:
        LOG.warning(
            "kernels cannot be kept, and are compiled in every run: neither %s nor %s can be "
            "written; NUMBA_CACHE_DIR may name a folder that can",
            beside,
            home,
        )
    return own or beside


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _own_temporary(name: str) -> Path | None:
    """Return a folder for temporary files that nobody else can write to; None without one.

    What is in it is run: a folder that somebody else made, or may change, is not used.
    """
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir(), f"{name}-kernels-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if ours and not found.st_mode & 0o077 and _is_writable(folder) else None
