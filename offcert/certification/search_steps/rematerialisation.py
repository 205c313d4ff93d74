"""Steps for recomputation without offloading: executions, and bounds on their time or memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.proofs.claims import claimed
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.simulate import simulate

# Slots of persistent checkpointing; stages of the longest chain that is tried exactly, and tried at
# all; points that its fronts may have. Arbitrary.
_SLOTS = 500
_MOST_EXACT_STAGES = 40
_MOST_STAGES = 300
_MOST_POINTS = 2_000_000
# Computations of the largest network for either model; with more it says nothing in the time that a
# search has. Assumed.
_MOST_IN_RETENTION = 80
_MOST_IN_STAGES = 70
# Runs of a computation in the first model, and in the last one. Arbitrary.
_FEWEST_RUNS, _MOST_RUNS = 2, 4


def bound_least_memory(search: Search, effort: Effort) -> None:
    """Prove bounds on the bytes of any execution, with offloading or without."""
    from offcert.formulations.rematerialisation.least_memory import (
        cut_bound,
        kept_bound,
        single_run_bound,
    )

    problem = search.problem
    if problem.minimise is not Minimise.MEMORY:
        return
    search.begin("least memory")
    search.add(single_run_bound(problem))
    kept = kept_bound(problem, search.objective, effort.seconds / 2)
    if kept is not None:
        search.add(kept)
    if not search.done:
        found = cut_bound(problem, search.proved_bound, search.objective, effort.seconds / 2)
        if found is not None:
            search.add(found)


def descend_persistent(search: Search, effort: Effort) -> None:
    """Offer the optimal persistent strategy of a chain: with slots, and exactly if it is short.

    Where memory is minimised there are no slots.
    """
    chain = search.problem.checkpoint_chain
    if chain is None or _unsuited(search) or len(chain) > _MOST_STAGES:
        return
    from offcert.heuristics.checkpoint.persistent import persistent, persistent_least_memory

    search.begin("persistent checkpointing")
    problem = search.problem
    small = len(chain) <= _MOST_EXACT_STAGES
    try:
        if problem.minimise is Minimise.MEMORY:
            if small:
                strategy = persistent_least_memory(chain, problem.deadline, _MOST_POINTS)
                offer_unmoved(search, strategy.expand(chain.network()))
            return
        memory = problem.platform.memory
        slots: Any = effort.options.get("slots", _SLOTS)
        offer_unmoved(search, persistent(chain, memory, slots).expand(chain.network()))
        if small and not search.done:
            strategy = persistent(chain, memory, None, _MOST_POINTS)
            offer_unmoved(search, strategy.expand(chain.network()))
    except MethodError:
        # No strategy is found at so many slots, or with so many points: that proves nothing.
        return


def descend_rematerialisation(search: Search, effort: Effort) -> None:
    """Search for executions that run cheap computations again, with nothing off the device."""
    network = _network(search)
    if network is None or _unsuited(search):
        return
    from offcert.heuristics.rematerialisation.search import Found, least_memory, least_time

    search.begin("recomputation")
    problem = search.problem

    def take(found: Found) -> None:
        offer_unmoved(search, found.execution)

    if problem.minimise is Minimise.MEMORY:
        offer_unmoved(search, Strategy.plain(network).expand(network))
        if problem.deadline is None or problem.deadline >= network.compute_time:
            least_memory(
                network,
                seconds=effort.seconds,
                deadline=problem.deadline,
                seed=effort.seed,
                target=search.goal,
                on_found=take,
            )
        return
    least_time(
        network,
        problem.platform.memory,
        seconds=effort.seconds,
        seed=effort.seed,
        target=search.goal,
        on_found=take,
    )


def solve_retention(search: Search, effort: Effort) -> None:
    """Solve the model of retention intervals, with more and more runs of a computation."""
    network = _network(search)
    if network is None or _unsuited(search) or len(network) > _MOST_IN_RETENTION:
        return
    from offcert.formulations.rematerialisation import retention_cpsat

    alone = _alone(search.problem)
    parts = _MOST_RUNS - _FEWEST_RUNS + 1
    for part, runs in enumerate(range(_FEWEST_RUNS, _MOST_RUNS + 1)):
        search.begin(f"retention intervals, {runs} runs")
        outcome = retention_cpsat.solve(
            alone,
            runs=runs,
            time_limit=effort.seconds / (parts - part) if part < parts - 1 else effort.seconds,
            workers=effort.workers,
            seed=effort.seed,
            hint=_incumbent(search, alone),
            lower_bound=0 if search.problem.offload else search.proved_bound,
        )
        _take(search, outcome, "retention-cpsat", effort)
        enough = outcome.claim is not None and outcome.claim.value == outcome.objective
        if search.done or enough or outcome.interrupted:
            return


def solve_stages(search: Search, effort: Effort) -> None:
    """Bound recomputation by its relaxation in stages."""
    network = _network(search)
    problem = search.problem
    if network is None or _unsuited(search) or problem.offload:
        return
    if len(network) > _MOST_IN_STAGES:
        return
    from offcert.formulations.rematerialisation import stages_milp
    from offcert.formulations.rematerialisation.stages_milp import SCIPY

    search.begin("recomputation in stages")
    outcome = stages_milp.solve(
        problem,
        solver=effort.solver or SCIPY,
        time_limit=effort.seconds,
        threads=effort.workers,
        hint=_incumbent(search, problem),
    )
    _take(search, outcome, "recompute-stages", effort)


def solve_checkmate(search: Search, effort: Effort) -> None:
    """Offer the best execution in stages, by Checkmate's program."""
    network = _network(search)
    if network is None or _unsuited(search) or len(network) > _MOST_IN_STAGES:
        return
    from offcert.formulations.rematerialisation import checkmate_milp
    from offcert.formulations.rematerialisation.stages_milp import SCIPY

    search.begin("Checkmate's program")
    outcome = checkmate_milp.solve(
        _alone(search.problem),
        solver=effort.solver or SCIPY,
        time_limit=effort.seconds,
        threads=effort.workers,
    )
    _take(search, outcome, "", effort)


