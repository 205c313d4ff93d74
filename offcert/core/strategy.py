"""`Strategy`: the order in which computations run, and the results that are discarded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from offcert.core.computations import Expansion, Run
from offcert.core.execution import Execution
from offcert.core.network import Network


@dataclass(frozen=True)
class Strategy:
    """Runs in order; a reader of a value reads what the last run before it has kept.

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
            The network that is computed.
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
        parts = network.computations, network.values, network.writer
        return Expansion(*parts, within or {}).of(self.runs)
