"""Steps for recomputation without offloading, and for the combined paper's program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError, MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.program import Program
from offcert.core.strategy import Strategy
from offcert.heuristics.combined.search import CombinedPlan, combined_plan
from offcert.proofs.registry import claimed
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

if TYPE_CHECKING:
    from offcert.formulations.rematerialisation.outcome import RematerialisationOutcome

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
    from offcert.formulations.rematerialisation import least_memory as bounds

    problem = search.problem
    if problem.minimise is not Minimise.MEMORY:
        return
    search.begin("least memory")
    search.add(bounds.single_run_bound(problem))
    kept = bounds.kept_bound(problem, search.objective, effort.seconds / 2)
    if kept is not None:
        search.add(kept)
    if not search.done:
        objective, seconds = search.objective, effort.seconds / 2
        found = bounds.cut_bound(problem, search.proved_bound, objective, seconds)
        if found is not None:
            search.add(found)


def descend_persistent(search: Search, effort: Effort) -> None:
    """Offer the optimal persistent strategy of a chain: with slots, and exactly if it is short.

    Where memory is minimised there are no slots.
    """
    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE or len(chain) > _MOST_STAGES:
        return
    from offcert.heuristics.checkpoint.persistent import persistent, persistent_least_memory

    search.begin("persistent checkpointing")
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
    if network is None:
        return
    from offcert.heuristics.rematerialisation.search import FoundExecution, least_memory, least_time

    search.begin("recomputation")
    problem = search.problem

    def take(found: FoundExecution) -> None:
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
    if network is None or len(network) > _MOST_IN_RETENTION:
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
        _take(search, outcome, "retention-cpsat")
        enough = outcome.claim is not None and outcome.claim.value == outcome.objective
        if search.done or enough or outcome.interrupted:
            return


def solve_stages(search: Search, effort: Effort) -> None:
    """Bound recomputation by its relaxation in stages."""
    network = _network(search)
    problem = search.problem
    if network is None or problem.offload or len(network) > _MOST_IN_STAGES:
        return
    from offcert.formulations.rematerialisation import stages_milp

    search.begin("recomputation in stages")
    outcome = stages_milp.solve(
        problem,
        solver=effort.solver or stages_milp.SCIPY,
        time_limit=effort.seconds,
        threads=effort.workers,
        hint=_incumbent(search, problem),
    )
    _take(search, outcome, "recompute-stages")


def solve_checkmate(search: Search, effort: Effort) -> None:
    """Offer the best execution in stages, by Checkmate's program."""
    network = _network(search)
    if network is None or len(network) > _MOST_IN_STAGES:
        return
    from offcert.formulations.rematerialisation import checkmate_milp, stages_milp

    search.begin("Checkmate's program")
    outcome = checkmate_milp.solve(
        _alone(search.problem),
        solver=effort.solver or stages_milp.SCIPY,
        time_limit=effort.seconds,
        threads=effort.workers,
    )
    _take(search, outcome, "")


def _network(search: Search) -> Network | None:
    """Return the network if any of its computations may run again, or else None."""
    if search.problem.recompute is not Recompute.ANY:
        return None
    return search.problem.computed


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


def _take(search: Search, outcome: RematerialisationOutcome, claim: str) -> None:
    """Take over a model's execution, and its solver's claim where nothing may leave."""
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


# Stages of the longest chain whose exact curve is computed: that of longer chains takes many
# seconds. Measured; no record.
MAX_CURVE_STAGES = 300


def descend_checkpoints(search: Search, effort: Effort) -> None:
    """Offer the segments of a chain that suit the problem best, if nothing is offloaded.

    Where time is minimised, those that run least again within the memory; where memory is, those
    with the fewest live bytes within the deadline. No other disjoint segments do better; segments
    inside of segments may. For chains of more than `MAX_CURVE_STAGES` stages, only the checkpoints
    of fewest live bytes.
    """
    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE:
        return
    search.begin("checkpoints")
    execution = _execution(search, chain)
    if execution is not None:
        offer_unmoved(search, execution)


def _execution(search: Search, chain: CheckpointChain) -> Execution | None:
    """Return the execution to offer, or None if no segments suit the problem."""
    if len(chain) > MAX_CURVE_STAGES:
        from offcert.heuristics.checkpoint.live import checkpoint_execution
        from offcert.heuristics.checkpoint.live_curve import live_selection

        return checkpoint_execution(chain, live_selection(chain).checkpoints)
    program = _best_program(search.problem, chain)
    if program is None:
        return None
    network = chain.network()
    return program.strategy(network).without_unread(network).expand(network)


