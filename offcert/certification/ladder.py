"""`certify`: bounds become larger and schedules shorter, until they meet or the time is over.

`frontier` does so for one memory limit after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from offcert.certification.climbing import climb, climb_at_once
from offcert.certification.interrupts import watched
from offcert.certification.robust import certify_box
from offcert.certification.running import keeper
from offcert.certification.search import Search, SearchProgress
from offcert.certification.search_steps.descents import move_less
from offcert.certification.warm import waits_for_kernels
from offcert.core.errors import InputError, PlanError
from offcert.core.messages import cut
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.proofs.questions import SCHEDULE
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.result import require_search
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.questions.schedule.simulate import simulate

# Part of a time limit, and seconds, that a plan of the same time which moves less is looked for:
# at least the one, and at most the other; and seconds for which nothing is begun. Arbitrary.
_LEAST_SHARE, _MOST_SECONDS, _LEAST_SECONDS = 0.05, 5.0, 0.01


def require_known(problem: Problem, known: Certificate) -> None:
    """Raise unless a certificate's schedule is one of the problem, too."""
    other = known.problem
    memory = problem.platform.memory
    least_bytes = problem.minimise is Minimise.MEMORY
    if other.platform.memory > memory and not least_bytes:
        raise InputError(
            f"known must be a certificate for at most {memory} bytes, not {other.platform.memory}"
        )
    if replace(other.with_memory(memory), name=problem.name, source=problem.source) != problem:
        raise InputError(
            f"known is about {cut(other.name)}, which is another problem than {cut(problem.name)}"
        )


def offer_known(search: Search, known: Certificate) -> None:
    """Offer a certificate's schedule; with more memory the same decisions may take less time."""
    search.begin("what is known")
    schedule, execution = known.result.schedule, known.result.execution
    if isinstance(schedule, FluidSchedule):
        search.offer_fluid(schedule)
    if not isinstance(schedule, Schedule):
        return
    problem, memory = search.problem, known.result.memory
    executed = problem if execution is None else problem.executed(execution)
    best = schedule
    if memory is None:
        try:
            again = simulate(executed, schedule.plan(executed.trace))
            best = min(again, schedule, key=lambda each: each.makespan)
        except PlanError:
            # No plan of whole transfers makes this schedule; it is one all the same.
            pass
    search.offer_executed(execution, best, memory)


def certify(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
    known: Certificate | None = None,
    attested: bool = True,
) -> Certificate:
    """Find a schedule of `problem` and prove how far it is from the best one.

    Parameters
    ----------
    problem : Problem
        Any; an infeasible one gives a certificate that says so.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    target_gap : float
        Stop when ``(objective - bound) / objective`` is at most this; 0 asks for the optimum.
    seed : int
        Seed of every random choice.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        Given a certificate of what is known before every step, and at improvements about every
        second: written to a file, it outlives a crash of this process. Its setting
        ``"unfinished"`` names the step that was running.
    known : Certificate, optional
        Of the same problem with as much memory or less: its schedule is where the search begins.
    attested : bool
        Whether a bound that rests on a solver's word may end the search; without, it goes on for a
        proof.

    Returns
    -------
    Certificate
        To be written, verified, plotted, executed.

    Raises
    ------
    InputError
        If an argument is of the wrong type or out of its range, or what is known is about another
        problem.

    Examples
    --------
    A problem of the library, or one from `offcert.profile` or `offcert.read_problem`:

    >>> import offcert
    >>> problem = offcert.Library().load("cnn-8-0-m10")
    >>> certificate = offcert.certify(problem, time_limit=10, target_gap=0.01)
    >>> certificate.result.status in ("OPTIMAL", "FEASIBLE")
    True
    >>> certificate.result.objective >= problem.trace.compute_time
    True
    >>> certificate.write("certificate.json")  # for offcert verify, plot and train
    """
    options = require_search(problem, time_limit, workers, target_gap, seed)
    time_limit, workers, target_gap, seed = options
    if problem.uncertainty is not None:
        # A plan that moves less has less to give where times are longer than was said.
        exact = partial(
            _certified,
            workers=workers,
            target_gap=target_gap,
            seed=seed,
            attested=attested,
            moves_less=False,
        )
        return certify_box(problem, exact, time_limit, progress, keep, known)
    given = time_limit, workers, target_gap, seed, progress, keep, known, attested
    return _certified(problem, *given)


