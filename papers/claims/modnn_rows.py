"""Rows for the moDNN paper's figures, as the file beside `docs/claims.md` holds them.

All times are nanoseconds, all sizes bytes. Times of methods that find no room are None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from offcert.core.documents import Fields, require_format
from offcert.core.errors import InputError

FORMAT, VERSION = "offcert-modnn-rows", 2
# What the paper calls a GB, see docs/theory/modnn.md.
GB = 2**30


@dataclass(frozen=True)
class MemoryRow:
    """A network: Figures 9, 13 and 14.

    Attributes
    ----------
    network : str
        Its name.
    ideal, live : int
        The whole batch, fastest algorithms: everything in a place of its own; and the most that is
        there at a time.
    kept_12, kept_24 : bool
        Whether there is a schedule with addresses in 12 or 24 GB in which nothing leaves.
    loaded : int
        Input and labels of the whole batch, which every method brings to the device.
    offloading, sub_batches, algorithms : int
        The least with one technique alone: what tasks read and write, of the whole batch with the
        fastest algorithms; single images; algorithms of least workspace.
    whole_least, vdnn_least : int
        The least with which the whole batch runs with any schedule and any algorithms, and that
        with which vDNN runs it, offloading all layers.
    least, least_weights : int
        Eq. 7, and with weights that leave.
    below_infeasible, below_infeasible_weights : bool
        Whether it is certified that nothing runs with a byte less.
    least_time, least_bound, least_modnn : int or None
        With so much memory, a step: certified, its bound, and Algorithm 1's; likewise `_weights`.
    ideal_time, sub_batches_time, algorithms_time, offloading_time : int
        A step: ideally, and with one technique alone (offloading: Algorithm 1, in `offloading`
        bytes).
    offloading_best, offloading_bound : int
        The certified schedule for the algorithms of `offloading_time`, and its bound.
    """

    network: str
    ideal: int
    live: int
    loaded: int
    kept_12: bool
    kept_24: bool
    offloading: int
    sub_batches: int
    algorithms: int
    whole_least: int
    vdnn_least: int
    ideal_time: int
    sub_batches_time: int
    algorithms_time: int
    least: int
    least_time: int | None
    least_bound: int | None
    below_infeasible: bool
    least_modnn: int | None
    least_weights: int
    least_time_weights: int | None
    least_bound_weights: int | None
    below_infeasible_weights: bool
    least_modnn_weights: int | None
    offloading_time: int
    offloading_best: int
    offloading_bound: int


@dataclass(frozen=True)
class TimeRow:
    """A network in a memory, on one GPU: Figures 10 to 12.

    Attributes
    ----------
    network, memory : str, int
        The network and the memory.
    ideal_time : int
        With memory for everything.
    modnn_size, modnn_time, modnn_moved : int or None
        Eq. 8's sub-batch, Algorithm 1's time with it, and the bytes that it moves.
    plus_size, plus_time, plus_moved : int or None
        The same of vDNN+, which offloads all layers; `dynamic`: if it takes the best of its
        policies, that of offloading nothing among them.
    whole_time, whole_moved, vdnn_time, vdnn_moved : int or None
        Algorithm 1 and vDNN with the whole batch.
    best_size, best_time, bound, whole_bound : int or None
        What is certified over all choices, and for the whole batch.
    """

    network: str
    memory: int
    ideal_time: int
    modnn_size: int
    modnn_time: int | None
    modnn_moved: int | None
    plus_size: int
    plus_time: int | None
    plus_moved: int | None
    dynamic_size: int
    dynamic_time: int | None
    dynamic_moved: int | None
    whole_time: int | None
    whole_moved: int | None
    vdnn_time: int | None
    vdnn_moved: int | None
    best_size: int
    best_time: int
    bound: int
    whole_bound: int | None


@dataclass(frozen=True)
class DeviceRow:
    """A network on several GPUs, or on one for comparison: Figures 17 to 19.

    Attributes
    ----------
    network, case : str
        The network and the case, as in `benchmarks/devices.py`.
    devices : int
        How many.
    sub_batch : int
        Images at a time.
    makespan, lower_bound : int
        Of the certificate.
    one_gpu : int
        A step on one GPU with memory for everything.
    """

    network: str
    case: str
    devices: int
    sub_batch: int
    makespan: int
    lower_bound: int
    one_gpu: int


@dataclass(frozen=True)
class ModnnRows:
    """All of them; `seconds` is the time limit of a search on one GPU."""

    seconds: float
    memory: tuple[MemoryRow, ...]
    times: tuple[TimeRow, ...]
    devices: tuple[DeviceRow, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks, in order."""
        return tuple(row.network for row in self.memory)

    def at(self, memory: int) -> tuple[TimeRow, ...]:
        """Return the rows of one memory."""
        return tuple(row for row in self.times if row.memory == memory)

    def case(self, name: str) -> tuple[DeviceRow, ...]:
        """Return the rows of a case on several devices."""
        return tuple(row for row in self.devices if row.case == name)


_Row = TypeVar("_Row", MemoryRow, TimeRow, DeviceRow)


def rows_to_json(rows: ModnnRows) -> dict[str, Any]:
    """Return rows as a JSON value."""
    return {"format": FORMAT, "version": VERSION, **asdict(rows)}


def rows_from_json(document: Any) -> ModnnRows:
    """Return the rows that a JSON value holds.

    Raises
    ------
    InputError
        If a field is missing, wrong or unknown, or what is found is below its bound.
    """
    found = Fields(document)
    require_format(found, FORMAT, VERSION)
    rows = ModnnRows(
        float(found.get("seconds", (int, float))),
        tuple(_each(MemoryRow, found.each("memory"))),
        tuple(_each(TimeRow, found.each("times"))),
        tuple(_each(DeviceRow, found.each("devices"))),
    )
    found.finish()
    pairs = [(row.best_time, row.bound) for row in rows.times]
    pairs += [(row.makespan, row.lower_bound) for row in rows.devices]
    pairs += [(row.offloading_best, row.offloading_bound) for row in rows.memory]
    if any(objective < bound for objective, bound in pairs):
        raise InputError("an objective is below its bound")
    return rows


def _each(kind: type[_Row], items: Iterable[Fields]) -> Iterable[_Row]:
    for item in items:
        yield kind(
            **{field.name: _value(item, field.name, str(field.type)) for field in fields(kind)}
        )
        item.finish()


def _value(item: Fields, name: str, kind: str) -> Any:
    if kind == "str":
        return item.get(name, str)
    if kind == "bool":
        return item.get(name, bool)
    if kind == "int | None" and item.get(name, (int, type(None))) is None:
        return None
    return item.integer(name, 0)
