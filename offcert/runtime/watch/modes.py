"""Leaving dispatch modes that a user's program goes on around.

Modes are left in the order of a stack, each thread has its own stack, and an operator runs with the
modes that see it taken off.
"""

from __future__ import annotations

import weakref

from offcert.runtime.torch_private import (
    TorchDispatchMode,
    dispatch_modes,
    innermost_transform,
    pop_mode,
    push_mode,
)

# Modes that are to be left, but were entered in another thread, or see the operator that runs.
_LEFT_BEHIND: weakref.WeakSet[TorchDispatchMode] = weakref.WeakSet()


def within_transform() -> bool:
    """Whether a function transform (`torch.func`) is under way: nothing runs backward then."""
    return innermost_transform() is not None


def is_here(mode: TorchDispatchMode) -> bool:
    """Whether a mode sees the operators of the calling thread."""
    return any(each is mode for each in dispatch_modes())


def enter_below(mode: TorchDispatchMode) -> None:
    """Enter a mode below the user's own: whoever leaves one of them leaves the right one."""
    # Those of PyTorch's own (fake tensors, proxies) have places of their own.
    stack = dispatch_modes()
    above = [each for each in stack if getattr(each, "_mode_key", None) is None]
    for _ in above:
        pop_mode()
    try:
        mode.__enter__()
    finally:
        for each in above:
            push_mode(each)


def leave(mode: TorchDispatchMode) -> None:
    """Leave a mode, wherever it is among the user's own; if it is not here, `sweep` will."""
    stack = dispatch_modes()
    places = [index for index, each in enumerate(stack) if each is mode]
    if not places:
        _LEFT_BEHIND.add(mode)
        return
    above = stack[places[-1] + 1 :]
    for _ in above:
        pop_mode()
    try:
        mode.__exit__(None, None, None)
    finally:
        for each in above:
            push_mode(each)


def sweep() -> None:
    """Leave the modes that could not be left from elsewhere and are in the calling thread."""
    # Looked at in every step: the set itself takes calls to say whether it is empty.
    for mode in list(_LEFT_BEHIND) if _LEFT_BEHIND.data else ():  # type: ignore[attr-defined]
        if is_here(mode):
            _LEFT_BEHIND.discard(mode)
            leave(mode)
