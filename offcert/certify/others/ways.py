"""Ways to train within a device's memory that need no plan, beside which plans are shown."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from offcert.certify.others.audit import beginning, carried_out
from offcert.certify.others.decisions import decision_of
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute

# Plans that PyTorch and frameworks around it make on one line, as `decision_of` reads them.
_OTHERS = (
    {"plan": "trainer", "gradient_checkpointing": True, "name": "every layer checkpointed"},
    {"plan": "save_on_cpu", "name": "save_on_cpu"},
)


@dataclass(frozen=True)
class OtherWay:
    """A way to save memory that needs no plan, at one size of a training step.

    Attributes
    ----------
    name : str
        ``"every layer checkpointed"`` or ``"save_on_cpu"``.
    step : int
        Nanoseconds of the step, as `offcert.certify.others.audit.audit` counts them.
    peak : int
        Bytes of activations and workspaces on the device.
    host : int
        Bytes of the host that copies take: pageable memory, as ``save_on_cpu`` pins none unless it
        is told to.
    fits : bool
        Whether so many bytes are left beside parameters, gradients and the optimiser's state, and
        so many of pageable memory.
    """

    name: str
    step: int
    peak: int
    host: int
    fits: bool


def other_ways(
    problem: Problem, left: int, pageable: int | None
) -> tuple[tuple[OtherWay, ...], Certificate | None]:
    """Find the ways of a problem that need no plan, and a certificate of the fastest that fits.

    Parameters
    ----------
    problem : Problem
        At the limit that the device leaves.
    left : int
        Bytes of the device that it leaves; less than 0 where it has none.
    pageable : int or None
        Bytes of the host that are not pinned; None if that is not limited.
    """
    found, beginnings = [], []
    for document in _OTHERS if problem.computed is not None else ():
        try:
            decision = decision_of(problem.computed, document)  # type: ignore[arg-type]
        except InputError:
            continue
        done = carried_out(problem, decision)
        if done.faults:
            continue
        step, fits = done.schedule.makespan, done.peak <= left
        there = pageable is None or done.host <= pageable
        found.append(OtherWay(decision.name, step, done.peak, done.host, fits and there))
        if fits and (problem.recompute is Recompute.ANY or not decision.execution.repeated):
            known = beginning(problem, decision.execution, done.schedule)
            beginnings += [] if known is None else [(step, known)]
    return tuple(found), min(beginnings, key=itemgetter(0), default=(0, None))[1]
