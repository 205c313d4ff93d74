"""The object that hooks hold instead of an offload: they would keep a dropped one alive."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Protocol

from offcert.runtime.follow.accounts import Accounts
from offcert.runtime.follow.run import StepRun
from offcert.runtime.segments.attach import Segments
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.modes import sweep
from offcert.runtime.watch.unseen import Unseen


class Listener(Protocol):
    """The object that events are passed on to (`offcert.runtime.follow.offload.Offload`)."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""

    def left(self, session: Session, output: Any) -> None:
        """The call of the model has returned, or raised."""

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended."""

    def announce(self, name: str) -> None:
        """Take note of an operator that is called."""

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed in the midst of a step."""


class Relay:
    """Passes on what hooks, steps and counters say, as long as there is somebody to hear it.

    Parameters
    ----------
    teller : Listener
        Not kept alive.
    """

    def __init__(self, teller: Listener) -> None:
        self._teller = weakref.ref(teller)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        sweep()
        teller = self._teller()
        return None if teller is None else teller.begin(args, kwargs)

    def left(self, session: Session, output: Any) -> None:
        """The call of the model has returned, or raised."""
        teller = self._teller()
        if teller is not None:
            teller.left(session, output)

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""
        teller = self._teller()
        return None if teller is None else teller.plan_number(session)

    def ended(self, run: StepRun) -> None:
        """Pass on that a backward pass has ended."""
        teller = self._teller()
        if teller is not None:
            teller.ended(run)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Pass on that an entry has failed; nobody hears of it after the context is gone."""
        teller = self._teller()
        if teller is not None:
            teller.failed(error, reason, session)

    def announce(self, func: Any, args: Any, kwargs: Any) -> None:
        """Pass on that an operator is called."""
        teller = self._teller()
        if teller is not None:
            teller.announce(str(func))


def watch_unseen(hooks: Hooks, accounts: Accounts) -> Unseen:
    """Wait for gradients of a model until it is called for the first time."""
    told = partial(accounts.refuse, "unseen", alone=True)
    hooks.unseen = Unseen(hooks.root, told, hooks.guard)
    return hooks.unseen


def unhook(hooks: Hooks, segments: Segments | None) -> None:
    """Leave a model as it was."""
    try:
        hooks.detach()
    finally:
        if segments is not None:
            segments.detach()


def give_up(undo: ExitStack) -> None:
    """Undo the changes of a context that has been dropped without being left."""
    # Nobody hears of errors here.
    with suppress(Exception):
        undo.close()
