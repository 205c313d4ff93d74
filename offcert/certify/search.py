"""The state of a search: the best schedule, the bounds, the clock, and who wants to know."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.certify.compile import group_of, noted_compilations
from offcert.certify.interrupts import held_interrupts, is_interrupt
from offcert.certify.warm import warm_plans
from offcert.certify.workings import Workings
from offcert.core.check import check
from offcert.core.check_fluid import check_fluid
from offcert.core.errors import InputError, OffcertError, PlanError
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.problem import Problem
from offcert.core.result import Bound, Evidence, Infeasibility, Result, SolveStatus
from offcert.core.schedule import Schedule
from offcert.core.simulate import Simulator
from offcert.proofs.attestation import witness
from offcert.proofs.certificate import Certificate, current_versions
from offcert.proofs.settings import Notes, Settings

_LOG = logging.getLogger("offcert")
_SECONDS_BETWEEN_KEEPING = 1.0


@dataclass(frozen=True)
class SearchProgress:
    """What a progress callback is told.

    Attributes
    ----------
    seconds : float
        Since the search began.
    step : str
        What is running.
    objective, lower_bound : int or None
        The best known so far, in ticks.
    """

    seconds: float
    step: str
    objective: int | None
    lower_bound: int


class UnsoundError(OffcertError):
    """A solver contradicted itself: a program error that must never be papered over."""


class Search:
    """Collects schedules and bounds; every schedule passes a checker before it counts.

    ``schedule`` is the best one of whole transfers, ``fluid`` the best one in pieces. Steps `note`
    what is to be said beside the result, and leave what later ones need in ``workings``.

    Parameters
    ----------
    problem : Problem
        What is being solved.
    time_limit : float
        Seconds.
    target_gap : float
        Stop when the gap is at most this.
    progress : callable, optional
        Told of every improvement and every step.
    keep : callable, optional
        Given the search before every step, and about every second when something new is known.
    """

    def __init__(
        self,
        problem: Problem,
        time_limit: float,
        target_gap: float = 0.0,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[Search], None] | None = None,
    ) -> None:
        self.problem = problem
        self.target_gap = Fraction(target_gap)
        self.schedule: Schedule | None = None
        self.fluid: FluidSchedule | None = None
        self.notes = Notes()
        self.workings = Workings()
        self.bounds: list[Bound] = []
        self.refuted: list[Bound] = []
        self.infeasibility: Infeasibility | None = None
        self._simulator = Simulator(problem)
        self._progress = progress
        self._keep = keep
        self._kept = -math.inf
        self._keeping_failed = False
        self._step = ""
        # How a step says that it needs longer, so that nobody interrupts it; see `watchdog`.
        self.grant: Callable[[float], None] = lambda seconds: None
        self.clock_stands_still = False
        # A makespan as good as the least: the search ends with it, or a proof that none has it.
        self.enough: int | None = None
        self._begin = time.monotonic()
        self._deadline = self._begin + time_limit
        self._compiling: set[str] = set()
        with self.untimed():
            warm_plans()

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._begin

    @property
    def step(self) -> str:
        """What is running."""
        return self._step

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def best(self) -> Schedule | FluidSchedule | None:
        """The shortest schedule; one of whole transfers if there are two."""
        if self.schedule is None or self.fluid is None:
            return self.schedule or self.fluid
        return self.fluid if self.fluid.makespan < self.schedule.makespan else self.schedule

    @property
    def objective(self) -> int | None:
        """Makespan of the best schedule, in ticks."""
        return None if self.best is None else self.best.makespan

    @property
    def lower_bound(self) -> int:
        """The best bound so far, in ticks."""
        return max((bound.value for bound in self.bounds), default=0)

    @property
    def proved_bound(self) -> int:
        """The best bound that rests on no solver's word, in ticks."""
        proved = (bound.value for bound in self.bounds if bound.evidence is Evidence.PROVED)
        return max(proved, default=0)

    @property
    def goal(self) -> int:
        """The makespan at which the target gap is reached with the present bound."""
        if self.target_gap >= 1:
            return 2**62
        return max(int(self.lower_bound / (1 - self.target_gap)), self.enough or 0)

    @property
    def gap(self) -> float:
        """The part of the makespan that is open."""
        if self.objective is None:
            return math.inf
        return (self.objective - self.lower_bound) / self.objective if self.objective else 0.0

    @property
    def done(self) -> bool:
        """Whether the target is reached or the time is over."""
        met = self.objective is not None and self.objective <= self.goal
        met = met or (self.enough is not None and self.proved_bound > self.enough)
        return met or self.late or self.infeasibility is not None

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.remaining <= 0

    @contextmanager
    def surviving(self) -> Iterator[None]:
        """Keep what is known if a step fails: a solver is missing, crashes, or runs out of memory.

        That a method does not apply, or that the program contradicts itself, is no such failure.
        """
        try:
            yield
        except (OffcertError, AssertionError):
            raise
        except MemoryError:
            self.note_failure("out of memory")
        except Exception as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            # In one line: it becomes part of certificates and tables.
            self.note_failure(" ".join(f"{type(error).__name__}: {error}".split()))

    def note(self, **notes: Any) -> None:
        """Remember what is to be said beside the result: fields of `Notes`."""
        self.notes = replace(self.notes, **notes)

    def note_failure(self, message: str, step: str | None = None) -> None:
        """Remember that a step, by default the present one, failed, and say so."""
        step = self._step if step is None else step
        self.note(failed={**self.notes.failed, step: message})
        warnings.warn(f"{step} failed ({message}); the search goes on without it", stacklevel=3)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the clock meanwhile: compiling is not searching.

        An interrupt waits until it has ended: what compiles may swallow it.
        """
        began = time.monotonic()
        self.clock_stands_still = True
        try:
            with held_interrupts(), noted_compilations(self._say_compiling):
                yield
        finally:
            self.clock_stands_still = False
        spent = time.monotonic() - began
        self._begin += spent
        self._deadline += spent

    def _say_compiling(self, kernel: str) -> None:
        """Say, once a group of kernels, that it is not the search that takes so long."""
        group, seconds = group_of(kernel)
        if group in self._compiling:
            return
        self._compiling.add(group)
        said = f"compiling, once: {group}, about {seconds} s"
        if self._progress is None:
            _LOG.info(said)
        else:
            self._progress(SearchProgress(self.seconds, said, self.objective, self.lower_bound))

    def begin(self, step: str) -> None:
        """Say what runs next, and have what is known kept: nobody knows how a step ends."""
        self._step = step
        self._have_kept()
        self._tell()

    def offer(self, schedule: Schedule) -> bool:
        """Take a schedule if it is better, after squeezing idle time out of it.

        Raises
        ------
        UnsoundError
            If it is not a schedule of the problem, or beats a proved lower bound.
        """
        try:
            squeezed = self._simulator.run(schedule.plan(self.problem.trace))
        except PlanError:
            squeezed = schedule
        best = min(squeezed, schedule, key=lambda candidate: candidate.makespan)
        if self.objective is not None and best.makespan >= self.objective:
            return False
        faults = check(self.problem, best)
        if faults:
            raise UnsoundError(f"{self._step} returned an invalid schedule: {faults[0]}")
        self.schedule = best
        self._require_consistent()
        self._tell_news()
        return True

    def offer_fluid(self, schedule: FluidSchedule) -> bool:
        """Take a schedule whose transfers are in pieces if it is better.

        Raises
        ------
        UnsoundError
            If it is not a schedule of the problem, or beats a proved lower bound.
        """
        if self.objective is not None and schedule.makespan >= self.objective:
            return False
        faults = check_fluid(self.problem, schedule)
        if faults:
            raise UnsoundError(f"{self._step} returned an invalid schedule: {faults[0]}")
        self.fluid = schedule
        self._require_consistent()
        self._tell_news()
        return True

    def add(self, bound: Bound) -> None:
        """Record a lower bound.

        Raises
        ------
        UnsoundError
            If it is proved and exceeds the makespan of a schedule. A solver's claim that does is
            dropped with a warning, and kept among the refuted ones.
        """
        improved = bound.value > self.lower_bound
        self.bounds.append(bound)
        self._require_consistent()
        if improved:
            self._tell_news()

    def certificate(
        self, method: str, settings: Settings, unfinished: str | None = None
    ) -> Certificate:
        """Return what is known now, what made it and what is to be said beside it.

        Parameters
        ----------
        method : str
            What runs.
        settings : Settings
            What it was asked.
        unfinished : str, optional
            The step that is running, if the search goes on.
        """
        # An interrupt may have come between a bound and its comparison with the schedule.
        self._require_consistent()
        notes = replace(self.notes, unfinished=unfinished, refuted=self.refutations())
        return Certificate(self.problem, self.result(), method, settings, notes, current_versions())

    def refutations(self) -> dict[str, int]:
        """Return what solvers claimed and schedules refuted, by method."""
        return {bound.method: bound.value for bound in self.refuted}

    def result(self) -> Result:
        """Return what is known now."""
        if self.infeasibility is not None:
            status = SolveStatus.INFEASIBLE
        elif self.objective is None:
            status = SolveStatus.UNKNOWN
        elif self.objective == self.lower_bound:
            status = SolveStatus.OPTIMAL
        else:
            status = SolveStatus.FEASIBLE
        bounds = tuple(_cross_attested(self.bounds))
        return Result(status, self.best, bounds, self.seconds, self.infeasibility)

    def _require_consistent(self) -> None:
        if self.objective is None:
            return
        for bound in [bound for bound in self.bounds if bound.value > self.objective]:
            if bound.evidence is Evidence.PROVED:
                raise UnsoundError(
                    f"the bound {bound.value} of {bound.method} exceeds the makespan "
                    f"{self.objective} of a valid schedule"
                )
            # A solver's word is only its word: the checked schedule refutes it.
            self.bounds.remove(bound)
            self.refuted.append(bound)
            warnings.warn(
                f"{bound.method} claimed that no schedule is shorter than {bound.value}, but one "
                f"takes {self.objective}; the claim is dropped",
                stacklevel=2,
            )

    def _tell_news(self) -> None:
        self._tell()
        if time.monotonic() - self._kept >= _SECONDS_BETWEEN_KEEPING:
            self._have_kept()

    def _have_kept(self) -> None:
        """Have what is known kept; where that fails, a full disk must not cost the search."""
        if self._keep is None:
            return
        try:
            self._keep(self)
        except (OSError, InputError) as error:
            if not self._keeping_failed:
                warnings.warn(
                    f"what is known could not be kept ({error}); the search goes on, and tries "
                    "again from time to time",
                    stacklevel=2,
                )
            self._keeping_failed = True
        self._kept = time.monotonic()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(
                SearchProgress(self.seconds, self._step, self.objective, self.lower_bound)
            )


def keeper(
    method: str, settings: Settings, keep: Callable[[Certificate], None]
) -> Callable[[Search], None]:
    """Return what gives `keep` a certificate of an unfinished search; see `Search`."""
    return lambda search: keep(search.certificate(method, settings, search.step))


def _cross_attested(bounds: list[Bound]) -> list[Bound]:
    """Raise the evidence of attested bounds that another solver's bound reaches too."""
    return [
        replace(bound, evidence=Evidence.CROSS_ATTESTED)
        if bound.evidence is Evidence.ATTESTED and witness(bounds, index) is not None
        else bound
        for index, bound in enumerate(bounds)
    ]
