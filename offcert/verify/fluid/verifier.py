"""Verification of fluid bounds, by multipliers and cases; see `offcert.verify.fluid.verifier`."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.errors import InputError
from offcert.proofs.fluid_document import Node, TooLongError, Weights, read
from offcert.proofs.kinds.multipliers import FluidProof
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verify.absence import least_memory, needs, whole_tensors
from offcert.verify.fluid.model import FluidModel
from offcert.verify.fractional import NO_SCHEDULE
from offcert.verify.limits import UNLIMITED, Allowance, BeyondLimitsError

Key = tuple[int, int, int]


def examine(
    text: str,
    value: int,
    problem: Problem,
    needs: Sequence[int],
    *,
    branching: bool,
    allowance: Allowance | None = None,
) -> str | None:
    """Return None if a proof establishes exactly this bound, or its fault, and where.

    Parameters
    ----------
    text : str
        The packed proof.
    value : int
        The bound, in ticks.
    problem : Problem
        A feasible one.
    needs : sequence of int
        Bytes that must be absent during each operation.
    branching : bool
        Whether the proof may decide gaps: true only where tensors leave whole.
    allowance : Allowance, optional
        Seconds and memory that may be spent.

    Raises
    ------
    BeyondLimitsError
        If the proof unpacked, or the time to examine it, is more than allowed.
    """
    allowance = UNLIMITED.begin() if allowance is None else allowance
    try:
        weights, nodes = _unpacked(text, len(problem.trace), allowance)
        found = _least(FluidModel(problem, needs), weights, nodes, branching, allowance)
    except InputError as error:
        return str(error)
    if found != value:
        return f"the document says {value}, but its proof gives {found}"
    return None


def _unpacked(text: str, operations: int, allowance: Allowance) -> tuple[list[Weights], list[Node]]:
    """Read a packed proof whose content is not larger than a document may be."""
    try:
        return read(text, operations, allowance.limits.document)
    except TooLongError as error:
        raise BeyondLimitsError(str(error)) from None


def _least(
    model: FluidModel,
    weights: Sequence[Weights],
    nodes: Sequence[Node],
    branching: bool,
    allowance: Allowance,
) -> int:
    """Return the least bound of all leaves.

    Raises
    ------
    InputError
        If multipliers are of no use, or the tree is not what it can be.
    """
    walk = _Walk(model, len(weights))
    fault: InputError | None = None
    try:
        if not branching and len(nodes) != 1:
            raise InputError(f"proof.tree must be one leaf, not {len(nodes)} nodes")
        walk.through(nodes)
    except InputError as error:
        # What is wrong with multipliers is said first.
        fault = error
    bounds = []
    # Of long traces with many leaves the prices of all multipliers would fill the memory.
    for index, item in enumerate(weights):
        allowance.require_time()
        prices = model.price(item)
        if isinstance(prices, int):
            raise InputError(
                f"proof.multipliers[{index}] gives waiting before operation {prices} a "
                "negative price"
            )
        if fault is None:
            bounds += [model.bound(prices, decided) for decided in walk.leaves[index]]
    if fault is not None:
        raise fault
    if not bounds:
        raise InputError("proof.tree says that no schedule exists, but one does")
    return min(bounds)


class _Walk:
    """A walk through a tree, from case to case, that keeps the decisions.

    Attributes
    ----------
    leaves : list of list of mapping
        For each of the multipliers, its leaves: for each tensor, the gaps decided there.
    """

    def __init__(self, model: FluidModel, multipliers: int) -> None:
        self.model = model
        self.leaves: list[list[dict[int, dict[Key, bool]]]] = [[] for _ in range(multipliers)]
        # The gaps decided on the way to the present node, outermost first.
        self.path: list[Key] = []
        self.evicted: dict[Key, bool] = {}

    def through(self, nodes: Sequence[Node]) -> None:
        """Visit all leaves, if they cover every case exactly once.

        Raises
        ------
        InputError
            If they do not, or a node is not what it can be.
        """
        open_cases = True
        for index, node in enumerate(nodes):
            place = f"proof.tree[{index}]"
            if not open_cases:
                raise InputError(f"{place} follows the end of the tree")
            if isinstance(node, tuple) and len(node) == 3:
                self._branch(node, place)
                continue
            if isinstance(node, int):
                self._take_leaf(node, place)
            else:
                self._require_crowded(node[0], place)
            open_cases = self._advance()
        if open_cases:
            where = f": gap {list(self.path[-1])} is not done with" if self.path else ""
            raise InputError(f"proof.tree lacks a node at its end{where}")
        idle = next((index for index, leaves in enumerate(self.leaves) if not leaves), None)
        if idle is not None:
            raise InputError(f"proof.multipliers[{idle}] is used by no leaf")

    def _branch(self, node: Node, place: str) -> None:
        assert isinstance(node, tuple)
        key = (node[0], node[1], node[2])
        if key not in self.model.intervals:
            raise InputError(f"{place} must be a gap of the problem, not {list(key)}")
        if key in self.evicted:
            raise InputError(f"{place} decides gap {list(key)}, which is decided above it")
        self.path.append(key)
        self.evicted[key] = False

    def _take_leaf(self, number: int, place: str) -> None:
        if number >= len(self.leaves):
            raise InputError(
                f"{place} must be below the number of multipliers, {len(self.leaves)}, not {number}"
            )
        decided: dict[int, dict[Key, bool]] = {}
        for key, evicted in self.evicted.items():
            decided.setdefault(key[0], {})[key] = evicted
        self.leaves[number].append(decided)

    def _require_crowded(self, operation: int, place: str) -> None:
        kept = [key for key, evicted in self.evicted.items() if not evicted]
        if not 0 <= operation < len(self.model.needs):
            raise InputError(f"{place} must name an operation, not {operation}")
        if not self.model.crowded(operation, kept):
            raise InputError(f"{place} says that operation {operation} lacks room, but it does not")

    def _advance(self) -> bool:
        """Go on to the next case; return whether there is one."""
        while self.path:
            if not self.evicted[self.path[-1]]:
                self.evicted[self.path[-1]] = True
                return True
            del self.evicted[self.path.pop()]
        return False


def fluid_lp(problem: Problem, value: int, proof: FluidProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound without cases, or the fault."""
    return _examined(problem, value, proof, allowance, branching=False)


def fluid_milp(problem: Problem, value: int, proof: FluidProof, allowance: Allowance) -> str | None:
    """Return None if multipliers prove the bound in every case, or the fault."""
    return _examined(problem, value, proof, allowance, branching=True)


def _examined(
    problem: Problem, value: int, proof: FluidProof, allowance: Allowance, *, branching: bool
) -> str | None:
    if proof.whole and problem.transfers is not Transfers.ATOMIC:
        return f"details.whole must be false with {problem.transfers} transfers"
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    amounts = whole_tensors(problem) if proof.whole else needs(problem)
    return examine(proof.proof, value, problem, amounts, branching=branching, allowance=allowance)
