"""Lower bounds on recomputation without offloading: a relaxation in stages.

Stage `t` is what happens after the first run of computation `t - 1`, up to the end of that of `t`.
Of an execution, whatever runs in it how often and in which order, take

- ``R[t, i]``: whether `i` runs in stage `t` (``R[t, t] = 1``),
- ``S[t, q]``: whether at the beginning of stage `t` there is a copy of state `q`.

Then, for each stage,

1. who runs finds what it needs: it was there at the beginning, or its maker runs in the stage;
2. what is there at the end was there at the beginning, or its maker runs in the stage;
3. while `t` runs for the first time there is what it needs and writes, and everything else of which
   there is a copy afterwards: only `t` itself made anything meanwhile;
4. a state that is there at the beginning and at the end, whose maker does not run meanwhile, is
   there all the time, so also while anything else runs in the stage: every such run has its own
   needs beside it;
5. the runs together take at least the sum of ``R[t, i]`` times the durations.

So the least time or memory that these rows allow bounds every execution. Nothing is said about the
order of runs in a stage, nor how often they run there.
"""

from __future__ import annotations

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
from offcert.formulations.rematerialisation.states import StateNetwork, state_network
from offcert.questions.schedule.problem import Problem


def solve(
    problem: Problem,
    *,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    hint: Execution | None = None,
) -> RematerialisationOutcome:
    """Bound the time or the memory of recomputation without offloading.

    Parameters
    ----------
    problem : Problem
        With ``recompute="any"`` and ``offload=False``; time or memory to minimise.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    time_limit : float
        Seconds, building the program included.
    hint : Execution, optional
        A legal one; it narrows what is of interest, and is returned.

    Returns
    -------
    RematerialisationOutcome
        Without an execution but the hint; ``claim`` is the solver's bound, less `RELATIVE_MARGIN`
        of the computing time or of the peak, rounded up.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    MethodError
        If the problem is not one of recomputation alone.
    """
    return solved(
        problem, _search, solver=solver, time_limit=time_limit, threads=threads, hint=hint
    )


def _search(run: RematerialisationRun, ask: Ask) -> None:
    memory = run.memory
    model = StagesModel(state_network(run.network), memory, run.spare, run.least_bytes)
    answer = ask(model.model)
    if answer.infeasible:
        # Nothing is better than the hint; without one, no execution fits.
        if run.objective is not None and not run.least_bytes:
            run.take_bound(run.objective)
        return
    unit, base = (memory, 0) if run.least_bytes else (model.compute, model.compute)
    run.take_bound(base + answer.bound * unit, RELATIVE_MARGIN * unit)


class StagesModel:
    """Columns and rows for one problem.

    Runs beside the first ones take at most `spare` ticks. Where `least_bytes` are minimised,
    `memory` is what is certainly enough.
    """

    def __init__(
        self, states: StateNetwork, memory: int, spare: int | None, least_bytes: bool
    ) -> None:
        self.states = states
        self.model = LinearModel()
        self.unit = max(1, memory)
        self.compute = max(1, sum(step.duration for step in states.steps))
        self.least_bytes, self.spare = least_bytes, spare
        self.capacity: Terms = [(ONE, 1.0)]
        if least_bytes:
            self.capacity = [(self.model.column(0.0, 1.0, cost=1.0), 1.0)]
        self._there: dict[int, Terms] = {state: [(ONE, 1.0)] for state in states.sources}
        self._spent: Terms = []
        last = len(states.steps) - 1
        for stage in range(len(states.steps)):
            self._add_stage(stage, stage == last)
        if spare is not None:
            self.model.row(scaled(self._spent, -1.0), -spare / self.compute)

    def _runs(self, stage: int) -> dict[int, Terms]:
        """Return whether each computation runs in a stage."""
        runs: dict[int, Terms] = {stage: [(ONE, 1.0)]}
        for computation in range(stage):
            step = self.states.steps[computation]
            if not step.repeatable or (self.spare is not None and step.duration > self.spare):
                continue
            part = step.duration / self.compute
            cost = 0.0 if self.least_bytes else part
            runs[computation] = [(self.model.column(0.0, 1.0, cost=cost, integer=True), 1.0)]
            self._spent += scaled(runs[computation], part)
        return runs

    def _add_stage(self, stage: int, last: bool) -> None:
        states, steps = self.states.states, self.states.steps
        runs, before = self._runs(stage), self._there
        for computation, terms in runs.items():
            for state in steps[computation].needs:
                made = runs.get(states[state].maker, [])
                self.model.at_most(terms, [*before.get(state, []), *made])
        after: dict[int, Terms] = {}
        for state, _ in enumerate(states) if not last else ():
            maker = states[state].maker
            if maker > stage or not self._wanted_after(state, stage):
                continue
            after[state] = self.model.binary()
            if maker < stage:
                made = runs.get(maker, [])
                self.model.at_most(after[state], [*before.get(state, []), *made])
        self._add_first_run(stage, after)
        self._add_reruns(stage, runs, before, after)
        self._there = after

    def _wanted_after(self, state: int, stage: int) -> bool:
        """Return whether anyone may need a state after a stage."""
        steps = self.states.steps
        return any(
            reader > stage or steps[reader].repeatable for reader in self.states.readers[state]
        )

    def _add_first_run(self, stage: int, after: dict[int, Terms]) -> None:
        """While a computation runs first there is its own, and all that stays beside it."""
        step = self.states.steps[stage]
        taken: Terms = [(ONE, self.states.network.own_memory[stage] / self.unit)]
        for state, there in after.items():
            if state not in step.needs and state not in step.leaves:
                taken += scaled(there, self.states.states[state].size / self.unit)
        self.model.at_most(taken, self.capacity)

    def _add_reruns(
        self,
        stage: int,
        runs: dict[int, Terms],
        before: dict[int, Terms],
        after: dict[int, Terms],
    ) -> None:
        """Whatever runs in a stage runs beside what stays there throughout."""
        through: dict[int, Terms] = {}
        for state, there in after.items():
            if state in before and self.states.states[state].size:
                made = runs.get(self.states.states[state].maker, [])
                stays: Terms = [(self.model.column(0.0, 1.0), 1.0)]
                self.model.row(
                    [*stays, *scaled(before[state], -1.0), *scaled(there, -1.0), *made, (ONE, 1.0)],
                    0.0,
                )
                through[state] = stays
        for computation, terms in runs.items():
            if computation == stage:
                continue
            step = self.states.steps[computation]
            own = self.states.network.own_memory[computation]
            taken = scaled(terms, own / self.unit)
            for state, stays in through.items():
                if state not in step.needs and state not in step.leaves:
                    taken += scaled(stays, self.states.states[state].size / self.unit)
            self.model.at_most(taken, self.capacity)
