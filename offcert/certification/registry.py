"""Every method for schedules by name, a user's own functions among them, and steps of ladders."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from offcert.certification.joint_methods import (
    JOINT_METHODS,
    warm_joint_search,
    warm_rematerialisation,
)
from offcert.certification.method import SEPARATOR, Choice, Effort, Method, called, read_options
from offcert.certification.plan_methods import PLAN_METHODS
from offcert.certification.running import ContradictionError, UnsoundError
from offcert.certification.schedule_methods import (
    BOUNDS,
    SCHEDULE_METHODS,
    warm_order_search,
)
from offcert.certification.search import PlacementSearch, Search
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.certification.search_steps.deadlines import climb_limits, descend_sinking, halve_limits
from offcert.certification.search_steps.descents import descend_pieces, descend_set_search
from offcert.certification.search_steps.joint import (
    bound_computing,
    descend_first,
    descend_sequentially,
    descend_whole,
)
from offcert.certification.warm import warm_plans
from offcert.core.errors import InputError, NoPlanError, PlanError
from offcert.core.execution import Execution
from offcert.core.messages import meant, short_repr, show
from offcert.core.network import Network
from offcert.core.options import users_function
from offcert.core.strategy import Strategy
from offcert.questions.placement.problem import Placement
from offcert.questions.schedule.check import peak
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate

# Functions that a running program gave, by the names under which tables know them.
GIVEN: dict[str, Callable[..., Any]] = {}

_SPEC = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Settings that a function is given if it has a parameter of that name.
_TOLD = ("time_limit", "seed")


def names_own(text: object) -> bool:
    """Return whether a text names a function, ``"package.module:function"``, and no option."""
    return isinstance(text, str) and (text in GIVEN or _SPEC.fullmatch(text) is not None)


def own_method(text: str, placing: bool = False) -> Method:
    """Return the method that calls a function and checks its answer.

    The function is given the problem (a `PlacementProblem` if `placing`), and the time limit in
    seconds or the seed where it has parameters ``time_limit`` or ``seed``.
    """
    function = _function(text)
    run = partial(_run_placing if placing else _run, text, function)
    reads = ("time_limit", *(name for name in _told(function) if name != "time_limit"))
    return Method(
        run=run,
        summary="a function of one's own",
        # Without a parameter for it, a limit is one all the same.
        reads=reads,
        recompute=frozenset(Recompute),
        minimise=frozenset(Minimise),
        finds="addresses" if placing else "a schedule",
    )


@cache
def code_digest(text: str) -> str:
    """Return the first 16 digits of the SHA-256 of a function's source file; empty without one."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(_function(text)))
        return "" if path is None else sha256(Path(path).read_bytes()).hexdigest()[:16]
    except (TypeError, OSError):
        return ""


def _function(text: str) -> Callable[..., Any]:
    return GIVEN[text] if text in GIVEN else users_function(text, "method")


