"""Optimal persistent checkpointing of heterogeneous chains: the functions to call."""

from __future__ import annotations

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.strategy import Strategy
from offcert.heuristics.persistent.fronts import MAX_POINTS, Fronts
from offcert.heuristics.persistent.slots import Slots
from offcert.heuristics.persistent.subchains import Subchains, strategy_of


def persistent(
    chain: CheckpointChain,
    memory: int,
    slots: int | None = 500,
    max_points: int = MAX_POINTS,
) -> Strategy:
    """Return the persistent strategy of a chain that takes least time within a memory limit.

    What is stored stays stored until its backward operation has run; nothing leaves the device.

    Parameters
    ----------
    chain : CheckpointChain
        Of which.
    memory : int
        Bytes.
    slots : int or None
        Into how many slots the memory is divided; None for none, which is exact.
    max_points : int
        Without slots, the most points of all fronts together.

    Returns
    -------
    Strategy
        With the `chain.network()`.

    Raises
    ------
    NoPlanError
        If no strategy fits; with slots, rounding may be the only reason.
    MethodError
        If there are fewer slots than one, or too many points.

    Notes
    -----
    Source: the combined paper's supplement with no bandwidth (``C_A``); see `subchains`. With `S`
    slots and `L` stages it takes ``O(L³ S)`` steps.
    """
    if slots is not None and slots < 1:
        raise MethodError(f"persistent checkpointing needs at least 1 slot, not {slots}")
    arrays = Subchains.of(chain)
    if slots is None:
        fronts = Fronts(arrays, memory, max_points)
        if not fronts.front:
            raise NoPlanError(f"no persistent strategy fits into {memory} bytes")
        return strategy_of(len(chain), fronts)
    found = Slots(arrays, memory, slots)
    if found.time is None:
        raise NoPlanError(
            f"persistent checkpointing found no strategy for {memory} bytes at {slots} slots; "
            "rounding sizes up may be the only reason"
        )
    return strategy_of(len(chain), found)


def persistent_front(
    chain: CheckpointChain, memory: int | None = None, max_points: int = MAX_POINTS
) -> list[tuple[int, int]]:
    """Return what every memory limit buys, if strategies are persistent and nothing leaves.

    Parameters
    ----------
    chain : CheckpointChain
        Of which.
    memory : int, optional
        Bytes; what takes more is left out.
    max_points : int
        The most points of the fronts of all subchains together.

    Returns
    -------
    list of (int, int)
        Bytes and the least ticks with so many; bytes increase, ticks decrease.

    Raises
    ------
    MethodError
        If there are too many points.
    """
    peak = chain.network().trace().peak_memory
    limit = peak if memory is None else min(memory, peak)
    return Fronts(Subchains.of(chain), limit, max_points).front


def persistent_least_memory(
    chain: CheckpointChain, deadline: int | None = None, max_points: int = MAX_POINTS
) -> Strategy:
    """Return the persistent strategy that takes least memory, within a deadline if there is one.

    Parameters
    ----------
    chain : CheckpointChain
        Of which.
    deadline : int, optional
        The most ticks.
    max_points : int
        The most points of the fronts of all subchains together.

    Raises
    ------
    NoPlanError
        If nothing meets the deadline.
    MethodError
        If there are too many points.
    """
    fronts = Fronts(Subchains.of(chain), chain.network().trace().peak_memory, max_points)
    for memory, time in fronts.front:
        if deadline is None or time <= deadline:
            fronts.budget = memory
            return strategy_of(len(chain), fronts)
    raise NoPlanError(f"no strategy ends within {deadline} ticks")
