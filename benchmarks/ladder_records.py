"""Records of every rung of a ladder in one search, taken without changing the search."""

from __future__ import annotations

import math
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.ladders.joint import LADDERS, ladder_for
from offcert.certification.method import Effort
from offcert.certification.rung import Rung
from offcert.certification.search import Search
from offcert.core.errors import MethodError
from offcert.core.result import SolveStatus
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem

RAN, DID_NOT_APPLY, FAILED = "ran", "did not apply", "failed"
SKIPPED, TOO_LITTLE_TIME = "skipped", "too little time"
CLOSED_BEFORE, TIME_OVER = "closed before", "time over"


@dataclass(frozen=True)
class State:
    """Objective, lower bound, and whether the goal is met, at one moment."""

    objective: int | None
    lower_bound: int
    met: bool

    @property
    def gap(self) -> float:
        """The part of the objective that is open; 1 without a schedule."""
        if self.objective is None:
            return 1.0
        return (self.objective - self.lower_bound) / self.objective if self.objective else 0.0


@dataclass(frozen=True)
class Event:
    """The outcome of one rung in one search.

    Attributes
    ----------
    position : int
        Of the rung in its ladder, from 1.
    step : str
        The name of its step.
    outcome : str
        `RAN`, `DID_NOT_APPLY`, `FAILED`; or why it was not run: `SKIPPED` for a condition,
        `TOO_LITTLE_TIME`, `CLOSED_BEFORE`, `TIME_OVER`.
    why : str or None
        The condition that was not met, or what failed.
    allowed : float
        Seconds that it was given.
    seconds, cpu_seconds : float
        That it took by the search's clock, and of processor cores, those of its solvers included.
    before, after : State
        What was known.
    """

    position: int
    step: str
    outcome: str
    why: str | None = None
    allowed: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    before: State = State(None, 0, False)
    after: State = State(None, 0, False)

    @property
    def begun(self) -> bool:
        """Whether it was run at all."""
        return self.outcome in (RAN, DID_NOT_APPLY, FAILED)

    @property
    def better_schedule(self) -> bool:
        """Whether it found a better schedule."""
        old, new = self.before.objective, self.after.objective
        return new is not None and (old is None or new < old)

    @property
    def better_bound(self) -> bool:
        """Whether it raised the lower bound."""
        return self.after.lower_bound > self.before.lower_bound

    @property
    def closed(self) -> bool:
        """Whether the target was reached while it ran."""
        return self.after.met and not self.before.met

    @property
    def part_closed(self) -> float:
        """The part that it closed of the gap that it met."""
        gap = self.before.gap
        return max(0.0, 1.0 - self.after.gap / gap) if gap else 0.0

    def document(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        facts = {"position": self.position, "step": self.step, "outcome": self.outcome}
        if self.why is not None:
            facts["why"] = self.why
        if not self.begun:
            return facts
        return facts | {
            "allowed": self.allowed,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "objective": [self.before.objective, self.after.objective],
            "lower_bound": [self.before.lower_bound, self.after.lower_bound],
            "part_closed": self.part_closed,
            "closed": self.closed,
        }


@dataclass(frozen=True)
class Run:
    """One search, with an event for every rung of its ladder."""

    problem: str
    ladder: str
    seed: int
    objective: int | None
    lower_bound: int
    gap: float
    seconds: float
    events: tuple[Event, ...]

    def document(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return facts | {"events": [event.document() for event in self.events]}


@dataclass(frozen=True, kw_only=True)
class RecordedRung(Rung):
    """A rung that does what another one does, and tells of it."""

    position: int
    tell: Callable[[Event], None]

    def suits(self, search: Search) -> bool:
        """Return whether the rung suits a search; record the condition that is not met."""
        why = self.unmet(search)
        if why is not None:
            self.tell(Event(self.position, self.name, SKIPPED, why))
        return why is None

    def seconds(self, left: float, slowness: float = 1.0) -> float:
        """Return the rung's seconds, and record it if they are fewer than it needs."""
        seconds = super().seconds(left, slowness)
        if seconds < self.needs:
            why = f"{seconds:.3g} s of at least {self.needs:g} s"
            self.tell(Event(self.position, self.name, TOO_LITTLE_TIME, why))
        return seconds


def recorded(rung: Rung, position: int, tell: Callable[[Event], None]) -> RecordedRung:
    """Return a rung that does the same and tells what became of it."""

    @wraps(rung.method.run)
    def run(search: Search, effort: Effort) -> None:
        before, began, cpu = state_of(search), search.seconds, cpu_seconds()
        outcome, why = RAN, None
        try:
            rung.method.run(search, effort)
        except MethodError as error:
            outcome, why = DID_NOT_APPLY, str(error)
            raise
        except BaseException as error:
            outcome, why = FAILED, f"{type(error).__name__}: {error}".rstrip(": ")
            raise
        finally:
            spent = search.seconds - began, cpu_seconds() - cpu
            states = before, state_of(search)
            tell(Event(position, rung.name, outcome, why, effort.seconds, *spent, *states))

    same = {field.name: getattr(rung, field.name) for field in fields(Rung)}
    return RecordedRung(
        **(same | {"method": replace(rung.method, run=run)}), position=position, tell=tell
    )


def state_of(search: Search) -> State:
    """Return objective, lower bound and goal of a search now."""
    objective = search.objective
    met = objective is not None and objective <= search.goal
    return State(objective, search.lower_bound, met)


def cpu_seconds() -> float:
    """Return the seconds of processor cores that this process and its children have taken."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _living_children_seconds()


def _living_children_seconds() -> float:
    """Return the same of children that still live, as HiGHS does; 0 elsewhere than on Linux."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        # A thread or a child may end meanwhile.
        with suppress(OSError):
            for pid in listed.read_text().split():
                with suppress(OSError):
                    # After the name, which stands in parentheses and may hold spaces.
                    facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    ticks += int(facts[11]) + int(facts[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def all_ladders() -> dict[str, tuple[Rung, ...]]:
    """Return the ladders by name: of scheduling, and of problems that leave more open."""
    return dict(LADDERS)


def ladder_of(problem: Problem) -> str:
    """Return the name of the ladder that `certify` climbs for a problem."""
    return ladder_for(problem)


@contextmanager
def in_place_of(name: str, rungs: Sequence[Rung]) -> Iterator[None]:
    """Have `certify` climb other rungs where it would climb the ladder of this name."""
    before = LADDERS[name]
    LADDERS[name] = tuple(rungs)
    try:
        yield
    finally:
        LADDERS[name] = before


def certify_recorded(
    problem: Problem,
    rungs: Sequence[Rung] | None = None,
    *,
    time_limit: float,
    workers: int = 1,
    seed: int = 0,
) -> tuple[Certificate, tuple[Event, ...]]:
    """Certify, and return with the certificate what became of every rung.

    Parameters
    ----------
    problem : Problem
        What is certified.
    rungs : sequence of Rung, optional
        By default those of the problem's ladder.
    time_limit, workers, seed
        As for `certify`.
    """
    name = ladder_of(problem)
    rungs = all_ladders()[name] if rungs is None else rungs
    events: list[Event] = []
    recording = [recorded(rung, place, events.append) for place, rung in enumerate(rungs, start=1)]
    with in_place_of(name, recording), warnings.catch_warnings():
        # The events say what failed.
        warnings.filterwarnings("ignore", message=".*the search goes on without it")
        certificate = certify(problem, time_limit=time_limit, workers=workers, seed=seed)
    reached = {event.position for event in events}
    result = certificate.result
    over = result.status in (SolveStatus.OPTIMAL, SolveStatus.INFEASIBLE)
    rest = CLOSED_BEFORE if over else TIME_OVER
    events += [
        Event(place, rung.name, rest)
        for place, rung in enumerate(rungs, start=1)
        if place not in reached
    ]
    return certificate, tuple(sorted(events, key=lambda event: event.position))


def run_of(
    problem: Problem,
    rungs: Sequence[Rung] | None = None,
    *,
    time_limit: float,
    workers: int = 1,
    seed: int = 0,
) -> Run:
    """Certify, and return the facts; see `certify_recorded`."""
    certificate, events = certify_recorded(
        problem, rungs, time_limit=time_limit, workers=workers, seed=seed
    )
    result = certificate.result
    gap = float(result.gap)
    return Run(
        problem.name,
        ladder_of(problem),
        seed,
        result.objective,
        result.lower_bound,
        1.0 if math.isinf(gap) else gap,
        result.runtime,
        events,
    )
