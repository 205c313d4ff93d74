"""Executions of small networks that take least time or memory, by a search over labels."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from offcert.core.errors import MethodError
from offcert.core.execution import Execution
from offcert.core.result import EXECUTIONS, Bound, Infeasibility
from offcert.formulations.labels.joint.model import JointModel
from offcert.formulations.labels.joint.rebuild import rebuilt
from offcert.formulations.labels.joint.search import search
from offcert.proofs.claims import proved
from offcert.proofs.kinds.computed import Computed
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.schedule import Schedule

# Labels that a search may hold: with more, verification takes minutes. Measured; no record.
MOST_LABELS = 100_000


@dataclass(frozen=True)
class JointOutcome:
    """The outcome of a search for the shortest execution, or for the one of least memory.

    Attributes
    ----------
    bound : Bound or None
        On the makespan, in ticks, or on the bytes; None if nothing was proved, or nothing can be
        executed.
    execution, schedule : Execution, Schedule or None
        A best one, if one was found that is better than what was known; no schedule where time is
        no matter.
    memory : int or None
        The bytes within which it stays, where memory is minimised.
    """

    bound: Bound | None
    execution: Execution | None = None
    schedule: Schedule | None = None
    memory: int | None = None


def shortest_execution(
    problem: Problem, seconds: float, known: int | None = None, most: int = MOST_LABELS
) -> JointOutcome:
    """Return a shortest execution with its schedule, and the bound that it attains.

    Without time enough the bound is what all labels that are left would take at least.

    Parameters
    ----------
    problem : Problem
        In which computations may run again; its transfers are atomic, or nothing may leave.
    seconds : float
        Time limit.
    known : int, optional
        Makespan of a schedule that is known: only shorter ones are looked for.
    most : int
        Labels that may be held.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem)
    model = JointModel(problem)
    outcome = search(model, problem.platform.memory, known, seconds=seconds, most=most)
    bound = None
    if outcome.bound is not None:
        bound = proved("joint-labels", outcome.bound, Computed())
    found = rebuilt(model, outcome.path) if outcome.path else None
    return JointOutcome(bound, *(found or (None, None)))


def no_execution(problem: Problem, seconds: float, most: int = MOST_LABELS) -> Infeasibility | None:
    """Return what every execution needs at some moment, if that is more than there is.

    Parameters are those of `shortest_execution`. What is returned is the least memory of all
    executions, or, if time or labels run out, what is known to be too little, and a byte more.
    None says that something can be executed, or that this is not known.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem)
    network = problem.computed
    assert network is not None
    end = time.monotonic() + seconds
    model = JointModel(problem, timeless=True)
    # Everything that runs once fits into the peak.
    too_little, enough = problem.platform.memory, network.trace().peak_memory
    if too_little >= enough or not _nothing_within(model, too_little, end, most):
        return None
    while enough - too_little > 1 and time.monotonic() < end:
        middle = (too_little + enough) // 2
        if _nothing_within(model, middle, end, most):
            too_little = middle
        else:
            enough = middle
    needed = too_little + 1
    return Infeasibility(-1, EXECUTIONS, needed, needed - problem.platform.memory)


def least_memory_execution(
    problem: Problem, seconds: float, known: tuple[int, int], most: int = MOST_LABELS
) -> JointOutcome:
    """Return the execution that takes least memory, within the deadline if there is one.

    Memory is halved between what is known; each limit is searched to the end. Without time or
    labels enough the bound is that of the last limit at which it ended.

    Parameters
    ----------
    problem : Problem
        In which computations may run again, and memory is minimised.
    seconds : float
        Time limit.
    known : tuple of (int, int)
        Bytes below which nothing can be executed in time, and bytes within which something can.
    most : int
        Labels that may be held, at each limit.

    Raises
    ------
    MethodError
        If the problem is another.
    """
    _require_scope(problem, Minimise.MEMORY)
    end = time.monotonic() + seconds
    untimed = problem.deadline is None
    model = JointModel(problem, timeless=untimed)
    late = None if problem.deadline is None else problem.deadline + 1
    (low, high), best = known, JointOutcome(None)
    while low < high:
        middle = (low + high) // 2
        outcome = search(model, middle, late, seconds=end - time.monotonic(), most=most)
        if not outcome.finished:
            break
        if not outcome.path:
            low = middle + 1
            continue
        high, found = middle, rebuilt(model, outcome.path)
        if found is not None:
            best = JointOutcome(None, found[0], None if untimed else found[1], middle)
    bound = proved("joint-labels-memory", low, Computed()) if low > known[0] else None
    return replace(best, bound=bound)


def _nothing_within(model: JointModel, memory: int, end: float, most: int) -> bool:
    outcome = search(model, memory, seconds=end - time.monotonic(), most=most)
    return outcome.finished and not outcome.path


def _require_scope(problem: Problem, minimise: Minimise = Minimise.TIME) -> None:
    if problem.computed is None or problem.recompute is Recompute.NONE:
        raise MethodError("the search over labels of executions is for what may run again")
    if problem.minimise is not minimise:
        raise MethodError(
            f"the search over labels of executions is asked for the least {minimise}, and the "
            f"problem minimises {problem.minimise}"
        )
    if problem.offload and problem.transfers is not Transfers.ATOMIC:
        raise MethodError(
            "the search over labels of executions is for atomic transfers, not "
            f"{problem.transfers} ones"
        )