def _told(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(name for name in _TOLD if name in known)


def _called(function: Callable[..., Any], problem: Any, effort: Effort) -> Any:
    told = {"time_limit": effort.seconds, "seed": effort.seed}
    return function(problem, **{name: told[name] for name in _told(function)})


def _run(name: str, function: Callable[..., Any], search: Search, effort: Effort) -> None:
    search.begin(name)
    answer = _called(function, search.asked, effort)
    if answer is None:
        raise NoPlanError(f"{name} found nothing")
    execution, schedule = answered(search.asked, answer, name)
    least = search.asked.minimise is Minimise.MEMORY
    executed = search.asked if execution is None else search.asked.executed(execution)
    try:
        search.offer_executed(execution, schedule, peak(executed, schedule) if least else None)
    except ContradictionError:
        raise
    except UnsoundError as error:
        raise PlanError(str(error)) from None


def answered(problem: Problem, answer: Any, name: str) -> tuple[Execution | None, Schedule]:
    """Return the execution and schedule in a method's answer; neither is checked yet.

    A plan's schedule is the earliest one that follows it. A strategy (or what it makes, an
    execution) stands alone if nothing leaves, or in a pair with a plan or a schedule for it. Raises
    `PlanError` if the answer is none of these, says what runs again where nothing may, reads what
    is not there, or the plan gets stuck.
    """
    first, then = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    execution: Execution | None = None
    if isinstance(first, Strategy | Execution):
        network = problem.computed
        if network is None or problem.recompute is Recompute.NONE:
            raise PlanError(f"{name} says what runs again, but nothing may in this problem")
        execution = _expanded(first, network, name)
        first, then = (Plan() if then is None else then), None
    if then is not None or not isinstance(first, Plan | Schedule):
        kinds = "a Plan, a Schedule, a Strategy, or a pair of a Strategy and one of the others"
        raise PlanError(f"{name} must return {kinds}, not {short_repr(answer)}")
    if execution is None and problem.recompute is not Recompute.NONE:
        network = problem.computed
        assert network is not None
        execution = Strategy.plain(network).expand(network)
    scheduled = problem if execution is None else problem.executed(execution)
    if problem.minimise is Minimise.MEMORY:
        scheduled = scheduled.with_memory(max(scheduled.peak_memory, scheduled.platform.memory))
    return execution, simulate(scheduled, first) if isinstance(first, Plan) else first


def _expanded(found: Strategy | Execution, network: Network, name: str) -> Execution:
    if isinstance(found, Execution):
        return found
    try:
        return found.expand(network)
    except InputError as error:
        raise PlanError(f"{name} returned a strategy that cannot run: {error}") from None


def _run_placing(
    name: str, function: Callable[..., Any], search: PlacementSearch, effort: Effort
) -> None:
    search.begin(name)
    answer = _called(function, search.problem, effort)
    if answer is None:
        return
    if not isinstance(answer, Placement):
        raise PlanError(f"{name} must return a Placement, not {short_repr(answer)}")
    count = len(search.problem.residences)
    if len(answer.addresses) != count:
        raise PlanError(f"{name} returned {len(answer.addresses)} addresses for {count} residences")
    try:
        search.offer(answer)
    except ContradictionError:
        raise
    except UnsoundError as error:
        raise PlanError(str(error)) from None


METHODS: dict[str, Method] = called(
    {"bounds": BOUNDS, **PLAN_METHODS, **SCHEDULE_METHODS, **JOINT_METHODS}
)

# Methods that ladders run besides: of little use alone, or always added.
STEPS: dict[str, Method] = METHODS | called(
    {
        "combinatorial-bounds": Method(climb_combinatorial),
        "pieces": Method(descend_pieces, warm=(warm_order_search,)),
        "set-search": Method(descend_set_search, warm=(warm_order_search,)),
        "computing-time": Method(bound_computing),
        "everything-once": Method(descend_whole),
        "first-plans": Method(
            descend_first, warm=(warm_plans, warm_joint_search, warm_rematerialisation)
        ),
        "sequential-least-memory": Method(descend_sequentially),
        "sinking-search": Method(descend_sinking, warm=(warm_plans, warm_joint_search)),
        "bounds-at-limits": Method(climb_limits),
        "searches-at-limits": Method(halve_limits),
    }
)


def method_called(text: object) -> Choice:
    """Return a method by name, with the options behind it: ``"dynprog:slots=2000"``.

    A function of a user's own is one, too: ``"package.module:function"``.
    """
    if is_own(text):
        return Choice(str(text), own_method(str(text)), {})
    name, *parts = text.split(SEPARATOR) if isinstance(text, str) else [""]
    if name not in METHODS:
        hint = meant(name, METHODS) if isinstance(text, str) else ""
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {show(text)}{hint}")
    method = METHODS[name]
    return Choice(name, method, read_options(name, method.takes, parts))


def is_own(text: object) -> bool:
    """Return whether a text names a function of a user's own, and no method with an option."""
    return names_own(text) and str(text).partition(SEPARATOR)[0] not in METHODS
