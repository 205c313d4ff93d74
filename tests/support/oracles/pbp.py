"""A checker of pseudo-Boolean proofs, version 2.0, of which it knows ``pol`` and bounds alone.

Constraints are at least their degree, with positive coefficients of literals; a literal is a
variable's number, negative if it is negated. It shares nothing with what writes proofs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Constraint = tuple[dict[int, int], int]


class ProofError(Exception):
    """A sentence about the first thing that is wrong."""


def normal(terms: Iterable[tuple[int, int]], degree: int) -> Constraint:
    """Return a constraint with one literal a variable, and coefficients above 0."""
    by_variable: dict[int, int] = {}
    for literal, factor in terms:
        variable = abs(literal)
        if literal < 0:
            degree -= factor
        by_variable[variable] = by_variable.get(variable, 0) + (factor if literal > 0 else -factor)
    found = {}
    for variable, factor in by_variable.items():
        if factor > 0:
            found[variable] = factor
        elif factor < 0:
            found[-variable] = -factor
            degree -= factor
    return found, degree


def literal_of(word: str) -> int:
    match = re.fullmatch(r"(~?)x([1-9]\d*)", word)
    if match is None:
        raise ProofError(f"{word} is no literal")
    return -int(match[2]) if match[1] else int(match[2])


def read_opb(text: str) -> tuple[list[tuple[int, int]], list[Constraint]]:
    """Return the objective and the constraints of a file."""
    objective: list[tuple[int, int]] = []
    found = []
    for line in text.splitlines():
        if line.startswith("*"):
            continue
        words = line.removeprefix("min:").removesuffix(";").split()
        if line.startswith("min:"):
            objective = pairs(words)
        else:
            found.append(normal(pairs(words[:-2]), int(words[-1])))
    return objective, found


def pairs(words: list[str]) -> list[tuple[int, int]]:
    return [(literal_of(x), int(c)) for c, x in zip(words[::2], words[1::2], strict=True)]


def polish(words: list[str], known: list[Constraint]) -> Constraint:
    """Return the constraint that a sequence in reverse polish notation makes."""
    stack: list[Constraint | int] = []
    for word in words:
        if word == "+":
            (terms, degree), (more, other) = (
                as_constraint(stack, known),
                as_constraint(stack, known),
            )
            stack.append(normal([*terms.items(), *more.items()], degree + other))
        elif word in ("*", "d"):
            factor = stack.pop()
            if not isinstance(factor, int) or factor < 1:
                raise ProofError(f"{factor} is no factor")
            terms, degree = as_constraint(stack, known)
            if word == "*":
                stack.append(({x: c * factor for x, c in terms.items()}, degree * factor))
            else:
                stack.append(({x: -(-c // factor) for x, c in terms.items()}, -(-degree // factor)))
        elif word.isdecimal():
            stack.append(int(word))
        else:
            stack.append(({literal_of(word): 1}, 0))
    result = as_constraint(stack, known)
    if stack:
        raise ProofError("something is left of the sequence")
    return result


def as_constraint(stack: list[Constraint | int], known: list[Constraint]) -> Constraint:
    if not stack:
        raise ProofError("the sequence lacks an operand")
    top = stack.pop()
    if isinstance(top, int):
        if not 0 < top <= len(known):
            raise ProofError(f"there is no constraint {top}")
        return known[top - 1]
    return top


def proved_of(opb: str, proof: str) -> int:
    """Return the lower bound that a proof establishes.

    Raises
    ------
    ProofError
        If it establishes none.
    """
    objective, known = read_opb(opb)
    first, *lines = proof.splitlines()
    if first != "pseudo-Boolean proof version 2.0" or lines[-1] != "end pseudo-Boolean proof":
        raise ProofError("it is no proof of version 2.0, or is cut off")
    for line in lines[:-1]:
        rule, *words = line.split()
        if rule == "f" and int(words[0]) != len(known):
            raise ProofError(f"there are {len(known)} constraints, not {words[0]}")
        if rule == "pol":
            known.append(polish(words, known))
        if rule == "conclusion":
            kind, least, colon, number, most = words
            if (kind, colon, most) != ("BOUNDS", ":", "INF"):
                raise ProofError("only lower bounds are known")
            wanted, degree = normal(objective, int(least))
            terms, reached = known[int(number) - 1]
            # Weaker coefficients are made up for by literals that are at least 0 and at most 1.
            for literal, factor in terms.items():
                reached -= max(factor - wanted.get(literal, 0), 0)
            if reached < degree:
                raise ProofError(f"constraint {number} does not say {least}")
            return int(least)
        if rule not in ("f", "pol", "output"):
            raise ProofError(f"{rule} is not known")
    raise ProofError("there is no conclusion")
