"""Bounds on 0-1 programs by counting: one weighted sum of rows, a pseudo-Boolean proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from offcert.certification.exchange import Exported, ModelFiles, export
from offcert.core.errors import InputError
from offcert.formulations.common.highs import run_highs
from offcert.formulations.exported.integer_program import CellModel, IntegerProgram
from offcert.questions.schedule.problem import Problem

# Denominators to which weights are rounded, tried in this order. Arbitrary.
_DENOMINATORS = (1, 2, 12, 5040, 1 << 20)


@dataclass(frozen=True)
class Counted:
    """Weights of the constraints of a program, and the bound that they prove on its objective."""

    program: IntegerProgram  # In 0-1 variables.
    value: int  # No solution has a lesser objective.
    over: int  # The denominator of the weights.
    # One a constraint, in the order of the OPB file: a row with two sides is two constraints.
    weights: tuple[int, ...]

    def text(self) -> Iterator[str]:
        """Yield the lines of a pseudo-Boolean proof, version 2.0."""
        rest, _ = _left(self.program, self.weights, self.over)
        weighed = [f"{n} {w} *" for n, w in enumerate(self.weights, start=1) if w]
        for column, price in enumerate(rest):
            if price:
                literal = f"x{column + 1}" if price > 0 else f"~x{column + 1}"
                weighed.append(f"{literal} {abs(price)} *")
        first, *others = weighed or ["x1"]
        yield "pseudo-Boolean proof version 2.0"
        yield f"f {len(self.weights)}"
        yield " ".join(["pol", first, *(f"{each} +" for each in others), str(self.over), "d"])
        yield "output NONE"
        yield f"conclusion BOUNDS {self.value} : {len(self.weights) + 1} INF"
        yield "end pseudo-Boolean proof"


def constraints(program: IntegerProgram) -> Iterator[tuple[tuple[tuple[int, int], ...], int]]:
    """Yield the constraints of an OPB file, in its order: terms, and the least of their sum."""
    for terms, low, high in program.rows:
        if low is not None:
            yield terms, low
        if high is not None:
            yield tuple((column, -value) for column, value in terms), -high


def _left(program: IntegerProgram, weights: tuple[int, ...], over: int) -> tuple[list[int], int]:
    """Return the objective less a weighted sum of rows, by variable, and the bound it proves."""
    rest = [over * cost for cost in program.cost]
    total = 0
    for weight, (terms, low) in zip(weights, constraints(program), strict=True):
        if weight:
            total += weight * low
            for column, value in terms:
                rest[column] -= weight * value
    return rest, total + sum(price for price in rest if price < 0)


def counted(program: IntegerProgram, seconds: float = 60.0) -> Counted:
    """Return the best bound that a weighted sum of rows proves, as far as HiGHS finds the weights.

    Its dual solution is advice: what the rounded weights prove is worked out in integers.

    Parameters
    ----------
    program : IntegerProgram
        In 0-1 variables.
    seconds : float
        Seconds for the linear program.

    Raises
    ------
    InputError
        If the linear program is not solved in time.
    """
    stated = list(constraints(program))
    entries = [(r, c, -value) for r, (terms, _) in enumerate(stated) for c, value in terms]
    rows, columns, values = zip(*entries, strict=True)
    shape = (len(stated), len(program.names))
    answer = run_highs(
        "linprog",
        seconds,
        c=np.array(program.cost, dtype=float),
        A_ub=csr_array((np.array(values, dtype=float), (rows, columns)), shape=shape),
        b_ub=-np.array([low for _, low in stated], dtype=float),
        bounds=(0.0, 1.0),
        method="highs",
        options={"time_limit": seconds},
    )
    if answer.status != 0:
        raise InputError(f"the linear program of a proof is not solved in {seconds:g} s")
    best: Counted | None = None
    for over in _DENOMINATORS:
        weights = tuple(max(0, round(-w * over)) for w in answer.ineqlin.marginals.tolist())
        value = -(-_left(program, weights, over)[1] // over)
        if best is None or value > best.value:
            best = Counted(program, value, over, weights)
    assert best is not None
    return best


@dataclass(frozen=True, kw_only=True)
class CountedFiles(ModelFiles):
    """A program (``".opb"``) and the proof that a weighted sum of its rows gives (``".pbp"``)."""

    made: Exported  # The program as it is exported without a proof.
    least: int  # Ticks that the proof says are necessary.


def export_counted(
    problem: Problem, *, grid: int | None = None, horizon: int | None = None
) -> CountedFiles:
    """Return a problem as a 0-1 program with a proof by counting, for VeriPB.

    Parameters
    ----------
    problem : Problem
        As for `offcert.certification.exchange.export`.
    grid, horizon : int, optional
        As there.

    Raises
    ------
    InputError
        If the problem is of another kind, or the linear program is not solved in time.
    """
    made = export(problem, "opb", grid=grid, horizon=horizon)
    found = counted(CellModel(problem, made.cells).program())
    files = {**made.files, ".pbp": "\n".join(found.text()) + "\n"}
    least = found.value * made.cells.grid + problem.trace.durations[-1]
    return CountedFiles(files=files, made=made, least=least)
