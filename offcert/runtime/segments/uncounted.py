"""Copies for our own use that are no live bytes of the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.runtime.tracker import LiveBytes


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count what the block allocates as live bytes of the step."""
    with ExitStack() as stack:
        for mode in _get_current_dispatch_mode_stack():
            if isinstance(mode, LiveBytes):
                stack.enter_context(mode.paused())
        yield
