"""What is said where an optional package is missing."""

from __future__ import annotations

from importlib.util import find_spec

from offcert.core.errors import MissingPackageError


def require_torch(purpose: str) -> None:
    """Raise unless PyTorch is installed; nothing is imported.

    Parameters
    ----------
    purpose : str
        What needs it, for example ``"profile"``: the first words of the message.

    Raises
    ------
    MissingPackageError
        One sentence that says what to install.
    """
    if find_spec("torch") is None:
        raise MissingPackageError(
            f"{purpose} needs PyTorch, which is not installed: pip install 'offcert[torch]'"
        )


def require_transformers(purpose: str) -> None:
    """Raise unless `transformers` is installed, as `require_torch` does for PyTorch."""
    if find_spec("transformers") is None:
        raise MissingPackageError(
            f"{purpose} needs transformers, which is not installed: "
            "pip install 'offcert[huggingface]'"
        )
