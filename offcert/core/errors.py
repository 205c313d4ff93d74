"""Exceptions that offcert raises on purpose, and the message about a missing package."""

from __future__ import annotations

from importlib.util import find_spec


class OffcertError(Exception):
    """Base of every exception that offcert raises on purpose."""


class InputError(OffcertError, ValueError):
    """Bad input: the message is one sentence that names the field, the place and the value.

    Whatever reads a file, takes arguments of users or makes an object of them raises it, also where
    its docstring does not say so. The command line turns it into exit code 2.
    """


class PlanError(OffcertError):
    """A plan that cannot be executed on its problem; the message says where it gets stuck."""


class MethodError(OffcertError):
    """A method that does not apply to a problem, or found no plan; the message says why."""


class NoPlanError(MethodError):
    """A heuristic that applies, but found no plan where one may well exist."""


class MissingPackageError(OffcertError, ImportError):
    """An optional package that is not installed; the message says how to install it."""


def require_torch(purpose: str) -> None:
    """Raise unless PyTorch is installed; nothing is imported.

    Parameters
    ----------
    purpose : str
        Name of the command that needs it, such as ``"profile"``: the message begins so.

    Raises
    ------
    MissingPackageError
        One sentence that says what to install.
    """
    if find_spec("torch") is None:
        raise MissingPackageError(
            f"{purpose} needs PyTorch, which is not installed: pip install '.[torch]'"
        )


def require_transformers(purpose: str) -> None:
    """Raise unless `transformers` is installed, as `require_torch` does for PyTorch."""
    if find_spec("transformers") is None:
        raise MissingPackageError(
            f"{purpose} needs transformers, which is not installed: pip install '.[huggingface]'"
        )
