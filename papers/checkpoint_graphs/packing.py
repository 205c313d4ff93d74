"""A lower bound on every selection's objective, with a proof that needs no solver to be checked.

For a limit on components, what is stored hits every connected set above the limit. The linear
relaxation of that is solved with cutting planes; its multipliers, rounded down to rationals, are
the proof (`papers.claims.selection_certificate`). Where one relaxation is not enough, a vertex is
stored in one case and left out in the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
from scipy.sparse import csr_array

from offcert.formulations.common.highs import run_highs
from offcert.questions.selection.graph import CheckpointGraph, GraphSelection, bits
from papers.checkpoint_graphs.frontier import size_unit
from papers.checkpoint_graphs.heavy_sets import missed_sets
from papers.claims.selection_certificate import Case, HeavySet, LimitProof, Packing, PackingBound

# Multipliers are multiples of one unit of bytes by this.
_DENOMINATOR = 10**7
_ROUNDS = 200
_LP_SECONDS = 60.0


@dataclass
class _Effort:
    """How many relaxations may still be solved."""

    left: int


def packing_bound(
    graph: CheckpointGraph,
    known: GraphSelection,
    max_relaxations: int = 400,
    gap: Fraction = Fraction(0),
) -> PackingBound:
    """Return the best bound that is found, at most the objective of a known selection.

    Parameters
    ----------
    graph : CheckpointGraph
        Any.
    known : GraphSelection
        A good selection; the bound says how good. If it is optimal and the effort is enough, the
        bound equals its objective.
    max_relaxations : int
        How many cases may be looked at for one limit.
    gap : Fraction
        A bound that is lower than the known objective by this share is good enough. On networks of
        a hundred vertices it saves most of the time.
    """
    unit = size_unit(graph)
    value = int(known.objective * (1 - gap)) // unit
    finder = _Finder(graph, unit)
    proofs: dict[int, tuple[int, LimitProof]] = {}
    while True:
        left, used = value - 1, []
        while left >= 0:
            if left not in proofs:
                proofs[left] = finder.prove(left, value - left, _Effort(max_relaxations))
            stored, proof = proofs[left]
            used.append(proof)
            if stored + left < value:
                break
            left = value - stored - 1
        else:
            return PackingBound(value * unit, tuple(used))
        # Not enough where components are as large as that; a lower value needs less there.
        value = stored + left


class _Finder:
    """Finds out how much must be stored for one limit after the other; sets are kept."""

    def __init__(self, graph: CheckpointGraph, unit: int) -> None:
        self._graph = graph
        self._unit = unit
        self._known: dict[int, int] = {}

    def prove(self, limit: int, wanted: int, effort: _Effort) -> tuple[int, LimitProof]:
        """Return units that are stored at least if components have at most `limit` units."""
        search = _Cases(self._graph, self._unit, limit * self._unit, wanted, effort, self._known)
        stored, cases = search.prove(0, 0)
        return stored, LimitProof(limit * self._unit, cases)


@dataclass
class _Relaxation:
    """The answer of a relaxation: units at least, its packing, and its stored amounts."""

    value: int
    packing: Packing
    amounts: dict[int, float] = field(default_factory=dict)


class _Cases:
    """Divides cases until enough is stored in each, or the effort is used up."""

    def __init__(
        self,
        graph: CheckpointGraph,
        unit: int,
        limit: int,
        wanted: int,
        effort: _Effort,
        known: dict[int, int],
    ) -> None:
        self._graph, self._unit, self._limit = graph, unit, limit
        self._wanted, self._effort = wanted, effort
        # Every set found so far, as bits, and its bytes.
        self._known = known

    def prove(self, stored: int, left_out: int) -> tuple[int, Case | Packing]:
        """Return the units stored at least if these vertices are and those are not, and why."""
        self._effort.left -= 1
        heavy = self._heavy_left_out(left_out)
        if heavy is not None:
            return self._graph.inner_bytes, Packing((HeavySet(tuple(bits(heavy)), Fraction(1)),))
        found = self._relax(stored, left_out)
        if found.value >= self._wanted or self._effort.left <= 0:
            return found.value, found.packing
        vertex = self._divided(found.amounts, stored | left_out)
        if vertex is None:
            return found.value, found.packing
        first, left_case = self.prove(stored, left_out | 1 << vertex)
        if first < self._wanted:
            # One case that is not enough makes the other one useless.
            return max(found.value, 0), found.packing
        second, stored_case = self.prove(stored | 1 << vertex, left_out)
        if min(first, second) <= found.value:
            return found.value, found.packing
        return min(first, second), Case(vertex, stored_case, left_case)

    def _heavy_left_out(self, left_out: int) -> int | None:
        for part in self._graph.components(left_out):
            if self._graph.size_of(bits(part)) > self._limit:
                return part
        return None

    def _divided(self, amounts: dict[int, float], decided: int) -> int | None:
        """Return the undecided vertex that is least clear, large ones first."""
        return max(
            bits((1 << len(self._graph) - 1) - 2 & ~decided),
            key=lambda v: (0.5 - abs(amounts.get(v, 0.0) - 0.5), self._graph.sizes[v], -v),
            default=None,
        )

    def _relax(self, stored: int, left_out: int) -> _Relaxation:
        """Solve the relaxation: cutting planes until none is found or enough is stored."""
        usable = (1 << len(self._graph) - 1) - 2 & ~stored
        fixed = self._graph.size_of(bits(stored)) // self._unit
        best = _Relaxation(fixed, Packing(()))
        sets = [s for s, w in self._known.items() if w > self._limit and not s & stored]
        for _ in range(_ROUNDS):
            solved = self._solve(sets, left_out) if sets else ({}, [])
            if solved is None:
                break
            amounts, multipliers = solved
            packing, total = self._packing(sets, multipliers, left_out)
            value = fixed + ceil(total / self._unit)
            best = _Relaxation(value, packing, amounts) if value >= best.value else best
            best.amounts = amounts
            if value >= self._wanted and left_out | stored:
                break
            known = set(sets)
            new = missed_sets(self._graph, amounts, usable, self._limit) - known
            if not new:
                break
            self._known.update((s, self._graph.size_of(bits(s))) for s in new)
            sets += sorted(new)
        return best

    def _solve(self, sets: list[int], left_out: int) -> tuple[dict[int, float], list[float]] | None:
        """Return stored amounts and multipliers of the sets; None if the solver fails."""
        columns = {v: i for i, v in enumerate(sorted({v for s in sets for v in bits(s)}))}
        entries = [(row, columns[v]) for row, s in enumerate(sets) for v in bits(s)]
        rows, places = zip(*entries, strict=True)
        matrix = csr_array(
            (-np.ones(len(entries)), (rows, places)), shape=(len(sets), len(columns))
        )
        upper = [0.0 if left_out >> v & 1 else 1.0 for v in columns]
        answer = run_highs(
            "linprog",
            _LP_SECONDS,
            c=np.array([self._graph.sizes[v] / self._unit for v in columns]),
            A_ub=matrix,
            b_ub=-np.ones(len(sets)),
            bounds=np.array([(0.0, bound) for bound in upper]),
            method="highs",
            options={"time_limit": _LP_SECONDS},
        )
        if answer.status != 0:
            return None
        amounts = {v: float(answer.x[i]) for v, i in columns.items()}
        return amounts, [float(-m) for m in answer.ineqlin.marginals]

    def _packing(
        self, sets: list[int], multipliers: list[float], left_out: int
    ) -> tuple[Packing, Fraction]:
        """Return multipliers as rationals that charge no vertex too much, and their sum."""
        numerators = [max(0, int(m * _DENOMINATOR)) for m in multipliers]
        charged: dict[int, int] = {}
        for numerator, vertices in zip(numerators, sets, strict=True):
            for vertex in bits(vertices & ~left_out):
                charged[vertex] = charged.get(vertex, 0) + numerator
        factor = Fraction(1)
        for vertex, amount in charged.items():
            most = self._graph.sizes[vertex] // self._unit * _DENOMINATOR
            if amount > most:
                factor = min(factor, Fraction(most, amount))
        chosen = []
        for numerator, vertices in zip(numerators, sets, strict=True):
            scaled = numerator * factor.numerator // factor.denominator
            if scaled:
                multiplier = Fraction(scaled * self._unit, _DENOMINATOR)
                chosen.append(HeavySet(tuple(bits(vertices)), multiplier))
        return Packing(tuple(chosen)), sum((s.multiplier for s in chosen), Fraction(0))
