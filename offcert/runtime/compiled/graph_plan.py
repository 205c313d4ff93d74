"""`GraphPlan`: a plan for compiled graphs, and the report of what they carry out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from offcert.core.computations import Run
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.strategy import Strategy
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.runtime.compiled.graph_network import GraphPlace, GraphRecord, places_of, read_graphs
from offcert.runtime.plan.predict import EvictionInterval, predict
from offcert.runtime.plan.step_plan import require_memory


@dataclass(frozen=True)
class MovedInGraphs:
    """A tensor that leaves and comes back as nodes of the graphs say."""

    tensor: str  # Name of the tensor
    size: int  # Bytes
    # For each stretch in which it is away: the operations right before which it has left, and
    # before which its return begins.
    released: tuple[str, ...]
    returned: tuple[str, ...]
    # Whether all of these are just where the plan has them; if not, another graph runs then, and it
    # leaves or comes back at the end or the beginning of its own.
    exact: bool


@dataclass(frozen=True)
class GraphReport:
    """The parts of a plan that compiled graphs carry out: one graph, or all of them."""

    plan: str  # Name of the plan's problem
    planned: dict[str, int]  # Bytes of each tensor that the plan moves, by name
    carried: tuple[MovedInGraphs, ...] = ()  # Tensors that move
    # For each operation that runs a computation again, by name, whether it does.
    again: dict[str, bool] = field(default_factory=dict)
    # Why a graph follows no plan, if one does not, and part of the plan is not carried out.
    refused: str | None = None
    limit: int | None = None  # Bytes that the plan may take
    # The most bytes of buffers, as Inductor has put its kernels in order; None if not known. What
    # kernels need inside is not among them, nor are parameters, what the step is given, gradients
    # of parameters, and copies on the host.
    peak: int | None = None
    # Graphs of the same code that were compiled before, for other inputs, and may still run: how
    # many follow the plan, and how many do not.
    before: tuple[int, int] = (0, 0)

    @property
    def planned_bytes(self) -> int:
        """Bytes of the tensors that the plan moves, each counted once."""
        return sum(self.planned.values())

    @property
    def carried_bytes(self) -> int:
        """Bytes of the tensors that move."""
        return sum(each.size for each in self.carried)

    @property
    def share(self) -> float:
        """The part of the planned bytes that move; 1 if none are to."""
        return self.carried_bytes / self.planned_bytes if self.planned else 1.0

    @property
    def stays(self) -> tuple[str, ...]:
        """Names of the tensors that the plan moves, and that stay on the device."""
        moved = {each.tensor for each in self.carried}
        return tuple(name for name in self.planned if name not in moved)

    @property
    def complete(self) -> bool:
        """Whether all that the plan moves does, and all that it runs again does."""
        return self.refused is None and not self.stays and all(self.again.values())

    @property
    def within(self) -> bool:
        """Whether the peak is within the limit, as far as is known."""
        return self.peak is None or self.limit is None or self.peak <= self.limit

    def __str__(self) -> str:
        """Say it in a sentence, with what is missing by name."""
        if self.refused is not None and not self.carried:
            text = f"no part of the plan of {self.plan} is carried out: {self.refused}"
            return text + self._earlier
        text = (
            f"{self.carried_bytes} of {self.planned_bytes} planned bytes of {self.plan} move "
            "in compiled graphs"
        )
        why = "no graph makes them" if self.refused is None else self.refused
        missing = [name for name, done in self.again.items() if not done]
        if self.stays:
            text += f"; {', '.join(self.stays)} stay: {why}"
        if missing:
            text += f"; {', '.join(missing)} do not run again: {why}"
        if not self.within:
            text += f"; buffers take {self.peak} bytes at their peak, of {self.limit} allowed"
        return text + self._earlier

    @property
    def _earlier(self) -> str:
        if not any(self.before):
            return ""
        return (
            f"; of the graphs compiled before of the same code, {self.before[0]} follow the plan, "
            f"{self.before[1]} do not"
        )


def together(reports: Sequence[GraphReport], peak: int | None) -> GraphReport:
    """Return one report for the graphs of a step.

    A graph that follows no plan is beside those of the plan if these carry all of it out.
    """
    carried = {moved.tensor: moved for each in reports for moved in each.carried}
    again = {name: any(each.again[name] for each in reports) for name in reports[0].again}
    whole = replace(reports[0], carried=tuple(carried.values()), again=again, refused=None)
    refused = None
    if not whole.complete:
        refused = next((each.refused for each in reports if each.refused is not None), None)
    return replace(whole, refused=refused, peak=peak)


@dataclass(frozen=True)
class GraphPlan:
    """A plan for compiled graphs."""

    problem: Problem  # What is executed, in which stretches may run several times
    graphs: tuple[GraphRecord, ...]  # The graphs, in the order of the forward pass
    runs: tuple[int, ...]  # The computation that each operation runs
    values: tuple[int, ...]  # The value that each tensor is a copy of
    writer: tuple[int, ...]  # The computation that makes each value
    # When each tensor that leaves is away, in their order.
    moved: dict[int, list[EvictionInterval]]

    @cached_property
    def places(self) -> list[GraphPlace]:
        """The place of each operation in the graphs."""
        computations = places_of(self.graphs)
        return [computations[run] for run in self.runs]

    @cached_property
    def again(self) -> list[int]:
        """The operations that run a computation again."""
        first: dict[int, int] = {}
        return [n for n, run in enumerate(self.runs) if first.setdefault(run, n) != n]

    def report(self, number: int | None = None, refused: str | None = None) -> GraphReport:
        """Return the parts that one of the graphs carries out; if it is none of them, why."""
        trace = self.problem.trace
        carried = []
        for n, away in self.moved.items():
            if self.graph_of(n) == number and refused is None:
                tensor = trace.tensors[n]
                exact = all(self.places[each].graph == number for row in away for each in row)
                names = [[trace.operations[each].name for each in row] for row in away]
                out, back = map(tuple, zip(*names, strict=True))
                carried.append(MovedInGraphs(tensor.name, tensor.size, out, back, exact))
        here = number if refused is None else None
        return GraphReport(
            self.problem.name,
            {trace.tensors[n].name: trace.tensors[n].size for n in self.moved},
            tuple(carried),
            {trace.operations[n].name: self.places[n].graph == here for n in self.again},
            refused,
            self.problem.platform.memory,
        )

    def values_of(self, number: int) -> list[int]:
        """Return the values that the stretches of a graph make, in their order."""
        computations = places_of(self.graphs)
        return [n for n, w in enumerate(self.writer) if computations[w].graph == number]

    def graph_of(self, tensor: int) -> int:
        """Return the graph that makes a tensor."""
        return self.places[self.problem.trace.tensors[tensor].uses[0]].graph


def graph_plan(
    problem: Problem, plan: Plan | Schedule | FluidSchedule, execution: Execution | None = None
) -> GraphPlan:
    """Return a plan for the graphs that a problem was captured from.

    Raises
    ------
    InputError
        If the problem was not captured from graphs, or the plan moves tensors in pieces.
    PlanError
        If the plan does not make sense, or exceeds the problem's memory.
    """
    source = problem.source or {}
    if "compiled" not in source:
        raise InputError(
            f"the problem {problem.name} was not captured from compiled graphs, which follow only "
            "plans of such problems: make one by offcert profile --clock graphs, or by "
            'offcert.profile(step, clock="graphs")'
        )
    graphs = read_graphs(source)
    network = problem.computed
    computations = places_of(graphs)
    if network is None or len(network) != len(computations):
        raise PlanError(
            f"source.compiled.graphs has {len(computations)} stretches for "
            f"{len(network or problem.trace)} computations"
        )
    if execution is None:
        runs = tuple(range(len(network)))
        values = Strategy(map(Run, runs)).expand(network).values
    else:
        runs, values = execution.runs, execution.values
        problem = problem.executed(execution)
    prediction = predict(problem.trace, plan)
    require_memory(problem, prediction)
    return GraphPlan(problem, graphs, runs, values, network.writer, prediction.absences)
