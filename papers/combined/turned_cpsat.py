"""Whole transfers that turn with the computation, by CP-SAT.

What leaves does so before the first backward operation starts, what returns does so after the last
forward operation of the first pass has ended. So in any idle time but the one at the turn transfers
go one way only, and at the turn all that leave may come first: memory has to be looked at during
operations alone. For each gap and each operation inside it a literal says that the gap's tensor is
absent throughout the operation.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from offcert.core.platform import Kind
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


def solve_turned(
    problem: Problem, turn: int, upper: int | None, time_limit: float
) -> tuple[int | None, Schedule | None]:
    """Return a bound on such schedules, or None if there are none, and the best one.

    Parameters
    ----------
    problem : Problem
        A trace, in which each tensor has one gap that spans the turn.
    turn : int
        The last operation before the turn.
    upper : int or None
        Ticks: only schedules that are shorter are looked for.
    time_limit : float
        Seconds.

    Raises
    ------
    RuntimeError
        If the solver's solution is no schedule.
    """
    model = _Turned(problem, turn, upper)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, time_limit)
    solver.parameters.num_workers = 1
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return upper, None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return problem.trace.compute_time, None
    schedule = model.schedule(solver)
    faults = check(problem, schedule)
    if faults:
        raise RuntimeError(f"a solution is no schedule: {faults[0]}")
    return round(solver.best_objective_bound), schedule


class _Turned:
    def __init__(self, problem: Problem, turn: int, upper: int | None) -> None:
        self.problem, self.trace, self.turn = problem, problem.trace, turn
        self.model = cp_model.CpModel()
        trace, platform = self.trace, problem.platform
        self.gaps = [g for g, gap in enumerate(trace.gaps) if gap.before <= turn < gap.after]
        self.ticks = {
            (kind, gap): platform.transfer_time(trace.gap_size(gap), kind)
            for gap in self.gaps
            for kind in Kind
        }
        longest = trace.compute_time + sum(self.ticks.values())
        self.horizon = longest if upper is None else min(longest, upper - 1)
        self.starts = [self._time(f"s{o}") for o in range(len(trace))]
        self.used = {gap: self.model.new_bool_var(f"u{gap}") for gap in self.gaps}
        self.moves = {key: self._time(f"{key[0]}{key[1]}") for key in self.ticks}
        self._order_operations()
        self._use_link()
        for gap in self.gaps:
            self._order_transfers(gap)
        for o in range(len(trace)):
            self._require_absent(o)
        self.model.minimize(self._end(len(trace) - 1))

    def _time(self, name: str) -> cp_model.IntVar:
        return self.model.new_int_var(0, max(0, self.horizon), name)

    def _end(self, o: int) -> cp_model.LinearExprT:
        return self.starts[o] + self.trace.durations[o] if o >= 0 else 0

    def _order_operations(self) -> None:
        """Operations run one after the other, within the horizon."""
        for o in range(1, len(self.trace)):
            self.model.add(self.starts[o] >= self._end(o - 1))
        self.model.add(self._end(len(self.trace) - 1) <= self.horizon)

    def _use_link(self) -> None:
        """One transfer at a time, those that leave before those that return."""
        self.model.add_no_overlap(
            self.model.new_optional_fixed_size_interval_var(
                self.moves[key], ticks, self.used[key[1]], f"i{key}"
            )
            for key, ticks in self.ticks.items()
        )
        cut = self._time("cut")
        self.model.add(cut >= self._end(self.turn))
        self.model.add(cut <= self.starts[self.turn + 1])
        for (kind, gap), start in self.moves.items():
            if kind is Kind.OFFLOAD:
                self.model.add(start + self.ticks[kind, gap] <= cut).only_enforce_if(self.used[gap])
            else:
                self.model.add(start >= cut).only_enforce_if(self.used[gap])

    def _order_transfers(self, gap: int) -> None:
        """A tensor leaves after it was written and is back when it is needed."""
        where = self.trace.gaps[gap]
        written = self._end(self.trace.tensors[where.tensor].uses[0])
        leaves, returns = self.moves[Kind.OFFLOAD, gap], self.moves[Kind.PREFETCH, gap]
        self.model.add(leaves >= written).only_enforce_if(self.used[gap])
        needed = returns + self.ticks[Kind.PREFETCH, gap] <= self.starts[where.after]
        self.model.add(needed).only_enforce_if(self.used[gap])

    def _require_absent(self, o: int) -> None:
        """Enough is absent throughout an operation."""
        required = self.trace.demand[o] - self.problem.platform.memory
        if required <= 0:
            return
        terms = []
        for gap in self.gaps:
            if not self.trace.gaps[gap].spans(o):
                continue
            absent = self.model.new_bool_var(f"a{gap},{o}")
            terms.append(self.trace.gap_size(gap) * absent)
            self.model.add_implication(absent, self.used[gap])
            if o <= self.turn:
                end = self.moves[Kind.OFFLOAD, gap] + self.ticks[Kind.OFFLOAD, gap]
                self.model.add(end <= self.starts[o]).only_enforce_if(absent)
            else:
                back = self.moves[Kind.PREFETCH, gap]
                self.model.add(back >= self._end(o)).only_enforce_if(absent)
        self.model.add(sum(terms) >= required)

    def schedule(self, solver: cp_model.CpSolver) -> Schedule:
        """Return the schedule of a solution."""
        starts = [solver.value(start) for start in self.starts]
        ends = [start + d for start, d in zip(starts, self.trace.durations, strict=True)]
        transfers = []
        for (kind, gap), ticks in self.ticks.items():
            if solver.boolean_value(self.used[gap]):
                begin = solver.value(self.moves[kind, gap])
                transfers.append(Transfer(kind, gap, begin, begin + ticks))
        return Schedule(starts, ends, transfers)
