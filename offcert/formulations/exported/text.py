"""Programs as text for other solvers (MPS, LP, OPB; integers only), and what these claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from offcert.formulations.common.linear_solvers import CPSAT, DEFAULT, SCIPY, solve_linear
from offcert.formulations.exported.integer_program import CellModel, IntegerProgram

SOLVERS = {"HiGHS": SCIPY, "CBC": DEFAULT, "CP-SAT": CPSAT}
# A bound that is so little above an integer means it: tolerances of linear solvers. Assumed.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Claim:
    """The word of a solver on the start of the last operation, in cells."""

    solver: str  # A key of `SOLVERS`.
    least: int | None  # No start is earlier; None if it says nothing, or that there is no solution.
    found: int | None  # The start in its best solution.
    infeasible: bool  # Whether it says that there is no solution.
    statistics: dict[str, Any]  # Its own words; JSON values.


def claim_of(model: CellModel, solver: str, seconds: float) -> Claim:
    """Return a solver's claim about a program within a time limit, in seconds."""
    linear = model.model
    answer = solve_linear(linear, SOLVERS[solver], time_limit=seconds)
    constant = model.data.operations[-1].last
    known = not answer.infeasible and answer.bound > float("-inf")
    least = -int(-(answer.bound + constant - _TOLERANCE) // 1) if known else None
    found = None
    if answer.values is not None:
        pairs = zip(linear.cost, answer.values, strict=True)
        found = round(constant + sum(cost * value for cost, value in pairs))
    return Claim(solver, least, found, answer.infeasible, answer.statistics)


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
