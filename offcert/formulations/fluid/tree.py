"""Branch and bound on the fluid program, with a tree that others can check.

It branches on whether a gap is evicted, at the leaf with the least bound first. The result is the
tree itself. Its inner nodes decide one gap both ways. Every leaf names multipliers whose bound,
with the gaps decided on the way, is at least the tree's, or an operation that lacks room there. The
tree is a proof at any time: an interrupt or a limit only makes its bound weaker. A node first tries
its parent's multipliers, so linear programs are solved, and multipliers stored, only where those
are not enough. Trees grow by several rules in turn, and the first to end is returned.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.fluid.dual import Dual, Multipliers, Prices, Relaxation, Relaxed
from offcert.questions.schedule.problem import Problem, Transfers

# Distance from 0 or 1 within which the linear program has decided a gap. Given by HiGHS: its
# tolerance.
_WHOLE = 1e-6
# Nodes by which a tree grows before the next one has its turn. Arbitrary.
_TURN = 16


@dataclass
class _Node:
    """A node: its decisions, its bound, and its children (kept, evicted), if any."""

    fixed: dict[int, bool]
    prices: Prices
    bound: int
    impossible: int | None = None
    relaxed: Relaxed | None = None
    branch: int = -1
    children: tuple[_Node, ...] = ()


@dataclass(frozen=True)
class Branch:
    """An inner node of a proof: `gap` is kept in the subtree that follows, evicted in the next."""

    gap: int


@dataclass(frozen=True)
class Leaf:
    """A leaf of a proof: the number of its multipliers, or an operation that lacks room."""

    multipliers: int = -1
    impossible: int = -1


@dataclass(frozen=True)
class ProvedTree:
    """A tree and the bound that it proves.

    Attributes
    ----------
    value : int
        No schedule is shorter, in ticks.
    multipliers : list of Multipliers
        Multipliers that leaves name by number.
    tree : list of Branch or Leaf
        Every node, each before its children.
    complete : bool
        Whether the bound is the optimum of the program, up to rounding, or what was asked for.
    interrupted : bool
        Whether the search was stopped by an interrupt.
    statistics : dict
        JSON values: nodes, linear programs, size of the program.
    """

    value: int
    multipliers: list[Multipliers]
    tree: list[Branch | Leaf]
    complete: bool
    interrupted: bool = False
    statistics: dict[str, int] = field(default_factory=dict)


class _Search:
    """Common parts of all trees for one problem."""

    def __init__(
        self, problem: Problem, required: Sequence[int], target: int | None, deadline: float
    ) -> None:
        self.dual = Dual(problem, required)
        self.relaxation = Relaxation(problem, required)
        self.target = target
        self.deadline = deadline
        self.programs = 0

    def reached(self, bound: int) -> bool:
        return self.target is not None and bound >= self.target

    def root(self) -> _Node:
        """Return a root that knows nothing yet."""
        nothing = self.dual.nothing()
        return _Node({}, nothing, self.dual.bound(nothing))

    def examine(self, node: _Node) -> None:
        """Solve a node's linear program if its bound does not suffice."""
        if node.impossible is not None or self.reached(node.bound):
            return
        relaxed = self.relaxation.solve(node.fixed, self.deadline - time.monotonic())
        if relaxed is None:
            return
        self.programs += 1
        prices = self.dual.rounded(relaxed.weights, node.fixed, self.target)
        bound = self.dual.bound(prices, node.fixed)
        if bound > node.bound:
            node.prices, node.bound = prices, bound
        node.relaxed = relaxed

    def undecided(self, node: _Node) -> list[tuple[int, float]]:
        """Return the gaps that are evicted in part, and how far from whole each is."""
        if node.relaxed is None:
            return []
        return [
            (gap, min(value, 1 - value))
            for gap, value in enumerate(node.relaxed.evicted)
            if gap not in node.fixed and _WHOLE < value < 1 - _WHOLE
        ]

    def children(self, node: _Node, gap: int) -> tuple[_Node, ...]:
        """Return the nodes that keep and that evict a gap."""
        children = []
        for evicted in (False, True):
            fixed = {**node.fixed, gap: evicted}
            child = _Node(fixed, node.prices, self.dual.bound(node.prices, fixed))
            child.impossible = None if evicted else self.dual.impossible(fixed)
            self.examine(child)
            children.append(child)
        return tuple(children)


def _first_to_open(dual: Dual, gap: int, partly: float) -> float:
    return -dual.gaps[gap][1].before


def _last_to_close(dual: Dual, gap: int, partly: float) -> float:
    return dual.gaps[gap][1].after


def _most_bytes(dual: Dual, gap: int, partly: float) -> float:
    return partly * dual.sizes[gap]


