"""Offloading and addresses at once: the interval model with a rectangle for every residence.

Every use of a tensor stands for a *piece* of its time in memory: from its writer, or its return, to
its release or its last use. Between two pieces lies a gap. Where the gap is evicted, a prefetch
starts the later piece, at any address; where it is not, both pieces touch and share the address. So
every piece is a rectangle that is there in any case, and none may overlap another.

Times of rectangles have the order of moments (docs/theory/placement.md): with m operations of no
duration, a tick is m + 1 units. At its first, memory is released; operation z of these takes unit z
if it runs at that tick; and at its last, memory is taken.

This model knows nothing of what makes gaps useful or exchangeable: with addresses, tensors of one
size are not exchangeable any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

# A linear expression over variables of the solver; its Python types are not exported.
Linear = Any


@dataclass(frozen=True)
class Piece:
    """A rectangle of the model.

    Attributes
    ----------
    tensor : int
        Of which it is a piece; -1 for a workspace.
    start, end, address : linear expression
        Its sides.
    size : int
        Bytes.
    """

    tensor: int
    start: Linear
    end: Linear
    address: Linear
    size: int


class PlacedModel:
    """Variables and constraints for one problem.

    Parameters
    ----------
    problem : Problem
        Any trace and link; it is taken tick by tick, so that only short ones are of use.
    horizon : int
        Ticks; schedules that last longer are of no interest.
    addresses : bool
        Whether everything needs an address in a pool of the memory's size. Without, the model is
        one of the atomic problem.
    """

    def __init__(self, problem: Problem, horizon: int, addresses: bool) -> None:
        self.problem = problem
        self.trace = problem.trace
        self.horizon = horizon
        self.model = cp_model.CpModel()
        instant = [o for o, duration in enumerate(self.trace.durations) if duration == 0]
        self._number = {o: number for number, o in enumerate(instant)}
        self._units = len(instant) + 1
        self._add_operations()
        self._add_transfers()
        self._add_link()
        self.pieces = [*self._tensor_pieces(), *self._workspace_pieces()]
        self._add_memory(addresses)
        self.model.minimize(self.end(len(self.trace) - 1))

    # Ticks

    def end(self, operation: int) -> Linear:
        """Return the tick at which an operation ends; -1 ends at 0."""
        return 0 if operation < 0 else self.start[operation] + self.trace.durations[operation]

    def _tick(self, name: str) -> Any:
        return self.model.new_int_var(0, self.horizon, name)

    def _add_operations(self) -> None:
        """Operations run in order."""
        self.start = [self._tick(f"start{o}") for o in range(len(self.trace))]
        for o in range(1, len(self.trace)):
            self.model.add(self.start[o] >= self.end(o - 1))
        self.model.add(self.end(len(self.trace) - 1) <= self.horizon)

    def _add_transfers(self) -> None:
        """An evicted gap has a prefetch, and its tensor an offload; so has a tensor no more."""
        model, trace, ticks = self.model, self.trace, self.problem.platform.transfer_time
        self.gaps_of: dict[int, list[int]] = {}
        for number, gap in enumerate(trace.gaps):
            self.gaps_of.setdefault(gap.tensor, []).append(number)
        self.evicted = [model.new_bool_var(f"evicted{g}") for g in range(len(trace.gaps))]
        self.prefetch = [self._tick(f"prefetch{g}") for g in range(len(trace.gaps))]
        self.offload: dict[int, Any] = {}
        self.moved: dict[int, Any] = {}
        for tensor, gaps in self.gaps_of.items():
            self.offload[tensor] = self._tick(f"offload{tensor}")
            self.moved[tensor] = model.new_bool_var(f"moved{tensor}")
            model.add_max_equality(self.moved[tensor], [self.evicted[g] for g in gaps])
            model.add(self.offload[tensor] >= self.end(trace.tensors[tensor].uses[0]))
        for number, gap in enumerate(trace.gaps):
            back = self.prefetch[number] + ticks(trace.gap_size(number), Kind.PREFETCH)
            model.add(back <= self.start[gap.after]).only_enforce_if(self.evicted[number])

    def _add_link(self) -> None:
        """One transfer at a time, or one in each direction."""
        trace, ticks = self.trace, self.problem.platform.transfer_time
        fixed = self.model.new_optional_fixed_size_interval_var
        outward = [
            fixed(
                self.offload[tensor],
                ticks(trace.tensors[tensor].size, Kind.OFFLOAD),
                self.moved[tensor],
                f"out{tensor}",
            )
            for tensor in self.gaps_of
        ]
        inward = [
            fixed(
                self.prefetch[number],
                ticks(trace.gap_size(number), Kind.PREFETCH),
                self.evicted[number],
                f"in{number}",
            )
            for number in range(len(trace.gaps))
        ]
        queues = [outward, inward] if self.problem.platform.duplex else [outward + inward]
        for queue in queues:
            if len(queue) > 1:
                self.model.add_no_overlap(queue)

    # Moments

    def _released(self, tick: Linear) -> Linear:
        return self._units * tick

    def _taken(self, tick: Linear) -> Linear:
        return self._units * tick + self._units - 1

    def _begins(self, operation: int) -> Linear:
        if operation < 0:
            return 0
        number = self._number.get(operation)
        start = self.start[operation]
        return self._taken(start) if number is None else self._units * start + number

    def _ends(self, operation: int) -> Linear:
        if operation in self._number:
            return self._begins(operation) + 1
        return self._released(self.end(operation))

    def _moment(self, name: str) -> Any:
        return self.model.new_int_var(0, self._units * (self.horizon + 1), name)

    # Rectangles

    def _address(self, size: int, name: str) -> Any:
        most = max(self.problem.platform.memory - size, 0)
        return self.model.new_int_var(0, most, f"address-{name}")

    def _tensor_pieces(self) -> list[Piece]:
        found = []
        for index, tensor in enumerate(self.trace.tensors):
            if tensor.size == 0:
                continue
            start, address = self._begins(tensor.uses[0]), self._address(tensor.size, f"{index}")
            for number in self.gaps_of.get(index, ()):
                gone, back = self._eviction(number)
                found.append(Piece(index, start, gone, address, tensor.size))
                start, before = back, address
                address = self._address(tensor.size, f"{index}-{number}")
                self.model.add(address == before).only_enforce_if(~self.evicted[number])
            end = self._ends(tensor.uses[-1])
            found.append(Piece(index, start, end, address, tensor.size))
        return found

    def _eviction(self, number: int) -> tuple[Linear, Linear]:
        """Return the moments at which a gap's tensor goes and is back; the same if it stays."""
        model, gap, out = self.model, self.trace.gaps[number], self.evicted[number]
        gone, back = self._moment(f"gone{number}"), self._moment(f"back{number}")
        model.add(gone >= self._ends(gap.before))
        model.add(gone <= back)
        model.add(back <= self._begins(gap.after))
        model.add(gone == back).only_enforce_if(~out)
        size = self.trace.gap_size(number)
        ticks = self.problem.platform.transfer_time(size, Kind.OFFLOAD)
        copied = self._released(self.offload[gap.tensor] + ticks)
        model.add(gone >= copied).only_enforce_if(out)
        model.add(back == self._taken(self.prefetch[number])).only_enforce_if(out)
        return gone, back

    def _workspace_pieces(self) -> list[Piece]:
        return [
            Piece(
                -1,
                self._begins(o),
                self._ends(o),
                self._address(operation.workspace, f"workspace{o}"),
                operation.workspace,
            )
            for o, operation in enumerate(self.trace.operations)
            if operation.workspace
        ]

    def _add_memory(self, addresses: bool) -> None:
        """Add that all pieces at a time fit, and with addresses no two share a byte."""
        model, memory = self.model, self.problem.platform.memory
        across, up = [], []
        for number, piece in enumerate(self.pieces):
            length = model.new_int_var(0, self._units * (self.horizon + 1), f"length{number}")
            across.append(model.new_interval_var(piece.start, length, piece.end, f"time{number}"))
            if piece.size > memory:
                model.add_bool_or([])
        if not across:
            return
        model.add_cumulative(across, [piece.size for piece in self.pieces], memory)
        if not addresses:
            return
        for number, piece in enumerate(self.pieces):
            size = piece.size
            up.append(model.new_fixed_size_interval_var(piece.address, size, f"space{number}"))
        model.add_no_overlap_2d(across, up)

    # Solutions

    def schedule(self, value: Callable[[Any], int]) -> Schedule:
        """Return the schedule of a solution."""
        trace, ticks = self.trace, self.problem.platform.transfer_time
        starts = [value(start) for start in self.start]
        rows = zip(starts, trace.durations, strict=True)
        ends = [start + duration for start, duration in rows]
        transfers = []
        for tensor, gaps in self.gaps_of.items():
            out = [number for number in gaps if value(self.evicted[number])]
            if out:
                start = value(self.offload[tensor])
                end = start + ticks(trace.tensors[tensor].size, Kind.OFFLOAD)
                transfers.append(Transfer(Kind.OFFLOAD, out[0], start, end))
            for number in out:
                start = value(self.prefetch[number])
                end = start + ticks(trace.gap_size(number), Kind.PREFETCH)
                transfers.append(Transfer(Kind.PREFETCH, number, start, end))
        return Schedule(starts, ends, transfers)

    def addresses(self, value: Callable[[Any], int]) -> list[int]:
        """Return the addresses of a solution, in the order of the schedule's residences."""
        found = []
        for earlier, piece in pairwise([None, *self.pieces]):
            assert piece is not None
            same = earlier is not None and earlier.tensor == piece.tensor >= 0
            if same and not self._parts(piece, value):
                continue
            found.append(value(piece.address))
        return found

    def _parts(self, piece: Piece, value: Callable[[Any], int]) -> bool:
        """Whether the gap before a piece, which is not its tensor's first, is evicted."""
        of_tensor = [each for each in self.pieces if each.tensor == piece.tensor]
        place = next(index for index, each in enumerate(of_tensor) if each is piece)
        return bool(value(self.evicted[self.gaps_of[piece.tensor][place - 1]]))
