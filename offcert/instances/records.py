"""`Record`: the best schedule and the best bounds known for a problem of the library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offcert.core import forms
from offcert.core.computations import Run
from offcert.core.documents import Fields, naming, show
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.result import BOUND, Bound, Evidence, SolveStatus, relative_gap
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace, require_integer
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute


def strategy_of(execution: Execution, network: Network) -> Strategy | None:
    """Return the strategy that makes an execution of a network; None if there is none.

    There is none where the execution holds what strategies do not know: states of random
    generators, or tensors that stay longer than somebody reads them.
    """
    born: dict[int, set[int]] = {}
    for tensor, value in zip(execution.trace.tensors, execution.values, strict=True):
        born.setdefault(tensor.uses[0], set()).add(value)
    runs = []
    for position, computation in enumerate(execution.runs):
        if not 0 <= computation < len(network):
            return None
        own = (
            v for v in network.computations[computation].writes if network.values[v].base is None
        )
        kept = born.get(position, set())
        runs.append(Run(computation, tuple(value for value in own if value not in kept)))
    strategy = Strategy(runs)
    try:
        made = strategy.expand(network)
    except InputError:
        return None
    return strategy if made == replace(execution, program=None) else None


def strategy_to_json(strategy: Strategy) -> list[Any]:
    """Return a strategy as a JSON value: an integer a run, or a list if something is discarded."""
    return [
        [run.computation, *run.discards] if run.discards else run.computation
        for run in strategy.runs
    ]


def strategy_from_json(value: list[Any], place: str) -> Strategy:
    """Return the strategy that a JSON value describes, whether or not it fits a network."""
    runs = []
    for number, item in enumerate(value):
        here = f"{place}[{number}]"
        numbers = item if isinstance(item, list) else [item]
        if not numbers:
            raise InputError(
                f"{here} must be a computation, or a list that begins with one, not []"
            )
        for each in numbers:
            if not isinstance(each, int) or isinstance(each, bool):
                raise InputError(f"{here} must consist of integers, not {show(each)}")
            require_integer(each, here, 0)
        runs.append(Run(numbers[0], tuple(numbers[1:])))
    return Strategy(runs)


_KINDS = {"o": Kind.OFFLOAD, "p": Kind.PREFETCH}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class KnownBound:
    """A lower bound, and who attained it."""

    bound: Bound
    by: str


@dataclass(frozen=True, slots=True)
class Improvement:
    """The last improvement of a record."""

    date: str  # When the library took it in, as in ``2026-11-24``.
    hardware: str | None = None  # On which it ran, in the words of whoever submits it.


_IMPROVEMENT = forms.Record(Improvement, date=forms.TEXT, hardware=forms.Absent(forms.TEXT))


@dataclass(frozen=True, slots=True)
class Record:
    """Best known values of a problem; they only ever improve."""

    # Makespan of the best schedule known, in ticks; its bytes where memory is minimised.
    value: int | None = None
    # Simulating it gives a schedule of that makespan; None if no plan of atomic transfers does.
    plan: Plan | None = None
    value_by: str | None = None  # Who attained it: method, version and settings.
    # The best lower bound, the best proved one, and what cross-attests either.
    bounds: tuple[KnownBound, ...] = ()
    # What is executed, where the problem lets computations run again: the plan is one for that
    # execution. None without a plan.
    strategy: Strategy | None = None
    improved: Improvement | None = None  # The last one; None of records that have no date.

    def executed(self, problem: Problem) -> Problem:
        """Return the problem that the plan is for: at the value's bytes where these are least."""
        network = problem.computed
        if self.strategy is not None and network is not None:
            scheduled = problem.executed(self.strategy.expand(network))
        else:
            scheduled = problem.plain()
        if problem.minimise is Minimise.MEMORY and self.value is not None:
            return scheduled.with_memory(self.value)
        return scheduled

    @property
    def lower_bound(self) -> int | None:
        """The best lower bound known, in ticks or bytes."""
        return max((known.bound.value for known in self.bounds), default=None)

    @property
    def proved_bound(self) -> int | None:
        """The best lower bound that needs nobody's word, in ticks or bytes."""
        proved = (k.bound.value for k in self.bounds if k.bound.evidence is Evidence.PROVED)
        return max(proved, default=None)

    @property
    def cross_attested_bound(self) -> int | None:
        """The best lower bound that two solvers reach with two formulations, in ticks or bytes."""
        level = Evidence.CROSS_ATTESTED
        reached = (k.bound.value for k in self.bounds if k.bound.evidence is level)
        return max(reached, default=None)

    @property
    def best(self) -> KnownBound | None:
        """The bound that attains the best lower bound, with the strongest evidence."""
        ranks = list(Evidence)
        return max(
            self.bounds,
            key=lambda known: (known.bound.value, -ranks.index(known.bound.evidence)),
            default=None,
        )

    @property
    def status(self) -> SolveStatus:
        """``OPTIMAL`` if value and bound meet, ``UNKNOWN`` if there is no value."""
        if self.value is None:
            return SolveStatus.UNKNOWN
        return SolveStatus.OPTIMAL if self.value == self.lower_bound else SolveStatus.FEASIBLE

    @property
    def gap(self) -> float | None:
        """``(value - bound) / value``; None if one of them is not known."""
        if self.value is None or self.lower_bound is None:
            return None
        return relative_gap(self.value, self.lower_bound)


