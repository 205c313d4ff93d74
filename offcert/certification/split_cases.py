"""The cases of a round: which alternatives its operations have, bounds, and the best schedule.

A search over menus: a case is relaxed for a bound, and Algorithm 1 of the moDNN paper chooses from
it for a schedule. Where an operation then runs slower than the relaxation lets it, the case is
divided: the alternatives that take at most the workspace chosen, and those that take more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

from offcert.certification.interrupts import mind_interrupt
from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.errors import NoPlanError, PlanError
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Trace
from offcert.heuristics.modnn.scheduler import algorithm_1, upgraded
from offcert.proofs.certificate import Certificate
from offcert.proofs.split_certificate import Case, CaseDivision, Leaf
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.questions.split.menu import Menu
from offcert.questions.split.problem import Round

Allowed = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class ScheduledChoice:
    """A choice from a round's menu, and a schedule for it."""

    makespan: int
    choice: tuple[int, ...]
    schedule: Schedule


@dataclass
class CaseNode:
    """A case: some choices from the menu, with the bounds on them and their division."""

    allowed: Allowed  # The alternatives that it leaves, of the operations that were divided
    bounds: tuple[Bound, ...] = ()  # Proved, for the relaxation of its choices
    value: float = 0  # The best of these in ticks; infinite if nothing fits
    # The operation by which it was divided, and its parts.
    parts: tuple[int, list[tuple[tuple[int, ...], CaseNode]]] | None = None
    tried: bool = False  # Whether more than what is computed at once was tried for a bound
    choice: tuple[int, ...] | None = field(default=None, repr=False)

    def case(self) -> Case:
        """Return the tree of cases below, as a certificate holds it."""
        bounds = () if self.value == inf else self.bounds
        if self.parts is None:
            return Leaf(bounds)
        operation, parts = self.parts
        cases = tuple((positions, node.case()) for positions, node in parts)
        return CaseDivision(operation, cases, bounds)


