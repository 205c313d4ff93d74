"""The ladders where computations may run again, as data; and which ladder suits a problem."""

from __future__ import annotations

from typing import Any

from offcert.certification.ladders.plain import PLAIN_LADDERS, plain_ladder_for
from offcert.certification.registry import STEPS
from offcert.certification.rung import Rung
from offcert.certification.search import chooses_execution
from offcert.questions.schedule.problem import Minimise, Problem, Recompute


def _rung(method: str, share: float, reason: str, **limits: Any) -> Rung:
    return Rung(STEPS[method], share, reason, **limits)


_CLOSE = _rung(
    "joint-labels",
    0.4,
    "exact on networks of up to ten computations, and many larger ones",
    at_most=30.0,
    most_operations=20,
    gap_from=1e-9,
)

_LEAST_TIME = (
    _rung("computing-time", 1.0, "a bound at once", always=True),
    _rung("everything-once", 1.0, "if all fits nothing has to be done", always=True),
    _rung("first-plans", 1.0, "what moves, runs again, or both, without a search", always=True),
    _CLOSE,
    _rung("rematerialisation", 0.1, "a plan that moves nothing, at once", at_most=3.0),
    _rung("arbitrary-graph", 0.05, "stored vertices of graphs, as published", at_most=1.0),
    _rung("persistent", 0.1, "on chains, optimal if stored copies stay", at_most=5.0),
    _rung("checkpoints", 0.1, "on chains, the best segments if nothing leaves", at_most=5.0),
    _rung(
        "offload-alone",
        0.2,
        "what offloading alone can do; seldom the best plan, so it gets little",
        at_most=3.0,
        fallback=True,
    ),
    _rung("joint-search", 0.15, "a good plan for bounds to meet", at_most=6.0, fallback=True),
    _rung("joint-lp", 0.4, "what moving and running again can do together at best"),
    _rung(
        "joint-stages",
        0.5,
        "the same with wholes: closes chains of 16 stages in seconds, on a solver's word",
        most_operations=70,
        gap_from=1e-9,
    ),
    _rung("combined", 0.3, "on chains, optimal under the paper's assumptions"),
    _rung("recompute-stages", 0.3, "a bound where nothing may leave", gap_from=1e-9),
    _rung("retention-cpsat", 0.4, "exact on small networks where nothing may leave", gap_from=1e-9),
    _rung("checkmate-milp", 0.3, "exact in stages, on another solver", gap_from=1e-9),
    _rung("joint-search", 1.0, "better plans in all the time that is left", gap_from=1e-9),
)

# Computations of the largest graph on which programs in stages end in seconds where nothing may
# leave: more than the models themselves take. Derived.
_SMALL = 80

_LEAST_TIME_SMALL = (
    _rung("computing-time", 1.0, "a bound at once", always=True),
    _rung("everything-once", 1.0, "if all fits nothing has to be done", always=True),
    _rung("first-plans", 1.0, "what runs again, without a search", always=True),
    _CLOSE,
    _rung("persistent", 0.1, "on chains, optimal if stored copies stay", at_most=5.0),
    _rung("checkpoints", 0.1, "on chains, the best segments", at_most=5.0),
    _rung("rematerialisation", 0.05, "a plan at once, for solvers to meet", at_most=0.5),
    _rung("recompute-stages", 0.5, "a bound that a solver's word is for, often the optimum"),
    _rung("checkmate-milp", 0.6, "exact in stages, which seldom cost time", gap_from=1e-9),
    _rung("joint-lp", 0.4, "the same bound by multipliers, which are verified"),
    _rung("arbitrary-graph", 0.05, "stored vertices of graphs, as published", at_most=1.0),
    _rung("rematerialisation", 0.2, "better plans, at any size", gap_from=1e-9),
    _rung("joint-stages", 0.4, "moments with wholes, on a solver's word", gap_from=1e-9),
    _rung("retention-cpsat", 0.4, "exact on small networks, in any order", gap_from=1e-9),
    _rung("joint-search", 1.0, "better plans in all the time that is left", gap_from=1e-9),
)

