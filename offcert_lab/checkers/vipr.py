"""Proofs of bounds as sums of rows of a program, case by case, written as VIPR certificates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.formulations.exported.integer_program import IntegerProgram

# In a step: the least, and the largest value that a variable has, by itself or as decided. By
# definition.
LEAST, LARGEST = -1, -2


@dataclass(frozen=True)
class CaseLeaf:
    """A case without others under it."""

    weights: Mapping[int, Fraction]  # By row of the program, at least 0.


# A variable, which is 0 in the subtree that follows and 1 in the one after that; or a leaf.
Node = int | CaseLeaf


@dataclass(frozen=True)
class Elimination:
    """A way to get rid of what a sum of rows leaves of a variable."""

    column: int  # The variable.
    # A row to be added until nothing is left, if more than 0 is left, and if less: a row of the
    # program, `LEAST` or `LARGEST`. None: the variable is left for a later step.
    above: int | None = LEAST
    below: int | None = LARGEST


@dataclass(frozen=True)
class Argument:
    """A proof that the objective of a program is at least a value."""

    # Its only variable in the objective is an integer, and its rows have a lower side or two equal
    # ones.
    program: IntegerProgram
    value: int  # The bound.
    nodes: tuple[Node, ...]  # The tree of cases, each before those under it.
    steps: tuple[Elimination, ...]  # How variables are got rid of, one after the other.


@dataclass
class _Constraint:
    """A constraint as the certificate numbers them: its terms, its sense and its side."""

    terms: tuple[tuple[int, int], ...]
    sense: str
    side: int


@dataclass
class _Sum:
    """An objective less a sum of constraints."""

    lines: list[_Constraint]
    rest: dict[int, Fraction]
    weights: dict[int, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    def add(self, number: int, weight: Fraction) -> None:
        line = self.lines[number]
        if weight == 0:
            return
        self.weights[number] = self.weights.get(number, Fraction(0)) + weight
        self.constant += weight * line.side
        for column, factor in line.terms:
            self.rest[column] = self.rest.get(column, Fraction(0)) - weight * factor

    def cancel(self, column: int, number: int) -> None:
        factor = next(f for c, f in self.lines[number].terms if c == column)
        self.add(number, self.rest[column] / factor)

    def leaves_nothing(self) -> bool:
        return not any(self.rest.values())


class ViprCertificate:
    """A VIPR certificate, line by line.

    Parameters
    ----------
    argument : Argument
        What it proves.

    Raises
    ------
    InputError
        If the tree lacks a case, or its weights prove less than the value.
    """

    def __init__(self, argument: Argument) -> None:
        self.argument, self.program = argument, argument.program
        self.lines: list[_Constraint] = []
        self.least: dict[int, int] = {}
        self.largest: dict[int, int] = {}
        for column in range(len(self.program.names)):
            self.least[column] = self._number(((column, 1),), "G", 0)
            if column not in self.program.endless:
                self.largest[column] = self._number(((column, 1),), "L", 1)
        self.bounds = len(self.lines)
        for terms, low, high in self.program.rows:
            assert low is not None, "rows have a lower side"
            self._number(terms, "G" if high is None else "E", low)
        self.stated = len(self.lines)
        self.objective = [(c, cost) for c, cost in enumerate(self.program.cost) if cost]
        self.derived = list(self._tree())

    def _number(self, terms: tuple[tuple[int, int], ...], sense: str, side: int) -> int:
        self.lines.append(_Constraint(terms, sense, side))
        return len(self.lines) - 1

    def text(self) -> Iterator[str]:
        """Yield the lines of the file."""
        program = self.program
        yield from (f"% {line}" for line in program.comments)
        yield "VER 1.0"
        yield f"VAR {len(program.names)}"
        yield from program.names
        whole = [c for c in range(len(program.names)) if c not in program.continuous]
        yield f"INT {len(whole)}"
        yield " ".join(map(str, whole))
        yield f"OBJ min {_terms(self.objective)}"
        yield f"CON {self.stated} {self.bounds}"
        names = [f"bound{number}" for number in range(self.bounds)]
        names += map(program.row_name, range(len(program.rows)))
        yield from (f"{name} {self._said(number)}" for number, name in enumerate(names))
        yield f"RTP range {self.argument.value} inf"
        yield "SOL 0"
        yield f"DER {len(self.derived)}"
        for number, reason in enumerate(self.derived, start=self.stated):
            yield f"derived{number} {self._said(number)} {{ {reason} }} -1"

    def _said(self, number: int) -> str:
        line = self.lines[number]
        return f"{line.sense} {line.side} {_terms(line.terms)}"

    def _tree(self) -> Iterator[str]:
        """Yield the reasons of what is derived, and number it."""
        # What is decided on the way to the present case, each with its assumption; and for each,
        # once its first case is done, that assumption and what was derived there.
        decided: dict[int, tuple[bool, int]] = {}
        done: dict[int, tuple[int, int]] = {}
        path: list[int] = []
        for index, node in enumerate(self.argument.nodes):
            if index and not path:
                raise InputError(f"proof.tree[{index}] follows the end of the tree")
            if isinstance(node, int):
                if node in decided:
                    raise InputError(f"proof.tree[{index}] is decided above it")
                if node in self.program.continuous:
                    raise InputError(f"proof.tree[{index}] decides what may be so in part")
                path.append(node)
                decided[node] = False, self._number(((node, 1),), "L", 0)
                yield "asm"
                continue
            found, reason = self._leaf(node, decided, index)
            yield reason
            while path:
                column = path[-1]
                _, assumption = decided.pop(column)
                if column not in done:
                    done[column] = found, assumption
                    decided[column] = True, self._number(((column, 1),), "G", 1)
                    yield "asm"
                    break
                first, other = done.pop(path.pop())
                reason = f"uns {first} {other} {found} {assumption}"
                found = self._number(tuple(self.objective), "G", self.argument.value)
                yield reason
        if path or not self.argument.nodes:
            raise InputError("proof.tree ends before all cases are there")

    def _leaf(
        self, leaf: CaseLeaf, decided: Mapping[int, tuple[bool, int]], index: int
    ) -> tuple[int, str]:
        """Return the number of what a leaf derives, and its reason."""
        value = self.argument.value
        total = self._sum(leaf, decided)
        enough = math.ceil(total.constant) >= value
        if not (enough and total.leaves_nothing()):
            # Without any weights, what is there without a choice may be enough.
            alone = self._sum(CaseLeaf({}), decided)
            if math.ceil(alone.constant) >= value and alone.leaves_nothing():
                total, enough = alone, True
        if not total.leaves_nothing():
            raise InputError(f"proof.tree[{index}]: its weights give waiting a negative price")
        if not enough:
            said = f"{math.ceil(total.constant)}, not {value}"
            raise InputError(f"proof.tree[{index}]: its weights prove {said}")
        pairs = {number: weight for number, weight in total.weights.items() if weight}
        listed = " ".join(f"{number} {pairs[number]}" for number in sorted(pairs))
        number = self._number(tuple(self.objective), "G", value)
        return number, f"rnd {len(pairs)} {listed}"

    def _sum(self, leaf: CaseLeaf, decided: Mapping[int, tuple[bool, int]]) -> _Sum:
        rest = {column: Fraction(cost) for column, cost in self.objective}
        total = _Sum(self.lines, rest)
        for row, weight in leaf.weights.items():
            total.add(self.bounds + row, weight)
        for step in self.argument.steps:
            left = total.rest.get(step.column, 0)
            chosen = step.above if left > 0 else step.below
            if left and chosen is not None:
                total.cancel(step.column, self._meant(chosen, step.column, decided))
        return total

    def _meant(self, row: int, column: int, decided: Mapping[int, tuple[bool, int]]) -> int:
        if row >= 0:
            return self.bounds + row
        true, assumption = decided.get(column, (None, -1))
        if true is (row == LEAST):
            return assumption
        return self.least[column] if row == LEAST else self.largest[column]


def _terms(terms: Iterable[tuple[int, int]]) -> str:
    known = list(terms)
    return " ".join([str(len(known)), *(f"{column} {factor}" for column, factor in known)])
