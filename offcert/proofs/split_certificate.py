"""`SplitCertificate`: the split and the alternatives chosen for a step, and bounds on all others.

The rounds of the split that was chosen have certificates of their own, for the traces that their
choices make. For every round of every split there is a tree of cases. A case has proved bounds for
the relaxation of all choices that belong to it, and may divide the alternatives of an operation, so
that every choice belongs to one of its parts. A round takes at least what the
least of its cases takes, a split what its rounds take as often as they are repeated, and a step
what the least of its splits takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.result import Bound, Bounded, SolveStatus
from offcert.core.units import format_time
from offcert.proofs.any_certificate import BOUNDS, AnyCertificate
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.proofs.questions import SPLIT
from offcert.questions.split.menu import Menu
from offcert.questions.split.problem import Round, SplitProblem


@dataclass(frozen=True)
class Leaf:
    """Bounds on the ticks of a round, for all choices of a case.

    The relaxation's computing time is a bound that need not be said, and that it does not fit into
    the memory neither.
    """

    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class CaseDivision:
    """Cases by the alternative of an operation."""

    operation: int  # On the menu.
    # Alternatives by their positions, and the case of those.
    parts: tuple[tuple[tuple[int, ...], Leaf | CaseDivision], ...]
    # Bounds that hold for all parts, as those of a `Leaf` do for its choices.
    bounds: tuple[Bound, ...] = ()


Case = Leaf | CaseDivision


@dataclass(frozen=True)
class RoundAnswer:
    """The answer for a round: an alternative of each operation on its menu, and the schedule."""

    choice: tuple[int, ...]
    certificate: Certificate


@dataclass(frozen=True, repr=False)
class SplitCertificate(AnyCertificate[SplitProblem], Bounded):
    """A claim about a step, and the evidence for it.

    Attributes
    ----------
    problem : SplitProblem
        Embedded whole.
    split : int or None
        The split that was chosen; None if no schedule is known.
    rounds : tuple of RoundAnswer
        One for each round of that split.
    cases : tuple of tuple of Case
        For each split, a tree of cases for each of its rounds.
    """

    question = SPLIT
    # Those of its cases are about rounds.
    bounds = ()

    split: int | None
    rounds: tuple[RoundAnswer, ...]
    cases: tuple[tuple[Case, ...], ...]
    method: str = field(default=SPLIT.command, kw_only=True)

    @property
    def objective(self) -> int | None:
        """Ticks of the step; None if no schedule is known."""
        if self.split is None:
            return None
        parts = zip(self.problem.splits[self.split].rounds, self.rounds, strict=True)
        total = 0
        for each, answer in parts:
            makespan = answer.certificate.result.objective
            if makespan is None:
                return None
            total += each.count * makespan
        return total

    def split_bound(self, split: int) -> int | None:
        """Return the least ticks of a split that are proved; None if it does not fit."""
        return self._split_bounds[split]

    @cached_property
    def _split_bounds(self) -> tuple[int | None, ...]:
        found = []
        memory = self.problem.platform.memory
        for split, cases in zip(self.problem.splits, self.cases, strict=True):
            parts = [
                (each.count, case_bound(each, memory, case))
                for each, case in zip(split.rounds, cases, strict=True)
            ]
            known = [count * bound for count, bound in parts if bound is not None]
            found.append(sum(known) if len(known) == len(parts) else None)
        return tuple(found)

    @property
    def lower_bound(self) -> int | None:  # type: ignore[override]
        """Lower bound on the step over all splits and choices, in ticks; None if nothing fits."""
        known = map(self.split_bound, range(len(self.problem.splits)))
        return min((bound for bound in known if bound is not None), default=None)

    @property
    def status(self) -> SolveStatus:
        """The status of the problem."""
        return self.status_by(infeasible=self.lower_bound is None)

    def summary(self) -> str:
        """Return status, choice, makespan, bound and gap in a line for people."""
        units = self.problem.units
        if self.lower_bound is None:
            return f"{self.status}: no sub-batch fits"
        bound = format_time(self.lower_bound, units)
        if self.objective is None or self.split is None:
            return f"{self.status}: no schedule, lower bound {bound}"
        size = self.problem.sizes[self.split]
        value = f"{format_time(self.objective, units)} in sub-batches of {size}"
        if self.status is SolveStatus.OPTIMAL:
            return f"{self.status}: {value}"
        return f"{self.status}: {value}, lower bound {bound}, gap {100 * self.gap:.3g} %"

    def _write_answer(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "split_bounds": [self.split_bound(i) for i in range(len(self.problem.splits))],
            "rounds": [
                {"choice": list(each.choice), "certificate": each.certificate.to_json()}
                for each in self.rounds
            ],
            "bounds": [[case_to_json(case) for case in row] for row in self.cases],
        }

    @classmethod
    def _read_answer(cls, fields: Fields, problem: SplitProblem) -> dict[str, Any]:
        split = None
        if fields.get("split", (int, type(None))) is not None:
            split = fields.integer("split", 0)
            if split >= len(problem.splits):
                raise InputError(f"split must be below {len(problem.splits)}, not {split}")
        rounds = []
        for item in fields.each("rounds"):
            choice = item.integers("choice", 0)
            found = certificate_from_json(item.get("certificate", dict))
            rounds.append(RoundAnswer(choice, found))
            item.finish()
        expected = 0 if split is None else len(problem.splits[split].rounds)
        if len(rounds) != expected:
            raise InputError(f"rounds must have {expected} entries, not {len(rounds)}")
        # Derived; verification compares it with what it ought to be.
        fields.get("split_bounds", list)
        cases = _cases_from_json(fields, problem)
        return {"split": split, "rounds": tuple(rounds), "cases": cases}


def case_bound(
    each: Round, memory: int, case: Case, allowed: Mapping[int, tuple[int, ...]] | None = None
) -> int | None:
    """Return the least ticks of a round for all choices of a case; None if none of them fits.

    The case is a tree of cases, or a part of one; `allowed` are the alternatives that the cases
    around it leave, by positions of operations. The device has so many bytes of memory.
    """
    here = dict(allowed or {})
    if isinstance(case, CaseDivision):
        found = (
            case_bound(each, memory, inner, here | {case.operation: positions})
            for positions, inner in case.parts
        )
        parts = [bound for bound in found if bound is not None]
        return max([min(parts), *(bound.value for bound in case.bounds)]) if parts else None
    relaxed = each.menu.restricted(here).relaxed(each.trace, memory)
    if relaxed.least_memory > memory:
        return None
    return max([relaxed.compute_time, *(bound.value for bound in case.bounds)])


def case_to_json(case: Case) -> dict[str, Any]:
    """Return a tree of cases as a JSON value."""
    document: dict[str, Any] = {"bounds": BOUNDS.write(case.bounds)}
    if isinstance(case, Leaf):
        return document
    parts = [
        {"alternatives": list(positions), "case": case_to_json(inner)}
        for positions, inner in case.parts
    ]
    return document | {"operation": case.operation, "parts": parts}


def case_from_json(fields: Fields, menu: Menu) -> Case:
    """Return the tree of cases that a JSON value describes."""
    bounds = BOUNDS.read(fields, "bounds")
    if not fields.has("operation"):
        fields.finish()
        return Leaf(bounds)
    operation = fields.integer("operation", 0)
    if operation not in menu.of:
        raise InputError(f"{fields.path('operation')}: {operation} is not on the menu")
    parts = []
    for item in fields.each("parts"):
        positions = item.integers("alternatives", 0)
        menu.restricted({operation: positions})
        inner = Fields(item.get("case", dict), item.path("case"))
        parts.append((positions, case_from_json(inner, menu)))
        item.finish()
    fields.finish()
    return CaseDivision(operation, tuple(parts), bounds)


def _cases_from_json(fields: Fields, problem: SplitProblem) -> tuple[tuple[Case, ...], ...]:
    rows = fields.get("bounds", list)
    if len(rows) != len(problem.splits):
        raise InputError(f"bounds must have {len(problem.splits)} entries, not {len(rows)}")
    found = []
    for index, (row, split) in enumerate(zip(rows, problem.splits, strict=True)):
        place = f"bounds[{index}]"
        if not isinstance(row, list) or len(row) != len(split.rounds):
            raise InputError(f"{place} must be a list of {len(split.rounds)} cases")
        pairs = enumerate(zip(row, split.rounds, strict=True))
        found.append(
            tuple(
                case_from_json(Fields(case, f"{place}[{number}]"), each.menu)
                for number, (case, each) in pairs
            )
        )
    return tuple(found)