_LEAST_MEMORY = (
    _rung("least-memory", 1.0, "bounds in bytes, at once", always=True),
    _rung("everything-once", 1.0, "everything once: a plan that always works", always=True),
    _rung("sequential-least-memory", 1.0, "what offloading can do in any time", always=True),
    _CLOSE,
    _rung("checkpoints", 0.2, "on chains, the fewest live bytes of all segments"),
    _rung("persistent", 0.2, "on chains, fewer still if nothing else stays"),
    _rung("arbitrary-graph", 0.1, "stored vertices of graphs, as published", at_most=5.0),
    _rung("rematerialisation", 0.4, "gives up what is cheapest, at any size"),
    _rung("combined", 0.4, "on chains with offloading, by halving the memory"),
    _rung("retention-cpsat", 0.5, "exact on small networks where nothing may leave", gap_from=1e-9),
    _rung("checkmate-milp", 0.8, "exact in stages, on another solver", gap_from=1e-9),
)

_LEAST_MEMORY_IN_TIME = (
    _rung("least-memory", 0.1, "bounds in bytes, at once", always=True),
    _rung("everything-once", 1.0, "everything once: a plan that always works", always=True),
    _rung("sequential-least-memory", 1.0, "if offloading has any time", always=True),
    _CLOSE,
    _rung("checkpoints", 0.1, "on chains, the fewest live bytes of all segments"),
    _rung("persistent", 0.1, "on chains, fewer still if nothing else stays"),
    _rung("arbitrary-graph", 0.05, "stored vertices of graphs, as published", at_most=5.0),
    _rung("rematerialisation", 0.1, "gives up what is cheapest, at any size"),
    _rung("sinking-search", 0.3, "annealing under a limit that sinks: the best plans", always=True),
    _rung("bounds-at-limits", 0.4, "the largest limit at which the bound on the time is above"),
    _rung("combined", 0.2, "on chains with offloading, by halving the memory"),
    _rung("retention-cpsat", 0.4, "exact on small networks where nothing may leave", gap_from=1e-9),
    _rung("checkmate-milp", 0.4, "exact in stages, on another solver", gap_from=1e-9),
    _rung("sinking-search", 0.85, "goes on where it stopped", gap_from=1e-9),
    _rung(
        "searches-at-limits",
        1.0,
        "all that is known about least time, limit by limit",
        gap_from=1e-9,
    ),
)

# Of a captured step, only programs of segments can be carried out.
_ANY_EXECUTION = {
    "rematerialisation",
    "arbitrary-graph",
    "persistent",
    "checkpoints",
    "combined",
    "retention-cpsat",
    "checkmate-milp",
}
_CAPTURED = " of a captured step"
_OPEN: dict[str, tuple[Rung, ...]] = {
    "least time": _LEAST_TIME,
    "least memory": _LEAST_MEMORY,
    "least memory in time": _LEAST_MEMORY_IN_TIME,
}
JOINT_LADDERS: dict[str, tuple[Rung, ...]] = _OPEN | {
    "least time, small, nothing leaves": _LEAST_TIME_SMALL,
}
JOINT_LADDERS |= {
    name + _CAPTURED: tuple(rung for rung in rungs if rung.name not in _ANY_EXECUTION)
    for name, rungs in _OPEN.items()
}


def joint_ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    name = "least memory" if problem.minimise is Minimise.MEMORY else "least time"
    if problem.deadline is not None:
        name += " in time"
    if "capture" in (problem.source or {}):
        return name + _CAPTURED
    again = problem.recompute is Recompute.ANY and not problem.offload
    small = problem.computed is not None and len(problem.computed) <= _SMALL
    if name == "least time" and again and small:
        name += ", small, nothing leaves"
    return name


LADDERS: dict[str, tuple[Rung, ...]] = {**PLAIN_LADDERS, **JOINT_LADDERS}


def rungs_for(problem: Problem) -> tuple[Rung, ...]:
    """Return the rungs of the ladder that suits a problem."""
    return LADDERS[ladder_for(problem)]


def ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    return joint_ladder_for(problem) if chooses_execution(problem) else plain_ladder_for(problem)
