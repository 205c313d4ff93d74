"""What a Gantt chart shows, however it is drawn: rows, bars, their texts, their looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.fluid_schedule import FluidSchedule, Piece
from offcert.core.messages import cut
from offcert.core.plan import Kind
from offcert.core.problem import Problem, Units
from offcert.core.schedule import Schedule, Transfer
from offcert.core.units import format_size, format_time

Time = Fraction | int


@dataclass(frozen=True, slots=True)
class Look:
    """How a kind of bar looks: two properties each, so that colours alone never tell.

    Attributes
    ----------
    name : str
        What the legend says.
    colour : str
        Of the palette by Okabe and Ito, whose colours the colour-blind can tell apart.
    text : str
        Colour of the text on it.
    hatch : str
        Stripes: none (empty), upright, or falling or rising, as matplotlib spells them.
    """

    name: str
    colour: str
    text: str
    hatch: str


LOOKS = {
    "forward": Look("forward", "#56b4e9", "#000000", ""),
    "backward": Look("backward", "#0072b2", "#ffffff", "|"),
    "offload": Look("offload", "#e69f00", "#000000", "/"),
    "prefetch": Look("prefetch", "#009e73", "#ffffff", "\\"),
}
BOUND = "#d55e00"
LIMIT = "#000000"
HELD = "#cc79a7"

DEVICE, LINK, LINK_BACK = "device", "link", "link back"
# What is on a computer's screen is not read at any length.
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Bar:
    """An operation, or a transfer or a piece of one.

    Attributes
    ----------
    row : str
        Of the chart.
    look : str
        A key of `LOOKS`.
    start, end : Fraction or int
        Ticks.
    label : str
        What stands on it where there is room.
    title : str
        Everything about it.
    """

    row: str
    look: str
    start: Time
    end: Time
    label: str
    title: str


def rows_of(problem: Problem) -> tuple[str, ...]:
    """Return the rows from top to bottom; a duplex link has two."""
    return (DEVICE, LINK, LINK_BACK) if problem.platform.duplex else (DEVICE, LINK)


def bars_of(problem: Problem, schedule: Schedule | FluidSchedule) -> Iterator[Bar]:
    """Yield a bar for every operation, then one for every transfer or piece."""
    middle, units = turn(problem), problem.units
    rows = zip(problem.trace.operations, schedule.starts, schedule.ends, strict=True)
    for index, (operation, start, end) in enumerate(rows):
        name = cut(operation.name, _LONGEST_NAME)
        title = f"{name}: {_times(start, end, units)}"
        if operation.workspace:
            title += f", workspace {format_size(operation.workspace, units)}"
        yield Bar(DEVICE, "forward" if index < middle else "backward", start, end, name, title)
    moves = schedule.transfers if isinstance(schedule, Schedule) else schedule.pieces
    for move in moves:
        yield _transfer_bar(problem, move)


def _transfer_bar(problem: Problem, move: Transfer | Piece) -> Bar:
    tensor = problem.trace.tensors[problem.trace.gaps[move.gap].tensor]
    name = cut(tensor.name, _LONGEST_NAME)
    size = format_size(tensor.size, problem.units)
    if isinstance(move, Piece) and move.size != tensor.size:
        size = f"{_amount(move.size, problem.units)} of {size}"
    title = f"{move.kind} {name}: {_times(move.start, move.end, problem.units)}, {size}"
    back = problem.platform.duplex and move.kind is Kind.PREFETCH
    return Bar(LINK_BACK if back else LINK, str(move.kind), move.start, move.end, name, title)


def _times(start: Time, end: Time, units: Units) -> str:
    texts = [time_text(time, units) for time in (start, end, end - start)]
    return f"{texts[0]} to {texts[1]} ({texts[2]})"


def time_text(time: Time, units: Units) -> str:
    """Return a time, which may lie between ticks, for people."""
    if time.denominator == 1 or units.time == "ns":
        return format_time(round(time), units)
    return f"{float(time):.2f}"


def _amount(size: Fraction, units: Units) -> str:
    return format_size(round(size), units) if units.size == "B" else f"{float(size):g}"


def turn(problem: Problem) -> int:
    """Return the first operation of the backward pass: the first named so, or half-way."""
    names = [operation.name for operation in problem.trace.operations]
    backward = (index for index, name in enumerate(names) if name.startswith("B:"))
    return next(backward, len(names) // 2)


def joined(bars: list[Bar], shortest: float) -> list[Bar]:
    """Return fewer bars: neighbours of one look join until together they last `shortest` ticks.

    Parameters
    ----------
    bars : list of Bar
        In any order.
    shortest : float
        Ticks that a reader can see.
    """
    groups: dict[tuple[str, str], list[Bar]] = {}
    for bar in sorted(bars, key=lambda bar: bar.start):
        groups.setdefault((bar.row, bar.look), []).append(bar)
    return [bar for group in groups.values() for bar in _joined(group, shortest)]


def _joined(bars: list[Bar], shortest: float) -> Iterator[Bar]:
    waiting: list[Bar] = []
    for bar in bars:
        if waiting and bar.end - waiting[0].start > shortest:
            yield _one(waiting)
            waiting = []
        waiting.append(bar)
    yield _one(waiting)


def _one(bars: list[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    first, last = bars[0], bars[-1]
    title = f"{len(bars)} bars; the first: {first.title}; the last: {last.title}"
    return Bar(first.row, first.look, first.start, last.end, "", title)
