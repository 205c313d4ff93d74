"""The carried execution of a problem about a captured step."""

from __future__ import annotations

from collections.abc import Mapping

from offcert.core.carried.carry import Carried, carry
from offcert.core.carried.ranges import ranges_from_json
from offcert.core.carried.record import record_from_json
from offcert.core.program import Program
from offcert.questions.schedule.problem import Problem


def carried_on(problem: Problem, program: Program) -> Carried | None:
    """Return what really runs when a program is carried out, or None if nothing says so.

    Parameters
    ----------
    problem : Problem
        About a network; if it is that of a captured step, its source says how it runs again.
    program : Program
        Its segments are ranges of the capture.

    Raises
    ------
    InputError
        If a segment is none of the ranges, or the capture is not what profiling writes.
    """
    source = (problem.source or {}).get("capture")
    network = problem.computed
    if network is None or not isinstance(source, Mapping) or "record" not in source:
        return None
    place = "source.capture"
    return carry(
        network,
        program,
        ranges_from_json(source["ranges"], f"{place}.ranges"),
        record_from_json(source["record"], f"{place}.record"),
        source["ticks"],
    )
