"""The search for a plan: here, or in a process of its own while the training goes on.

Such a process takes seconds to begin with, most of them for imports; so it can be made before it is
known what to search for. What it has found so far lies in its folder about a second after it has
begun, for steps to follow while it goes on. Its limit is one of searching, and kernels that have
never run on a machine are compiled beside that; so it is ended when it takes far longer.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
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
# How many times its seconds a process may take, and seconds besides, until it is ended. Arbitrary.
TIMES, MORE = 4, 60

Keep = Callable[[Certificate], None]


@dataclass(frozen=True)
class Order:
    """A plan that is wanted, in some seconds, for a problem with its limit.

    `plain` is the problem if nothing runs again, for where no plan is found for the other one; None
    if nothing may anyway. The plan may take `room` bytes of the host (None: any number); the
    `streams` of a device are to follow it, or nobody's. A plan for `unbarred`, in which everything
    might run again, says what is lost otherwise. `kept` gives a plan that is kept, or None.
    """

    problem: Problem
    plain: Problem | None
    seconds: float
    room: int | None = None
    streams: bool = False
    unbarred: Problem | None = None
    kept: Callable[[Problem, int | None], SearchOutcome | None] | None = None

    def known(self) -> SearchOutcome | None:
        """Return a plan that is kept, if there is one."""
        return None if self.kept is None else self.kept(self.problem, self.room)


@dataclass
class SearchOutcome:
    """The certificate that a search has found, or the `reason` why there is none.

    It may be one that there is no plan. `unbarred` is for the problem in which everything might run
    again; `told` says why plans only move tensors, if that is not what was asked.
    """

    certificate: Certificate | None
    unbarred: Certificate | None = None
    reason: str = ""
    told: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as a JSON value, for another process."""
        document: dict[str, Any] = {"reason": self.reason, "told": self.told}
        for name in _CERTIFICATES:
            certificate: Certificate | None = getattr(self, name)
            document[name] = None if certificate is None else certificate.to_json()
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> SearchOutcome:
        """Return the outcome that another process has written."""
        found = {n: document[n] and Certificate.from_json(document[n]) for n in _CERTIFICATES}
        return cls(**document | found)


def find(order: Order, keep: Keep | None = None) -> SearchOutcome:
    """Search for a plan; it is no slower than the one that is found at once (`at_once`).

    `keep` is given a certificate of what has been found, as often as something is. If no plan could
    be followed, an `InputError` or a `PlanError` is raised.
    """
    quick = _followable(order)

    def keep_quicker(certificate: Certificate) -> None:
        found = certificate.result.schedule is not None
        if keep is not None and found and not _is_quicker(quick, certificate):
            keep(certificate)

    unbarred = None
    if order.unbarred is not None:
        unbarred = certify(order.unbarred, time_limit=_SHARE_OF_PRICE * order.seconds)
    found = _find(order, keep_quicker)
    if found.certificate is not None and _is_quicker(quick, found.certificate):
        found.certificate = quick
    found.unbarred = unbarred
    return found


def _followable(order: Order) -> Certificate | None:
    """Return the plan that is found at once, if the host has room for it."""
    quick = at_once(order.problem if order.plain is None else order.plain)
    if quick is None or order.room is None or _pool(quick, order.streams) <= order.room:
        return quick
    return None


def _best_at_once(order: Order) -> Certificate | None:
    """Return the plan that is found at once if none takes less time: nothing waits in it."""
    quick = None if order.unbarred is not None else _followable(order)
    if quick is None or quick.result.objective is None:
        return None
    waits = quick.result.objective > quick.problem.trace.compute_time
    return None if waits else quick


def at_once(problem: Problem) -> Certificate | None:
    """Return a plan that evicts just before an operation needs room; None if there is none."""
    with suppress(InputError, PlanError):
        found = solve(problem, "sequential")
        return None if found.result.schedule is None else found
    return None


def _is_quicker(one: Certificate | None, other: Certificate) -> bool:
    if one is None or other.result.schedule is None:
        return False
    quick, slow = one.result.objective, other.result.objective
    return quick is not None and slow is not None and quick < slow


