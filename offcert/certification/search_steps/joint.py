"""Steps for problems in which tensors may leave and computations may run again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from offcert.certification.interrupts import held_interrupts
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.rematerialisation import offer_unmoved
from offcert.core.errors import InputError, MethodError, PlanError
from offcert.core.execution import Execution
from offcert.core.program import Program, program_from_json
from offcert.heuristics.evictions.rules import greedy, sequential
from offcert.proofs.registry import claimed
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.execution import legality_faults, persistency_faults

if TYPE_CHECKING:
    from offcert.heuristics.joint.plans import JointPlan
    from offcert.heuristics.joint.tables import Tables


def descend_whole(search: Search, effort: Effort) -> None:
    """Offer the execution in which everything runs once and stays, if it fits."""
    search.begin("everything once")
    plain = search.problem.plain()
    peak = plain.trace.peak_memory
    if peak <= plain.platform.memory or search.problem.minimise is Minimise.MEMORY:
        search.offer(simulate(plain.with_memory(peak), Plan()), peak)


def descend_sequentially(search: Search, effort: Effort) -> None:
    """Offer the least memory in which everything runs once, if time is no matter."""
    problem = search.problem
    if problem.minimise is not Minimise.MEMORY or not problem.offload:
        return
    search.begin("sequential offloading")
    least = problem.trace.least_memory
    plain = problem.plain().with_memory(least)
    search.offer(simulate(plain, sequential(plain)), least)


def descend_plain(search: Search, effort: Effort) -> None:
    """Offer plans of offloading alone, if these fit into the memory."""
    search.begin("offloading alone")
    plain = search.problem.plain()
    if search.problem.minimise is Minimise.MEMORY or search.objective == plain.trace.compute_time:
        return
    if plain.trace.least_memory > plain.platform.memory:
        return
    # Its first plans come however little time there is.
    inner = Search(plain, max(effort.seconds, 0.01), float(search.target_gap))
    assert effort.climb is not None
    try:
        effort.climb(inner, effort.workers, effort.seed)
    finally:
        if isinstance(inner.best, Schedule):
            search.offer(inner.best)


def bound_computing(search: Search, effort: Effort) -> None:
    """Prove that no execution is shorter than the computing time; takes no time itself."""
    from offcert.formulations.joint.bound import computing_bound

    search.begin("computing time")
    search.add(computing_bound(search.problem))


def climb_joint(search: Search, effort: Effort) -> None:
    """Prove bounds on moving and computing again together: coarse grids, fine ones, then cases."""
    from offcert.formulations.joint.bound import joint_bounds

    search.begin("joint bounds")
    shares = search.workings.shares
    for bound in joint_bounds(search.problem, effort.seconds, search.objective, shares.update):
        search.add(bound)
        if search.done:
            return


def claim_joint(search: Search, effort: Effort) -> None:
    """Ask HiGHS for the least time of moving and running again, with runs and copies as wholes."""
    from offcert.formulations.joint import stages

    search.begin("joint stages")
    found = stages.solve(search.problem, effort.seconds)
    if found.error is not None:
        search.note_failure(found.error)
    if found.value is not None:
        search.add(claimed("joint-stages", found.value, stages.SCIPY, found.details))


def close_joint(search: Search, effort: Effort) -> None:
    """Find a best execution of a small network and prove that it is one, or that none is."""
    from offcert.formulations.labels.joint.bound import no_execution, shortest_execution

    search.begin("exact joint search")
    problem = search.problem
    if problem.minimise is Minimise.MEMORY:
        _close_memory(search, effort)
        return
    seconds = effort.seconds
    if problem.recompute is not Recompute.NONE:
        seconds /= 2
        if search.objective is None:
            search.infeasibility = no_execution(problem, seconds)
            if search.infeasibility is not None:
                return
    found = shortest_execution(problem, seconds, search.objective)
    execution, schedule = found.execution, found.schedule
    # Labels allow a little more than executions; on chains, stored copies may have to stay.
    if execution is not None and schedule is not None and _is_legal(problem, execution):
        search.offer_executed(execution, schedule)
    if found.bound is not None:
        search.add(found.bound)


def _is_legal(problem: Problem, execution: Execution) -> bool:
    return problem.recompute is Recompute.NONE or not legality_faults(problem, execution)


def _close_memory(search: Search, effort: Effort) -> None:
    """Find the execution that takes least memory, and prove that none takes less."""
    from offcert.formulations.labels.joint.bound import least_memory_execution

    problem, objective = search.problem, search.objective
    # Without a schedule, that everything once fits into the peak is to be found, too.
    enough = problem.trace.peak_memory + 1 if objective is None else objective
    found = least_memory_execution(problem, effort.seconds, (search.proved_bound, enough))
    execution, schedule, memory = found.execution, found.schedule, found.memory
    if execution is not None and memory is not None and _is_legal(problem, execution):
        if schedule is None:
            executed = problem.executed(execution).with_memory(memory)
            schedule = simulate(executed, sequential(executed))
        search.offer_executed(execution, schedule, memory)
    if found.bound is not None:
        search.add(found.bound)


# Slots of the dynamic program over checkpoints that a first plan may take, and stages beyond which
# there is none: its time grows with their third power, half a second at so many. Measured; no
# record.
_FEW_SLOTS, _MOST_STAGES = 100, 250
# Steps of a round of a short cooling, by whether tensors may leave, and computations beyond which
# only its starts are tried: with fewer both take half a second of a processor. Measured; no record.
_FEW_STEPS, _MOST_COOLED = {False: 120, True: 60}, 1500
_UNLIMITED = 1e9


def descend_first(search: Search, effort: Effort) -> None:
    """Offer plans that need next to no search: moving alone, running again alone, then both.

    They come however little time there is: GREEDY and what moves everything, the optimal persistent
    checkpoints of a chain in few slots, the best of segments after one short cooling, and
    what such a cooling makes of that where tensors may leave as well.
    """
    problem = search.problem
    if problem.minimise is not Minimise.TIME or problem.recompute is Recompute.NONE:
        return
    search.begin("first plans")
    alone = replace(problem, offload=False)
    # A method that does not apply, or finds nothing, leaves its place to the next one.
    attempts = [partial(_offer_moves, search)] if problem.offload else []
    attempts.append(partial(_offer_persistent, search, alone))
    # On large networks either search takes seconds.
    if not problem.offload or _is_cooled(problem):
        attempts.append(partial(_cool_once, search, alone, effort))
    if problem.offload:
        attempts.append(partial(_cool_once, search, problem, effort))
    for attempt in attempts:
        with suppress(MethodError, PlanError):
            attempt()


def _is_cooled(problem: Problem) -> bool:
    return problem.computed is not None and len(problem.computed) <= _MOST_COOLED


def _cool_once(search: Search, problem: Problem, effort: Effort) -> None:
    """Search for joint plans as long as a short cooling takes; if large, for the starts of one."""
    if problem.computed is None:
        return
    with held_interrupts():
        from offcert.heuristics.joint.search import joint_search
    joint_search(
        problem,
        time_limit=_UNLIMITED,
        seed=effort.seed,
        tables=_tables(search),
        coolings=int(_is_cooled(problem)),
        steps=_FEW_STEPS[problem.offload],
        transfers=0.0,
        # Without, so that what runs again alone is the same whatever else is allowed.
        known=known_programs(search) if problem.offload else [],
        on_improvement=partial(offer_plan, search),
    )


def _tables(search: Search) -> Tables:
    """Return the tables of a problem, which searches copy before they change a limit."""
    from offcert.heuristics.joint.plans import ranges_of
    from offcert.heuristics.joint.tables import tables_of

    problem = search.problem
    return search.workings.search("joint tables", lambda: tables_of(problem, ranges_of(problem)))


def _offer_moves(search: Search) -> None:
    """Offer the better of GREEDY and of moving just in time, in which everything runs once."""
    plain = search.problem.plain()
    for plan_of in (sequential, greedy):
        with suppress(MethodError, PlanError):
            search.offer(simulate(plain, plan_of(plain)))


def _offer_persistent(search: Search, alone: Problem) -> None:
    chain = alone.checkpoint_chain
    if chain is None or len(chain) > _MOST_STAGES or alone.recompute is not Recompute.ANY:
        return
    from offcert.heuristics.checkpoint.persistent import persistent

    strategy = persistent(chain, alone.platform.memory, _FEW_SLOTS)
    offer_unmoved(search, strategy.expand(chain.network()))


def offer_plan(search: Search, plan: JointPlan, memory: int | None = None) -> None:
    """Offer a plan, within so many bytes, unless it should be persistent and is not."""
    network, chain = search.problem.computed, search.problem.recompute is Recompute.CHAIN
    if network is not None and not (chain and persistency_faults(network, plan.execution)):
        search.offer_executed(plan.execution, plan.schedule, memory)


def descend_joint(search: Search, effort: Effort) -> None:
    """Search for programs of segments that run again, together with what leaves.

    A captured step says which ranges can be segments; elsewhere any may be one. Where strategies
    have to be persistent, plans that are not are passed over.
    """
    search.begin("joint search")
    with held_interrupts():
        from offcert.heuristics.joint.search import joint_search
    problem = search.problem
    if problem.computed is None or problem.recompute is Recompute.NONE:
        return
    if problem.minimise is not Minimise.TIME:
        return

    options: dict[str, Any] = dict(effort.options)
    joint_search(
        problem,
        time_limit=effort.seconds,
        workers=effort.workers,
        seed=effort.seed + 1000 * len(search.bounds),
        target=search.goal,
        tables=_tables(search),
        known=known_programs(search),
        shares=search.workings.shares,
        on_improvement=partial(offer_plan, search),
        **options,
    )


def known_programs(search: Search) -> list[Program]:
    """Return the program of the best execution so far, if a program makes it."""
    if search.execution is None or search.execution.program is None:
        return []
    value: Any = search.execution.program
    try:
        return [program_from_json(value, "execution.program")]
    except InputError:
        # Others may say in another way what makes their executions.
        return []
