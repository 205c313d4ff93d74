"""Verification of joint bounds: by their multipliers (`model`), or by a search (`labels`)."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.proofs.joint_document import JointCases, TooLongError, read
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.kinds.multipliers import JointProof
from offcert.questions.schedule.problem import Minimise, Problem, Transfers
from offcert.verification.joint.contents import Contents
from offcert.verification.joint.labels import JointLabels
from offcert.verification.joint.model import JointModel, Weighing
from offcert.verification.joint.room import Cuts, States, rooms
from offcert.verification.limits import Allowance, BeyondLimitsError

# Of the computations of a span, how many run again at least, and at most.
Decided = dict[tuple[int, tuple[int, ...]], tuple[int, int]]


def least(model: JointModel, cases: JointCases, allowance: Allowance) -> int:
    """Return the least bound of all leaves, in ticks.

    Raises `InputError` if multipliers are of no use, or nodes are missing, left over, or about no
    run again.
    """
    alone = len(cases.nodes) == 1 and cases.nodes[0] == 0 and len(cases.multipliers) == 1
    weighed: dict[int, Weighing] = {}
    # Decisions of the subtrees that are still to come.
    open_cases: list[Decided] = [{}]
    found: int | None = None
    for index, node in enumerate(cases.nodes):
        place = f"proof.tree[{index}]"
        allowance.require_time()
        if not open_cases:
            raise InputError(f"{place} belongs to no node before it")
        decided = open_cases.pop()
        if isinstance(node, tuple):
            open_cases += _cases(model, node, decided, place)
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


def _cases(
    model: JointModel, node: tuple[int, ...], decided: Decided, place: str
) -> tuple[Decided, Decided]:
    """Return the decisions of two cases: more run again than a node says, or no more do."""
    alone = len(node) == 2
    span, most, computations = node[0], 0 if alone else node[1], node[1 if alone else 2 :]
    for computation in computations:
        _require_run(model, span, computation, place)
    for other, several in decided:
        if other == span and several != computations and {*several} & {*computations}:
            raise InputError(f"{place}: some of these are decided with others above it")
    fewest, all_of_them = decided.get((span, computations), (0, len(computations)))
    if not fewest <= most < all_of_them:
        raise InputError(f"{place} is decided above it")
    key = span, computations
    return {**decided, key: (most + 1, all_of_them)}, {**decided, key: (fewest, most)}


def _require_run(model: JointModel, span: int, computation: int, place: str) -> None:
    inside = span < len(model.cuts.spans) and computation < len(model.states.network)
    if not inside or not model.again(computation, span):
        raise InputError(f"{place}: computation {computation} does not run again in span {span}")


# Spans times computations, at most: more than any proof of ours has. Arbitrary.
LARGEST = 20_000_000


def joint_lp(problem: Problem, value: int, proof: JointProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound, or the fault."""
    try:
        found = proved_by(problem, proof, allowance)
    except InputError as error:
        return str(error)
    if found < value:
        return f"the document says {value}, but its proof gives {found}"
    return None


def proved_by(problem: Problem, proof: JointProof, allowance: Allowance) -> int:
    """Return the ticks that multipliers prove to be necessary, whatever problem they were made for.

    Raises `InputError` if they prove nothing about this problem, and `BeyondLimitsError` if it
    takes more than is allowed.
    """
    network = problem.computed
    if network is None:
        raise InputError("nothing is known of what is computed from what")
    if proof.whole and problem.offload and problem.transfers is not Transfers.ATOMIC:
        raise InputError(f"details.whole must be false with {problem.transfers} transfers")
    try:
        if (len(proof.moments) + len(proof.spans) + 1) * len(network) > LARGEST:
            raise InputError("details.moments and details.spans are too many")
        cuts = Cuts(proof.moments, proof.spans, len(network))
        cases = read(proof.proof, allowance.limits.document)
        allowance.require_time()
        states = States(network, problem.offload)
        room = rooms(states, cuts, problem.platform.memory, proof.whole)
        return least(JointModel(problem, states, cuts, room), cases, allowance)
    except TooLongError as error:
        raise BeyondLimitsError(str(error)) from None


def joint_labels(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if no execution is shorter than `value` ticks, or the fault."""
    fault = beyond_scope(problem)
    if fault is not None:
        return fault
    found = JointLabels(Contents(problem), problem.platform.memory, value).shorter(allowance)
    if found is not None:
        return f"the document says {value}, but an execution may take {found}"
    return None


def joint_labels_memory(
    problem: Problem, value: int, proof: Computed, allowance: Allowance
) -> str | None:
    """Return None if within one byte less no execution ends by the deadline, or the fault.

    Without a deadline, if there is none at all.
    """
    fault = beyond_scope(problem, Minimise.MEMORY)
    if fault is not None:
        return fault
    deadline = problem.deadline
    contents = Contents(problem, timed=deadline is not None)
    limit = None if deadline is None else deadline + 1
    if JointLabels(contents, value - 1, limit).shorter(allowance) is not None:
        return f"the document says {value}, but within {value - 1} something can be executed"
    return None


def nothing_fits(problem: Problem, memory: int, allowance: Allowance) -> str | None:
    """Return None if nothing can be executed within so many bytes, or the fault.

    Raises `BeyondLimitsError` if that is not known when time or memory run out.
    """
    fault = beyond_scope(problem)
    if fault is not None:
        return fault
    search = JointLabels(Contents(problem, timed=False), memory, None)
    if search.shorter(allowance) is not None:
        return f"within {memory} something can be executed"
    return None


def beyond_scope(problem: Problem, minimise: Minimise = Minimise.TIME) -> str | None:
    """Return the reason why the search establishes nothing about a problem, or None.

    `minimise` is the objective that the bound is about: ticks or bytes.
    """
    if problem.minimise is not minimise:
        return f"it is about the least {minimise}, not the least {problem.minimise}"
    if problem.offload and problem.transfers is not Transfers.ATOMIC:
        return f"it is about atomic transfers, not {problem.transfers} ones"
    return None
