"""The display of objects in a notebook."""

from __future__ import annotations

from importlib import import_module

_drawers: list[str] = []


def drawn_by(module: str) -> None:
    """Say which module draws: its `html` is called, and it is loaded only when a notebook asks."""
    _drawers[:] = [module]


def html(value: object) -> str:
    """Return a problem or certificate as HTML.

    Drawing is the business of a room above this one, which the front door names: whoever solves or
    verifies neither knows nor loads it.
    """
    drawn: str = import_module(_drawers[0]).html(value)
    return drawn
