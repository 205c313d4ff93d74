"""Every method by name, for ``offcert solve``: heuristics, exact models and bounds alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from offcert.certify.descents import (
    descend_local_search,
    descend_order_search,
)
from offcert.certify.effort import Effort
from offcert.certify.search import Search, SearchProgress, keeper
from offcert.certify.searched_steps import (
    climb_heads,
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
    climb_time_indexed_cpsat,
    climb_time_indexed_milp,
    descend_dives,
    descend_fluid_ordered,
)
from offcert.certify.watchdog import watched
from offcert.core.errors import InputError, NoPlanError
from offcert.core.messages import show
from offcert.core.options import require_count, require_search
from offcert.core.plan import Plan
from offcert.core.problem import Problem, Transfers
from offcert.core.simulate import simulate
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.certificate import Certificate
from offcert.proofs.settings import Settings


@dataclass(frozen=True)
class Method:
    """A method that ``offcert solve`` can run.

    Attributes
    ----------
    run : callable
        Given the search, seconds, workers and seed, adds schedules or bounds to the search.
    summary : str
        One line for the list of methods.
    atomic_only : bool
        Whether what it claims holds for atomic transfers only.
    relaxed_only : bool
        Whether what it finds are schedules that atomic transfers do not allow.
    reads : tuple of str
        Which settings of `solve` may change what it finds.
    heuristic : bool
        Whether it only finds schedules, so that no bound is its own.
    """

    run: Callable[[Search, Effort], None]
    summary: str
    atomic_only: bool = False
    relaxed_only: bool = False
    reads: tuple[str, ...] = ("time_limit", "seed", "workers", "target_gap")
    heuristic: bool = False


def _plan_method(function: Callable[[Problem], Plan], summary: str) -> Method:
    """Return the method that simulates the plan of a deterministic function."""

    def run(search: Search, effort: Effort) -> None:
        search.begin(function.__name__)
        search.offer(simulate(search.problem, function(search.problem)))

    return Method(run, summary, reads=(), heuristic=True)


def _sequential(problem: Problem) -> Plan:
    from offcert.heuristics.sequential import sequential

    return sequential(problem)


def _greedy(problem: Problem) -> Plan:
    from offcert.heuristics.greedy import greedy

    return greedy(problem)


def _dynprog(problem: Problem) -> Plan:
    from offcert.heuristics.dynprog import dynprog

    return dynprog(problem)


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
    "bounds": Method(_nothing, "the combinatorial bounds alone", reads=()),
    "sequential": _plan_method(_sequential, "evict just before an operation needs room"),
    "greedy": _plan_method(_greedy, "GREEDY of the offloading paper, §4.2"),
    "dynprog": _plan_method(_dynprog, "DYNPROG of the offloading paper, §5.3"),
    "vdnn": _plan_method(_vdnn, "VDNN as the offloading paper defines it, §6.1"),
    "vdnn-all": _plan_method(_vdnn_all, "the original vDNN, offloading every layer"),
    "vdnn-conv": _plan_method(_vdnn_conv, "the original vDNN, offloading convolutions"),
    "autoswap": Method(
        _descend_autoswap,
        "AUTOSWAP: priority scores, weights by optimisation",
        reads=("seed",),
        heuristic=True,
    ),
    "tflms": _plan_method(_tflms, "TFLMS, the best of its two parameters"),
    "local-search": Method(
        _from_scratch(descend_local_search), "annealing over sets and orders", heuristic=True
    ),
    "order-search": Method(
        descend_order_search,
        "annealing over sets and both orders of ordered schedules",
        heuristic=True,
    ),
    "fluid-milp": Method(climb_fluid, "aggregated interruptible relaxation: a bound"),
    "fluid-lp": Method(climb_fluid_lp, "its linear relaxation: a bound"),
    "fluid-exact": Method(
        climb_fluid_exact, "interruptible or fractional transfers: exact; a bound for atomic ones"
    ),
    "fluid-ordered": Method(
        descend_fluid_ordered,
        "the same with all offloads before all prefetches: a schedule",
        relaxed_only=True,
        heuristic=True,
    ),
    "heads": Method(climb_heads, "heads and tails with whole tensors: a bound, any link", True),
    "matched-heads": Method(
        _from_scratch(climb_matched), "heads and tails that move the same tensors, any link", True
    ),
    "outward": Method(
        _from_scratch(climb_outward), "both sides of a cut, from the pivot outward, no solver", True
    ),
    "pivot": Method(_from_scratch(climb_pivot), "pivot dynamic program: exact, no solver", True),
    "pivot-outward": Method(
        # From the plainest schedule much is open.
        _from_scratch(partial(climb_pivot_outward, most_open=1.0)),
        "pivot program on one side of a cut, the other from the pivot outward, no solver",
        True,
    ),
    "stage-milp": Method(_from_scratch(climb_stage), "who is absent when, without times", True),
    "time-indexed-cpsat": Method(
        _from_scratch(climb_time_indexed_cpsat), "starts on a grid, CP-SAT: exact at grid 1", True
    ),
    "time-indexed-milp": Method(
        _from_scratch(climb_time_indexed_milp), "starts on a grid, linear: exact at grid 1", True
    ),
    "disjunctive-milp": Method(
        _from_scratch(climb_disjunctive), "orders and big-M: exact, for small problems", True
    ),
    "interval-dives": Method(
        _from_scratch(_after_heads(descend_dives)),
        "interval CP-SAT, asked for schedules that meet the bound of heads and tails",
        True,
    ),
    "interval-cpsat": Method(_from_scratch(climb_interval), "interval CP-SAT model: exact", True),
}


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

    The combinatorial bounds are always added: they cost next to nothing.

    Parameters
    ----------
    grid : int, optional
        Ticks a cell, for the time-indexed models.
    solver : str, optional
        Linear solver by its PuLP name, or ``"scipy"``, for the models that are linear programs.

    Raises
    ------
    InputError
        If there is no such method, it does not apply to the problem's kind of transfers, or an
        argument is of the wrong type or out of its range.
    MethodError
        If the method does not apply to the problem's network.
    """
    options = require_search(problem, time_limit, workers, target_gap, seed)
    time_limit, workers, target_gap, seed = options
    grid = None if grid is None else require_count(grid, "grid")
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {show(method)}")
    chosen = METHODS[method]
    if chosen.atomic_only and problem.transfers is not Transfers.ATOMIC:
        raise InputError(f"method {method} needs atomic transfers, not {problem.transfers}")
    if chosen.relaxed_only and problem.transfers is Transfers.ATOMIC:
        raise InputError(f"method {method} needs interruptible or fractional transfers, not atomic")
    settings = Settings(
        time_limit=time_limit,
        workers=workers,
        target_gap=target_gap,
        seed=seed,
        grid=grid,
        solver=solver,
    )
    keeping = None if keep is None else keeper(method, settings, keep)
    search = Search(problem, time_limit, target_gap, progress, keeping)
    search.infeasibility = infeasibility(problem)
    try:
        if search.infeasibility is None:
            effort = Effort(search.remaining, workers, seed, grid, solver)
            climb_combinatorial(search, effort, late_too=True)
            known = partial(search.certificate, method, settings)
            with watched(search, time_limit, known), search.surviving():
                chosen.run(search, effort)
    except NoPlanError as error:
        search.note(no_plan=str(error))
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return search.certificate(method, settings)
