"""Steps that overlap: the model is called for the next one before a backward pass has ended."""

from __future__ import annotations

import weakref

from offcert.runtime.follow.run import StepRun


def begin_beside(run: StepRun, before: weakref.ref[StepRun] | None) -> None:
    """Let a step know of bytes on the device that autograd still needs of the step before.

    Raises
    ------
    PlanError
        If the run is strict, and they do not fit beside its plan.
    """
    # What autograd still needs keeps the step that has saved it alive.
    earlier = None if before is None else before()
    if earlier is None:
        return
    entries = [reference() for reference in earlier.by_place.values()]
    size = sum(entry.size for entry in entries if entry is not None and not entry.away)
    if size > run.room:
        run.exceed(
            f"{size} bytes that the step before has saved are still there, which no plan counts: "
            "run the backward pass of a call of the model before the next step begins"
        )
    run.room -= size
