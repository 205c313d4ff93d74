"""`Claim`: a statement of a paper, its place, and what decides it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offcert_lab.comparisons.points import Point
from papers.claims.judge import Finding, Share, judge
from papers.claims.predicates import BLOCKS, VIEWS, Cases, view_of


@dataclass(frozen=True)
class Claim:
    """A statement about measurable things.

    Attributes
    ----------
    key : str
        Short name, also of its certificate's file.
    place : str
        Where the paper makes it: section, figure.
    statement : str
        The claim in our words.
    test : str
        The test, for people: one case, and when the claim holds in it.
    cases : callable
        Evaluates it on points.
    share : Share
        In how many cases it has to hold.
    """

    key: str
    place: str
    statement: str
    test: str
    cases: Cases
    share: Share

    def judge(self, points: Sequence[Point]) -> Finding:
        """Return the finding about the claim on the points of a table."""
        return judge(self.cases(points), self.share)

    def by_view(self, points: Iterable[Point]) -> dict[str, Finding]:
        """Return the finding of each view of a table; of blocks only where the claim names them."""
        views: dict[str, list[Point]] = {view: [] for view in VIEWS}
        for point in points:
            views[view_of(point)].append(point)
        found = {view: self.judge(group) for view, group in views.items()}
        return {view: each for view, each in found.items() if view != BLOCKS or each.cases}
