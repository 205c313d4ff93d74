"""Compiling kernels, and keeping them on disk until something that they were compiled from changes.

A kernel is *entered* from Python or is *inner*: only other kernels call it. Entered ones are kept
on disk, with all that they call (`offcert.core.kernel_cache`). Inner ones are compiled for their
callers alone, without machine code of their own and without what Python would need to call them
(`offcert.core.inner`): that halves the time of compiling. Called from Python, as tests do, an inner
kernel is compiled once more, as an entered one.

Numba compiles a kernel for every combination of argument types, and a literal, an ``int32`` and an
``int64`` are three types. Between kernels all integers are ``int64`` here, and literals are what
they are literals of, so that a kernel is compiled once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numba
import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from offcert.core.inner import InnerCompiler
from offcert.core.kernel_cache import KernelCache

# What kernels take and return.
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

# Its types say less than what is asked of it here.
_njit: Any = numba.njit
_types: Any = types
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# Wrappers that Numba adds to a kernel for callers in C: nobody needs them.
_FOR_PYTHON = {"no_cfunc_wrapper": True}
_FOR_KERNELS = {
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "pipeline_class": InnerCompiler,
}

# Every kernel that has been defined, by module and name; `compile_all` leaves none out.
ENTERED: dict[str, Any] = {}
INNER: dict[str, Any] = {}


@overload
def compiled(function: Kernel, /, **options: Any) -> Kernel: ...
@overload
def compiled(**options: Any) -> Callable[[Kernel], Kernel]: ...
def compiled(function: Any = None, /, **options: Any) -> Any:
    """``numba.njit`` for what Python calls, kept on disk.

    Parameters
    ----------
    function : callable, optional
        The function to compile; without it, a decorator is returned.
    **options
        What ``numba.njit`` takes besides ``cache``, and ``nogil``: threads may run beside it.
    """
    if function is None:
        return functools.partial(compiled, **options)
    kernel = _with_wide_arguments(_njit(nogil=True, **_FOR_PYTHON, **options)(function))
    if _is_kernel(kernel):
        kernel._cache = KernelCache(kernel)
        ENTERED[_name(function)] = kernel
    return kernel


@overload
def inner(function: Kernel, /, **options: Any) -> Kernel: ...
@overload
def inner(**options: Any) -> Callable[[Kernel], Kernel]: ...
def inner(function: Any = None, /, **options: Any) -> Any:
    """``numba.njit`` for what only other kernels call; parameters as for `compiled`."""
    if function is None:
        return functools.partial(inner, **options)
    kernel = _with_wide_arguments(_njit(nogil=True, **_FOR_KERNELS, **options)(function))
    if _is_kernel(kernel):
        # There is no machine code for Python to call, so Numba must not come to know of any.
        kernel.add_overload = functools.partial(_note, kernel)
        kernel._compile_for_args = functools.partial(_from_python, kernel, function, options)
        INNER[_name(function)] = kernel
    return kernel


def _note(kernel: Any, result: Any) -> None:
    kernel.overloads[tuple(result.signature.args)] = result


def _from_python(kernel: Any, function: Any, options: dict[str, Any], *arguments: Any) -> Any:
    """Return machine code for these arguments; the next call finds it without asking."""
    if not hasattr(kernel, "entered"):
        kernel.entered = _njit(nogil=True, **_FOR_PYTHON, **options)(function)
        kernel.entered._cache = KernelCache(kernel.entered)
    given = tuple(kernel.entered.typeof_pyval(argument) for argument in arguments)
    kernel.entered.compile(given)
    code = kernel.entered.overloads[given].entry_point
    kernel._insert([kind._code for kind in given], code, False)
    return code


def _with_wide_arguments(kernel: Any) -> Any:
    """Let other kernels call it with arguments of as few types as possible."""
    if not _is_kernel(kernel):
        return kernel
    resolve = kernel.get_call_template
    kernel.get_call_template = lambda given, named: resolve(
        tuple(_wide(kind) for kind in given), {name: _wide(kind) for name, kind in named.items()}
    )
    return kernel


def _is_kernel(kernel: Any) -> bool:
    """Return whether Numba has not been told to leave everything to Python."""
    return isinstance(kernel, Dispatcher)


def _wide(kind: Any) -> Any:
    kind = _types.unliteral(kind)
    if isinstance(kind, _types.Integer) and kind.signed:
        return _types.int64
    return kind


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


# Kernels are handed tuples of dozens of arrays. Counting references to each of them at every call
# would take most of the time; those that allocate nothing are compiled without.
plain = compiled(_nrt=False)
plain_inner = inner(_nrt=False)
# Copying them at every call takes most of what is left: what a search calls for every label
# becomes part of it.
inlined = inner(_nrt=False, forceinline=True)
# The same for the few that Python calls, too.
inlined_and_entered = compiled(_nrt=False, forceinline=True)
