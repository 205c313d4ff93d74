"""The storages that a step under a plan saves."""

from __future__ import annotations

import torch

from offcert.runtime.follow.run import StepRun
from offcert.runtime.watch.entries import Entry, Handle
from offcert.runtime.watch.events import UNPACK
from offcert.runtime.watch.saved_hooks import Owned, SavedStorages
from offcert.runtime.watch.tracker import LiveBytes


class StepStorages(SavedStorages):
    """Saved storages that tell their step; the step must not hold them, for their hooks hold it."""

    def __init__(self, run: StepRun, owned: Owned, counter: LiveBytes | None) -> None:
        super().__init__(owned, run.hooks.parts.device, counter, run.hooks.guard)
        self._run = run

    @property
    def session(self) -> StepRun:
        """The step, which its guard is told of."""
        return self._run

    def saved(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Entry:
        """Return the entry that the step makes for it."""
        self._run.saves()
        return self._run.saved(storage.nbytes(), tensor)

    def saved_again(self, entry: Entry) -> None:
        """Tell the step in which stream it is used, too."""
        self._run.saves()

    def asked_for(self, handle: Handle) -> None:
        """Tell the step."""
        if handle.entry is not None:
            self._run.count(UNPACK)

    def bring_back(self, handle: Handle) -> None:
        """Let the step bring it back if it has not yet."""
        entry = handle.entry
        if entry is not None:
            self._run.asked_for(entry)
            if entry.data is not None:
                # A tensor made from it may be saved: a gradient that can be differentiated.
                self.know(entry)
