"""The operation that sets the least memory of a problem, and what would lower it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcert.core.computations import Computation
from offcert.core.messages import cut
from offcert.core.trace import Operation
from offcert.core.units import format_size
from offcert.questions.schedule.problem import Problem, Recompute

_CHUNKS = (
    "--tail-chunks 8 of profile and doctor computes head and loss in chunks of tokens, which takes "
    "less; gradients are the same up to rounding"
)


def least_summary(problem: Problem) -> dict[str, Any]:
    """Return which operation sets the least memory, and the bytes of its own workspace."""
    operations, most = _largest(problem)
    return {"operation": operations[most].name, "workspace": operations[most].workspace}


def _largest(problem: Problem) -> tuple[Sequence[Operation | Computation], int]:
    """Return the operations, and which needs most where all else is absent that may be."""
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        needed = problem.trace.least_demand
        return problem.trace.operations, max(range(len(needed)), key=needed.__getitem__)
    alone = network.own_memory
    return network.computations, max(range(len(alone)), key=alone.__getitem__)


def least_lines(problem: Problem) -> list[str]:
    """Return the same for people, and what would lower it where that is known."""
    found = least_summary(problem)
    name, workspace = cut(found["operation"], 80), found["workspace"]
    own = f", {format_size(workspace, problem.units)} of it its workspace" if workspace else ""
    lines = [f"  that needs     {name}{own}"]
    remedy = tail_remedy(problem)
    return [*lines, f"                 {remedy}"] if remedy is not None else lines


def tail_remedy(problem: Problem) -> str | None:
    """Return advice that lowers the least memory if a language model's loss sets it, or None.

    It does if the largest operation is where the forward pass turns to the backward pass, from the
    layer that makes the logits on.
    """
    source = problem.source or {}
    options = source.get("options")
    options = options if isinstance(options, dict) else {}
    config = options.get("config")
    if "tail_chunks" in options or not isinstance(config, dict):
        return None
    operations, most = _largest(problem)
    names = [operation.name for operation in operations]
    heads = [index for index, name in enumerate(names) if name == "F:lm_head"]
    turn = next((index for index, name in enumerate(names) if name.startswith("B:")), len(names))
    if not heads or not heads[-1] <= most or names[most] not in names[heads[-1] : turn + 1]:
        return None
    return _CHUNKS
