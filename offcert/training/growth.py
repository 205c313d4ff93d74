"""Plans that a step of a larger size makes superfluous: plans are kept for sizes that double."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, volume


def is_covered(step_plans: Sequence[StepPlan], call: Signature, here: str) -> bool:
    """Whether a call is at most as large as one that a plan was made for.

    Parameters
    ----------
    step_plans : sequence of StepPlan
        With the calls that they were captured with.
    call : Signature
        How the model is called.
    here : str
        The device that it is on, as `offcert.runtime.watch.parts.Parts` names it.
    """
    known = [each.capture for each in step_plans]
    return any(covers(each.calls[0], as_if_on(call, each.device, here)) for each in known)


def outgrown(
    step_plans: Sequence[StepPlan],
    call: Signature,
    here: str,
    own: Collection[Signature],
    full: bool,
) -> int | None:
    """Return the number of the plan in whose place one for a larger call is followed.

    It is the one for the largest of the calls that this one covers: if that is more than half as
    large, or no more plans may be made.

    Parameters
    ----------
    step_plans, call, here
        As for `is_covered`.
    own : collection of Signature
        Calls whose plans stay, since a larger one did not do for them.
    full : bool
        Whether there are as many plans as there may be.
    """
    found = []
    for number, each in enumerate(step_plans):
        known = each.capture.calls[0]
        asked = as_if_on(call, each.capture.device, here)
        if volume(known) < volume(asked) and covers(asked, known) and known not in own:
            found.append((volume(known), number))
    if not found:
        return None
    size, number = max(found)
    return number if full or 2 * size > volume(call) else None
