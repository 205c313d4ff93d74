"""From the execution in a certificate to what the runtime follows: events, storages, segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from offcert.core.carried.carry import Carried, carry
from offcert.core.carried.ranges import Called, Range, Ranges
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.program import Program, Segment, program_from_json
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.capture import Capture, number_places, read_capture
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from offcert.runtime.watch.events import ENTER, LEAVE, Event


def place(
    program: Program,
    ranges: Ranges,
    ticks: Sequence[Event],
    unread: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
) -> PlacedProgram:
    """Return a program of a captured step's network in terms of a model's modules.

    `ticks` are the events with which operations begin; `unread` says of computations that are kept
    which of their operators' results nobody needs again. If a segment is no range, or keeps what is
    not computed in a forward pass, an `InputError` is raised.
    """
    return PlacedProgram(_place(segment, ranges, ticks, unread) for segment in program.segments)


def _place(
    segment: Segment,
    ranges: Ranges,
    ticks: Sequence[Event],
    unread: Mapping[int, tuple[int, ...]],
    line: tuple[Called, ...] = (),
) -> PlacedSegment:
    found = ranges.find(segment.first, segment.last, line)
    if found is None:
        first, last = (_name(ticks, operation) for operation in (segment.first, segment.last))
        raise InputError(
            f"nothing runs from {first} to {last} that could run again as one: neither a call of a "
            "module, nor consecutive children of an nn.Sequential, nor calls in a line"
        )
    return PlacedSegment(
        found.path,
        found.call,
        found.children,
        tuple(_kept(ticks, each, unread.get(each, ())) for each in segment.kept),
        tuple(_place(each, ranges, ticks, unread, found.line or line) for each in segment.inner),
        found.line,
    )


def _kept(ticks: Sequence[Event], operation: int, unread: tuple[int, ...]) -> Kept:
    event = ticks[operation]
    if event.kind not in (ENTER, LEAVE):
        raise InputError(f"{_name(ticks, operation)} is in no forward pass: it cannot be kept")
    return Kept(event.kind, event.path, event.call, unread=unread)


def _name(ticks: Sequence[Event], operation: int) -> str:
    if not 0 <= operation < len(ticks):
        return f"operation {operation}, which does not exist,"
    event = ticks[operation]
    what = event.path or "the model"
    what = what if event.call == 0 else f"call {event.call + 1} of {what}"
    return what if event.kind == ENTER else f"after {what}"


def program_of(placed: PlacedProgram, ranges: Ranges, ticks: Sequence[Event]) -> Program:
    """Return the program on a captured step's network that a placed program stands for."""
    numbers = {(event.kind, event.path, event.call): n for n, event in enumerate(ticks)}

    def segment_of(segment: PlacedSegment) -> Segment:
        found = ranges.locate(segment.path, segment.call, segment.children, segment.line)
        if found is None:
            raise InputError(f"the captured step has not run {segment}")
        kept = []
        for each in segment.kept:
            number = numbers.get((each.kind, each.path, each.call))
            if number is None:
                raise InputError(
                    f"{segment} keeps what follows an event of {each.path} after which the "
                    "captured step computes nothing"
                )
            if each.operators is not None:
                raise InputError(
                    f"{segment} keeps single operators of {each.path}, not all of its results"
                )
            kept.append(number)
        inner = sorted(map(segment_of, segment.inner), key=lambda one: one.first)
        return Segment(found.first, found.last, tuple(sorted(kept)), tuple(inner))

    return Program(sorted(map(segment_of, placed.segments), key=lambda one: one.first))


def steady(network: Network, ranges: Iterable[Range]) -> list[Range]:
    """Return those ranges whose inputs are still there when they run again.

    What was computed before a range, is read in it, and is changed in place in it or later in a
    forward pass is lost: PyTorch's checkpointing refuses it, and so do we.
    """
    changes: dict[int, list[int]] = {}
    for value in range(len(network.values)):
        base, writer = network.values[value].base, network.writer[value]
        if base is not None and network.computations[writer].repeatable:
            changes.setdefault(base, []).append(writer)
    # For each value that is changed: its writer, its readers, its last change.
    lost = [
        (network.writer[base], network.readers[base], max(writers))
        for base, writers in changes.items()
    ]
    return [
        each
        for each in ranges
        if not any(
            written < each.first <= changed and any(each.first <= r <= each.last for r in readers)
            for written, readers, changed in lost
        )
    ]


def carried_by(problem: Problem, execution: Execution) -> tuple[Carried, Capture, PlacedProgram]:
    """Return the execution that training really runs for one in a certificate, and its modules.

    It has the same runs; with it come the capture of the step as it runs then, and the modules that
    make it so.
    """
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} says not what is computed from what")
    plain = read_capture(problem.source, network.trace())
    program = program_in(execution)
    if plain.record is None:
        raise InputError(
            f"{problem.name} was profiled without what recomputation needs: profile it again"
        )
    found = carry(network, program, plain.ranges, plain.record, plain.ticks)
    _require_same(found, execution)
    capture = replace(
        plain,
        trace=found.execution.trace,
        ticks=tuple(Event(*tick) for tick in found.ticks),
        storages=number_places(found.saved),
        network=None,
        record=None,
    )
    return found, capture, place(program, plain.ranges, plain.ticks, found.unread)


def program_in(execution: Execution) -> Program:
    """Return the program that an execution holds; an `InputError` if it needs one and has none."""
    if execution.program is None:
        if execution.repeated:
            raise InputError(
                "the execution holds no program, so that training does not know which modules are "
                "to run again"
            )
        return Program()
    value: Any = execution.program
    return program_from_json(value, "execution.program")


def _require_same(found: Carried, execution: Execution) -> None:
    real = found.execution.runs
    if real == execution.runs:
        return
    place = next(
        (n for n, pair in enumerate(zip(real, execution.runs, strict=False)) if pair[0] != pair[1]),
        min(len(real), len(execution.runs)),
    )
    raise InputError(
        f"execution.runs is not what its program makes of the captured step: {len(execution.runs)} "
        f"runs instead of {len(real)}, from runs[{place}] on"
    )
