"""From the execution in a certificate to what the runtime follows: events, storages, segments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offcert.core.carried.carry import Carried, carry
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.problem import Problem
from offcert.core.program import Program, program_from_json
from offcert.runtime.capture.capture import Capture, number_places, read_capture
from offcert.runtime.events import Event
from offcert.runtime.segments.place import place
from offcert.runtime.segments.placed import PlacedProgram


def carried_by(problem: Problem, execution: Execution) -> tuple[Carried, Capture, PlacedProgram]:
    """Return what really runs when training carries an execution out.

    Parameters
    ----------
    problem : Problem
        About the network of a captured step.
    execution : Execution
        Of that network, with the program that makes it.

    Returns
    -------
    carried : Carried
        With the same runs.
    capture : Capture
        Of the step as it runs then.
    segments : PlacedProgram
        The modules that make it so.

    Raises
    ------
    InputError
        If the problem is not about a captured step, the execution holds no program, or the program
        makes another execution.
    """
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} says not what is computed from what")
    plain = read_capture(problem.source, network.trace())
    program = _program_of(execution)
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
    return found, capture, place(program, plain.ranges, plain.ticks)


def _program_of(execution: Execution) -> Program:
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
