"""Claims about single memory limits, asked of the table; each function gives the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from offcert_lab.comparisons.points import FAILED, Point
from papers.claims.judge import Case, Outcome

Cases = Callable[[Sequence[Point]], list[Case]]
NO_PLAN = "NO_PLAN"
# What a table shows a network as: the chain of its stages, the trace behind that, and, of DenseNets
# only, the chain in which every dense block is one stage.
CHAINS, TRACES, BLOCKS = VIEWS = ("chains", "traces", "blocks")


def never_longer(method: str, other: str) -> Cases:
    """At every limit at which both have a plan, the method's is not longer."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            own, theirs = point.makespan(method), point.makespan(other)
            if own is not None and theirs is not None:
                text = f"{title(method)} takes {ratio(own, theirs)} × the time of {title(other)}"
                outcome = Outcome.HOLDS if own <= theirs else Outcome.FAILS
                found.append(Case(point.label, outcome, Fraction(own, theirs), text, point))
        return found

    return cases


def near(method: str, other: str, factor: Fraction) -> Cases:
    """At every limit at which both have a plan, neither is longer by more than the factor."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            own, theirs = point.makespan(method), point.makespan(other)
            if own is not None and theirs is not None:
                apart = Fraction(max(own, theirs), min(own, theirs))
                outcome = Outcome.HOLDS if apart <= factor else Outcome.FAILS
                text = f"{title(method)} takes {ratio(own, theirs)} × the time of {title(other)}"
                found.append(Case(point.label, outcome, apart, text, point))
        return found

    return cases


def same(method: str, other: str) -> Cases:
    """At every limit at which both have a plan, they are equally long."""
    return near(method, other, Fraction(1))


def below_prop3(method: str, factor: Fraction) -> Cases:
    """At every limit at which it has a plan, its ratio to the bound of Prop. 3 is below."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            own = point.makespan(method)
            if own is not None:
                amount = own / point.prop3
                outcome = Outcome.HOLDS if amount < factor else Outcome.FAILS
                text = f"{title(method)} takes {number(amount)} × the bound of Prop. 3"
                found.append(Case(point.label, outcome, amount, text, point))
        return found

    return cases


def near_optimum(method: str, factor: Fraction, networks: str = "") -> Cases:
    """At every certified limit at which it has a plan, it is within the factor of the optimum.

    Only networks whose names begin as `networks` says. Without a plan it is not there; see `plans`.
    """

    def cases(points: Sequence[Point]) -> list[Case]:
        chosen = [p for p in certified(points) if (p.network or "").startswith(networks)]
        found = [_near_optimum(point, method, factor) for point in chosen]
        return [case for case in found if case is not None]

    return cases


def _near_optimum(point: Point, method: str, factor: Fraction) -> Case | None:
    own, best = point.makespan(method), point.best
    if own is None or best is None:
        return None
    amount = Fraction(own, best)
    outcome = Outcome.OPEN
    if own <= factor * point.lower:
        outcome = Outcome.HOLDS
    elif own > factor * best:
        outcome = Outcome.FAILS
    what = "the optimum" if point.optimum is not None else "the best schedule known"
    return Case(
        point.label, outcome, amount, f"{title(method)} takes {number(amount)} × {what}", point
    )


def plans(method: str) -> Cases:
    """At every feasible limit at which it ran, the method finds a plan."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            cell = point.cell(method)
            if cell is None:
                continue
            outcome = Outcome.HOLDS
            if cell.makespan is None:
                outcome = Outcome.FAILS if cell.status == NO_PLAN else Outcome.OPEN
            # The more memory, the worse it is to find none.
            amount = Fraction(point.percent) if outcome is Outcome.FAILS else None
            text = f"{title(method)} finds no plan" if outcome is Outcome.FAILS else ""
            found.append(Case(point.label, outcome, amount, text, point))
        return found

    return cases


def no_plan_up_to(method: str, percent: float) -> Cases:
    """At every feasible limit up to this one, the method finds no plan."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            cell = point.cell(method)
            if cell is None or cell.status == FAILED or point.percent > percent:
                continue
            outcome = Outcome.HOLDS if cell.makespan is None else Outcome.FAILS
            text = "" if cell.makespan is None else f"{title(method)} has a plan"
            found.append(Case(point.label, outcome, None, text, point))
        return found

    return cases


def differs_with_seed(method: str, factor: Fraction) -> Cases:
    """At every limit with plans from several seeds, the longest exceeds the shortest by more."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            by_seed = {c.seed: c.makespan for c in point.cells.get(method, ()) if c.makespan}
            if len(by_seed) > 1:
                spread = Fraction(max(by_seed.values()), min(by_seed.values()))
                outcome = Outcome.HOLDS if spread > factor else Outcome.FAILS
                text = f"{len(by_seed)} seeds of {title(method)} differ by {number(spread)} ×"
                # What makes the claim fail is agreement.
                found.append(Case(point.label, outcome, -spread, text))
        return found

    return cases


def within_seconds(method: str, seconds: float) -> Cases:
    """At every limit, the method took at most so long."""

    def cases(points: Sequence[Point]) -> list[Case]:
        found = []
        for point in binding(points):
            cell = point.cell(method)
            if cell is not None and cell.status != FAILED:
                outcome = Outcome.HOLDS if cell.seconds <= seconds else Outcome.FAILS
                text = f"{title(method)} took {cell.seconds:.3g} s"
                found.append(Case(point.label, outcome, Fraction(cell.seconds), text))
        return found

    return cases


def view_of(point: Point) -> str:
    """Return the view of a problem, by the end of its name."""
    if point.problem.endswith("-chain"):
        return CHAINS
    return BLOCKS if point.problem.endswith("-blocks") else TRACES


def binding(points: Iterable[Point]) -> list[Point]:
    """Return the points at which something has to leave and a schedule exists."""
    return [point for point in points if point.binding]


def certified(points: Iterable[Point]) -> list[Point]:
    """Return those of them for which an optimum was looked for."""
    return [point for point in binding(points) if point.certified]


def ratio(makespan: int, other: int) -> str:
    """Return a ratio of two makespans for people."""
    return number(Fraction(makespan, other))


def title(method: str) -> str:
    """Return a method's name as the papers write it, parameters as they are."""
    name, colon, parameters = method.partition(":")
    return name.upper() + colon + parameters


def number(value: Fraction | float) -> str:
    """Return a ratio with the digits that say whether it is 1."""
    text = f"{float(value):.3f}"
    return text if text != "1.000" or value == 1 else f"{float(value):.6f}"
