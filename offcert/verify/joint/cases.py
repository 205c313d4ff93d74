"""Cases of a joint bound: that they are all there, and what the weakest of them proves.

Whether a computation runs again in a span is true or false. So every execution is in one of the
two subtrees of a node, and in the end in one leaf, whose multipliers may use what was decided.
"""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.proofs.joint_document import JointCases
from offcert.verify.joint.model import JointModel, Weighing
from offcert.verify.limits import Allowance

Decided = dict[tuple[int, int], bool]


def least(model: JointModel, cases: JointCases, allowance: Allowance) -> int:
    """Return the least bound of all leaves, in ticks.

    Raises
    ------
    InputError
        If multipliers are of no use, or nodes are missing, left over, or about no run again.
    BeyondLimitsError
        If there is no time left.
    """
    alone = len(cases.nodes) == 1 and cases.nodes[0] == 0 and len(cases.multipliers) == 1
    weighed: dict[int, Weighing] = {}
    # What is decided in the subtrees that are still to come.
    open_cases: list[Decided] = [{}]
    found: int | None = None
    for index, node in enumerate(cases.nodes):
        place = f"proof.tree[{index}]"
        allowance.require_time()
        if not open_cases:
            raise InputError(f"{place} belongs to no node before it")
        decided = open_cases.pop()
        if isinstance(node, tuple):
            _require_run(model, node, place)
            if node in decided:
                raise InputError(f"{place} is decided above it")
            open_cases += [{**decided, node: True}, {**decided, node: False}]
            continue
        if node >= len(cases.multipliers):
            raise InputError(f"{place} must be below {len(cases.multipliers)}, not {node}")
        if node not in weighed:
            where = "proof" if alone else f"proof.multipliers[{node}]"
            weighed[node] = model.weigh(cases.multipliers[node], where)
        bound = weighed[node].bound(decided)
        found = bound if found is None else min(found, bound)
    if open_cases or found is None:
        raise InputError("proof.tree ends before all cases are there")
    return found


def _require_run(model: JointModel, node: tuple[int, int], place: str) -> None:
    span, computation = node
    inside = span < len(model.cuts.spans) and computation < len(model.states.network)
    if not inside or not model.again(computation, span):
        raise InputError(f"{place}: computation {computation} does not run again in span {span}")
