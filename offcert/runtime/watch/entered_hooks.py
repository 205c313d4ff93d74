"""Saved-tensor hooks around the forward passes of a user's model."""

from __future__ import annotations

from typing import Protocol

import torch

from offcert.runtime.watch.saved_hooks import SavedStorages


class Deviating(Protocol):
    """A step that may turn out not to be the one that was planned."""

    def deviate(self, what: str) -> None:
        """Take note of that."""


class Holder(Protocol):
    """An object that knows the hooks that have been entered in a thread."""

    saving: EnteredHooks | None


class EnteredHooks:
    """Saved-tensor hooks of a thread, entered and left apart from each other."""

    def __init__(self, storages: SavedStorages) -> None:
        self._hooks = storages.hooks()
        self._hooks.__enter__()

    def leave(self) -> bool:
        """Leave them; return whether that was possible: only the innermost hooks can be left."""
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if top is None or top[0] != self._hooks.pack_hook:
            return False
        self._hooks.__exit__()
        return True


def enter_saving(local: Holder, step: Deviating, storages: SavedStorages | None) -> None:
    """Let what the calling thread's autograd saves be that of a step, if that is possible."""
    leave_saving(local)
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        step.deviate("other saved-tensor hooks are active around the model")
        return
    assert storages is not None
    try:
        local.saving = EnteredHooks(storages)
    except RuntimeError as error:
        step.deviate(f"saved-tensor hooks are not allowed here: {error}")


def leave_saving(local: Holder) -> None:
    """Leave the hooks, unless others are inside of them: then they are left another time."""
    if local.saving is not None and local.saving.leave():
        local.saving = None


def may_hook() -> bool:
    """Whether saved-tensor hooks are allowed: function transforms switch them off."""
    return torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]


def is_checkpointed() -> bool:
    """Whether the innermost saved-tensor hooks are those of a checkpoint."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return top is not None and getattr(top[0], "__module__", "") == "torch.utils.checkpoint"