def _certified(
    problem: Problem,
    time_limit: float,
    workers: int,
    target_gap: float,
    seed: int,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
    known: Certificate | None = None,
    attested: bool = True,
    moves_less: bool = True,
) -> Certificate:
    """Return the certificate of a problem with exact times; parameters as for `certify`."""
    settings = Settings(time_limit=time_limit, workers=workers, target_gap=target_gap, seed=seed)
    keeping = keeper(SCHEDULE.command, settings, keep)
    waits = waits_for_kernels()
    search = Search(problem, time_limit, target_gap, progress, keeping, attested, not waits)
    search.infeasibility = infeasibility(problem)
    so_far = partial(search.certificate, SCHEDULE.command, settings)
    if known is not None:
        require_known(problem, known)
    try:
        if known is not None and search.infeasibility is None:
            offer_known(search, known)
        (climb if waits else climb_at_once)(search, so_far, workers, seed)
        if moves_less:
            # What is left of the time, and a little more, for plans of the same time.
            seconds = min(max(search.remaining, _LEAST_SHARE * time_limit), _MOST_SECONDS)
            if seconds >= _LEAST_SECONDS:
                with watched(search, seconds, so_far), search.surviving():
                    move_less(search, seconds, seed)
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return so_far()


@dataclass(frozen=True)
class FrontierProgress:
    """The argument of a progress callback."""

    # Number of the limit that is looked at, counted from 1, and how many there are.
    number: int
    limits: int
    problem: Problem  # At this limit
    news: SearchProgress  # The progress of its search


def frontier(
    problem: Problem,
    limits: Sequence[int],
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[FrontierProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
    found: Callable[[Problem], Certificate | None] | None = None,
) -> Iterator[Certificate]:
    """Yield a certificate for each limit, by increasing memory.

    Every search begins with the schedule of the limit before: it fits, and nothing that takes less
    memory is ever forgotten.

    The problem's own limit does not matter, and limits are bytes in any order. Times, threads, gap
    and seed are those of each search, and `progress` and `keep` are told as by `certify`. `found`
    is asked before each search for a certificate of the problem at that limit from before; that is
    taken instead if it is at least as good as the schedule of the limit before.

    An interrupt ends the search at hand; its certificate says so, and is the last.
    """
    if problem.minimise is Minimise.MEMORY:
        raise InputError("a curve over memory needs time as the objective, not memory")
    chosen = sorted(set(limits))
    before: Certificate | None = None
    for number, memory in enumerate(chosen, start=1):
        limited = problem.with_memory(memory)
        certificate = None if found is None else found(limited)
        if certificate is None or _is_worse(certificate, before):
            tell = None
            if progress is not None:
                tell = partial(_tell, progress, number, len(chosen), limited)
            certificate = certify(
                limited,
                time_limit=time_limit,
                workers=workers,
                target_gap=target_gap,
                seed=seed,
                progress=tell,
                keep=keep,
                known=before,
            )
        yield certificate
        if certificate.notes.interrupted:
            return
        if certificate.result.schedule is not None:
            before = certificate


def _is_worse(certificate: Certificate, before: Certificate | None) -> bool:
    """Whether the certificate within less memory also takes less time."""
    least = None if before is None else before.result.objective
    if least is None:
        return False
    return certificate.result.objective is None or certificate.result.objective > least


def _tell(
    progress: Callable[[FrontierProgress], None],
    number: int,
    limits: int,
    problem: Problem,
    news: SearchProgress,
) -> None:
    progress(FrontierProgress(number, limits, problem, news))
