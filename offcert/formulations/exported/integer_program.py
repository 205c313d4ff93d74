"""Integer programs with named variables for files (MPS, LP, OPB), and solutions of other solvers.

Recomputation alone (`RetentionProgram`) says which copies are kept, and what runs again. It is the
program in stages of `offcert.formulations.rematerialisation.checkmate_milp`, in ticks and bytes.
Its optimum is that of executions in stages, so others may be better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.formulations.common.linear_model import ONE, Terms, whole, whole_limit
from offcert.formulations.common.time_grid import StartWindow, require_coarse_enough
from offcert.formulations.exported.cells import Cells, require_exportable, time_grid
from offcert.formulations.models.time_indexed_model import TimeIndexedModel
from offcert.formulations.rematerialisation.checkmate_milp import CheckmateModel
from offcert.formulations.rematerialisation.outcome import required_network
from offcert.formulations.rematerialisation.states import state_network
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem

# Pairs of an item and a cell; files of more are gigabytes. Assumed.
LARGEST = 2_000_000


@dataclass(frozen=True)
class IntegerProgram:
    """A linear program to be minimised; its variables are 0 or 1 where nothing else is said."""

    # Of the variables. The last one of a time-indexed program is 1: it carries the constant of the
    # objective.
    names: tuple[str, ...]
    cost: tuple[int, ...]  # Their coefficients in the objective.
    # Pairs of a variable's number and its coefficient, and the least and the most of their sum.
    rows: tuple[tuple[tuple[tuple[int, int], ...], int | None, int | None], ...]
    comments: tuple[str, ...]  # Lines about it.
    row_names: tuple[str, ...] = ()  # Of the rows; none: their numbers.
    # Variables that may have any value from 0 to 1, or without an end.
    continuous: frozenset[int] = frozenset()
    endless: frozenset[int] = frozenset()  # Variables without a largest value.

    def row_name(self, row: int) -> str:
        """Return the name of a row."""
        return self.row_names[row] if self.row_names else f"r{row}"


class CellModel(TimeIndexedModel):
    """The cells of the time-indexed model of a problem with whole transfers, in integers."""

    def __init__(self, problem: Problem, cells: Cells) -> None:
        require_exportable(problem)
        self.problem, self.cells = problem, cells
        data = time_grid(problem, cells)
        require_coarse_enough(data, LARGEST)
        super().__init__(data, problem.platform.duplex, integers=True)

    def program(self) -> IntegerProgram:
        """Return the program with names."""
        model = self.model
        cost = [int(each) for each in model.cost]
        constant = self.data.operations[-1].last
        rows = []
        for terms, low, high in model.rows:
            integers = tuple((column, whole(value)) for column, value in terms)
            rows.append((integers, whole_limit(low), whole_limit(high)))
        one = len(model.low)
        rows.append((((one, 1),), 1, None))
        names = (*self._names(), self.cells.name)
        return IntegerProgram(names, (*cost, constant), tuple(rows), self._comments())

    def _names(self) -> list[str]:
        names = [f"absent_{number}" for number in range(len(self.model.low))]
        families = [
            *((f"op_{o}", steps, item) for o, (steps, item) in _paired(self)),
            *((f"out_{t}", self.offloads[t], item) for t, item in self.data.offloads.items()),
            *(
                (f"back_{gap.number}", steps, gap.prefetch)
                for gap, steps in zip(self.data.gaps, self.prefetches, strict=True)
            ),
        ]
        for stem, steps, item in families:
            for cell, ((column, _),) in enumerate(steps, start=item.first):
                if column != ONE:
                    names[column] = f"{stem}_by_{cell}"
        for (index, released, back), ((column, _),) in self._absent.items():
            names[column] = f"absent_{self.data.gaps[index].number}_from_{released}_to_{back}"
        return names

    def _comments(self) -> tuple[str, ...]:
        grid, last = self.cells.grid, self.problem.trace.durations[-1]
        means = "a lower bound on every schedule, in ticks"
        if self.cells.exact(self.problem):
            means = "the shortest schedule, in ticks"
        elif self.cells.keeps == "schedule":
            means = "the length of a legal schedule, in ticks, and no bound"
        return (
            f"{self.problem.name}: cells of {grid} ticks, rounded so that a {self.cells.keeps} "
            "stays valid",
            f"least objective times {grid} plus {last}: {means}",
        )

    def plans(self, values: Mapping[str, float]) -> list[Plan]:
        """Return plans that follow a solution, given the values of variables by name."""
        numbers = {name: number for number, name in enumerate(self._names())}
        columns = [0.0] * len(numbers)
        for name, value in values.items():
            if name in numbers:
                columns[numbers[name]] = value
        starts, offloads, prefetches = self.decisions(columns)
        evicted = {self.data.gaps[index].tensor for index in prefetches}
        if len(starts) < len(self.data.operations) or evicted - offloads.keys():
            raise InputError("the solution does not say when everything starts")
        return self.data.plans(self.problem.trace, starts, offloads, prefetches)


def _paired(model: CellModel) -> list[tuple[int, tuple[list[Terms], StartWindow]]]:
    return list(enumerate(zip(model.operations, model.data.operations, strict=True)))


_VALUE = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_NAME = re.compile(
    r"(grid_[0-9]+_[a-z]+_[0-9]+)|((op|out|back)_[0-9]+_by_[0-9]+)"
    r"|retention|(run|lean)_[0-9]+|(kept|made)_[0-9]+_[0-9]+"
)


def read_solution(text: str) -> tuple[Cells | None, dict[str, float]]:
    """Return the cells and the values of variables in what a solver wrote.

    Variables are known by their names. The value is the next number, as HiGHS, CBC, SCIP, GUROBI
    and, behind a star or on a line of its own, GLPK write it; in HiGHS's tables for people, where
    lines end with the name, the one under *Primal*. A solution of the retention model has no cells.
    """
    values: dict[str, float] = {}
    cells = None
    lines = [line.split() for line in text.splitlines()]
    for number, words in enumerate(lines):
        for place, name in enumerate(words):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            following = [*words[place + 1 :], *(lines[number + 1 : number + 2] or [[]])[0]]
            if place + 1 == len(words) and words[place - 1] in _KINDS:
                following = _primal(words)
            value = next((word for word in following[:2] if word != "*"), "")
            if _VALUE.fullmatch(value):
                values[name] = float(value)
                if match[1]:
                    cells = Cells.of_name(name)
            break
    if cells is None and "retention" not in values:
        if any(words[:2] == ["s", "mip"] for words in lines):
            raise InputError(
                "the solution numbers its variables; write one that has their names "
                "(GLPK: -o instead of -w, HiGHS: style 0, 1, 3 or 4)"
            )
        raise InputError("it is no solution of an exported program: no variable grid_… is in it")
    return cells, values


# Types of columns in HiGHS's tables, and the place of the value among the numbers of such a line:
# behind the index, the lower and the upper limit. Given by HiGHS.
_KINDS, _PRIMAL = ("Integer", "Continuous"), 3


def _primal(words: list[str]) -> list[str]:
    numbers = [word for word in words if _VALUE.fullmatch(word) or word in ("inf", "-inf")]
    return numbers[_PRIMAL : _PRIMAL + 1]


# The variable that is always 1; from its name it is known what a solution is one of.
ALWAYS = "retention"


class RetentionProgram(CheckmateModel):
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
        # Where memory is minimised, as much as is certainly enough.
        memory = problem.trace.peak_memory if self.least_bytes else problem.platform.memory
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
        unit, constant = "ticks", self.compute
        if self.least_bytes:
            unit, constant = "bytes", 0
            if self.capacity[0][1] > 1:
                unit += f", rounded up to a multiple of {self.capacity[0][1]:.0f}"
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


def mps(program: IntegerProgram) -> Iterator[str]:
    """Yield the lines of a free MPS file."""
    yield from (f"* {line}" for line in program.comments)
    yield from ("NAME offcert", "ROWS", " N objective")
    by_column: list[list[tuple[str, int]]] = [[] for _ in program.names]
    limits = []
    for number, (terms, low, high) in enumerate(program.rows):
        kind = "E" if low == high else "G" if high is None else "L" if low is None else "R"
        assert kind in "EGL", "rows have one side"
        name = program.row_name(number)
        yield f" {kind} {name}"
        limits.append((name, high if low is None else low))
        for column, value in terms:
            by_column[column].append((name, value))
    yield "COLUMNS"
    for name, cost, entries in zip(program.names, program.cost, by_column, strict=True):
        for row, value in [("objective", cost), *entries]:
            if value or row == "objective":
                yield f" {name} {row} {value}"
    yield "RHS"
    yield from (f" rhs {row} {value}" for row, value in limits if value)
    yield "BOUNDS"
    for column, name in enumerate(program.names):
        if column in program.endless:
            yield from [] if column in program.continuous else [f" LI bounds {name} 0"]
            yield f" PL bounds {name}"
        else:
            yield f" UP bounds {name} 1" if column in program.continuous else f" BV bounds {name}"
    yield "ENDATA"


def lp(program: IntegerProgram) -> Iterator[str]:
    """Yield the lines of a file in CPLEX's LP format."""
    yield from (f"\\ {line}" for line in program.comments)
    yield "Minimize"
    yield " objective:"
    costs = [(number, cost) for number, cost in enumerate(program.cost) if cost]
    yield from _sum(program, costs)
    yield "Subject To"
    for number, (terms, low, high) in enumerate(program.rows):
        yield f" {program.row_name(number)}:"
        yield from _sum(program, terms or ((0, 0),))
        sign = "=" if low == high else ">=" if high is None else "<="
        yield f" {sign} {high if low is None else low}"
    kinds: dict[str, list[str]] = {"Bounds": [], "Generals": [], "Binary": []}
    for column, name in enumerate(program.names):
        if column in program.continuous:
            kinds["Bounds"] += [] if column in program.endless else [f" {name} <= 1"]
        else:
            kinds["Generals" if column in program.endless else "Binary"].append(f" {name}")
    yield from (line for kind, lines in kinds.items() if lines for line in (kind, *lines))
    yield "End"


def _sum(program: IntegerProgram, terms: Iterable[tuple[int, int]]) -> Iterator[str]:
    for column, value in terms:
        yield f" {'-' if value < 0 else '+'} {abs(value)} {program.names[column]}"


def opb(program: IntegerProgram) -> Iterator[str]:
    """Yield the lines of a pseudo-Boolean problem; comments say what its variables are called."""
    count = sum(1 if low != high else 2 for _, low, high in program.rows)
    yield f"* #variable= {len(program.names)} #constraint= {count}"
    yield from (f"* {line}" for line in program.comments)
    yield from (f"* x{number} {name}" for number, name in enumerate(program.names, start=1))
    costs = [(number, cost) for number, cost in enumerate(program.cost) if cost]
    yield f"min: {_opb_sum(costs)} ;"
    for terms, low, high in program.rows:
        if low is not None:
            yield f"{_opb_sum(terms)} >= {low} ;"
        if high is not None:
            turned = tuple((column, -value) for column, value in terms)
            yield f"{_opb_sum(turned)} >= {-high} ;"


def _opb_sum(terms: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{value:+d} x{column + 1}" for column, value in terms)
