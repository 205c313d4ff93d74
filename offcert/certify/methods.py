"""Every method by name, for ``offcert solve``: heuristics, exact models and bounds alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from offcert.certify.descents import after_annealing, descend_local_search, descend_order_search
from offcert.certify.effort import Effort
from offcert.certify.joint_methods import JOINT_METHODS, bound_at_once
from offcert.certify.joint_rungs import chooses_execution
from offcert.certify.joint_search import JointSearch
from offcert.certify.method import Method
from offcert.certify.modnn_methods import MODNN_METHODS
from offcert.certify.running import ALONE, keeper
from offcert.certify.search import Search, SearchProgress
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
from offcert.certify.warm import warm_dynprog
from offcert.certify.watchdog import watched
from offcert.core.errors import InputError, NoPlanError
from offcert.core.messages import meant, show
from offcert.core.options import require_count, require_search
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.simulate import simulate
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.certificate import Certificate
from offcert.proofs.settings import Settings

# For which networks, where not for any trace.
_CHAINS = "chains, and traces with a forward and a backward operation a stage"
_SINGLE_GAPS = "traces whose tensors have at most one gap each"
_NESTED = f"{_SINGLE_GAPS}, one within the other"


def _plan_method(
    function: Callable[[Problem], Plan], summary: str, network: str = _SINGLE_GAPS
) -> Method:
    """Return the method that simulates the plan of a deterministic function."""

    def run(search: Search, effort: Effort) -> None:
        search.begin(function.__name__.strip("_").replace("_", "-"))
        search.offer(simulate(search.problem, function(search.problem)))

    return Method(run=run, summary=summary, network=network)


def _sequential(problem: Problem) -> Plan:
    from offcert.heuristics.sequential import sequential

    return sequential(problem)


def _greedy(problem: Problem) -> Plan:
    from offcert.heuristics.greedy import greedy

    return greedy(problem)


def _descend_dynprog(search: Search, effort: Effort) -> None:
    from offcert.heuristics.dynprog import dynprog

    search.begin("dynprog")
    with search.untimed():
        warm_dynprog()
    search.offer(simulate(search.problem, dynprog(search.problem)))


def _vdnn(problem: Problem) -> Plan:
    from offcert.heuristics.vdnn import vdnn

    return vdnn(problem)


def _vdnn_all(problem: Problem) -> Plan:
    from offcert.heuristics.vdnn_policy import vdnn_policy

    return vdnn_policy(problem, "all")


def _vdnn_conv(problem: Problem) -> Plan:
    from offcert.heuristics.vdnn_policy import vdnn_policy

    return vdnn_policy(problem, "conv")


def _tflms(problem: Problem) -> Plan:
    from offcert.heuristics.tflms import tflms

    return tflms(problem)


def _descend_autoswap(search: Search, effort: Effort) -> None:
    from offcert.heuristics.autoswap import autoswap

    search.begin("autoswap")
    search.offer(simulate(search.problem, autoswap(search.problem, seed=effort.seed)))


def _from_scratch(
    run: Callable[[Search, Effort], None],
) -> Callable[[Search, Effort], None]:
    """Give a method that improves a schedule the plainest one to start from."""

    def start_and_run(search: Search, effort: Effort) -> None:
        search.offer(simulate(search.problem, _sequential(search.problem)))
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
    "sequential": _plan_method(
        _sequential, "evict just before an operation needs room", "any trace"
    ),
    "greedy": _plan_method(_greedy, "GREEDY of the offloading paper, §4.2"),
    "dynprog": Method(
        run=_descend_dynprog, summary="DYNPROG of the offloading paper, §5.3", network=_CHAINS
    ),
    "vdnn": _plan_method(_vdnn, "VDNN as the offloading paper defines it, §6.1", _CHAINS),
    "vdnn-all": _plan_method(_vdnn_all, "the original vDNN, offloading every layer", _CHAINS),
    "vdnn-conv": _plan_method(
        _vdnn_conv, "the original vDNN, offloading convolutions", f"{_CHAINS} with named layers"
    ),
    "autoswap": Method(
        run=_descend_autoswap,
        summary="AUTOSWAP: priority scores, weights by optimisation",
        reads=("seed",),
        network=_SINGLE_GAPS,
    ),
    "tflms": _plan_method(_tflms, "TFLMS, the best of its two parameters"),
    **MODNN_METHODS,
    "local-search": Method(
        run=_from_scratch(descend_local_search),
        summary="annealing over sets and orders",
        reads=("time_limit", "seed", "target_gap"),
    ),
    "order-search": Method(
        run=descend_order_search,
        summary="annealing over sets and both orders of ordered schedules",
        reads=("time_limit", "seed", "target_gap"),
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


def method_called(name: object) -> Method:
    """Return a method by name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    hint = meant(name, METHODS) if isinstance(name, str) else ""
    raise InputError(f"method must be one of {', '.join(METHODS)}, not {show(name)}{hint}")


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
    """Run one method by name; parameters as for `offcert.certify.ladder.certify`.

    Bounds that cost next to nothing are always added: the combinatorial ones, or, where
    computations may run again, the computing time or what the largest of them takes.

    Parameters
    ----------
    grid : int, optional
        Ticks a cell, for the time-indexed models.
    solver : str, optional
        Linear solver by its PuLP name, or ``"scipy"``, for the models that are linear programs.

    Raises
    ------
    InputError
        If there is no such method, it is not for what the problem leaves open (transfers,
        recomputation, what is least), or an argument is of the wrong type or out of its range.
    MethodError
        If the method does not apply to the problem's network.
    """
    options = require_search(problem, time_limit, workers, target_gap, seed)
    time_limit, workers, target_gap, seed = options
    grid = None if grid is None else require_count(grid, "grid")
    chosen = method_called(method)
    _require_use(chosen, method, problem, grid=grid, solver=solver)
    settings = Settings(
        time_limit=time_limit,
        workers=workers,
        target_gap=target_gap,
        seed=seed,
        grid=grid,
        solver=solver,
    )
    keeping = keeper(method, settings, keep)
    state = JointSearch if chooses_execution(problem) else Search
    search = state(problem, time_limit, target_gap, progress, keeping)
    search.infeasibility = infeasibility(problem)
    known = partial(search.certificate, method, settings)
    try:
        if search.infeasibility is None:
            effort = Effort(search.remaining, workers, seed, grid, solver)
            _bound_cheaply(search, effort)
            with watched(search, time_limit, known), search.surviving(but=ALONE):
                chosen.run(search, effort)
    except NoPlanError as error:
        search.note(no_plan=str(error))
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return known()


def _require_use(chosen: Method, name: str, problem: Problem, **options: object) -> None:
    """Refuse a method that is not for a problem, and options that it does not read."""
    misfit = chosen.misfit(problem)
    if misfit is not None:
        raise InputError(f"method {name} {misfit}")
    for option, value in options.items():
        if value is not None and option not in chosen.reads:
            raise InputError(f"method {name} does not use {option}")


def _bound_cheaply(search: Search, effort: Effort) -> None:
    """Add the bounds that cost next to nothing."""
    if chooses_execution(search.problem):
        bound_at_once(search, effort)
    else:
        climb_combinatorial(search, effort, late_too=True)
