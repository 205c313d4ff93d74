"""Modules that must not run again: found before a plan is made, left out, and what that costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from torch import nn

from offcert.core.carried.ranges import RANGES
from offcert.core.documents import Fields
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.carried import with_ranges
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.segments.reachable import Reach
from offcert.runtime.watch.sharded import states_of


def opaque_modules(root: nn.Module) -> dict[str, str]:
    """Return the modules of a model, by path, that can reach objects which may change unseen.

    Those whose parameters a call gathers (`fully_shard`) are among them; the model itself never
    runs again as a whole.
    """
    found = {}
    sharded = {id(module) for module, _ in states_of(root.modules())}
    registered = {id(module) for module in root.modules()}
    for path, module in root.named_modules():
        if path:
            if id(module) in sharded:
                # Modules inside run again while all is gathered, so without a collective.
                found[path] = "fully_shard gathers its parameters"
                continue
            unseen = Reach(registered - {id(module)}).visit([(path, module)]).unseen
            if unseen:
                found[path] = f"{unseen[0]} may change unseen"
    return found


def without(problem: Problem, paths: Collection[str]) -> Problem:
    """Return the problem of a captured step in which some modules do not run again.

    Nothing runs again that calls them, or lies around them.
    """
    if not paths or problem.recompute is Recompute.NONE or problem.source is None:
        return problem
    capture = problem.source["capture"]
    ranges = RANGES.read_in(Fields(capture, "source.capture"), "ranges").without(paths)
    if next(iter(ranges), None) is None:
        return replace(problem, recompute=Recompute.NONE)
    return with_ranges(problem, ranges)


def price(barred: dict[str, str], unbarred: Certificate, chosen: Certificate) -> str | None:
    """Return in one sentence what it costs that some modules do not run again, or None if nothing.

    The certificates are those of the best plans found if they might run again, and as it is.
    """
    path, reason = next(iter(barred.items()))
    who = path if len(barred) == 1 else f"{path} and {len(barred) - 1} other modules"
    best, found = unbarred.result.objective, chosen.result.objective
    if best is None or (found is not None and found <= best):
        return None
    compute = unbarred.problem.trace.compute_time or 1
    cost = "there is no plan" if found is None else f"a step takes {found / compute:.2f} times that"
    return (
        f"{who} cannot run again ({reason}): {cost} of computing alone, instead of "
        f"{best / compute:.2f} times"
    )
