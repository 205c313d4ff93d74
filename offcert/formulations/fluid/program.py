"""The program behind `fluid.exact`: amounts moved of each tensor by starts and ends of operations.

Columns hold *cumulative* bytes at *instants*: number ``2o`` is the start of operation o, ``2o + 1``
its end. ``c_v(k)`` bytes of tensor v have been copied to the host by instant k, ``p_g(k)`` of those
evicted in gap g have come back; ``P_g`` are evicted in g. Rows:

1. c and p grow. c is 0 until its writer has ended, p until its gap has been opened; when the gap
   closes, p is ``P_g``, which is 0 or the tensor's size by a binary (interruptible) or anything
   between (fractional).
2. ``p_g ≤ c_v``: a byte returns after it has left.
3. Between two instants both directions together (simplex) or each (duplex) take at most the time
   between. Idle times are columns, integers or not.
4. At the start and at the end of operation o, the sum over the gaps that span o of ``min(c_v, P_g)
   - p_g`` reaches what must be absent. If a tensor has one gap, ``c_v ≤ P_g`` may be required.
5. Ordered: binaries, growing with the instants, say that the last offload is over. A stretch after
   that moves nothing out, one before moves nothing in.

Exactness. Amounts of a schedule (`core.fluid_schedule`) satisfy the rows. Conversely take a
solution. In each stretch make the offloads first, then the prefetches; on a duplex link begin the
offloads at its start and end the prefetches at its end. All rows are linear, so they would hold
throughout the stretch if everything moved in proportion; in this layout the memory is freed sooner
and taken later: what is absent is a concave function, never below the smaller of its two ends. In
the idle time before operation o the same gaps count as at both its ends, and more: nothing that
runs there needs memory. On a simplex link ``p ≤ c`` holds, as all copies of a stretch precede all
returns. On a duplex link a tensor that leaves and returns within one stretch may violate it; cut
into enough equal parts, the stretch has a layout that does not (`fluid.pieces`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from offcert.core.platform import Kind
from offcert.formulations.common.linear_model import ONE, LinearModel, Terms, scaled
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class Rules:
    """Rules of the problem that the program describes."""

    fractional: bool  # Whether tensors may be evicted in part.
    ordered: bool  # Whether no prefetch may precede an offload.
    whole_ticks: bool  # Whether idle times are integers.
    required: tuple[int, ...]  # Bytes that must be absent during each operation.


@dataclass(frozen=True)
class FixedDecisions:
    """FixedDecisions that are fixed; None is left to the solver."""

    evicted: frozenset[int] | None = None  # The evicted gaps, for interruptible transfers.
    # The stretch of the last offload, for ordered schedules; stretch k ends with instant k.
    turn: int | None = None
    idle: tuple[int, ...] | None = None  # Ticks before each operation.


class FluidProgram:
    """Columns and rows for one problem; times in units of `unit` ticks, sizes of `block` bytes.

    The scaled `slack` says how much more must be absent, and how much less an operation's stretch
    may move, so that a solution survives its rounding.
    """

    def __init__(
        self, problem: Problem, rules: Rules, decisions: FixedDecisions, slack: float = 0.0
    ) -> None:
        self.problem, self.trace = problem, problem.trace
        self.rules, self.decisions, self.slack = rules, decisions, slack
        self.instants = 2 * len(self.trace)
        self.model = LinearModel()
        self._scale()
        self.idle = [self._idle_terms(o) for o in range(len(self.trace))]
        self.turned = self._turn_terms()
        self.gaps_of: dict[int, list[int]] = {}
        for index, gap in enumerate(self.trace.gaps):
            self.gaps_of.setdefault(gap.tensor, []).append(index)
        self.evicted = [self._evicted_terms(gap) for gap in range(len(self.trace.gaps))]
        self.returned = [self._returned_terms(gap) for gap in range(len(self.trace.gaps))]
        self.copied = {tensor: self._copied_terms(tensor) for tensor in self.gaps_of}
        for number in range(len(self.trace.gaps)):
            self._return_after_leaving(number)
        for instant in range(self.instants):
            self._share_link(instant)
            self._require_absent(instant)

    def _scale(self) -> None:
        """Choose units that keep the program's numbers near 1."""
        trace, platform = self.trace, self.problem.platform
        self.ticks_per_byte = {kind: 1 / platform.rate(kind) for kind in Kind}
        sizes = [trace.gap_size(gap) for gap in range(len(trace.gaps))]
        # Room enough for every tensor to leave and return while nothing else happens.
        self.longest_idle = sum(
            platform.transfer_time(size, kind) + 1 for size in sizes for kind in Kind
        )
        work = trace.compute_time + float(sum(self.ticks_per_byte.values()) * sum(sizes))
        self.unit = max(1.0, work / len(trace))
        self.block = self.unit / float(max(self.ticks_per_byte.values()))
        self.sizes = [size / self.block for size in sizes]

    def _idle_terms(self, o: int) -> Terms:
        if self.decisions.idle is not None:
            fixed = self.decisions.idle[o] / self.unit
            return [(ONE, fixed)] if fixed else []
        if self.rules.whole_ticks:
            cost = 1.0 / self.unit
            column = self.model.column(0.0, self.longest_idle, cost=cost, integer=True)
            return [(column, cost)]
        return [(self.model.column(0.0, math.inf, cost=1.0), 1.0)]

    def _turn_terms(self) -> list[Terms] | None:
        """Return, for each stretch, whether the last offload came before it; None if unordered."""
        if not self.rules.ordered:
            return None
        turn = self.decisions.turn
        if turn is not None:
            return [[(ONE, 1.0)] if k > turn else [] for k in range(self.instants + 1)]
        turned: list[Terms] = [[]]
        for _ in range(1, self.instants):
            turned.append(self.model.binary())
            self.model.at_most(turned[-2], turned[-1])
        return [*turned, [(ONE, 1.0)]]

    def _evicted_terms(self, gap: int) -> Terms:
        """Return P of a gap, scaled."""
        chosen = self.decisions.evicted
        if self.rules.fractional:
            # A plan that moves less is as good a plan and shorter to tell.
            cost = 1.0 if self.decisions.idle is not None else 0.0
            return [(self.model.column(0.0, self.sizes[gap], cost=cost), 1.0)]
        if chosen is not None:
            return [(ONE, self.sizes[gap])] if gap in chosen else []
        return scaled(self.model.binary(), self.sizes[gap])

    def _grows(self, instant: int, kind: Kind) -> bool:
        """Whether the stretch before an instant may move anything in a direction."""
        if instant % 2 and self.trace.durations[instant // 2] == 0:
            return False
        if instant % 2 == 0 and not self.idle[instant // 2]:
            return False
        if self.turned is None:
            return True
        over = [(ONE, 1.0)]
        if kind is Kind.OFFLOAD:
            return self.turned[instant] != over
        return bool(self.turned[instant + 1])

    def _returned_terms(self, gap: int) -> list[Terms]:
        """Return p of a gap at every instant."""
        opened, closed = 2 * self.trace.gaps[gap].before + 1, 2 * self.trace.gaps[gap].after
        terms: list[Terms] = [[] for _ in range(self.instants)]
        if not self.evicted[gap]:
            return terms
        for k in range(max(opened + 1, 0), closed):
            terms[k] = terms[k - 1] if k else []
            if self._grows(k, Kind.PREFETCH):
                terms[k] = [(self.model.column(0.0, self.sizes[gap]), 1.0)]
                self.model.at_most(terms[k - 1] if k else [], terms[k])
        for k in range(closed, self.instants):
            terms[k] = self.evicted[gap]
        before = terms[closed - 1]
        if self._grows(closed, Kind.PREFETCH):
            self.model.at_most(before, self.evicted[gap])
        else:
            self.model.row([*self.evicted[gap], *scaled(before, -1.0)], 0.0, 0.0)
        return terms

    def _copied_terms(self, tensor: int) -> list[Terms]:
        """Return c of a tensor at every instant."""
        gaps = self.gaps_of[tensor]
        terms: list[Terms] = [[] for _ in range(self.instants)]
        if not any(self.evicted[gap] for gap in gaps):
            return terms
        written = 2 * self.trace.tensors[tensor].uses[0] + 1
        last = 2 * self.trace.gaps[gaps[-1]].after
        for k in range(max(written + 1, 0), self.instants):
            terms[k] = terms[k - 1] if k else []
            if k <= last and self._grows(k, Kind.OFFLOAD):
                terms[k] = [(self.model.column(0.0, self.sizes[gaps[0]]), 1.0)]
                self.model.at_most(terms[k - 1] if k else [], terms[k])
        if len(gaps) == 1 and terms[last]:
            self.model.at_most(terms[last], self.evicted[gaps[0]])
        return terms

    def _return_after_leaving(self, gap: int) -> None:
        copied = self.copied[self.trace.gaps[gap].tensor]
        opened, closed = 2 * self.trace.gaps[gap].before + 1, 2 * self.trace.gaps[gap].after
        for k in range(max(opened + 1, 0), closed + 1):
            if self.returned[gap][k]:
                self.model.row([*copied[k], *scaled(self.returned[gap][k], -1.0)], 0.0)

    def _moved(self, instant: int, kind: Kind) -> Terms:
        """Return the time that the moves of a direction take in the stretch before an instant."""
        cumulative = self.copied.values() if kind is Kind.OFFLOAD else self.returned
        time = self.block * float(self.ticks_per_byte[kind]) / self.unit
        moved: Terms = []
        for terms in cumulative:
            before = terms[instant - 1] if instant else []
            if terms[instant] != before:
                moved += [*scaled(terms[instant], time), *scaled(before, -time)]
        return moved

    def _share_link(self, instant: int) -> None:
        o, during = divmod(instant, 2)
        length: Terms = self.idle[o]
        slack = 0.0
        if during:
            duration = self.trace.durations[o] / self.unit
            length, slack = [(ONE, duration)], min(self.slack, duration / 2)
        leaving = self._moved(instant, Kind.OFFLOAD)
        returning = self._moved(instant, Kind.PREFETCH)
        if self.turned is not None:
            self._keep_order(instant, leaving, returning)
        # An ordered schedule never uses both directions at once.
        together = not self.problem.platform.duplex or self.rules.ordered
        for used in [[*leaving, *returning]] if together else [leaving, returning]:
            if used:
                self.model.row([*length, *scaled(used, -1.0)], slack)

    def _keep_order(self, instant: int, leaving: Terms, returning: Terms) -> None:
        assert self.turned is not None
        # Nothing can take longer than moving everything.
        total = float(sum(self.ticks_per_byte.values())) * self.block / self.unit * sum(self.sizes)
        most = total
        if instant % 2:
            most = min(total, self.trace.durations[instant // 2] / self.unit)
        over, near = self.turned[instant], self.turned[instant + 1]
        if leaving:
            self.model.row([(ONE, most), *scaled(over, -most), *scaled(leaving, -1.0)], 0.0)
        if returning:
            self.model.row([*scaled(near, most), *scaled(returning, -1.0)], 0.0)

    def _require_absent(self, instant: int) -> None:
        o = instant // 2
        required = self.rules.required[o] / self.block
        if not required:
            return
        absent: Terms = []
        for gap in self.trace.gaps_over[o]:
            if self.evicted[gap]:
                absent += self._absent(gap, instant)
        if self.slack:
            chosen = self.decisions.evicted
            possible = sum(
                self.sizes[gap]
                for gap in self.trace.gaps_over[o]
                if chosen is None or gap in chosen
            )
            required = min(required + self.slack, possible)
        self.model.row(absent, required)

    def _absent(self, gap: int, instant: int) -> Terms:
        copied = self.copied[self.trace.gaps[gap].tensor][instant]
        back = scaled(self.returned[gap][instant], -1.0)
        if len(self.gaps_of[self.trace.gaps[gap].tensor]) == 1:
            return [*copied, *back]
        absent: Terms = [(self.model.column(0.0, self.sizes[gap]), 1.0)]
        self.model.at_most(absent, [*copied, *back])
        self.model.at_most(absent, [*self.evicted[gap], *back])
        return absent

    def bytes_at(self, terms: Sequence[Terms], values: list[float]) -> list[float]:
        """Return scaled amounts at a solution, in bytes."""
        return [
            self.block * sum(a * (1.0 if c == ONE else values[c]) for c, a in instant)
            for instant in terms
        ]
