"""The search for a plan: here, or in a process of its own while the training goes on."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from offcert.certify.ladder import certify
from offcert.core.documents import read_json, write_json
from offcert.core.errors import InputError, NoPlanError, PlanError
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem
from offcert.runtime.plan.step_plan import step_plan
from offcert.training.host_room import certify_within_host

# Of the time for a plan, what goes into one that only says what it costs that less may run again.
# Arbitrary.
_SHARE_OF_PRICE = 0.25


@dataclass(frozen=True)
class Order:
    """A plan that is wanted.

    Attributes
    ----------
    problem : Problem
        A problem with its limit.
    plain : Problem or None
        With its limit, if nothing runs again: for where no plan is found for the other one. None if
        nothing may run again anyway.
    seconds : float
        Seconds for the search.
    room : int or None
        Bytes of the host's memory that the plan may take; None for any number.
    streams : bool
        Whether the streams of a device are to follow it.
    unbarred : Problem or None
        If everything might run again: a plan for it says what is lost otherwise.
    kept : callable, optional
        Gives a plan that is kept for a problem and the room, or None.
    """

    problem: Problem
    plain: Problem | None
    seconds: float
    room: int | None = None
    streams: bool = False
    unbarred: Problem | None = None
    kept: Callable[[Problem, int | None], Found | None] | None = None

    def known(self) -> Found | None:
        """Return a plan that is kept, if there is one."""
        return None if self.kept is None else self.kept(self.problem, self.room)


@dataclass
class Found:
    """The certificates that a search has found, or why there are none.

    Attributes
    ----------
    certificate : Certificate or None
        Of a plan, or that there is none; None if no plan keeps to the limit of the host.
    unbarred : Certificate or None
        For the problem in which everything might run again.
    reason : str
        Why there is no certificate.
    told : str
        Why plans only move tensors, if that is not what was asked.
    """

    certificate: Certificate | None
    unbarred: Certificate | None = None
    reason: str = ""
    told: str = ""


def find(order: Order) -> Found:
    """Search for a plan.

    Raises
    ------
    InputError, PlanError
        If no plan could be followed.
    """
    unbarred = None
    if order.unbarred is not None:
        unbarred = certify(order.unbarred, time_limit=_SHARE_OF_PRICE * order.seconds)
    found = _find(order)
    found.unbarred = unbarred
    return found


def _find(order: Order) -> Found:
    otherwise = None
    if order.plain is not None:
        otherwise = replace(order, problem=order.plain, plain=None)
    problem, room = order.problem, order.room
    pool = partial(_pool, streams=order.streams)
    try:
        if room is None:
            certificate = certify(problem, time_limit=order.seconds)
        else:
            certificate = certify_within_host(problem, room, order.seconds, pool)
        result = certificate.result
        if result.schedule is not None:
            # A plan that cannot be followed is refused now.
            pool(certificate)
        elif otherwise is not None and result.infeasibility is None:
            return _find(otherwise)
    except NoPlanError as error:
        # Another plan may do all the same: that search is another one.
        return Found(None, reason=str(error)) if otherwise is None else _find(otherwise)
    except (InputError, PlanError) as error:
        if otherwise is None:
            raise
        found = _find(otherwise)
        found.told = found.told or f"nothing runs again, plans only move tensors: {error}"
        return found
    return Found(certificate)


def _pool(certificate: Certificate, streams: bool) -> int:
    """Return how many bytes of the host's memory a plan takes."""
    result = certificate.result
    assert result.schedule is not None
    made = step_plan(certificate.problem, result.schedule, result.execution, streams=streams)
    return made.host.pool


class SearchProcess:
    """A search in a process of its own.

    Parameters
    ----------
    order : Order
        The plan that is wanted.
    """

    def __init__(self, order: Order) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="offcert-search-")
        folder = Path(self._folder.name)
        _write(order, folder)
        with open(folder / "errors", "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def poll(self) -> Found | None:
        """Return the plan and its certificate; None as long as the search goes on.

        Raises
        ------
        InputError
            If it has failed.
        """
        ended = self._process.poll()
        if ended is None:
            return None
        folder = Path(self._folder.name)
        try:
            if ended:
                said = (folder / "errors").read_text(errors="replace").strip().splitlines()
                raise InputError(said[-1] if said else f"the search ended with code {ended}")
            return _read(folder)
        finally:
            self.close()

    def close(self) -> None:
        """End the search, and forget it."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._folder.cleanup()


_PROBLEMS = ("problem", "plain", "unbarred")
_CERTIFICATES = ("certificate", "unbarred")


def _write(order: Order, folder: Path) -> None:
    document: dict[str, Any] = {
        "seconds": order.seconds,
        "room": order.room,
        "streams": order.streams,
    }
    for name in _PROBLEMS:
        problem = getattr(order, name)
        document[name] = None if problem is None else problem_to_json(problem)
    write_json(folder / "order.json", document)


def _read_order(folder: Path) -> Order:
    document = read_json(folder / "order.json")
    for name in _PROBLEMS:
        if document[name] is not None:
            document[name] = problem_from_json(document[name])
    return Order(**document)


def _read(folder: Path) -> Found:
    document = read_json(folder / "found.json")
    for name in _CERTIFICATES:
        if document[name] is not None:
            document[name] = read_certificate(folder / document[name])
    return Found(**document)


def search_in(folder: Path) -> None:
    """Carry out the order that lies in a folder, and leave the outcome there."""
    found = find(_read_order(folder))
    document: dict[str, Any] = {"reason": found.reason, "told": found.told}
    for name in _CERTIFICATES:
        certificate = getattr(found, name)
        document[name] = None if certificate is None else f"{name}.json"
        if certificate is not None:
            certificate.write(folder / f"{name}.json")
    write_json(folder / "found.json", document)


class Done:
    """A search that has ended, here."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def poll(self) -> Found | None:
        """Return the outcome of the search, which has ended."""
        return self._found

    def close(self) -> None:
        """Nothing is under way."""


def begin(order: Order, *, apart: bool) -> SearchProcess | Done:
    """Begin a search in a process of its own, or carry it out, unless a plan is kept."""
    known = order.known()
    if known is not None:
        return Done(known)
    return SearchProcess(order) if apart else Done(find(order))


if __name__ == "__main__":
    try:
        search_in(Path(sys.argv[1]))
    except (InputError, PlanError) as error:
        sys.exit(str(error))