def _best_program(problem: Problem, chain: CheckpointChain) -> Program | None:
    from offcert.heuristics.checkpoint.live_curve import live_curve

    if problem.minimise is Minimise.TIME:
        trades = live_curve(chain, problem.platform.memory)
        return trades[-1].program if trades else None
    spare = None if problem.deadline is None else problem.deadline - chain.network().compute_time
    within = (each for each in live_curve(chain) if spare is None or each.again <= spare)
    best = next(within, None)
    return None if best is None else best.program


# Numbers of slots into which the memory is divided, tried in turn. Arbitrary.
SLOTS = (20, 50, 100, 200)
# Seconds that a chain of 100 stages takes with 50 slots, without and with sweeps that keep
# everything. Measured; no record.
_SECONDS = {False: 3.0, True: 7.0}
# The exponent with which that time grows with the number of slots. Measured; no record.
_GROWTH = 2.6
# Part of the range of memory below which another program is not worth its time. Arbitrary.
_FINE = 1 / 256


def descend_combined(search: Search, effort: Effort) -> None:
    """Offer plans of the combined paper's dynamic program, at ever more slots while time is left.

    By itself, and with sweeps that keep all of their last stage (`combined_plan`'s `bare`), which
    the paper does not know: neither is always better once transfers are whole. Where memory is
    minimised, the least limit is looked for at which what it finds ends by the deadline, with one
    number of slots: the first that is asked for, or 50.
    """
    problem = search.problem
    chain = problem.checkpoint_chain
    if chain is None or problem.recompute is Recompute.NONE:
        return
    search.begin("combined program")
    ends = time.monotonic() + effort.seconds
    asked: Any = effort.options.get("slots")
    if problem.minimise is Minimise.MEMORY:
        _least_memory(search, ends, asked[0] if asked else SLOTS[1])
        return
    every = asked or SLOTS
    for slots in every:
        for bare in (False, True):
            if slots > every[0] and seconds(len(chain), slots, bare) > ends - time.monotonic():
                return
            found = _found(problem, slots, bare)
            if found is not None:
                search.offer_executed(found[0].execution, found[1])


def seconds(stages: int, slots: int, bare: bool) -> float:
    """Return about how long the program takes."""
    return float(_SECONDS[bare] * (stages / 100) ** 2 * (slots / 50) ** _GROWTH)


def _found(problem: Problem, slots: int, bare: bool) -> tuple[CombinedPlan, Schedule] | None:
    try:
        plan = combined_plan(problem, slots, bare=bare)
        return plan, plan.atomic(problem)
    except MethodError:
        return None


def _least_memory(search: Search, ends: float, slots: int) -> None:
    """Halve the range of memory until time is over or the range is small."""
    problem = search.problem
    network, chain, deadline = problem.computed, problem.checkpoint_chain, problem.deadline
    assert network is not None
    assert chain is not None
    low = max(network.own_memory) - 1
    high = min(problem.platform.memory, problem.trace.peak_memory)
    fine = max(1, int((high - low) * _FINE))
    memory = high
    while low < memory and seconds(len(chain), slots, True) < ends - time.monotonic():
        found = _found(problem.with_memory(memory), slots, bare=True)
        if found is not None and (deadline is None or found[1].makespan <= deadline):
            search.offer_executed(found[0].execution, found[1], memory)
            high = memory
        elif memory == high:
            return
        else:
            low = memory
        if high - low <= fine:
            return
        memory = (low + high) // 2


def descend_graphs(search: Search, effort: Effort) -> None:
    """Offer the best of what the re-forwarding paper's solver stores, if nothing is offloaded.

    Its selections for all max terms are executions of the network, from storing nearly nothing to
    nearly everything. Where memory is minimised, the one with the fewest live bytes within the
    deadline is offered; where time is, the one that computes least within the memory.
    """
    network = _network(search)
    if network is None:
        return
    search.begin("graph selections")
    for execution in _executions(network, effort.seconds):
        offer_unmoved(search, execution)


def _executions(network: Network, seconds: float) -> Iterator[Execution]:
    """Yield the execution of every selection, as long as there is time."""
    from offcert.heuristics.checkpoint.arbitrary import expansions
    from offcert.heuristics.checkpoint.graph_networks import graph_of

    deadline = time.monotonic() + seconds
    try:
        made = graph_of(network)
    except InputError:
        # Nothing can run again.
        return
    seen: set[tuple[int, ...]] = set()
    for _, selection, _ in expansions(made.graph):
        if selection.stored not in seen:
            seen.add(selection.stored)
            yield made.strategy(selection).expand(network)
        if time.monotonic() > deadline:
            return