def record_to_json(record: Record) -> dict[str, Any]:
    """Return a record as a JSON value."""
    plan = None
    if record.plan is not None:
        plan = [[_LETTERS[move.kind], move.gap, move.before] for move in record.plan.moves]
    strategy = {}
    if record.strategy is not None:
        strategy["strategy"] = strategy_to_json(record.strategy)
    improved = {}
    if record.improved is not None:
        improved["improved"] = _IMPROVEMENT.write(record.improved)
    return {
        "value": record.value,
        "value_by": record.value_by,
        **improved,
        "bounds": [{**BOUND.write(known.bound), "by": known.by} for known in record.bounds],
        **strategy,
        "plan": plan,
    }


def record_from_json(fields: Fields, problem: Problem) -> Record:
    """Return the record that a JSON object describes.

    It is the record of a problem, which is given at any memory limit.
    """
    value = fields.optional("value", (int, type(None)))
    if value is not None:
        fields.integer("value", 0)
    bounds = tuple(_bound_from_json(item) for item in fields.each("bounds"))
    for number, known in enumerate(bounds):
        if value is not None and known.bound.value > value:
            raise InputError(
                f"{fields.path('bounds')}[{number}].value must not exceed the value {value}, "
                f"as {known.bound.value} does"
            )
    strategy, trace = _strategy_from_json(fields, problem)
    moves = fields.optional("plan", (list, type(None)))
    if problem.recompute is not Recompute.NONE and (moves is None) != (strategy is None):
        raise InputError(
            f"{fields.path('plan')} and {fields.path('strategy')} go together where computations "
            "may run again"
        )
    record = Record(
        value,
        None if moves is None else _plan_from_json(moves, fields.path("plan"), trace),
        fields.optional("value_by", (str, type(None))),
        bounds,
        strategy,
        _IMPROVEMENT.read_in(fields, "improved") if fields.has("improved") else None,
    )
    if value is None and (record.plan is not None or record.value_by is not None):
        raise InputError(f"{fields.path('value')} must not be null if there is a plan or an author")
    if value is not None and record.value_by is None:
        raise InputError(f"{fields.path('value_by')} must say who attained the value")
    fields.finish()
    return record


def _strategy_from_json(fields: Fields, problem: Problem) -> tuple[Strategy | None, Trace]:
    """Return the strategy, if there is one, and the trace that the plan is for."""
    value = fields.optional("strategy", (list, type(None)))
    if value is None:
        return None, problem.trace
    place, network = fields.path("strategy"), problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        raise InputError(f"{place} is for problems in which computations may run again")
    strategy = strategy_from_json(value, place)
    with naming(place):
        return strategy, problem.executed(strategy.expand(network)).trace


def _bound_from_json(item: Fields) -> KnownBound:
    known = KnownBound(Bound(**BOUND.values(item)), item.get("by", str))
    item.finish()
    return known


def _plan_from_json(value: list[Any], place: str, trace: Trace) -> Plan:
    moves = []
    for number, item in enumerate(value):
        if not isinstance(item, list) or len(item) != 3 or item[0] not in _KINDS:
            raise InputError(
                f'{place}[{number}] must be ["o" or "p", gap, operation], not {show(item)}'
            )
        gap = require_integer(item[1], f"{place}[{number}][1]", 0)
        before = require_integer(item[2], f"{place}[{number}][2]", 0)
        moves.append(Move(_KINDS[item[0]], gap, before))
    plan = Plan(moves)
    try:
        plan.require_consistent(trace)
    except PlanError as error:
        raise InputError(f"{place}: {error}") from None
    return plan
