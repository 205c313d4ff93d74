"""Rows and bars of a Gantt chart, with their texts and looks, however it is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.units import Units, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer, TransferPiece
from offcert.questions.schedule.training_record import TrainingRecord
from offcert.report.execution import Reruns

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def time_scale(problem: Problem | PlacementProblem | TrainingRecord, span: int) -> tuple[int, str]:
    """Return the ticks in a unit that suits a span of so many ticks, and its name."""
    if problem.units.time != "ns":
        return 1, "ticks"
    return next((scale for scale in _TIMES if span >= 2 * scale[0]), _TIMES[-1])


def size_scale(
    problem: Problem | PlacementProblem | TrainingRecord, largest: int
) -> tuple[int, str]:
    """Return the bytes in a unit that suits sizes of up to so many bytes, and its name."""
    if problem.units.size != "B":
        return 1, "units"
    return next((scale for scale in _SIZES if largest >= 2 * scale[0]), _SIZES[-1])


Time = Fraction | int


@dataclass(frozen=True, slots=True)
class Look:
    """How a kind of bar looks: two properties each, so that colours alone never tell."""

    name: str  # Text in the legend.
    colour: str  # Of the palette by Okabe and Ito, whose colours the colour-blind can tell apart.
    text: str  # Colour of the text on it.
    # Stripes: none (empty), upright, level, falling, rising or crossed, as matplotlib has them.
    hatch: str


# Looks that are rare: the legend has them only if a bar does.
AGAIN, WAITS = "again", "waits"
_SELDOM = (AGAIN, WAITS)
LOOKS = {
    "forward": Look("forward", "#56b4e9", "#000000", ""),
    "backward": Look("backward", "#0072b2", "#ffffff", "|"),
    AGAIN: Look("run again", "#f0e442", "#000000", "-"),
    WAITS: Look("waits", "#d9d9d9", "#000000", "x"),
    "offload": Look("offload", "#e69f00", "#000000", "/"),
    "prefetch": Look("prefetch", "#009e73", "#ffffff", "\\"),
}
BOUND = "#d55e00"
LIMIT = "#000000"
HELD = "#cc79a7"

DEVICE, LINK, LINK_BACK = "device", "link", "link back"
RUN_AGAIN = re.compile(r" \(run [0-9]+\)$")
# Letters of the longest name that a picture has in full. Arbitrary.
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Bar:
    """An operation, or a transfer or a piece of one."""

    row: str  # Of the chart.
    look: str  # A key of `LOOKS`.
    # Ticks.
    start: Time
    end: Time
    label: str  # Text on the bar where there is room.
    title: str  # Everything about it.


def rows_of(problem: Problem) -> tuple[str, ...]:
    """Return the rows from top to bottom; a duplex link has two."""
    return (DEVICE, LINK, LINK_BACK) if problem.platform.duplex else (DEVICE, LINK)


def bars_of(
    problem: Problem,
    schedule: Schedule | FluidSchedule,
    looks: Sequence[str] | None = None,
) -> Iterator[Bar]:
    """Yield a bar for every operation, then one for every transfer or piece.

    Parameters
    ----------
    problem : Problem
        Of which `schedule` is a schedule.
    schedule : Schedule or FluidSchedule
        Valid or not.
    looks : sequence of str, optional
        A key of `LOOKS` for each operation, as from `looks_of`; by default forward up to the turn
        and backward from there.
    """
    units = problem.units
    if looks is None:
        looks = _by_pass(len(problem.trace), turn(problem))
    rows = zip(problem.trace.operations, schedule.starts, schedule.ends, looks, strict=True)
    for operation, start, end, look in rows:
        name = cut(operation.name, _LONGEST_NAME)
        title = f"{name}: {_times(start, end, units)}"
        if operation.workspace:
            title += f", workspace {format_size(operation.workspace, units)}"
        # The look says that this is not the first run; a number would cost the name its room.
        label = RUN_AGAIN.sub("", name) if look == AGAIN else name
        yield Bar(DEVICE, look, start, end, label, title)
    moves = schedule.transfers if isinstance(schedule, Schedule) else schedule.pieces
    for move in moves:
        yield _transfer_bar(problem, move)


def _transfer_bar(problem: Problem, move: Transfer | TransferPiece) -> Bar:
    tensor = problem.trace.tensors[problem.trace.gaps[move.gap].tensor]
    name = cut(tensor.name, _LONGEST_NAME)
    size = format_size(tensor.size, problem.units)
    if isinstance(move, TransferPiece) and move.size != tensor.size:
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
    """Return the first operation of the backward pass.

    The first that is named so; else the first that a network says computes gradients, or that
    cannot run again with all that follow; else half-way.
    """
    names = [operation.name for operation in problem.trace.operations]
    backward = (index for index, name in enumerate(names) if name.startswith("B:"))
    network = problem.computed
    if network is None:
        return next(backward, len(names) // 2)
    of = (index for index, each in enumerate(network.computations) if each.of)
    last = max((i for i, each in enumerate(network.computations) if each.repeatable), default=-1)
    once = last + 1 if last + 1 < len(names) else len(names) // 2
    return next(backward, next(of, once))


def looks_of(certificate: Certificate) -> list[str]:
    """Return a key of `LOOKS` for each operation that a certificate's schedule schedules.

    Where computations run again, a first run looks as in the trace in which everything runs once.
    """
    problem, execution = certificate.problem, certificate.result.execution
    plain = _by_pass(len(problem.trace), turn(problem))
    if execution is None:
        return plain
    again = set(Reruns(execution, 0).operations)
    return [
        AGAIN if index in again or computation >= len(plain) else plain[computation]
        for index, computation in enumerate(execution.runs)
    ]


def _by_pass(operations: int, middle: int) -> list[str]:
    return ["forward"] * middle + ["backward"] * (operations - middle)


def shown_looks(bars: Iterable[Bar]) -> dict[str, Look]:
    """Return the looks for a legend: all but the rare ones, which are there only if used."""
    there = {bar.look for bar in bars}
    return {name: look for name, look in LOOKS.items() if name not in _SELDOM or name in there}


def joined(bars: list[Bar], shortest: float) -> list[Bar]:
    """Return fewer bars: neighbours of one look join until together they last `shortest` ticks."""
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
