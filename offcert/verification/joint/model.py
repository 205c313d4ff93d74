"""The bound that any multipliers prove about every execution, by the mathematics alone.

Facts about an execution and its schedule
-----------------------------------------
It is cut at *boundaries*: the beginning, the start or the end of some first runs, the end. A
*window* lies between two boundaries that follow each other, a *span* between any two. Take one
byte of the memory of a value in one state (`states`), made for the first time before a span begins.
It may be on the device when the span begins (``present``) or at some time in it (``there``), come
back from the host (``back``), have left for the host by a boundary (``left``), or its computation
may run (``again``). Each is 0 or 1; below they are means over all bytes. A computation that runs
again makes all bytes, so there ``again`` is 0 or 1. For every span S:

available
    what is there was present at its beginning, has come back, or its computation ran again;
origin
    what is there was present at its beginning, had left before, or its computation ran again: what
    leaves only later was on the device in S before that, and so must have come there otherwise;
inputs
    what runs again finds there what it reads;
kept
    what is present at its end was there;
left
    what has left by its end had left before it began, was present then, or its computation ran
    again: it cannot come back before it leaves for the first time. A copy may begin to leave before
    it is changed in place for the last time, so here it may have been present in a state before;
returned
    what has come back has left by its end;
runs, returns
    what happens in S happens in one of its windows.

What a first run in the span reads is there (1), and so is what is made first within the span. What
a first run reads is present at its start and its end (1), what it makes at its end (1), and what is
there at the start at the beginning (1). At a moment of a first run all other things that are
present take room beside what it takes itself (``memory``). Where values are whole, one that is
larger than that room is not present (0). A run that takes less if it discards what it makes is
the exception: of that, each is present at its end or not, and takes room if it is (``outputs``).

A window that is one first run lasts as long as that, and nothing runs again in it. Any other lasts
as long as the runs in it. Each lasts as long as the link needs for the bytes that leave and come
back in it (``link``, ``out``, ``in``): so it lasts as long as any mean of these.

Weighing them
-------------
The makespan is at least the sum of the windows' means less any weighted sum of slacks. In that
expression every share has a price; each takes its cheapest value from 0 to 1, but that ``left``
grows from boundary to boundary, and is 0 until its memory has been written. The sum of these minima
is a lower bound, for any weights. A run again that is decided has its value instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.proofs.joint_document import JointWeights, Place
from offcert.questions.schedule.problem import Problem
from offcert.verification.joint.room import Cuts, Room, States

# A share by its kind, its span or boundary, and what it is of; or what it is.
Share = tuple[str, int, int] | int


class JointModel:
    """The facts about one problem's executions, cut somewhere."""

    def __init__(self, problem: Problem, states: States, cuts: Cuts, room: Sequence[Room]) -> None:
        self.states, self.cuts, self.room = states, cuts, list(room)
        self.duplex = problem.platform.duplex
        self.limit = max(problem.platform.memory, 1)
        rates = [problem.platform.rate(kind) for kind in Kind]
        # All prices are integers in units of ticks / (common * denominator of the weights).
        self.common = math.lcm(self.limit, *(rate.numerator for rate in rates))
        self.per_byte = [int(self.common / rate) for rate in rates]

    def weigh(self, weights: JointWeights, place: str = "proof") -> Weighing:
        """Return the makespan less the weighted slacks of the facts: a constant and prices."""
        weighing = Weighing(self, weights, place)
        weighing.weigh()
        return weighing

    @cached_property
    def needed(self) -> list[frozenset[int]]:
        """For each span, the states that first runs in it have to find."""
        spans = range(len(self.cuts.spans))
        return [self.states.needed(self.cuts.first_runs(span)) for span in spans]

    def known(self, value: int, span: int) -> bool:
        """Return whether a state was made before a span begins."""
        return self.cuts.known(self.states.made_by[value], span)

    def again(self, computation: int, span: int) -> bool:
        """Return whether a computation may run in a span when its first run is over."""
        single = span < self.cuts.windows and self.cuts.single(span)
        return (
            self.states.repeatable(computation)
            and self.cuts.known(computation, span)
            and not single
        )

    def present(self, boundary: int, value: int) -> Share:
        """Return the share of a state that is present at a boundary."""
        if boundary == 0 or value in self.used(boundary) - self.outputs(boundary):
            return 1
        if value in self.room[boundary - 1].absent:
            return 0
        return "present", boundary, value

    def used(self, boundary: int) -> frozenset[int]:
        """Return the states that the first run at a moment reads or makes."""
        running = self.cuts.running(boundary)
        return self.states.found[running] | self.states.makes[running]

    def outputs(self, boundary: int) -> frozenset[int]:
        """Return the values that the run that ends at a boundary has made and may discard."""
        if not self.cuts.ends(boundary):
            return frozenset()
        return self.states.discardable(self.cuts.running(boundary))

    def there(self, span: int, value: int) -> Share:
        """Return the share of a state that is on the device at some time in a span."""
        if not self.known(value, span) or value in self.needed[span]:
            return 1
        return "there", span, value


