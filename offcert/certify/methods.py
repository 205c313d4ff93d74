"""Every method by name, for ``offcert solve``: heuristics, exact models and bounds alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from offcert.certify.descents import after_annealing, descend_local_search, descend_order_search
from offcert.certify.effort import Effort
from offcert.certify.joint_methods import JOINT_METHODS, bound_at_once
from offcert.certify.method import Choice, Method
from offcert.certify.modnn_methods import MODNN_METHODS
from offcert.certify.option import SEPARATOR, Option, number, read_options
from offcert.certify.plan_methods import PLAN_METHODS, SINGLE_GAPS, sequential_plan
from offcert.certify.running import ALONE, keeper
from offcert.certify.search import Search, SearchProgress, chooses_execution
from offcert.certify.searched_steps import (
    climb_heads,
    climb_joined,
    climb_matched,
    climb_outward,
    climb_pivot,
    climb_pivot_outward,
)
from offcert.certify.steps import (
    climb_combinatorial,
    climb_disjunctive,
    climb_fluid,
    climb_fluid_exact,
    climb_fluid_lp,
    climb_interval,
    climb_stage,
    climb_sums,
    climb_time_indexed_cpsat,
    climb_time_indexed_milp,
    descend_dives,
    descend_fluid_ordered,
)
from offcert.certify.watchdog import watched
from offcert.core.errors import InputError, NoPlanError
from offcert.core.messages import meant, show
from offcert.core.options import require_count, require_search
from offcert.core.problem import Problem
from offcert.core.simulate import simulate
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.certificate import Certificate
from offcert.proofs.settings import Settings

# For which networks, where not for any trace.
_NESTED = f"{SINGLE_GAPS}, one within the other"


def _from_scratch(
    run: Callable[[Search, Effort], None],
) -> Callable[[Search, Effort], None]:
    """Give a method that improves a schedule the plainest one to start from."""

    def start_and_run(search: Search, effort: Effort) -> None:
        search.offer(simulate(search.problem, sequential_plan(search.problem)))
        run(search, effort)

    return start_and_run


def _after_heads(
    run: Callable[[Search, Effort], None],
) -> Callable[[Search, Effort], None]:
    """Give a method that aims at the bound a good one: heads and tails, in a tenth of the time."""

    def bound_and_run(search: Search, effort: Effort) -> None:
        climb_heads(search, replace(effort, seconds=effort.seconds / 10))
        if not search.done:
            run(search, replace(effort, seconds=search.remaining))

    return bound_and_run


def _nothing(search: Search, effort: Effort) -> None:
    """Leave it at the bounds that every method gets."""


def _patience(default: str) -> Option:
    said = "coolings in a row without a better schedule after which it ends"
    return Option("patience", said, number(1), default)


METHODS = {
    "bounds": Method(
        run=_nothing,
        summary="the bounds that are computed, not searched for",
        bounds=(
            "prop3",
            "prop3-subset-sum",
            "fractional",
            "fractional-subset-sum",
            "fractional-large-tensors",
            "fractional-large-tensors-returns",
        ),
    ),
    **PLAN_METHODS,
    **MODNN_METHODS,
    "local-search": Method(
        run=_from_scratch(descend_local_search),
        summary="annealing over sets and orders",
        reads=("time_limit", "seed", "target_gap"),
        options=(_patience("12"),),
    ),
    "order-search": Method(
        run=descend_order_search,
        summary="annealing over sets and both orders of ordered schedules",
        reads=("time_limit", "seed", "target_gap"),
        options=(_patience("4"),),
        network="traces with an ordered schedule",
    ),
    "fluid-milp": Method(
        run=climb_fluid,
        summary="aggregated interruptible relaxation",
        bounds=("fluid-milp", "fluid-lp"),
        reads=("time_limit", "target_gap"),
    ),
    "fluid-lp": Method(
        run=climb_fluid_lp,
        summary="the linear relaxation of that",
        bounds=("fluid-lp",),
        reads=("time_limit",),
    ),
    "fluid-exact": Method(
        run=climb_fluid_exact,
        summary="exact for interruptible and fractional transfers, a bound for atomic ones",
        bounds=("fluid-exact",),
        reads=("time_limit",),
    ),
    "fluid-ordered": Method(
        run=descend_fluid_ordered,
        summary="the same with all offloads before all prefetches",
        reads=("time_limit",),
        relaxed_only=True,
    ),
    "exact-sums": Method(
        run=climb_sums,
        summary="sums of whole tensors where most has to be absent",
        bounds=("exact-sums",),
        reads=("time_limit",),
    ),
    "atomic-heads": Method(
        run=climb_heads,
        summary="heads and tails with whole tensors",
        bounds=("atomic-heads",),
        reads=("time_limit", "seed"),
    ),
    "matched-heads": Method(
        run=_from_scratch(climb_matched),
        summary="heads and tails that move the same tensors",
        bounds=("matched-heads",),
        reads=("time_limit", "target_gap"),
    ),
    "matched-heads-joined": Method(
        run=_from_scratch(climb_joined),
        summary="the same, as if every tensor had one gap",
        bounds=("matched-heads-joined",),
        reads=("time_limit", "target_gap"),
        network="traces with a tensor of several gaps",
    ),
    "outward": Method(
        run=_from_scratch(climb_outward),
        summary="both sides of a cut, from the pivot outward",
        bounds=("outward",),
        reads=("time_limit", "workers"),
    ),
    "pivot": Method(
        run=_from_scratch(climb_pivot),
        summary="pivot dynamic program, exact",
        bounds=("pivot",),
        reads=("time_limit",),
        network=_NESTED,
    ),
    "pivot-outward": Method(
        # From the plainest schedule much is open.
        run=_from_scratch(partial(climb_pivot_outward, most_open=1.0)),
        summary="pivot program on one side of a cut, the other from the pivot outward",
        bounds=("pivot-outward",),
        reads=("time_limit", "workers"),
        network=_NESTED,
    ),
    "stage-milp": Method(
        run=_from_scratch(climb_stage),
        summary="who is absent when, without times",
        bounds=("stage-milp",),
        reads=("time_limit", "workers", "solver"),
    ),
    "time-indexed-cpsat": Method(
        run=after_annealing(climb_time_indexed_cpsat),
        summary="starts looked at on a grid of instants, by clauses; exact on every grid",
        bounds=("time-indexed-cpsat",),
        reads=("time_limit", "workers", "seed", "grid"),
    ),
    "time-indexed-milp": Method(
        run=after_annealing(climb_time_indexed_milp),
        summary="starts on a grid, linear; exact on simplex links and on grids of one tick",
        bounds=("time-indexed-milp",),
        reads=("time_limit", "workers", "grid", "solver"),
    ),
    "disjunctive-milp": Method(
        run=_from_scratch(climb_disjunctive),
        summary="orders and big-M, exact, for small problems",
        bounds=("disjunctive-milp",),
        reads=("time_limit", "workers", "solver"),
    ),
    "interval-dives": Method(
        run=_from_scratch(_after_heads(descend_dives)),
        summary="interval model, asked for schedules that meet the bound of heads and tails",
        bounds=("interval-cpsat", "atomic-heads"),
        reads=("time_limit", "workers", "seed", "target_gap"),
    ),
    "interval-cpsat": Method(
        run=_from_scratch(climb_interval),
        summary="interval model, exact",
        bounds=("interval-cpsat",),
        reads=("time_limit", "workers", "seed"),
    ),
    **JOINT_METHODS,
}


def method_called(text: object) -> Choice:
    """Return a method by name, with the options behind it: ``"dynprog:slots=2000"``.

    Raises
    ------
    InputError
        If there is none of that name, or an option or its value is none of the method's.
    """
    name, *parts = text.split(SEPARATOR) if isinstance(text, str) else [""]
    if name not in METHODS:
        hint = meant(name, METHODS) if isinstance(text, str) else ""
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {show(text)}{hint}")
    method = METHODS[name]
    return Choice(name, method, read_options(name, method.takes, parts))


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
    """Run one method; parameters as for `offcert.certify.ladder.certify`.

    Bounds that cost next to nothing are always added: the combinatorial ones, or, where
    computations may run again, the computing time or what the largest of them takes.

    Parameters
    ----------
    method : str
        Its name, with its options behind it: ``"greedy"``, ``"dynprog:slots=2000"``.
    grid : int, optional
        Ticks a cell, for the time-indexed models.
    solver : str, optional
        Linear solver by its PuLP name, or ``"scipy"``, for the models that are linear programs.

    Raises
    ------
    InputError
        If there is no such method or option, the method is not for what the problem leaves open
        (transfers, recomputation, what is least), or an argument is of the wrong type or out of its
        range.
    MethodError
        If the method does not apply to the problem's network.
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
            effort = Effort(search.remaining, workers, seed, options=own, **asked)
            _bound_cheaply(search, effort)
            with watched(search, time_limit, known), search.surviving(but=ALONE):
                chosen.method.run(search, effort)
    except NoPlanError as error:
        search.note(no_plan=str(error))
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return known()


def _require_use(chosen: Choice, problem: Problem, **settings: Any) -> dict[str, Any]:
    """Return the settings, also those behind the method's name; refuse what it does not read."""
    misfit = chosen.method.misfit(problem)
    if misfit is not None:
        raise InputError(f"method {chosen.name} {misfit}")
    asked = {name: value for name, value in settings.items() if value is not None}
    for name in asked:
        if name not in chosen.method.reads:
            raise InputError(f"method {chosen.name} does not use {name}")
        if name in chosen.settings:
            raise InputError(f"{name} is given twice, also behind the name of the method")
    return asked | chosen.settings


def _bound_cheaply(search: Search, effort: Effort) -> None:
    """Add the bounds that cost next to nothing."""
    if chooses_execution(search.problem):
        bound_at_once(search, effort)
    else:
        climb_combinatorial(search, effort, late_too=True)
