"""Steps that store some data of a chain and compute the rest again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.certify.warm import warm_checkpoints
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.execution import Execution
from offcert.core.plan import Plan
from offcert.core.problem import Minimise, Problem, Recompute
from offcert.core.program import Program
from offcert.core.simulate import simulate

# The curve of longer chains takes many seconds.
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
    if execution is None:
        return
    peak = execution.trace.peak_memory
    if problem.minimise is Minimise.TIME and peak > problem.platform.memory:
        return
    schedule = simulate(problem.executed(execution).with_memory(peak), Plan())
    least_bytes = problem.minimise is Minimise.MEMORY
    search.offer_executed(execution, schedule, peak if least_bytes else None)


def _execution(search: Search, chain: CheckpointChain) -> Execution | None:
    """Return the execution to offer, or None if no segments suit the problem."""
    if len(chain) > MAX_CURVE_STAGES:
        from offcert.formulations.checkpoint.live import checkpoint_execution
        from offcert.heuristics.checkpoint.live_curve import live_selection

        with search.untimed():
            warm_checkpoints()
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