class RoundSearch:
    """The search for the best choice and schedule of a round.

    `problem` returns the problem of scheduling a trace on the step's platform.
    """

    def __init__(self, each: Round, problem: Callable[[Trace], Problem]) -> None:
        self.round = each
        self.problem = problem
        self.memory = problem(each.trace).platform.memory
        self.best: ScheduledChoice | None = None
        self.certificate: Certificate | None = None
        # Failures in searches for bounds and schedules, by step.
        self.failed: dict[str, str] = {}
        self.root = CaseNode({})
        self._open: list[tuple[float, int, CaseNode]] = []
        self._number = count()
        self._enter(self.root)

    @property
    def lower_bound(self) -> float:
        """Ticks that no choice can do without, as far as is proved; infinite if nothing fits."""
        return self._open[0][0] if self._open else inf

    @property
    def gap(self) -> float:
        """Ticks between the best schedule and the bound."""
        if self.best is None:
            return 0 if self.lower_bound == inf else inf
        return self.best.makespan - self.lower_bound

    def _enter(self, node: CaseNode) -> None:
        """Bound a case, look for a schedule of one of its choices, and put it on the heap."""
        menu = self.round.menu.restricted(node.allowed)
        relaxed = self.problem(menu.relaxed(self.round.trace, self.memory))
        if relaxed.trace.least_memory > self.memory:
            node.value = inf
        else:
            found = solve(relaxed, "bounds", time_limit=2, workers=1)
            self._bound(node, relaxed, found.result.bounds)
            self._heed(found)
            self._choose(node, menu)
        heappush(self._open, (node.value, next(self._number), node))

    def _bound(self, node: CaseNode, relaxed: Problem, bounds: Sequence[Bound]) -> None:
        proved = [bound for bound in bounds if bound.evidence is Evidence.PROVED]
        best = max(proved, key=lambda bound: bound.value, default=None)
        if best is not None and best.value > max(node.value, relaxed.trace.compute_time):
            node.bounds = (best,)
        node.value = max(
            [node.value, relaxed.trace.compute_time, *(bound.value for bound in node.bounds)]
        )

    def _choose(self, node: CaseNode, menu: Menu) -> None:
        try:
            found = algorithm_1(self.problem(self.round.trace), menu)
        except NoPlanError:
            return
        node.choice = self._positions(node, found.choice)
        self.offer(node.choice, found.schedule)

    def _positions(self, node: CaseNode, choice: Sequence[int]) -> tuple[int, ...]:
        """Return a choice from a case's menu as places on the round's menu."""
        rows = zip(self.round.menu.offers, choice, strict=True)
        return tuple(
            sorted(node.allowed[operation])[number] if operation in node.allowed else number
            for (operation, _), number in rows
        )

    def offer(self, choice: tuple[int, ...], schedule: Schedule) -> bool:
        """Simulate the plan of a schedule with a choice; return whether that is the best so far."""
        problem = self.problem(self.round.chosen(choice))
        with suppress(PlanError):
            # The plan names gaps and operations, which are the same for all choices.
            made = simulate(problem, schedule.plan(problem.trace))
            if self.best is None or made.makespan < self.best.makespan:
                self.best = ScheduledChoice(made.makespan, choice, made)
                return True
        return False

    def improve(self, seconds: float, workers: int, seed: int, target: float) -> None:
        """Look for a better schedule of the best choice, and then for a better choice for it."""
        if self.best is None:
            return
        choice = self.best.choice
        problem = self.problem(self.round.chosen(choice))
        found = certify(problem, time_limit=seconds, workers=workers, seed=seed, target_gap=target)
        schedule = found.result.schedule
        if isinstance(schedule, Schedule):
            if schedule.makespan <= self.best.makespan:
                self.certificate = found
                self.best = ScheduledChoice(schedule.makespan, choice, schedule)
            self.upgrade(schedule)
        self._heed(found)

    def _heed(self, part: Certificate) -> None:
        """Remember the failures of a search, and end if it was interrupted."""
        self.failed |= part.notes.failed
        mind_interrupt(part)

    def upgrade(self, schedule: Schedule, rounds: int = 3) -> None:
        """Take faster alternatives wherever a schedule has room for them, while that helps."""
        for _ in range(rounds):
            choice = upgraded(self.round.trace, self.round.menu, schedule, self.memory)
            if choice is None or not self.offer(choice, schedule):
                return
            assert self.best is not None
            schedule = self.best.schedule

    def step(self, seconds: float, workers: int, seed: int, target: float) -> None:
        """Work on the case of least bound: divide it, or else bound it better."""
        value, _, node = heappop(self._open)
        division = None if value == inf else self._division(node)
        if division is None:
            if not node.tried and value < inf:
                self._bound_better(node, seconds, workers, seed, target)
            heappush(self._open, (node.value, next(self._number), node))
            return
        operation, *kinds = division
        parts = [(kept, CaseNode(node.allowed | {operation: kept})) for kept in kinds]
        for _, part in parts:
            # What holds for all choices of a case holds for those of its parts.
            part.value = node.value
        node.parts = (operation, parts)
        for _, part in parts:
            self._enter(part)

    def stuck(self) -> bool:
        """Whether the case of least bound can neither be divided nor bounded better."""
        if not self._open or self.lower_bound == inf:
            return True
        node = self._open[0][2]
        return node.tried and self._division(node) is None

    def _bound_better(
        self, node: CaseNode, seconds: float, workers: int, seed: int, target: float
    ) -> None:
        node.tried = True
        menu = self.round.menu.restricted(node.allowed)
        relaxed = self.problem(menu.relaxed(self.round.trace, self.memory))
        found = certify(relaxed, time_limit=seconds, workers=workers, seed=seed, target_gap=target)
        self._bound(node, relaxed, found.result.bounds)
        if isinstance(found.result.schedule, Schedule):
            self._offer_from(node, found.result.schedule)
        self._heed(found)

    def _offer_from(self, node: CaseNode, schedule: Schedule) -> None:
        """Give the schedule of a relaxation the fastest alternatives for which it has room.

        Where these are slower than the relaxation, it has what no choice has: time to divide.
        """
        menu = self.round.menu.restricted(node.allowed)
        choice = upgraded(self.round.trace, menu, schedule, self.memory)
        if choice is None:
            return
        node.choice = self._positions(node, choice)
        if self.offer(node.choice, schedule):
            assert self.best is not None
            self.upgrade(self.best.schedule)

    def _division(self, node: CaseNode) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """Return an operation on the menu, and its alternatives in two parts.

        That which loses most by what is chosen for it against the relaxation, in time; or, once
        more was tried for a bound, the one that takes most workspace beyond the relaxation.
        """
        if node.choice is None:
            return None
        menu = self.round.menu.restricted(node.allowed)
        fitting = menu.fitting(self.round.trace, self.memory).of
        slow, large = (0, 0, 0), (0, 0, 0)
        for (operation, row), number in zip(self.round.menu.offers, node.choice, strict=True):
            ways, way = fitting[operation], row[number]
            loss = way.duration - min(each.duration for each in ways)
            slow = max(slow, (loss, operation, way.workspace))
            more = way.workspace - min(each.workspace for each in ways)
            large = max(large, (more, operation, way.workspace - 1))
        if slow[0]:
            return self._parted(node, *slow[1:])
        return self._parted(node, *large[1:]) if large[0] and node.tried else None

    def _parted(
        self, node: CaseNode, operation: int, workspace: int
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        row = self.round.menu.of[operation]
        positions = node.allowed.get(operation, tuple(range(len(row))))
        leaner = tuple(each for each in positions if row[each].workspace <= workspace)
        larger = tuple(each for each in positions if row[each].workspace > workspace)
        return (operation, leaner, larger) if leaner and larger else None
