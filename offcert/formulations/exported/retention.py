"""Recomputation alone as a program in integers: which copies are kept, and what runs again.

It is the program in stages of `offcert.formulations.rematerialisation.checkmate_milp`, in ticks and
bytes. Its optimum is that of executions in stages, so others may be better.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.formulations.common.linear_model import ONE
from offcert.formulations.exported.integer_program import LARGEST, IntegerProgram
from offcert.formulations.rematerialisation.checkmate_milp import CheckmateModel
from offcert.formulations.rematerialisation.outcome import required_network
from offcert.formulations.rematerialisation.states import state_network
from offcert.questions.schedule.problem import Minimise, Problem

# The variable that is always 1; from its name it is known what a solution is one of.
ALWAYS = "retention"


class RetentionModel(CheckmateModel):
    """The program of a problem in which nothing leaves and anything may run again.

    Raises
    ------
    MethodError
        If the problem is another one.
    InputError
        If the program would be too large, or it is seen at once that nothing satisfies it.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        states = state_network(required_network(problem))
        places = len(states.steps) * (len(states.steps) + 1) // 2
        if places * len(states.states) > LARGEST:
            raise InputError(
                f"{places} places for computations times {len(states.states)} values are too many "
                "for this model"
            )
        self.least_bytes = problem.minimise is Minimise.MEMORY
        memory = problem.platform.memory
        super().__init__(states, memory, problem.deadline, self.least_bytes, whole=True)
        if self.model.contradictory:
            raise InputError("no execution keeps to the limits: some row has no variables")

    def _names(self) -> list[str]:
        names = [f"part_{column}" for column in range(len(self.model.low))]
        if self.least_bytes:
            names[self.capacity[0][0]] = "bytes"
        for place, slot in enumerate(self.slots):
            families = [
                (f"run_{place}", slot.runs),
                (f"lean_{place}", slot.lean),
                *((f"kept_{place}_{state}", terms) for state, terms in slot.there.items()),
                *((f"made_{place}_{state}", terms) for state, terms in slot.fresh.items()),
            ]
            for name, terms in families:
                if terms and terms[0][0] != ONE:
                    names[terms[0][0]] = name
        return names

    def program(self) -> IntegerProgram:
        """Return the program with names."""
        model = self.model
        rows = []
        for terms, low, _ in model.rows:
            rows.append((tuple((column, int(value)) for column, value in terms), int(low), None))
        columns = range(len(model.low))
        rows.append((((len(columns), 1),), 1, None))
        unit, constant = ("bytes", 0) if self.least_bytes else ("ticks", self.compute)
        said = [f"{self.problem.name}: executions in stages; least objective: {unit}"]
        for number, slot in enumerate(self.slots):
            said.append(f"place {number}: computation {slot.computation}")
        for number, state in enumerate(self.states.states):
            said.append(f"state {number}: value {state.value} after {state.level} changes")
        return IntegerProgram(
            (*self._names(), ALWAYS),
            (*(int(cost) for cost in model.cost), constant),
            tuple(rows),
            tuple(said),
            continuous=frozenset(column for column in columns if not model.integer[column]),
            endless=frozenset(column for column in columns if model.high[column] == float("inf")),
        )

    def executed(self, values: Mapping[str, float]) -> Execution:
        """Return the execution of a solution, given the values of variables by name."""
        if ALWAYS not in values:
            raise InputError(f"it is no solution of this model: no variable {ALWAYS} is in it")
        try:
            return self.execution([values.get(name, 0.0) for name in self._names()])
        except KeyError:
            raise InputError("the solution reads what is not there") from None
