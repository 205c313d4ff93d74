"""`Strategy`: which computations of a network run when, and which results are thrown away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.trace import Operation, Tensor, Trace


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a computation.

    Attributes
    ----------
    computation : int
        Index into ``network.computations``.
    discards : tuple of int
        Values that it writes and nobody keeps.
    """

    computation: int
    discards: tuple[int, ...] = ()


@dataclass(frozen=True)
class Strategy:
    """Runs in their order. Who reads a value reads what the last run before it has kept.

    Every copy of a value is on the device from its writer's run to the last run that reads or holds
    it before the value is written again.

    Parameters
    ----------
    runs : iterable of Run or int
        An integer is a run of that computation that keeps everything.
    """

    runs: tuple[Run, ...]

    def __init__(self, runs: Iterable[Run | int]) -> None:
        chosen = (run if isinstance(run, Run) else Run(run) for run in runs)
        object.__setattr__(self, "runs", tuple(chosen))

    @classmethod
    def plain(cls, network: Network) -> Strategy:
        """Return the strategy in which everything runs once and is kept."""
        return cls(range(len(network)))

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<Strategy: {len(self)} runs of {len(set(self.order))} computations>"

    @property
    def order(self) -> tuple[int, ...]:
        """The computation of each run."""
        return tuple(run.computation for run in self.runs)

    def without_unread(self, network: Network) -> Strategy:
        """Return the strategy that discards at once what nobody reads before it is made again."""
        unread: list[set[int]] = [set() for _ in self.runs]
        writer: dict[int, int] = {}
        for position, run in enumerate(self.runs):
            computation = network.computations[run.computation]
            for value in computation.reads:
                if value in writer:
                    unread[writer[value]].discard(value)
            for value in computation.writes:
                if value not in run.discards and network.values[value].base is None:
                    writer[value] = position
                    unread[position].add(value)
        return Strategy(
            replace(run, discards=tuple(sorted({*run.discards, *extra})))
            for run, extra in zip(self.runs, unread, strict=True)
        )

    def expand(self, network: Network, within: Mapping[int, range] | None = None) -> Execution:
        """Return the execution that this strategy makes of a network.

        Parameters
        ----------
        network : Network
            What is computed.
        within : mapping of int to range, optional
            For runs in which only a part of the program's code is at work, the computations of
            that part: it holds what these make, and what is still held when the forward pass is
            over. By default, everything is held that the network says.

        Raises
        ------
        InputError
            If a run reads what is not there, discards what it does not write, or a computation does
            not exist.
        """
        return _Expansion(network, within or {}).of(self)


def held_to_the_end(network: Network) -> frozenset[int]:
    """Return the values that the program holds when what cannot run again has begun."""
    late = (each.holds for each in network.computations if not each.repeatable)
    return frozenset(value for holds in late for value in holds)


@dataclass(slots=True)
class _Copy:
    """One copy of a value: becomes a tensor."""

    value: int
    uses: list[int]
    # Until here it may still be changed in place, so that a copy elsewhere would be of no use.
    settled: int


class _Expansion:
    def __init__(self, network: Network, within: Mapping[int, range]) -> None:
        self.network = network
        self.within = within
        self.lasting = held_to_the_end(network) if within else frozenset()
        self.copies: list[_Copy] = []
        self.kept: dict[int, _Copy] = {}
        self.operations: list[Operation] = []
        self.counts = [0] * len(network)
        # The states of each value that is changed in place.
        self.changed: dict[int, list[int]] = {}
        for index, value in enumerate(network.values):
            if value.base is not None:
                self.changed.setdefault(value.base, []).append(index)
        for index, writer in enumerate(network.writer):
            if writer < 0 and network.values[index].base is None:
                self._keep(index, -1)

    def of(self, strategy: Strategy) -> Execution:
        for position, run in enumerate(strategy.runs):
            self._run(position, run)
        tensors = [self._tensor(copy) for copy in self.copies]
        values = tuple(copy.value for copy in self.copies if copy.uses != [-1])
        trace = Trace(self.operations, [tensor for tensor in tensors if tensor is not None])
        return Execution(trace, strategy.order, values)

    def _run(self, position: int, run: Run) -> None:
        network = self.network
        if not 0 <= run.computation < len(network):
            raise InputError(
                f"runs[{position}] names computation {run.computation}, of which "
                f"there are {len(network)}"
            )
        computation = network.computations[run.computation]
        for value in computation.reads:
            if value not in self.kept:
                raise InputError(
                    f"runs[{position}] ({computation.name}) reads {network.values[value].name}, "
                    "which is not there"
                )
            self._use(value, position)
        for value in computation.holds:
            if value in self.kept and self._is_held(value, position):
                self._use(value, position)
        own = {value for value in computation.writes if network.values[value].base is None}
        extra = set(run.discards) - own
        if extra:
            raise InputError(
                f"runs[{position}] discards value {min(extra)}, which it does not write, or which "
                "lies in the memory of another"
            )
        for value in computation.writes:
            if value not in run.discards:
                self._write(value, position)
        workspace = computation.workspace
        if run.discards:
            beside = network.size_of(run.discards)
            workspace = workspace + beside if computation.lean is None else computation.lean
        self.operations.append(
            Operation(self._name(run.computation), computation.duration, workspace)
        )

    def _name(self, computation: int) -> str:
        self.counts[computation] += 1
        count = self.counts[computation]
        name = self.network.computations[computation].name
        return name if count == 1 else f"{name} (run {count})"

    def _is_held(self, value: int, position: int) -> bool:
        part = self.within.get(position)
        return part is None or self.network.writer[value] in part or value in self.lasting

    def _use(self, value: int, position: int) -> None:
        copy = self.kept[value]
        if copy.uses[-1] != position:
            copy.uses.append(position)

    def _write(self, value: int, position: int) -> None:
        base = self.network.values[value].base
        if base is None:
            # What was made of the copy before is lost with it.
            for other in self.changed.get(value, ()):
                self.kept.pop(other, None)
            self._keep(value, position)
        else:
            self.kept[value] = self.kept[base]
            self.kept[base].settled = position

    def _keep(self, value: int, position: int) -> None:
        copy = _Copy(value, [position], position)
        self.copies.append(copy)
        self.kept[value] = copy

    def _tensor(self, copy: _Copy) -> Tensor | None:
        if copy.uses == [-1]:
            return None
        value = self.network.values[copy.value]
        first, last = copy.uses[0], copy.uses[-1]
        # What cannot leave is there from its first use to its last one, whatever lies between.
        uses = sorted(
            {*copy.uses, *range(first, copy.settled + 1)} if value.evictable else {first, last}
        )
        return Tensor(value.name, value.size, tuple(uses), value.evictable)
