"""Cases: a computation runs again in a span, or it does not; each with multipliers of its own.

In the linear program half of a computation may run again, and half of what it makes come back. A
tree of cases, the weakest leaf first, decides that. It is a proof at any time: its bound is that of
its weakest leaf, and a limit only makes it weaker.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from itertools import count

from offcert.formulations.joint.multipliers import (
    Exact,
    JointBound,
    Weighed,
    listed,
    whole_weights,
)
from offcert.formulations.joint.program import JointProgram, Solved
from offcert.proofs.joint_document import JointCases, JointWeights, Node

# A run is decided by the linear program if it is within this of 0 or 1.
_DECIDED = 1e-3
# Tried in this order; nodes are many, so few are.
_DENOMINATORS = (60, 1 << 20)


@dataclass
class _Node:
    """A case: what is decided, what it proves, and its two parts (0, 1), if any."""

    fixed: dict[int, int]
    weighed: Weighed
    weights: JointWeights
    bound: int
    amounts: dict[int, float] | None = None
    branch: int = -1
    children: tuple[_Node, ...] = ()


class _Growing:
    """A tree that grows where its bound is least."""

    def __init__(self, program: JointProgram, deadline: float) -> None:
        self.program, self.deadline = program, deadline
        self.exact = Exact(program)
        # Columns of runs again, with span and computation.
        self.runs = {
            column: (span, computation)
            for span, again in enumerate(program.again)
            for computation, column in again.items()
        }
        self.order = count()
        self.heap: list[tuple[int, int, _Node]] = []

    def solve(self, fixed: dict[int, int]) -> Solved | None:
        return self.program.solve(self.deadline - time.monotonic(), fixed=fixed)

    def push(self, node: _Node) -> None:
        heapq.heappush(self.heap, (node.bound, next(self.order), node))

    def adopt(self, node: _Node, solved: Solved | None) -> None:
        """Let a node have the multipliers of its own program, if they are better."""
        if solved is None:
            return
        node.amounts = {column: float(solved.amounts[column]) for column in self.runs}
        for over in _DENOMINATORS:
            whole = whole_weights(self.program, solved, over)
            weighed = self.exact.weighed(whole, over)
            bound = weighed.bound(node.fixed)
            if bound > node.bound or node.weights.over == 0:
                node.weighed, node.bound, node.weights = weighed, bound, listed(whole, over)

    def undecided(self, node: _Node) -> int | None:
        """Return the run to decide next: of those run in part the longest, nearest to a half."""
        assert node.amounts is not None
        computations = self.program.network.computations
        scores = [
            (min(part, 1 - part) * computations[self.runs[column][1]].duration, column)
            for column, part in node.amounts.items()
            if column not in node.fixed and _DECIDED < part < 1 - _DECIDED
        ]
        return max(scores)[1] if scores else None

    def split(self, node: _Node, column: int, target: int) -> bool:
        """Decide a run of a node; return False if there was no time for it."""
        children = []
        for value in (0, 1):
            fixed = {**node.fixed, column: value}
            child = _Node(fixed, node.weighed, node.weights, node.weighed.bound(fixed))
            if child.bound < target:
                solved = self.solve(fixed)
                if solved is None:
                    return False
                self.adopt(child, solved)
            children.append(child)
        node.branch, node.children = column, tuple(children)
        for child in children:
            self.push(child)
        return True


def grow(
    program: JointProgram,
    solved: Solved,
    seconds: float,
    target: int | None = None,
    most: int = 400,
) -> JointBound:
    """Return a tree of cases for a program.

    Parameters
    ----------
    program : JointProgram
        Any.
    solved : Solved
        Its optimum.
    seconds : float
        Time limit.
    target : int, optional
        More ticks than this are of no use.
    most : int
        How many cases to split.
    """
    growing = _Growing(program, time.monotonic() + seconds)
    enough = 1 << 62 if target is None else target
    root = _Node({}, Weighed(0, [0] * len(program.cost), 1), JointWeights(0, {}), 0)
    growing.adopt(root, solved)
    growing.push(root)
    for _ in range(most):
        bound, _, node = growing.heap[0]
        if bound >= enough or node.amounts is None:
            break
        column = growing.undecided(node)
        if column is None or not growing.split(node, column, enough):
            break
        heapq.heappop(growing.heap)
        # The node itself was the least; its parts are in the heap by now.
    return _written(growing, root)


def _written(growing: _Growing, root: _Node) -> JointBound:
    numbers: dict[int, int] = {}
    multipliers: list[JointWeights] = []
    nodes: list[Node] = []
    least = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.children:
            nodes.append(growing.runs[node.branch])
            stack += reversed(node.children)
            continue
        if id(node.weights) not in numbers:
            numbers[id(node.weights)] = len(multipliers)
            multipliers.append(node.weights)
        nodes.append(numbers[id(node.weights)])
        least.append(node.bound)
    return JointBound(min(least), JointCases(tuple(multipliers), tuple(nodes)))
