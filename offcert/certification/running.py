"""Common parts of all searches: the clock, the bounds, failures, progress, and their workings."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from offcert.certification.clock import Loading, Starved
from offcert.certification.interrupts import held_interrupts, is_interrupt
from offcert.certification.warm import group_of, noted_compilations
from offcert.core.errors import InputError, MethodError, OffcertError
from offcert.core.result import Bound, Bounded, Evidence
from offcert.proofs.any_certificate import Notes, Settings, current_versions
from offcert.proofs.questions import Question

if TYPE_CHECKING:
    from offcert.proofs.kinds.labels import Heads

Begun = TypeVar("Begun")


@dataclass
class Workings:
    """Objects and findings that steps leave for later ones."""

    # Searches that go on where they stopped, by names that their steps choose.
    searches: dict[str, Any] = field(default_factory=dict)
    # Heads and tails that verification can establish; searches with a pivot begin with them.
    ends: list[Heads] = field(default_factory=list)
    # For computations, what share of them runs again in the relaxation of a joint problem.
    shares: dict[int, float] = field(default_factory=dict)
    # The part of the makespan that the outward search has left open; 1 before it has run.
    outward_open: float = 1.0
    # The greatest bound, and the seconds, with which its verification was tried in vain.
    outward_tried: tuple[int, float] = (0, 0.0)
    # Names of the searches that the present step has asked for.
    used: set[str] = field(default_factory=set)

    def search(self, name: str, begin: Callable[[], Begun]) -> Begun:
        """Return the search of a name; the one that `begin` makes if it has not begun."""
        if name not in self.searches:
            self.searches[name] = begin()
        self.used.add(name)
        found: Begun = self.searches[name]
        return found

    def drop_used(self) -> None:
        """Forget the searches of a step that was interrupted: they may be incomplete."""
        for name in self.used:
            self.searches.pop(name, None)


# Seconds between two calls of a progress callback. Arbitrary.
_SECONDS_BETWEEN = 1.0
# Seconds, and the part of a time limit, of the shortest step that is begun: the lesser counts.
# Arbitrary.
_SHORTEST, _SHORTEST_PART = 0.1, 0.01
# Seconds below which everything had been loaded before. Arbitrary.
_NOTICED = 0.05


class BestKeeper:
    """Saves the best so far; a failure, such as a full disk, does not end the search."""

    def __init__(self, keep: Callable[[], None] | None = None) -> None:
        self._keep = keep
        self._last = -math.inf
        self._failed = False

    def at_news(self) -> None:
        """Save it, about every second."""
        if time.monotonic() - self._last >= _SECONDS_BETWEEN:
            self.now()

    def now(self) -> None:
        """Save it; the first failure is said."""
        if self._keep is None:
            return
        try:
            self._keep()
        except (OSError, InputError) as error:
            if not self._failed:
                warnings.warn(
                    f"what is known could not be kept ({error}); the search goes on, and tries "
                    "again from time to time",
                    stacklevel=3,
                )
            self._failed = True
        self._last = time.monotonic()


_LOG = logging.getLogger("offcert")

# Errors that a method which was asked for by name may raise: no other method takes its place.
ALONE = (OffcertError, AssertionError)

# The certificate that a search returns.
Known = TypeVar("Known")


@dataclass(frozen=True)
class SearchProgress:
    """The argument of a progress callback.

    Attributes
    ----------
    seconds : float
        Since the search began.
    step : str
        Name of the step that is running.
    objective, lower_bound : int or None
        The best known so far, in ticks or bytes.
    """

    seconds: float
    step: str
    objective: int | None
    lower_bound: int


class UnsoundError(OffcertError):
    """A program error of ours: what a step offers is invalid, or results contradict each other."""


class ContradictionError(UnsoundError):
    """A proved bound exceeds the value of a valid answer: this must never be papered over."""


class Running(Bounded, Generic[Known]):
    """A search that runs: it has a clock, collects bounds, survives failures, and tells of news.

    Steps `note` what is to be said beside the result, and leave what later ones need in
    ``workings``.

    They have a ``shortest_step``, the seconds below which no step is worth loading what it needs,
    and ``last_loading``: the seconds that modules or kernels took that were loaded last, which the
    next step's will take, as far as is known. `keep` is given the search before every step, and
    about every second when something new is known. The time limit counts compiling as it counts
    loading only if `counts_compiling`.
    """

    question: ClassVar[Question]

    # Words for a refuted claim, and for the answer that refutes it.
    _least, _found = "no schedule is shorter than", "one takes"
    _value_of_found = "the makespan {} of a valid schedule"

    def __init__(
        self,
        time_limit: float,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[Any], None] | None = None,
        counts_compiling: bool = False,
    ) -> None:
        self.notes = Notes()
        self._counts_compiling = counts_compiling
        self.workings = Workings()
        self.bounds: list[Bound] = []
        self.refuted: list[Bound] = []
        self._progress = progress
        self._keeping = BestKeeper(None if keep is None else partial(keep, self))
        self._step = ""
        # How a step says that it needs longer, so that nobody interrupts it; see `watchdog`.
        self.grant: Callable[[float], None] = lambda seconds: None
        self.clock_stands_still = False
        self._begin = time.monotonic()
        self._deadline = self._begin + time_limit
        self._starved = Starved()
        self._compiling: set[str] = set()
        self._loading = Loading(time_limit)
        self._deadline -= self._loading.counted_before(self._begin)
        self.shortest_step = min(_SHORTEST, _SHORTEST_PART * time_limit)
        self.last_loading = 0.0

    @property
    def objective(self) -> int | None:
        """The value of the best that was found; None if nothing was."""
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._begin

    @property
    def slowness(self) -> float:
        """Seconds that pass for each one in which this process gets a processor, at least 1."""
        return self._starved.slowness()

    @property
    def step(self) -> str:
        """The name of the step that is running."""
        return self._step

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def done(self) -> bool:
        """Whether nothing is left to be found, or the time is over."""
        raise NotImplementedError

    @property
    def impossible(self) -> bool:
        """Whether it is known that there is no answer."""
        return False

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.remaining <= 0

    @contextmanager
    def surviving(
        self, but: tuple[type[Exception], ...] = (MethodError, ContradictionError)
    ) -> Iterator[None]:
        """Keep answer and bounds if a step fails: a solver is missing or crashes, or ours is wrong.

        Exceptions in `but` are no such failure; by default that a method does not apply, and that
        what has been proved contradicts what has been found.
        """
        try:
            yield
        except but:
            raise
        except MemoryError:
            self.note_failure("out of memory")
        except Exception as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            # In one line: it becomes part of certificates and tables.
            self.note_failure(" ".join(f"{type(error).__name__}: {error}".split()))

    def note(self, **notes: Any) -> None:
        """Remember remarks beside the result: fields of `Notes`."""
        self.notes = replace(self.notes, **notes)

    def note_failure(self, message: str, step: str | None = None) -> None:
        """Remember that a step, by default the present one, failed, and say so."""
        step = self._step if step is None else step
        self.note(failed={**self.notes.failed, step: message})
        warnings.warn(f"{step} failed ({message}); the search goes on without it", stacklevel=3)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the clock in the block: compiling is not searching, unless it is to be counted.

        Loading what was compiled before is, but for the first of it. An interrupt waits until it
        has ended: what compiles may swallow it.
        """
        began = time.monotonic()
        self.clock_stands_still = True
        try:
            with held_interrupts(), noted_compilations(self.say_compiling) as compiled:
                yield
        finally:
            self.clock_stands_still = False
        spent = time.monotonic() - began
        if not compiled:
            self.last_loading = spent if spent >= _NOTICED else self.last_loading
        if not compiled or self._counts_compiling:
            spent -= self._loading.counted(spent)
        self._begin += spent
        self._deadline += spent

    def say_compiling(self, kernel: str, how: str = "compiling, once") -> None:
        """Say, once for each group of kernels, that they are being compiled, and for how long."""
        group, seconds = group_of(kernel)
        if group in self._compiling:
            return
        self._compiling.add(group)
        said = f"{how}: {group}, about {seconds} s"
        if self._progress is None:
            _LOG.info(said)
        else:
            self._progress(SearchProgress(self.seconds, said, self.objective, self.lower_bound))

    def begin(self, step: str) -> None:
        """Name the step that runs next, and have a certificate kept: no step is sure to end."""
        self._step = step
        self._keeping.now()
        self._tell()

    def add(self, bound: Bound) -> None:
        """Record a lower bound.

        A solver's claim that exceeds what was found is dropped with a warning, and kept among the
        refuted ones; if it is proved, that raises `ContradictionError`.
        """
        improved = bound.value > self.lower_bound
        self.bounds.append(bound)
        self._require_consistent()
        if improved:
            self._tell_news()

    def refutations(self) -> dict[str, int]:
        """Return the bounds that solvers claimed and schedules refuted, by method."""
        return {bound.method: bound.value for bound in self.refuted}

    def certificate(self, method: str, settings: Settings, unfinished: str | None = None) -> Known:
        """Return a certificate of the answer and bounds so far, with method, settings and remarks.

        `unfinished` is the step that is running, if the search goes on.
        """
        # An interrupt may have come between a bound and its comparison with what was found.
        self._require_consistent()
        notes = replace(self.notes, unfinished=unfinished, refuted=self.refutations())
        return self._certificate(
            method=method, settings=settings, notes=notes, versions=current_versions()
        )

    def _certificate(self, **origin: Any) -> Known:
        """Return a certificate of the answer and bounds so far, which are consistent."""
        raise NotImplementedError

    def _admits(
        self, value: int, problem: Any, answer: Any, what: str = "an invalid schedule"
    ) -> bool:
        """Return whether an answer is better than all before; then the checker has passed it.

        `value` are ticks or bytes, and `what` the kind of thing that the answer to `problem` is if
        the checker finds a fault, which raises `UnsoundError`.
        """
        if self.objective is not None and value >= self.objective:
            return False
        faults = self._faults(problem, answer)
        if faults:
            raise UnsoundError(f"{self._step} returned {what}: {faults[0]}")
        return True

    def _faults(self, problem: Any, answer: Any) -> list[str]:
        """Return the faults that the question's checker finds in an answer."""
        assert self.question.answers is not None
        return self.question.answers.load()(problem, answer)

    def _took(self) -> bool:
        """Compare a new answer with the bounds, and tell of it; return True."""
        self._require_consistent()
        self._tell_news()
        return True

    def _require_consistent(self) -> None:
        if self.objective is None:
            return
        for bound in [bound for bound in self.bounds if bound.value > self.objective]:
            if bound.evidence is Evidence.PROVED:
                raise ContradictionError(
                    f"the bound {bound.value} of {bound.method} exceeds "
                    f"{self._value_of_found.format(self.objective)}"
                )
            # A solver's word is only its word: what has been checked refutes it.
            self.bounds.remove(bound)
            self.refuted.append(bound)
            warnings.warn(
                f"{bound.method} claimed that {self._least} {bound.value}, but {self._found} "
                f"{self.objective}; the claim is dropped",
                stacklevel=2,
            )

    def _tell_news(self) -> None:
        self._tell()
        self._keeping.at_news()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(
                SearchProgress(self.seconds, self._step, self.objective, self.lower_bound)
            )


def keeper(
    method: str, settings: Settings, keep: Callable[[Known], None] | None
) -> Callable[[Running[Known]], None] | None:
    """Return a function that gives `keep` a certificate of an unfinished search, or None."""
    if keep is None:
        return None
    return lambda search: keep(search.certificate(method, settings, search.step))