def _network(search: Search) -> Network | None:
    """Return the network, if just anything may run again in it."""
    if search.problem.recompute is not Recompute.ANY:
        return None
    return search.problem.computed


def _unsuited(search: Search) -> bool:
    problem = search.problem
    return problem.recompute is Recompute.NONE


def _alone(problem: Problem) -> Problem:
    """Return the problem in which nothing may leave the device."""
    return replace(problem, offload=False)


def _incumbent(search: Search, alone: Problem) -> Execution | None:
    """Return the best execution if it does not rely on offloading."""
    execution = search.execution
    if execution is None:
        return None
    peak = execution.trace.peak_memory
    if alone.minimise is Minimise.TIME and peak > alone.platform.memory:
        return None
    if alone.deadline is not None and execution.trace.compute_time > alone.deadline:
        return None
    return execution


def _take(search: Search, outcome: object, claim: str, effort: Effort) -> None:
    """Take over a model's execution, and its solver's claim where nothing may leave."""
    from offcert.formulations.rematerialisation.outcome import RematerialisationOutcome

    assert isinstance(outcome, RematerialisationOutcome)
    if outcome.execution is not None:
        offer_unmoved(search, outcome.execution)
    if outcome.error is not None:
        search.note_failure(outcome.error)
    if outcome.claim is None or search.problem.offload:
        return
    suffix = "-memory" if search.problem.minimise is Minimise.MEMORY else ""
    value, solver = outcome.claim.value, outcome.claim.solver
    search.add(claimed(f"{claim}{suffix}", value, solver, outcome.details))


def offer_unmoved(search: Search, execution: Execution) -> None:
    """Offer an execution of which nothing leaves the device, if it fits."""
    problem, peak = search.problem, execution.trace.peak_memory
    least_bytes, ticks = problem.minimise is Minimise.MEMORY, execution.trace.compute_time
    if not least_bytes and peak > problem.platform.memory:
        return
    if problem.deadline is not None and ticks > problem.deadline:
        return
    if search.objective is not None and (peak if least_bytes else ticks) >= search.objective:
        return
    schedule = simulate(problem.executed(execution).with_memory(peak), Plan())
    search.offer_executed(execution, schedule, peak if least_bytes else None)
