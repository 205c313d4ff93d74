"""Recomputation without offloading in stages: Checkmate's program, for linear solvers.

Source: Jain et al., *Checkmate: breaking the memory wall with optimal tensor rematerialization*
(2020), §4, with in-place changes, workspaces and what a run discards.

It is exact for executions in which no computation runs twice in a stage (between the first runs of
two consecutive computations), runs of a stage follow the network's order, and there is one copy of
a value in a state at a time, and no other of one that is being changed. All of this costs something
on some networks, so its optimum bounds no other executions (docs/theory/rematerialisation.md). It
checks `retention_cpsat`: with another solver, another idea of time, and other variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from offcert.core.execution import Execution
from offcert.formulations.common.linear_model import ONE, LinearModel, Terms, scaled
from offcert.formulations.common.linear_solvers import SCIPY
from offcert.formulations.rematerialisation.outcome import (
    RELATIVE_MARGIN,
    Ask,
    RematerialisationOutcome,
    RematerialisationRun,
    solved,
)
from offcert.formulations.rematerialisation.states import (
    Copy,
    StateNetwork,
    executed,
    state_network,
)
from offcert.questions.schedule.problem import Problem

# The largest value of a variable in whole amounts. Given by CP-SAT: its default for programs.
LARGEST_INTEGER = 10**7


@dataclass
class Slot:
    """A place at which a computation may run."""

    computation: int
    runs: Terms  # Whether it does.
    # For each state of which there can be a copy afterwards, whether there is.
    there: dict[int, Terms]
    fresh: dict[int, Terms]  # For each state that it leaves, whether that copy is its own.
    lean: Terms  # Whether it discards part of what it writes, and takes the lean workspace.


class CheckmateModel:
    """Columns and rows for one problem.

    Runs take at most `time` ticks. Where `least_bytes` are minimised, `memory` is what is certainly
    enough. If `whole`, amounts are in bytes and ticks, so that all coefficients are integers.
    """

    def __init__(
        self,
        states: StateNetwork,
        memory: int,
        time: int | None,
        least_bytes: bool,
        whole: bool = False,
    ) -> None:
        self.states = states
        self.model = LinearModel()
        self.compute = sum(step.duration for step in states.steps)
        # All amounts are counted in these, so that coefficients are near 1.
        self.unit, self.ticks = (1, 1) if whole else (max(1, memory), max(1, self.compute))
        self.capacity: Terms = [(ONE, float(memory) if whole else 1.0)]
        if least_bytes and whole:
            # CP-SAT takes no variable of a program to be larger than this by default.
            unit = float(max(1, -(-memory // LARGEST_INTEGER)))
            column = self.model.column(0.0, inf, cost=unit, integer=unit > 1.0)
            self.capacity = [(column, unit)]
        elif least_bytes:
            self.capacity = [(self.model.column(0.0, 1.0, cost=1.0), 1.0)]
        self.slots: list[Slot] = []
        self._at_start: dict[int, Terms] = {s: [(ONE, 1.0)] for s in states.sources}
        self._held = self._at_start
        for stage, _ in enumerate(states.steps):
            for computation in range(stage):
                if states.steps[computation].repeatable:
                    self._add_slot(computation, self.model.binary())
            self._add_slot(stage, [(ONE, 1.0)])
        self._limit(memory, time, least_bytes)

    def _limit(self, memory: int, time: int | None, least_bytes: bool) -> None:
        """The objective, the deadline, and what is there at the start."""
        spent: Terms = []
        for slot in self.slots:
            duration = self.states.steps[slot.computation].duration
            if slot.runs[0][0] != ONE and duration:
                spent += scaled(slot.runs, duration / self.ticks)
                if not least_bytes:
                    self.model.cost[slot.runs[0][0]] = duration / self.ticks
        if time is not None:
            rest = (time - self.compute) / self.ticks
            self.model.row(scaled(spent, -1.0), -rest)
        at_start = sum(self.states.states[state].size for state in self.states.sources)
        self.model.row([*self.capacity, (ONE, -at_start / self.unit)], 0.0)

    def _add_slot(self, computation: int, runs: Terms) -> None:
        step = self.states.steps[computation]
        before = self._held
        slot = Slot(computation, runs, {}, {}, [])
        for state in step.needs:
            self.model.at_most(runs, before[state])
        turned = {state for state, _ in step.turns}
        alone = {self.states.states[state].value for state in turned}
        leaves = step.leaves
        for state in {*before, *leaves}:
            if state in leaves:
                continue
            slot.there[state] = self._later(before[state])
            # A copy that is changed is gone as what it was, and it is the only one of its value.
            if state in turned or self.states.states[state].value in alone:
                self._exclude(runs, slot.there[state])
        old: dict[int, Terms] = {}
        for state in leaves:
            slot.fresh[state] = self.model.binary()
            self.model.at_most(slot.fresh[state], runs)
            old[state] = self._later(before[state]) if state in before else []
            if self.states.states[state].value in alone:
                self._exclude(runs, old[state])
            slot.there[state] = self.model.binary()
            self.model.at_most(slot.there[state], [*slot.fresh[state], *old[state]])
        if step.lean is not None:
            slot.lean = self.model.binary()
            self.model.at_most(slot.lean, runs)
            discarded: Terms = [(ONE, float(len(step.makes)))]
            for state in step.makes:
                discarded += scaled(slot.fresh[state], -1.0)
            self.model.at_most(slot.lean, discarded)
        self._add_memory(slot, old)
        self.slots.append(slot)
        self._held = slot.there

    def _exclude(self, runs: Terms, there: Terms) -> None:
        """If a slot runs, a copy is not there."""
        if there:
            self.model.row([(ONE, 1.0), *scaled(runs, -1.0), *scaled(there, -1.0)], 0.0)

    def _later(self, before: Terms) -> Terms:
        """Return whether a copy that was there before is there still."""
        later = self.model.binary()
        self.model.at_most(later, before)
        return later

    def _add_memory(self, slot: Slot, old: dict[int, Terms]) -> None:
        """While a slot runs, or is passed over, no more is there than the limit."""
        step, states = self.states.steps[slot.computation], self.states.states
        taken: Terms = []
        for state, there in slot.there.items():
            part = states[state].size / self.unit
            if state in step.needs and part:
                # What is read is there, whether it stays or not.
                read: Terms = [(self.model.column(0.0, 1.0), 1.0)]
                self.model.at_most(slot.runs, read)
                self.model.at_most(there, read)
                taken += scaled(read, part)
            elif state not in slot.fresh:
                taken += scaled(there, part)
        for terms, state in ((terms, state) for state, terms in old.items()):
            taken += scaled(terms, states[state].size / self.unit)
        whole = step.workspace + sum(states[state].size for state in step.makes)
        full = scaled(slot.runs, whole / self.unit)
        full += scaled(slot.lean, -whole / self.unit)
        self.model.at_most([*taken, *full], self.capacity)
        if step.lean is not None:
            partly = scaled(slot.lean, step.lean / self.unit)
            for state in step.makes:
                partly += scaled(slot.fresh[state], states[state].size / self.unit)
            # Where nothing is discarded the row above says as much.
            self.model.at_most([*taken, *partly], self.capacity)

    def execution(self, values: list[float]) -> Execution:
        """Return the execution that a solution describes."""
        return _Reading(self, values).execution()


class _Reading:
    def __init__(self, model: CheckmateModel, values: list[float]) -> None:
        self.states, self.slots = model.states, model.slots
        self.values = values

    def _holds(self, terms: Terms) -> bool:
        return sum(c * (1.0 if n == ONE else self.values[n]) for n, c in terms) > 0.5

    def execution(self) -> Execution:
        states = self.states.states
        held = {state: Copy(states[state].value, [-1]) for state in self.states.sources}
        copies = list(held.values())
        order: list[int] = []
        for slot in self.slots:
            if not self._holds(slot.runs):
                continue
            position = len(order)
            order.append(slot.computation)
            step = self.states.steps[slot.computation]
            for state in step.needs:
                held[state].uses.append(position)
            for before, after in step.turns:
                copy = held.pop(before)
                copy.changes.append(position)
                if self._holds(slot.fresh[after]):
                    held[after] = copy
            # A lean run keeps what is marked; any other may as well keep all for its own time.
            lean = self._holds(slot.lean)
            for state in step.makes:
                if not lean or self._holds(slot.fresh[state]):
                    copy = Copy(states[state].value, [position])
                    copies.append(copy)
                    if self._holds(slot.fresh[state]):
                        held[state] = copy
        return executed(self.states.network, order, copies)


def solve(
    problem: Problem, *, solver: str = SCIPY, time_limit: float = 60.0, threads: int = 1
) -> RematerialisationOutcome:
    """Find the best execution in stages; parameters, errors as for `stages_milp.solve`.

    The program has about as many binaries as computations squared times values. ``within`` is the
    least objective of an execution in stages, if the solver found it, up to `RELATIVE_MARGIN`;
    ``claim`` is always None: nothing follows for others.
    """
    return solved(problem, _search, solver=solver, time_limit=time_limit, threads=threads)


def _search(run: RematerialisationRun, ask: Ask) -> None:
    states, deadline = state_network(run.network), run.problem.deadline
    model = CheckmateModel(states, run.memory, deadline, run.least_bytes)
    answer = ask(model.model)
    if answer.infeasible:
        run.statistics["within"] = "nothing"
    if answer.values is None:
        return
    run.take(model.execution(answer.values))
    if run.objective is not None and answer.bound > -float("inf"):
        unit = model.unit if run.least_bytes else model.ticks
        base = 0 if run.least_bytes else model.compute
        if base + (answer.bound + RELATIVE_MARGIN) * unit > run.objective - 1:
            run.within = run.objective