def _find(order: Order, keep: Keep | None = None) -> SearchOutcome:
    otherwise = None
    if order.plain is not None:
        otherwise = replace(order, problem=order.plain, plain=None)
    problem, room = order.problem, order.room
    pool = partial(_pool, streams=order.streams)
    try:
        if room is None:
            certificate = certify(problem, time_limit=order.seconds, keep=keep)
        else:
            certificate = certify_within_host(problem, room, order.seconds, pool)
        result = certificate.result
        if result.schedule is not None:
            # A plan that cannot be followed is refused now.
            pool(certificate)
        elif otherwise is not None and result.infeasibility is None:
            return _find(otherwise, keep)
    except NoPlanError as error:
        # Another plan may do all the same: that search is another one.
        return (
            SearchOutcome(None, reason=str(error)) if otherwise is None else _find(otherwise, keep)
        )
    except (InputError, PlanError) as error:
        if otherwise is None:
            raise
        found = _find(otherwise, keep)
        found.told = found.told or f"nothing runs again, plans only move tensors: {error}"
        return found
    return SearchOutcome(certificate)


def _pool(certificate: Certificate, streams: bool) -> int:
    """Return how many bytes of the host's memory a plan takes."""
    result = certificate.result
    assert result.schedule is not None
    made = step_plan(certificate.problem, result.schedule, result.execution, streams=streams)
    return made.host.pool


class Search:
    """A search for a plan, which is under way or has ended."""

    def poll(self) -> SearchOutcome | None:
        """Return the outcome of the search; None as long as it goes on."""
        raise NotImplementedError

    def so_far(self) -> SearchOutcome | None:
        """Return the best plan so far; None if there is none, or all of them is the outcome."""
        return None

    def close(self) -> None:
        """End the search, and forget it."""


class EndedSearch(Search):
    """A search that has ended, here."""

    def __init__(self, found: SearchOutcome) -> None:
        self._found = found

    def poll(self) -> SearchOutcome | None:
        """Return the outcome."""
        return self._found


class SearchProcess(Search):
    """A search in a process of its own, which waits for its order (`give`)."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="offcert-search-")
        self._path = Path(self._folder.name)
        self._ends = math.inf
        self._process = _begun(self._path)

    def give(self, order: Order) -> None:
        """Let the process search for a plan."""
        _write(order, self._path)
        self._ends = time.monotonic() + TIMES * order.seconds + MORE
        assert self._process.stdin is not None
        # One that has failed says so when it is asked.
        with suppress(OSError), self._process.stdin:
            self._process.stdin.write(b"search\n")

    def poll(self) -> SearchOutcome | None:
        """Return the outcome, or None as long as the search goes on."""
        ended = self._process.poll()
        if ended is None and time.monotonic() < self._ends:
            return None
        try:
            if ended is None:
                found = self.so_far()
                return (
                    SearchOutcome(None, reason="the search did not end") if found is None else found
                )
            if ended:
                said = (self._path / "errors").read_text(errors="replace").strip().splitlines()
                raise InputError(said[-1] if said else f"the search ended with code {ended}")
            return SearchOutcome.from_json(read_json(self._path / "found.json"))
        finally:
            self.close()

    def so_far(self) -> SearchOutcome | None:
        """Return the best plan so far, while the search goes on; None if there is none."""
        with suppress(OSError, InputError):
            return SearchOutcome(read_certificate(self._path / _SO_FAR))
        return None

    def close(self) -> None:
        """End the search, and forget it."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._folder.cleanup()


def _begun(folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "errors", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


_SO_FAR = "so_far.json"
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


def search_in(folder: Path) -> None:
    """Carry out the order that lies in a folder, and leave the outcome there."""
    document = read_json(folder / "order.json")
    for name in _PROBLEMS:
        if document[name] is not None:
            document[name] = problem_from_json(document[name])
    found = find(Order(**document), lambda certificate: certificate.write(folder / _SO_FAR))
    write_json(folder / "found.json", found.to_json())


# A process that waits for an order, if there is one.
PREPARED: list[SearchProcess] = []


def prepare() -> None:
    """Make a process for the next search in the background, which takes it seconds."""
    if not PREPARED:
        PREPARED.append(SearchProcess())


def forget_prepared() -> None:
    """End the process that waits for an order, if there is one."""
    while PREPARED:
        PREPARED.pop().close()


def begin(order: Order, *, apart: bool) -> Search:
    """Begin a search in a process of its own, or carry it out, unless there is nothing to find."""
    known = order.known()
    if known is not None:
        return EndedSearch(known)
    if not apart:
        return EndedSearch(find(order))
    best = _best_at_once(order)
    if best is not None:
        return EndedSearch(SearchOutcome(best))
    search = PREPARED.pop() if PREPARED else SearchProcess()
    search.give(order)
    return search


if __name__ == "__main__":
    try:
        # Whoever asked may be gone by the time that everything is imported.
        if sys.stdin.readline():
            search_in(Path(sys.argv[1]))
    except (InputError, PlanError) as error:
        sys.exit(str(error))
