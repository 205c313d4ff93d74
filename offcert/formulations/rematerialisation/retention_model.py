"""The model of retention intervals: variables and constraints.

Every computation may run so many times; each run has a place in the order, and each copy that it
writes is kept from there to some later place. Places are integers of which no two runs share one;
what is there at a place is what the copies over it add up to. A copy that is changed in place ends
just before the run that changes it, and what becomes of it begins with that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.execution import Execution
from offcert.formulations.rematerialisation.states import Copy, StateNetwork, executed


@dataclass
class RunVariables:
    """One run of a computation."""

    computation: int
    present: Any  # Whether it takes place.
    place: Any  # Where it takes place.
    whole: Any = None  # Whether it keeps all that it writes.


@dataclass
class CopyVariables:
    """One copy of a state."""

    state: int
    run: RunVariables | None  # The run that makes it; None of what is there at the start.
    kept: Any  # Whether it is kept at all.
    end: Any  # The last place at which it is kept.


class RetentionModel:
    """Variables and constraints for one problem.

    `runs` says how often each computation may run at most; all runs together take at most `time`
    ticks. Where `least_bytes` are minimised, `memory` is what is certainly enough.
    """

    def __init__(
        self,
        states: StateNetwork,
        runs: Sequence[int],
        memory: int,
        time: int | None,
        least_bytes: bool,
    ) -> None:
        self.states = states
        self.model = cp_model.CpModel()
        self.always = self.model.new_bool_var("always")
        self.model.add(self.always == 1)
        self.places = sum(runs)
        self.memory_limit = memory
        self.capacity: Any = memory
        if least_bytes:
            self.capacity = self.model.new_int_var(0, memory, "memory")
        self.runs = [self._runs_of(index, count) for index, count in enumerate(runs)]
        self.copies: list[list[CopyVariables]] = [[] for _ in states.states]
        # Who reads which copy: by run and state, a literal for each copy.
        self.readings: list[tuple[RunVariables, CopyVariables, Any]] = []
        # Which copy a run changes in place: before and after, and a literal for each.
        self.turned: list[tuple[CopyVariables, CopyVariables, Any]] = []
        self._order_runs()
        self._add_copies()
        self._add_needs()
        self._add_changes()
        self._add_memory()
        self._minimise(time, least_bytes)

    def _runs_of(self, index: int, count: int) -> list[RunVariables]:
        found = []
        for number in range(count):
            place = self.model.new_int_var(index + number, self.places - 1, "")
            present = self.model.new_bool_var("") if number else self.always
            found.append(RunVariables(index, present, place))
        for before, after in pairwise(found):
            self.model.add_implication(after.present, before.present)
            self.model.add(before.place < after.place).only_enforce_if(after.present)
        return found

    def _order_runs(self) -> None:
        """First runs in the network's order; one run a place."""
        firsts = [runs[0].place for runs in self.runs]
        self.model.add(firsts[0] == 0)
        for before, after in pairwise(firsts):
            self.model.add(before < after)
        self.model.add_no_overlap(
            self.model.new_optional_fixed_size_interval_var(run.place, 1, run.present, "")
            for runs in self.runs
            for run in runs
        )

    def _add_copies(self) -> None:
        """Add the copies that runs make, and those that are there at the start."""
        for state in self.states.sources:
            end = self.model.new_int_var(-1, self.places - 1, "")
            self.copies[state].append(CopyVariables(state, None, self.always, end))
        for step, runs in zip(self.states.steps, self.runs, strict=True):
            for run in runs:
                for state in step.leaves:
                    end = self.model.new_int_var(0, self.places - 1, "")
                    kept = run.present
                    # What is changed in place is there during that run in any case.
                    if step.lean is not None and state in step.makes:
                        kept = self.model.new_bool_var("")
                        self.model.add_implication(kept, run.present)
                    self.model.add(end >= run.place).only_enforce_if(kept)
                    self.copies[state].append(CopyVariables(state, run, kept, end))

    def _add_needs(self) -> None:
        """Each run finds a copy of what it needs; what it changes in place ends before it."""
        for step, runs in zip(self.states.steps, self.runs, strict=True):
            turns = dict(step.turns)
            for run in runs:
                for state in step.needs:
                    chosen = []
                    for copy in self.copies[state]:
                        literal = self.model.new_bool_var("")
                        chosen.append(literal)
                        self._read(run, copy, literal, state in turns)
                        if state in turns:
                            self._turn(run, copy, literal, turns[state])
                    self.model.add(sum(chosen) == run.present)

    def _read(self, run: RunVariables, copy: CopyVariables, literal: Any, turned: bool) -> None:
        self.readings.append((run, copy, literal))
        self.model.add_implication(literal, copy.kept)
        if copy.run is not None:
            self.model.add(copy.run.place < run.place).only_enforce_if(literal)
        if not turned:
            self.model.add(copy.end >= run.place).only_enforce_if(literal)

    def _turn(self, run: RunVariables, copy: CopyVariables, literal: Any, after: int) -> None:
        self.model.add(copy.end == run.place - 1).only_enforce_if(literal)
        following = next(each for each in self.copies[after] if each.run is run)
        self.turned.append((copy, following, literal))

    def _add_changes(self) -> None:
        """While a copy is changed, others of its value may be there only if they can be told apart.

        Those that cannot leave are in use all the time, so there must be none. Of others, those
        that are changed later are in use until then, as they must not leave before.
        """
        values, states = self.states.network.values, self.states.states
        by_value: dict[int, list[CopyVariables]] = {}
        for state, copies in zip(states, self.copies, strict=True):
            by_value.setdefault(state.value, []).extend(copies)
        turned: dict[int, list[tuple[CopyVariables, CopyVariables, Any]]] = {}
        for row in self.turned:
            turned.setdefault(states[row[0].state].value, []).append(row)
        for step, runs in zip(self.states.steps, self.runs, strict=True):
            for before, _ in step.turns:
                value = states[before].value
                for run in runs:
                    if not values[value].evictable:
                        for copy in by_value[value]:
                            self._keep_apart(run, copy, copy.end, copy.kept)
                        continue
                    # What takes no memory never leaves.
                    for copy, after, literal in turned[value] if states[before].size else ():
                        assert after.run is not None
                        if after.run is not run:
                            self._keep_apart(run, copy, after.run.place, literal)

    def _keep_apart(self, run: RunVariables, copy: CopyVariables, until: Any, if_: Any) -> None:
        """If a literal holds, a copy is not there during a run of others, up to some place."""
        if copy.run is run:
            return
        before = self.model.new_bool_var("")
        ways = [before, ~if_, ~run.present]
        self.model.add(until < run.place).only_enforce_if(before)
        if copy.run is not None:
            after = self.model.new_bool_var("")
            self.model.add(copy.run.place > run.place).only_enforce_if(after)
            ways.append(after)
        self.model.add_bool_or(ways)

    def _add_memory(self) -> None:
        """At no place is there more than the limit."""
        intervals, demands = [], []

        def add(start: Any, size: Any, end: Any, present: Any, bytes_: int) -> None:
            if bytes_:
                intervals.append(
                    self.model.new_optional_interval_var(start, size, end, present, "")
                )
                demands.append(bytes_)

        for state, copies in zip(self.states.states, self.copies, strict=True):
            for copy in copies:
                start = 0 if copy.run is None else copy.run.place
                size = self.model.new_int_var(0, self.places, "")
                add(start, size, copy.end + 1, copy.kept, state.size)
        for step, runs in zip(self.states.steps, self.runs, strict=True):
            for run in runs:
                run.whole = run.present
                if step.lean is not None:
                    self._add_modes(step.makes, run)
                    partial = self.model.new_bool_var("")
                    self.model.add(partial + run.whole == run.present)
                    add(run.place, 1, run.place + 1, partial, step.lean)
                add(run.place, 1, run.place + 1, run.whole, step.workspace)
        self.model.add_cumulative(intervals, demands, self.capacity)
        at_start = sum(self.states.states[state].size for state in self.states.sources)
        self.model.add(self.capacity >= at_start)

    def _add_modes(self, makes: Sequence[int], run: RunVariables) -> None:
        """A run keeps all, or is lean."""
        run.whole = self.model.new_bool_var("")
        kept = [copy.kept for state in makes for copy in self.copies[state] if copy.run is run]
        self.model.add_implication(run.whole, run.present)
        for literal in kept:
            self.model.add_implication(run.whole, literal)
        self.model.add(sum(kept) < len(kept)).only_enforce_if(run.present, ~run.whole)

    def _minimise(self, time: int | None, least_bytes: bool) -> None:
        steps = self.states.steps
        duration = sum(
            step.duration * run.present
            for step, runs in zip(steps, self.runs, strict=True)
            for run in runs
        )
        if time is not None:
            self.model.add(duration <= time)
        self.model.minimize(self.capacity if least_bytes else duration)

    def hint(self, execution: Execution) -> None:
        """Suggest the runs of an execution, as far as there are so many."""
        counts = [0] * len(self.runs)
        for place, index in enumerate(execution.runs):
            if counts[index] < len(self.runs[index]):
                run = self.runs[index][counts[index]]
                if counts[index]:
                    self.model.add_hint(run.present, True)
                self.model.add_hint(run.place, place)
            counts[index] += 1
        for index, runs in enumerate(self.runs):
            for run in runs[max(counts[index], 1) :]:
                self.model.add_hint(run.present, False)

    def execution(self, value: Callable[[Any], int]) -> Execution:
        """Return the execution that a solution describes."""
        present = [run for runs in self.runs for run in runs if value(run.present)]
        present.sort(key=lambda run: value(run.place))
        position = {id(run): number for number, run in enumerate(present)}
        # A copy that is changed in place goes on as what it becomes.
        turned = [row[:2] for row in self.turned if value(row[2])]
        origin: dict[int, int] = {id(after): id(before) for before, after in turned}
        copies: dict[int, Copy] = {}
        for state, variables in zip(self.states.states, self.copies, strict=True):
            for each in variables:
                if id(each) not in origin and value(each.kept):
                    first = -1 if each.run is None else position[id(each.run)]
                    copies[id(each)] = Copy(state.value, [first])

        def written(copy: CopyVariables) -> Copy:
            number = id(copy)
            while number in origin:
                number = origin[number]
            return copies[number]

        for before, after in turned:
            written(before).changes.append(position[id(after.run)])
        for run, copy, literal in self.readings:
            if value(literal):
                written(copy).uses.append(position[id(run)])
        order = [run.computation for run in present]
        return executed(self.states.network, order, list(copies.values()))
