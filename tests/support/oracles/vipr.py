"""A checker of VIPR certificates in exact rationals, after the specification of their format.

It shares nothing with what writes them. Of reasons it knows ``asm``, ``lin``, ``rnd`` and ``uns``;
of relations to prove, a lower bound on what is minimised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

SIGNS = {"G": 1, "E": 0, "L": -1}


class FaultError(Exception):
    """A sentence about the first thing that is wrong."""


@dataclass(frozen=True)
class Constraint:
    """Terms without zeros, a sense (1: at least, -1: at most, 0: equal), a side, assumptions."""

    terms: dict[int, Fraction]
    sense: int
    side: Fraction
    assumed: frozenset[int] = frozenset()

    def absurd(self) -> bool:
        if self.terms:
            return False
        wrong = {1: self.side > 0, -1: self.side < 0, 0: self.side != 0}
        return wrong[self.sense]

    def dominates(self, other: Constraint) -> bool:
        if self.absurd():
            return True
        if self.terms != other.terms or self.sense not in (0, other.sense):
            return False
        difference = self.side - other.side
        return difference == 0 if other.sense == 0 else difference * other.sense >= 0


class Checker:
    """The tokens of a file, and what they say so far."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not line.startswith("%")]
        self.tokens = iter(" ".join(lines).split())
        self.constraints: list[Constraint] = []
        self.names: set[str] = set()

    def word(self, *expected: str) -> str:
        found = next(self.tokens, None)
        if found is None or (expected and found not in expected):
            raise FaultError(f"{' or '.join(expected) or 'a word'} expected, not {found}")
        return found

    def integer(self, least: int = 0, below: int | None = None) -> int:
        number = int(self.word())
        if number < least or (below is not None and number >= below):
            raise FaultError(f"{number} is out of its range")
        return number

    def value(self) -> Fraction:
        return Fraction(self.word())

    def pairs(self, below: int) -> dict[int, Fraction]:
        count = self.word()
        if count == "OBJ":
            return dict(self.objective)
        found: dict[int, Fraction] = {}
        for _ in range(int(count)):
            index = self.integer(0, below)
            if index in found:
                raise FaultError(f"index {index} stands there twice")
            found[index] = self.value()
        return {index: value for index, value in found.items() if value}

    def constraint(self) -> Constraint:
        name = self.word()
        if name in self.names:
            raise FaultError(f"the name {name} is given twice")
        self.names.add(name)
        sense, side = SIGNS[self.word(*SIGNS)], self.value()
        return Constraint(self.pairs(self.variables), sense, side)

    def run(self) -> Fraction:
        """Return the lower bound that is proved."""
        self.word("VER")
        self.word("1.0", "1.1")
        self.word("VAR")
        self.variables = self.integer()
        if len({self.word() for _ in range(self.variables)}) < self.variables:
            raise FaultError("two variables have the same name")
        self.word("INT")
        self.integers = {self.integer(0, self.variables) for _ in range(self.integer())}
        self.word("OBJ")
        self.word("min")
        self.objective = self.pairs(self.variables)
        self.word("CON")
        stated, bounds = self.integer(), self.integer()
        for number in range(stated):
            self.constraints.append(self.constraint())
            if number < bounds and len(self.constraints[-1].terms) != 1:
                raise FaultError(f"constraint {number} is no bound")
        self.word("RTP")
        self.word("range")
        least = self.value()
        self.word("inf")
        self.word("SOL")
        self.word("0")
        self.word("DER")
        for _ in range(self.integer()):
            self.derive()
        if next(self.tokens, None) is not None:
            raise FaultError("something follows the end")
        last = self.constraints[-1]
        if last.assumed:
            raise FaultError("the last constraint rests on assumptions")
        if not last.dominates(Constraint(self.objective, 1, least)):
            raise FaultError("the last constraint is not the bound")
        return least

    def derive(self) -> None:
        claim = self.constraint()
        here = len(self.constraints)
        self.word("{")
        kind = self.word("asm", "lin", "rnd", "uns")
        if kind == "asm":
            assumed = frozenset({here})
        elif kind == "uns":
            assumed = self.united(claim, [self.integer(0, here) for _ in range(4)])
        else:
            found = self.combined(self.pairs(here))
            found = self.rounded(found) if kind == "rnd" else found
            if not found.dominates(claim):
                raise FaultError(f"constraint {here} does not follow")
            assumed = found.assumed
        self.word("}")
        if 0 <= self.integer(-1) < here:
            raise FaultError(f"constraint {here} is discarded too early")
        self.constraints.append(Constraint(claim.terms, claim.sense, claim.side, assumed))

    def combined(self, multipliers: dict[int, Fraction]) -> Constraint:
        terms: dict[int, Fraction] = {}
        side, senses = Fraction(0), set()
        assumed: frozenset[int] = frozenset()
        for index, factor in multipliers.items():
            constraint = self.constraints[index]
            senses.add(constraint.sense * (1 if factor > 0 else -1))
            side += factor * constraint.side
            assumed |= constraint.assumed
            for column, value in constraint.terms.items():
                terms[column] = terms.get(column, Fraction(0)) + factor * value
        senses.discard(0)
        if len(senses) > 1:
            raise FaultError(f"multipliers of constraint {len(self.constraints)} have wrong signs")
        kept = {column: value for column, value in terms.items() if value}
        return Constraint(kept, senses.pop() if senses else 0, side, assumed)

    def rounded(self, found: Constraint) -> Constraint:
        if found.sense == 0 or not self.whole(found.terms.items()):
            raise FaultError(f"constraint {len(self.constraints)} cannot be rounded")
        side = math.ceil(found.side) if found.sense > 0 else math.floor(found.side)
        return Constraint(found.terms, found.sense, Fraction(side), found.assumed)

    def whole(self, terms: Iterable[tuple[int, Fraction]]) -> bool:
        return all(c in self.integers and value.denominator == 1 for c, value in terms)

    def united(self, claim: Constraint, indices: list[int]) -> frozenset[int]:
        one, first, two, second = indices
        low, high = self.constraints[first], self.constraints[second]
        if low.sense > high.sense:
            low, high = high, low
        cases = (low.sense, high.sense) == (-1, 1) and low.terms == high.terms
        cases = cases and low.side.denominator == 1 and high.side == low.side + 1
        if not cases or not self.whole(low.terms.items()):
            raise FaultError(f"constraint {len(self.constraints)}: these are not all cases")
        branches = self.constraints[one], self.constraints[two]
        if not all(branch.dominates(claim) for branch in branches):
            raise FaultError(f"constraint {len(self.constraints)} does not follow in both cases")
        return (branches[0].assumed - {first}) | (branches[1].assumed - {second})


def proved_by(text: str) -> Fraction:
    """Return the lower bound that a certificate proves.

    Raises
    ------
    FaultError
        If it proves none.
    """
    try:
        return Checker(text).run()
    except (ValueError, ZeroDivisionError, KeyError, IndexError) as error:
        raise FaultError(f"a number is wrong: {error}") from None
