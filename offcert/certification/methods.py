"""`solve`: one method, asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from offcert.certification.climbing import climb_part
from offcert.certification.interrupts import watched
from offcert.certification.joint_methods import bound_at_once
from offcert.certification.method import Choice as Choice
from offcert.certification.method import Effort
from offcert.certification.method import Method as Method
from offcert.certification.registry import METHODS as METHODS
from offcert.certification.registry import method_called
from offcert.certification.running import ALONE, keeper
from offcert.certification.search import Search, SearchProgress, chooses_execution
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.core.errors import InputError, NoPlanError
from offcert.core.options import require_count
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.questions.schedule.result import require_search


def solve(
    problem: Problem,
    method: str,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    grid: int | None = None,
    solver: str | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
) -> Certificate:
    """Find a schedule, or a bound, by one method that is asked for by name.

    Bounds that take hardly any time are always added: the combinatorial ones, or, where
    computations may run again, the computing time or what the largest of them takes.

    Parameters
    ----------
    problem : Problem
        Any to which the method applies.
    method : str
        Its name, with its options behind it: ``"greedy"``, ``"dynprog:slots=2000"``. The command
        ``offcert solve --help`` lists all.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    target_gap : float
        Stop when ``(objective - bound) / objective`` is at most this.
    seed : int
        Seed of every random choice.
    grid : int, optional
        Ticks a cell, for the time-indexed models.
    solver : str, optional
        Linear solver by its PuLP name, or ``"scipy"``, for the models that are linear programs.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        Given a certificate of what is known, again and again, as in `offcert.certify`.

    Returns
    -------
    Certificate
        The best schedule found, if any, and the best bound.

    Raises
    ------
    InputError
        If there is no such method or option, the method is not for what the problem leaves open
        (transfers, what is least; one that only moves makes a plan where something may run again,
        too), or an argument is of the wrong type or out of its
        range.
    MethodError
        If the method does not apply to the problem's network.

    Examples
    --------
    >>> import offcert
    >>> problem = offcert.Library().load("cnn-8-0-m10")
    >>> quick = offcert.solve(problem, "greedy")
    >>> exact = offcert.solve(problem, "dynprog", time_limit=10)
    >>> best = min(quick.result.objective, exact.result.objective)
    >>> best >= problem.trace.compute_time
    True
    """
    options = require_search(problem, time_limit, workers, target_gap, seed)
    time_limit, workers, target_gap, seed = options
    grid = None if grid is None else require_count(grid, "grid")
    chosen = method_called(method)
    asked = _require_use(chosen, problem, grid=grid, solver=solver)
    name = chosen.own.text
    settings = Settings(
        time_limit=time_limit, workers=workers, target_gap=target_gap, seed=seed, **asked
    )
    keeping = keeper(name, settings, keep)
    search = Search(problem, time_limit, target_gap, progress, keeping)
    search.infeasibility = infeasibility(problem)
    known = partial(search.certificate, name, settings)
    try:
        if search.infeasibility is None:
            own = chosen.own.options
            effort = Effort(search.remaining, workers, seed, options=own, climb=climb_part, **asked)
            _bound_cheaply(search, effort)
            with watched(search, time_limit, known), search.surviving(but=ALONE):
                if chosen.method.misfit(problem) is None:
                    chosen.method.alone(search, effort)
                else:
                    _move_alone(chosen.method, search, effort)
    except NoPlanError as error:
        search.note(no_plan=str(error))
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return known()


def _require_use(chosen: Choice, problem: Problem, **settings: Any) -> dict[str, Any]:
    """Return the settings, also those behind the method's name; refuse ones it does not read."""
    misfit = chosen.method.misfit(problem)
    if misfit is not None and not _moves_there(chosen.method, problem):
        raise InputError(f"method {chosen.name} {misfit}")
    asked = {name: value for name, value in settings.items() if value is not None}
    for name in asked:
        if name not in chosen.method.reads:
            raise InputError(f"method {chosen.name} does not use {name}")
        if name in chosen.settings:
            raise InputError(f"{name} is given twice, also behind the name of the method")
    return asked | chosen.settings


def _moves_there(method: Method, problem: Problem) -> bool:
    """Whether a method without recomputation makes plans of a problem that allows it."""
    atomic = problem.transfers is Transfers.ATOMIC
    return atomic and problem.offload and method.misfit(_moving(problem)) is None


def _moving(problem: Problem) -> Problem:
    """Return the problem without recomputation: its plans are plans of the problem, too."""
    return replace(problem, recompute=Recompute.NONE)


def _move_alone(method: Method, search: Search, effort: Effort) -> None:
    """Run a method without recomputation where that is allowed; it gives no bound there."""
    search.begin(method.name)
    part = Search(_moving(search.asked), effort.seconds)
    part.infeasibility = infeasibility(part.asked)
    if part.infeasibility is not None:
        raise NoPlanError(f"it only moves, and {part.infeasibility.said(part.asked.units)}")
    method.alone(part, effort)
    if part.schedule is not None:
        search.offer(part.schedule)


def _bound_cheaply(search: Search, effort: Effort) -> None:
    """Add the bounds that cost next to nothing."""
    if chooses_execution(search.problem):
        bound_at_once(search, effort)
    else:
        climb_combinatorial(search, effort, late_too=True)
