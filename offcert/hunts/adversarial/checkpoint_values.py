"""What can be compared on a chain whose stages may run again: bytes of selections, ticks of plans.

Every value is of an execution that was expanded and simulated, or is an optimum in its own sense;
what cannot be established with little effort is no value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcert.core.check import check
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError, MethodError, NoPlanError, PlanError
from offcert.core.execution import Execution
from offcert.core.plan import Plan
from offcert.core.problem import Minimise, Problem
from offcert.core.simulate import simulate

# Of exact searches; the chains are small.
_SECONDS = 20.0
_MOST_POINTS = 200_000


@dataclass(frozen=True)
class CheckpointValue:
    """A value by name.

    Attributes
    ----------
    of : callable
        From a problem to the value, or None if there is none.
    minimise : Minimise
        Whether it is of bytes or of ticks within the memory.
    offload : bool
        Whether it means something only where tensors may leave.
    least : bool
        Whether no other value of its kind, with the same things allowed, is below it.
    """

    of: Callable[[Problem], int | None]
    minimise: Minimise
    offload: bool = False
    least: bool = False


def _chain(problem: Problem) -> CheckpointChain:
    chain = problem.checkpoint_chain
    assert chain is not None
    return chain


def _selected(name: str) -> Callable[[Problem], int]:
    """Return the live bytes of what a published algorithm selects by the sizes of outputs."""

    def live(problem: Problem) -> int:
        from offcert.formulations.checkpoint.live import live_bytes
        from offcert.heuristics.checkpoint.registry import SELECTIONS

        chain = _chain(problem)
        return live_bytes(chain, SELECTIONS[name].select(chain.output).checkpoints)

    return live


def _live(problem: Problem) -> int:
    from offcert.heuristics.checkpoint.live_selection import live_selection

    return live_selection(_chain(problem)).memory


def _nested(problem: Problem) -> int | None:
    from offcert.heuristics.persistent.persistent import persistent_least_memory

    try:
        strategy = persistent_least_memory(_chain(problem), max_points=_MOST_POINTS)
    except MethodError:
        return None
    return strategy.expand(_chain(problem).network()).trace.peak_memory


def _persistent(problem: Problem) -> int | None:
    from offcert.heuristics.persistent.persistent import persistent

    try:
        chain = _chain(problem)
        strategy = persistent(chain, problem.platform.memory, None, _MOST_POINTS)
    except (MethodError, NoPlanError):
        return None
    return _makespan(problem, strategy.expand(chain.network()))


def _anything(problem: Problem) -> int | None:
    from dataclasses import replace

    from offcert.formulations.rematerialisation.retention_cpsat import solve

    # It begins with what persistence allows: where that is optimal, the bound says so at once.
    outcome = solve(replace(problem, offload=False), time_limit=_SECONDS)
    if outcome.interrupted:
        raise KeyboardInterrupt
    complete = outcome.objective is not None and outcome.objective == outcome.lower_bound
    return outcome.objective if complete else None


def _combined(problem: Problem) -> int | None:
    from offcert.heuristics.combined.search import combined_plan

    try:
        plan = combined_plan(problem, None)
        schedule = plan.atomic(problem)
    except (MethodError, NoPlanError, PlanError):
        return None
    return None if check(problem.executed(plan.execution), schedule) else schedule.makespan


def _moved_alone(problem: Problem) -> int | None:
    from offcert.hunts.adversarial.values import optimum

    plain = problem.plain()
    fits = plain.trace.least_memory <= plain.platform.memory
    return optimum(plain) if fits else None


def _makespan(problem: Problem, execution: Execution) -> int | None:
    executed = problem.executed(execution)
    try:
        return simulate(executed, Plan()).makespan
    except PlanError:
        return None


_SELECTED = ("sqrt", "budget", "reforwarding", "algorithm-3", "algorithm-5", "algorithm-6")
VALUES: dict[str, CheckpointValue] = {
    **{name: CheckpointValue(_selected(name), Minimise.MEMORY) for name in _SELECTED},
    # No other checkpoints have fewer live bytes; segments inside of segments may.
    "live-selection": CheckpointValue(_live, Minimise.MEMORY),
    "persistent-memory": CheckpointValue(_nested, Minimise.MEMORY),
    "persistent": CheckpointValue(_persistent, Minimise.TIME),
    "rematerialisation": CheckpointValue(_anything, Minimise.TIME, least=True),
    "combined": CheckpointValue(_combined, Minimise.TIME, offload=True),
    "offload-alone": CheckpointValue(_moved_alone, Minimise.TIME, offload=True),
}
NAMES = tuple(VALUES)
# By what each is measured if nothing is said.
USUAL = {Minimise.MEMORY: "live-selection", Minimise.TIME: "rematerialisation"}


def checkpoint_value(name: str, field: str) -> CheckpointValue:
    """Return a value by name.

    Raises
    ------
    InputError
        One sentence that names `field`, if there is none of that name.
    """
    if name not in VALUES:
        raise InputError(f'{field} must be one of {", ".join(NAMES)}, not "{name}"')
    return VALUES[name]