# Which gap to decide next; which of these needs the smallest tree depends on where memory binds.
_RULES: tuple[Callable[[Dual, int, float], float], ...] = (
    _first_to_open,
    _last_to_close,
    _most_bytes,
)


class _Tree:
    """A tree that grows by one rule."""

    def __init__(
        self, search: _Search, root: _Node, rule: Callable[[Dual, int, float], float]
    ) -> None:
        self.search = search
        self.root = root
        self.rule = rule
        self.nodes = 1
        # Whether growing cannot raise the bound any more.
        self.ended = False
        self._order = count()
        self._heap = [(root.bound, next(self._order), root)]

    @property
    def bound(self) -> int:
        """The least bound of a leaf that may still be branched on."""
        return self._heap[0][0]

    def grow(self, nodes: int) -> None:
        """Branch where the bound is least, until there are `nodes` nodes or it is of no use."""
        while not self.ended and self.nodes < nodes and time.monotonic() < self.search.deadline:
            bound, _, node = self._heap[0]
            undecided = self.search.undecided(node)
            if self.search.reached(bound) or not undecided:
                # A node whose program was not solved could still be branched on.
                self.ended = self.search.reached(bound) or node.relaxed is not None
                return
            gap = max(undecided, key=lambda item: self.rule(self.search.dual, *item))[0]
            children = self.search.children(node, gap)
            # All at once, so that an interrupt leaves whole trees only.
            node.branch, node.children = gap, children
            self.nodes += 2
            heapq.heappop(self._heap)
            for child in children:
                if child.impossible is None:
                    heapq.heappush(self._heap, (child.bound, next(self._order), child))


def prove(
    problem: Problem,
    *,
    whole: bool = False,
    branching: bool = True,
    target: int | None = None,
    time_limit: float = 60.0,
    node_limit: int = 20_000,
) -> ProvedTree:
    """Return a lower bound on the makespan with a proof.

    Parameters
    ----------
    problem : Problem
        Feasible, any trace and link.
    whole : bool
        Whether to round what must be absent up to reachable sums; for atomic transfers only.
    branching : bool
        Whether tensors leave whole; without it one linear program is solved, which bounds
        fractional transfers too.
    target : int, optional
        Stop when the bound reaches this many ticks.
    time_limit : float
        Seconds. When it runs out, or an interrupt comes, the bound proved until then is returned.
    node_limit : int
        How many nodes a tree may have.

    Raises
    ------
    ValueError
        If tensors may move in other ways than asked for.
    """
    if whole and problem.transfers is not Transfers.ATOMIC:
        raise ValueError("only atomic transfers move whole tensors at a time")
    if branching and problem.transfers is Transfers.FRACTIONAL:
        raise ValueError("fractional transfers leave no binaries to branch on")
    search = _Search(
        problem, required_absent(problem, whole), target, time.monotonic() + time_limit
    )
    root, interrupted = search.root(), False
    trees: list[_Tree] = []
    try:
        search.examine(root)
        trees += [_Tree(search, replace(root), rule) for rule in _RULES]
        if branching:
            _race(trees, node_limit)
    except KeyboardInterrupt:
        interrupted = True
    tree = max(trees, key=lambda tree: (tree.ended, tree.bound, -tree.nodes), default=None)
    grown = root if tree is None else tree.root
    solved = root.relaxed is not None or search.reached(root.bound)
    complete = solved and (not branching or (tree is not None and tree.ended))
    return _proof(search, grown, complete, interrupted)


def _race(trees: list[_Tree], node_limit: int) -> None:
    """Let trees grow in turn until one has ended, or none may have more nodes."""
    for nodes in range(_TURN, node_limit + _TURN, _TURN):
        for tree in trees:
            tree.grow(min(nodes, node_limit))
            if tree.ended:
                return
        if time.monotonic() >= trees[0].search.deadline:
            return


def _preorder(root: _Node) -> Iterator[_Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children)


def _proof(search: _Search, root: _Node, complete: bool, interrupted: bool) -> ProvedTree:
    """Return the search's tree as a proof, and the multipliers that its leaves need."""
    numbers: dict[Multipliers, int] = {}
    nodes: list[Branch | Leaf] = []
    bounds = []
    for node in _preorder(root):
        if node.children:
            nodes.append(Branch(node.branch))
        elif node.impossible is not None:
            nodes.append(Leaf(impossible=node.impossible))
        else:
            number = numbers.setdefault(node.prices.multipliers, len(numbers))
            nodes.append(Leaf(number))
            bounds.append(node.bound)
    statistics = {"nodes": len(nodes), "programs": search.programs, **search.relaxation.size}
    return ProvedTree(min(bounds), list(numbers), nodes, complete, interrupted, statistics)
