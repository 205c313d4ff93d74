"""Fluid bounds as programs: the facts of `docs/theory/fluid.md` as rows, and what weights prove.

For each operation O there is ``idle_O``, the ticks before it, and the bytes that all transfers have
moved when it starts and when it ends: ``out_start_O``, ``out_end_O``, ``back_start_O`` and
``back_end_O``. Gap G is evicted by a share of ``evicted_G``; ``ever_G`` is the share for that gap
or an earlier one of its tensor, where there is one. Gaps are numbered as the trace does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.formulations.combinatorial.relaxations import infeasibility, required_absent
from offcert.formulations.exported.integer_program import RowBuilding, Share
from offcert.formulations.exported.vipr import LARGEST, LEAST, Argument, CaseLeaf, Elimination, Node
from offcert.proofs.fluid_document import KINDS, Weights, read
from offcert.proofs.kinds.multipliers import FluidProof
from offcert.questions.schedule.problem import Problem, Transfers

Terms = list[tuple[int | Fraction, Share]]


class FluidFacts:
    """The facts about schedules of a problem as rows of a program.

    Parameters
    ----------
    problem : Problem
        Any problem.
    proof : FluidProof
        The proof; it says whether tensors are whole.

    Raises
    ------
    InputError
        If there is no schedule, or the proof is about other transfers.
    """

    def __init__(self, problem: Problem, proof: FluidProof) -> None:
        if infeasibility(problem) is not None:
            raise InputError(f"{problem.name} has no schedule, so there is no bound")
        if proof.whole and problem.transfers is not Transfers.ATOMIC:
            raise InputError(f"details.whole must be false with {problem.transfers} transfers")
        self.problem, self.trace = problem, problem.trace
        self.required = required_absent(problem, subset_sum=proof.whole)
        self.building = RowBuilding()
        self.previous: dict[int, int] = {}
        latest: dict[int, int] = {}
        for index, gap in enumerate(self.trace.gaps):
            if gap.tensor in latest:
                self.previous[index] = latest[gap.tensor]
            latest[gap.tensor] = index
        self.last = latest
        self.rows: dict[tuple[str, int], int] = {}
        self._add_link()
        self._add_evictions()

    def ever(self, gap: int | None) -> Share:
        """Return the share of a tensor that is evicted in a gap or before."""
        if gap is None:
            return 0
        return "ever" if gap in self.previous else "evicted", gap

    def _add_link(self) -> None:
        add, durations = self.building.row, self.trace.durations
        idle = [("idle", o) for o in range(len(durations))]
        self.total = add(
            "total", [(1, ("makespan",)), *((-1, each) for each in idle)], self.trace.compute_time
        )
        for o, duration in enumerate(durations):
            for kind, time, low in (("idle", idle[o], 0), ("run", 0, -duration)):
                moved = [self._moved(way, o, kind) for way in ("out", "back")]
                for way, terms in zip(("out", "back"), moved, strict=True):
                    self._row(f"{way}_grows_{kind}", o, terms, 0)
                lasting: list[Terms] = [
                    [
                        (-factor / self.problem.platform.rate(direction), share)
                        for factor, share in terms
                    ]
                    for terms, direction in zip(moved, Kind, strict=True)
                ]
                if self.problem.platform.duplex:
                    for way, terms in zip(("out", "back"), lasting, strict=True):
                        self._row(f"{way}_link_{kind}", o, [(1, time), *terms], low)
                else:
                    self._row(f"link_{kind}", o, [(1, time), *lasting[0], *lasting[1]], low)

    def _moved(self, way: str, o: int, kind: str) -> Terms:
        """Return the bytes that move one way in the idle time before an operation, or in it."""
        if kind == "run":
            return [(1, (f"{way}_end", o)), (-1, (f"{way}_start", o))]
        before: Share = (f"{way}_end", o - 1) if o else 0
        return [(1, (f"{way}_start", o)), (-1, before)]

    def _row(self, family: str, number: int, terms: Terms, low: int) -> None:
        self.rows[family, number] = self.building.row(f"{family}_{number}", terms, low)

    def _add_evictions(self) -> None:
        for gap, earlier in self.previous.items():
            ever, before, evicted = self.ever(gap), self.ever(earlier), ("evicted", gap)
            self._row("ever_grows", gap, [(1, ever), (-1, before)], 0)
            self._row("ever_evicted", gap, [(1, ever), (-1, evicted)], 0)
            self._row("first_evicted", gap, [(1, evicted), (-1, ever), (1, before)], 0)

    def fact(self, family: str, o: int) -> int:
        """Return the number of the row of a fact about an operation."""
        if (family, o) not in self.rows:
            terms, low = self._stated(family, o)
            self._row(family, o, terms, low)
        return self.rows[family, o]

    def _stated(self, family: str, o: int) -> tuple[Terms, int]:
        gaps, size = self.trace.gaps, self.trace.gap_size
        terms: Terms
        if family == "available":
            terms = [
                (size(gap), self.ever(gap))
                for tensor, gap in self.last.items()
                if self.trace.tensors[tensor].uses[0] < o
            ]
            return [*terms, (-1, ("out_end", o))], 0
        if family == "due":
            terms = [(-size(g), ("evicted", g)) for g, gap in enumerate(gaps) if gap.after <= o]
            return [*terms, (1, ("back_start", o))], 0
        opened = [g for g, gap in enumerate(gaps) if gap.before < o]
        if family == "opened":
            terms = [(size(g), ("evicted", g)) for g in opened]
            return [*terms, (-1, ("back_end", o))], self.required[o]
        terms = []
        for gap in opened:
            if gap in self.previous:
                ever, before = self.ever(gap), self.ever(self.previous[gap])
                bytes_ = size(gap)
                terms += [(bytes_, ("evicted", gap)), (-bytes_, ever), (bytes_, before)]
        when = "end" if family == "end" else "start"
        return [*terms, (1, (f"out_{when}", o)), (-1, (f"back_{when}", o))], self.required[o]

    def weights(self, listed: Weights) -> dict[int, Fraction]:
        """Return the weights of rows that a proof lists."""
        out, back = (self.problem.platform.rate(kind) for kind in Kind)
        # The largest rate of which both directions have a whole multiple.
        rate = Fraction(
            math.gcd(out.numerator * back.denominator, back.numerator * out.denominator),
            out.denominator * back.denominator,
        )
        return {
            (row := self.fact(family, o)): Fraction(weight, listed.over)
            / (rate * self.building.factor[row])
            for family, row_weights in listed.rows.items()
            for o, weight in row_weights.items()
        }

    def lacking(self, o: int) -> CaseLeaf:
        """Return the leaf that says that an operation lacks room: what is due cannot be absent."""
        rows = [self.fact(family, o) for family in ("opened", "due")]
        return CaseLeaf({row: Fraction(1) for row in rows}, possible=False)

    def steps(self, decided: Mapping[int, bool]) -> Iterator[Elimination]:
        """Yield the eliminations of variables: the last moments first, then the last gaps."""
        yield Elimination(0, self.total, None)
        column = self.building.columns
        for o in reversed(range(len(self.trace))):
            for kind, when in (("run", "end"), ("idle", "start")):
                out, back = (column[f"{way}_{when}", o] for way in ("out", "back"))
                links = [
                    self.rows.get((f"{way}_link_{kind}", o), self.rows.get((f"link_{kind}", o)))
                    for way in ("out", "back")
                ]
                grows = [self.rows[f"{way}_grows_{kind}", o] for way in ("out", "back")]
                # What the link does for one direction may leave some of the other.
                yield Elimination(out, None, links[0])
                yield Elimination(back, grows[1], links[1])
                yield Elimination(out, grows[0], None)
            yield Elimination(column["idle", o], LEAST, None)
        for gap in reversed(range(len(self.trace.gaps))):
            if ("evicted", gap) in column:
                yield from self._gap_steps(gap, decided)

    def _gap_steps(self, gap: int, decided: Mapping[int, bool]) -> Iterator[Elimination]:
        evicted = self.building.columns["evicted", gap]
        if gap not in self.previous:
            yield Elimination(evicted)
            return
        ever = self.building.columns["ever", gap]
        grows, has, first = (
            self.rows[family, gap] for family in ("ever_grows", "ever_evicted", "first_evicted")
        )
        chosen = decided.get(evicted)
        if chosen is None:
            yield Elimination(evicted, first, has)
            yield Elimination(ever, grows, LARGEST)
        else:
            yield Elimination(ever, has, LARGEST) if chosen else Elimination(ever, grows, first)
            yield Elimination(evicted)


def fluid_argument(
    problem: Problem, value: int, proof: FluidProof, every: bool = False
) -> Argument:
    """Return the program and the proof of a fluid bound; parameters are those of a joint one."""
    facts = FluidFacts(problem, proof)
    weights, tree = read(proof.proof, len(problem.trace))
    leaves = [CaseLeaf(facts.weights(listed)) for listed in weights]
    gaps = {(g.tensor, g.before, g.after): n for n, g in enumerate(problem.trace.gaps)}
    nodes: list[Node] = []
    for index, node in enumerate(tree):
        place = f"proof.tree[{index}]"
        if isinstance(node, int):
            if node >= len(leaves):
                raise InputError(f"{place} must be below {len(leaves)}, not {node}")
            nodes.append(leaves[node])
        elif len(node) == 1:
            if not 0 <= node[0] < len(problem.trace):
                raise InputError(f"{place} must name an operation, not {node[0]}")
            nodes.append(facts.lacking(node[0]))
        else:
            gap = gaps.get((node[0], node[1], node[2]))
            if gap is None:
                raise InputError(f"{place} must be a gap of the problem, not {list(node)}")
            nodes.append(facts.building.column("evicted", gap))
    for family in KINDS if every else ():
        for o in range(len(problem.trace)):
            facts.fact(family, o)
    parts = problem.transfers is Transfers.FRACTIONAL
    comments = (
        f"{problem.name}: facts about every schedule, in ticks and bytes (docs/theory/fluid.md)",
    )
    endless = ("idle", "out_start", "out_end", "back_start", "back_end")
    program = facts.building.program(comments, () if parts else ("evicted",), endless)
    return Argument(program, value, tuple(nodes), facts.steps)