class Weighing:
    """The makespan less weighted slacks: a constant, and a price for every share.

    `place` says where the weights stand in the document.
    """

    def __init__(self, model: JointModel, weights: JointWeights, place: str) -> None:
        self.model, self.weights, self.place = model, weights, place
        self.states, self.cuts = model.states, model.cuts
        self.constant = 0
        self.prices: dict[tuple[str, int, int], int] = {}
        # For each state, what it costs if it has left by each boundary.
        self.leaving: dict[int, list[int]] = {}

    def weigh(self) -> None:
        """Add up all prices."""
        self._weigh_time()
        facts: dict[str, Callable[[Place, int], None]] = {
            "available": self._available,
            "origin": self._origin,
            "inputs": self._inputs,
            "kept": self._kept,
            "left": self._left,
            "returned": self._returned,
            "runs": self._runs,
            "returns": self._returns,
            "memory": self._memory,
            "outputs": self._outputs,
        }
        for family, fact in facts.items():
            for index, (place, weight) in enumerate(self.weights.rows[family].items()):
                try:
                    fact(place, weight)
                except (_NoFactError, IndexError) as error:
                    why = (
                        str(error) if isinstance(error, _NoFactError) else "there is no such place"
                    )
                    raise InputError(f"{self.place}.{family}[{index}]: {why}") from None

    def bound(self, decided: Mapping[tuple[int, tuple[int, ...]], tuple[int, int]]) -> int:
        """Return the ticks that the weights prove if some runs again are decided.

        Parameters
        ----------
        decided : mapping of (int, tuple of int) to (int, int)
            By span and computations, how many of them run again there, at least and at most. No
            computation is in two of a span.
        """
        total = self.constant + sum(min(price, 0) for price in self.prices.values())
        for (span, computations), (least, most) in decided.items():
            # The cheapest ones run: all that pay, but no fewer and no more than may.
            prices = sorted(self.prices.get(("again", span, c), 0) for c in computations)
            paying = [price for price in prices if price < 0]
            number = min(max(len(paying), least), most)
            total += sum(prices[:number]) - sum(paying)
        for value, prices in self.leaving.items():
            total += self.cheapest_growth(value, prices)
        return math.ceil(Fraction(total, self.weights.over * self.model.common))

    def cheapest_growth(self, value: int, prices: list[int]) -> int:
        """Return the least cost of having left from some boundary on, or never."""
        maker = self.states.begun_by[value]
        from_then_on = list(accumulate(reversed(prices)))[::-1]
        costs = (cost for b, cost in enumerate(from_then_on) if b and self.cuts.over(maker, b))
        return min([0, *costs])

    def _add(self, share: Share, amount: int) -> None:
        if isinstance(share, int):
            self.constant += share * amount
        else:
            self.prices[share] = self.prices.get(share, 0) + amount

    def _add_left(self, boundary: int, value: int, amount: int) -> None:
        row = self.leaving.setdefault(value, [0] * (self.cuts.windows + 1))
        row[boundary] += amount

    def _weigh_time(self) -> None:
        """Each window lasts a mean of what its runs and what its transfers take."""
        rows, cuts = self.weights.rows, self.cuts
        before = self.states.network.cumulative
        directions = ("out", "in") if self.model.duplex else ("link",)
        for family in ("link", "out", "in"):
            for index, (window,) in enumerate(rows[family]):
                if family not in directions or window >= cuts.windows:
                    raise InputError(f"{self.place}.{family}[{index}]: there is no such place")
        for window in range(cuts.windows):
            link = [rows[family].get((window,), 0) for family in directions]
            runs = self.weights.over - sum(link)
            if runs < 0 and not cuts.single(window):
                where = f"{self.place}.{directions[-1]}"
                raise InputError(f"{where}: window {window} counts more than once")
            inside = cuts.first_runs(window)
            duration = before[inside.stop] - before[inside.start]
            self.constant += runs * duration * self.model.common
            self._weigh_window(window, runs, link[0], link[-1])

    def _weigh_window(self, window: int, runs: int, out: int, back: int) -> None:
        model, states = self.model, self.states
        for number, computation in enumerate(states.network.computations):
            if model.again(number, window):
                price = runs * computation.duration * model.common
                self._add(("again", window, number), price)
        out_byte, back_byte = model.per_byte
        for value, size in enumerate(states.size):
            if not states.can_leave[value]:
                continue
            if out:
                self._add_left(window + 1, value, out * size * out_byte)
                self._add_left(window, value, -out * size * out_byte)
            if model.known(value, window) and back:
                self._add(("back", window, value), back * size * back_byte)

    def _available(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_known(value, span)
        weight *= self.model.common
        self._add(self.model.there(span, value), weight)
        self._add(self.model.present(self.cuts.spans[span][0], value), -weight)
        if self.states.can_leave[value]:
            self._add(("back", span, value), -weight)
        maker = self.states.made_by[value]
        if self.model.again(maker, span):
            self._add(("again", span, maker), -weight)

    def _origin(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_known(value, span)
        begin = self.cuts.spans[span][0]
        weight *= self.model.common
        self._add(self.model.there(span, value), weight)
        self._add(self.model.present(begin, value), -weight)
        if begin and self.states.can_leave[value]:
            self._add_left(begin, value, -weight)
        maker = self.states.made_by[value]
        if self.model.again(maker, span):
            self._add(("again", span, maker), -weight)

    def _inputs(self, place: Place, weight: int) -> None:
        span, number, value = place
        self._require_repeatable(number, span)
        if value not in self.states.found[number]:
            raise _NoFactError(f"computation {number} does not read value {value}")
        weight *= self.model.common
        self._add(("again", span, number), weight)
        self._add(self.model.there(span, value), -weight)

    def _kept(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_known(value, span)
        end = self.cuts.spans[span][1]
        if end >= self.cuts.windows:
            raise _NoFactError("nothing needs to be kept beyond the end")
        weight *= self.model.common
        self._add(self.model.present(end, value), weight)
        self._add(self.model.there(span, value), -weight)

    def _left(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_movable(value)
        begin, end = self.cuts.spans[span]
        weight *= self.model.common
        self._add_left(end, value, weight)
        if begin:
            self._add_left(begin, value, -weight)
        maker = self.states.begun_by[value]
        if self.cuts.known(maker, span):
            for state in self.states.before(value, self.cuts.moment[begin]):
                self._add(self.model.present(begin, state), -weight)
            if self.model.again(maker, span):
                self._add(("again", span, maker), -weight)
        elif self.cuts.over(maker, end):
            self.constant -= weight

    def _returned(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_known(value, span)
        self._require_movable(value)
        weight *= self.model.common
        self._add(("back", span, value), weight)
        self._add_left(self.cuts.spans[span][1], value, -weight)

    def _runs(self, place: Place, weight: int) -> None:
        span, number = place
        self._require_repeatable(number, span)
        self._divide("again", span, number, weight * self.model.common)

    def _returns(self, place: Place, weight: int) -> None:
        span, value = place
        self._require_known(value, span)
        self._require_movable(value)
        self._divide("back", span, value, weight * self.model.common)

    def _divide(self, kind: str, span: int, index: int, weight: int) -> None:
        begin, end = self.cuts.spans[span]
        self._add((kind, span, index), weight)
        for window in range(begin, end):
            if kind != "again" or not self.cuts.single(window):
                self._add((kind, window, index), -weight)

    def _memory(self, place: Place, weight: int) -> None:
        (boundary,) = place
        self._require_moment(boundary)
        room = self.model.room[boundary - 1]
        self._add_memory(boundary, weight, room.most, self.model.used(boundary))

    def _outputs(self, place: Place, weight: int) -> None:
        (boundary,) = place
        self._require_moment(boundary)
        kept, outputs = self.model.room[boundary - 1].kept, self.model.outputs(boundary)
        if kept is None:
            raise _NoFactError(f"at boundary {boundary} nothing is discarded to save memory")
        self._add_memory(boundary, weight, kept, self.model.used(boundary) - outputs)

    def _add_memory(self, boundary: int, weight: int, most: int, used: frozenset[int]) -> None:
        """Add: values that are present, but for the used ones, take at most so many bytes."""
        model = self.model
        weight *= model.common // model.limit
        self.constant -= weight * most
        for value, maker in enumerate(self.states.made_by):
            if self.cuts.made(maker, boundary) and value not in used:
                self._add(model.present(boundary, value), weight * self.states.size[value])

    def _require_moment(self, boundary: int) -> None:
        if not 0 < boundary < self.cuts.windows:
            raise _NoFactError(f"boundary {boundary} is no moment of a first run")

    def _require_known(self, value: int, span: int) -> None:
        if not self.model.known(value, span):
            raise _NoFactError(f"value {value} is not made before the span begins")

    def _require_movable(self, value: int) -> None:
        if not self.states.can_leave[value]:
            raise _NoFactError(f"value {value} cannot leave")

    def _require_repeatable(self, number: int, span: int) -> None:
        if not self.model.again(number, span):
            raise _NoFactError(f"computation {number} does not run again there")


class _NoFactError(Exception):
    """A multiplier names a fact that does not exist."""
