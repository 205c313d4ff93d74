"""Lower bounds for executions that keep to a rule: the joint program with choices, and its proof.

A rule says of some sets of computations which of them run again in the backward pass: an execution
takes one option of each `Choice`. The facts about all executions (docs/theory/joint.md), with any
weights, give every share a price; where runs go together, the cheapest option counts instead of the
cheapest value of each. What weights prove of all executions within the rule is so worked out in
integers, by the model that verifies proofs about all executions.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack

from offcert.core.errors import InputError
from offcert.formulations.common.highs import run_highs
from offcert.formulations.joint.program import JointProgram, Solved
from offcert.formulations.joint.room import contents, demands, grid_of, rooms
from offcert.formulations.joint.tree import listed, whole_weights
from offcert.proofs.joint_document import JointCases, JointWeights
from offcert.questions.schedule.problem import Problem
from offcert.verification.joint.model import JointModel, Weighing
from offcert.verification.joint.room import Cuts, States
from offcert.verification.joint.room import rooms as verified_rooms

# Denominators of weights, the first of which is used in cases. Arbitrary.
_DENOMINATORS = (60, 1 << 20)
# Price of an option that a case does not take, in computing times. Arbitrary.
_PENALTY = 1.0
# The window after the cut, in which the backward pass lies. By definition.
WINDOW = 1
# Options that cases have taken, by the choices' numbers.
Taken = Mapping[int, int]


@dataclass(frozen=True)
class Choice:
    """Sets of computations of which one runs again in the backward pass.

    Attributes
    ----------
    options : tuple of frozenset of int
        Computations that run again, for each option. Others that any option names do not.
    """

    options: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Restricted:
    """A bound on all executions within a rule.

    Attributes
    ----------
    value : int
        Ticks.
    cases : JointCases
        Its proof. A node (number of a choice, number of its options) stands before its cases, one
        an option.
    chosen : tuple of int
        For each choice, the option that has the largest share in the weakest case.
    """

    value: int
    cases: JointCases
    chosen: tuple[int, ...]


def members_of(choices: Sequence[Choice]) -> frozenset[int]:
    """Return all computations that a rule is about."""
    return frozenset().union(*(option for choice in choices for option in choice.options))


def cut_of(problem: Problem, members: frozenset[int]) -> int:
    """Return the moment, before some computations run again in any program, when most is absent.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    members : frozenset of int
        Computations that a rule is about. What computes gradients from what they saved makes them
        run again, just before it runs itself.
    """
    network = problem.computed
    assert network is not None
    demand = demands(network, contents(network, problem.offload))
    writer = network.writer
    asks = (
        number
        for number, computation in enumerate(network.computations)
        if not computation.repeatable
        and not members.isdisjoint([*computation.of, *(writer[v] for v in computation.reads)])
    )
    return 2 * max(range(min(asks)), key=demand.__getitem__)


class Facts:
    """The facts about executions of a problem, cut at one moment, for verification.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    moment : int
        From `cut_of`; any other is sound, too.
    choices : sequence of Choice
        The rule.
    """

    def __init__(self, problem: Problem, moment: int, choices: Sequence[Choice]) -> None:
        network = problem.computed
        assert network is not None
        states = States(network, problem.offload)
        cuts = Cuts((moment,), (), len(network))
        room = verified_rooms(states, cuts, problem.platform.memory, True)
        self.model = JointModel(problem, states, cuts, room)
        self.choices = list(choices)
        owner: dict[int, int] = {}
        for number, choice in enumerate(self.choices):
            for computation in frozenset().union(*choice.options):
                if computation in owner or not self.model.again(computation, WINDOW):
                    raise InputError(f"computation {computation} cannot be in choice {number}")
                owner[computation] = number
        self.owner = owner

    def weigh(self, weights: JointWeights) -> _Weighed:
        """Return the makespan less the weighted slacks of the facts: a constant and prices."""
        return _Weighed(self, self.model.weigh(weights))

    def least(self, cases: JointCases) -> int:
        """Return the ticks that a proof proves.

        Raises
        ------
        InputError
            If cases are missing, left over, or about no choice.
        """
        weighed: dict[int, _Weighed] = {}
        waiting: list[dict[int, int]] = [{}]
        found: list[int] = []
        for node in cases.nodes:
            if not waiting:
                raise InputError("the tree goes on beyond its cases")
            taken = waiting.pop()
            if isinstance(node, tuple):
                number, options = node
                if not number < len(self.choices) or number in taken:
                    raise InputError(f"choice {number} does not exist, or has been taken")
                if options != len(self.choices[number].options):
                    raise InputError(f"choice {number} has not {options} options")
                waiting += [{**taken, number: option} for option in reversed(range(options))]
                continue
            if node not in weighed:
                weighed[node] = self.weigh(cases.multipliers[node])
            found.append(weighed[node].bound(taken))
        if waiting or not found:
            raise InputError("the tree ends before all cases are there")
        return min(found)


class _Weighed:
    """A constant, and a price for every option."""

    def __init__(self, facts: Facts, weighing: Weighing) -> None:
        prices = dict.fromkeys(facts.owner, 0)
        rest = 0
        for (kind, span, index), price in weighing.prices.items():
            if kind == "again" and span == WINDOW and index in facts.owner:
                prices[index] = price
            else:
                rest += min(price, 0)
        for value, row in weighing.leaving.items():
            rest += weighing.cheapest_growth(value, row)
        self.constant = weighing.constant + rest
        self.scale = weighing.weights.over * facts.model.common
        self.prices = [
            [sum(prices[each] for each in option) for option in choice.options]
            for choice in facts.choices
        ]

    def bound(self, taken: Taken) -> int:
        """Return the ticks that every execution takes which takes these options."""
        total = self.constant
        for number, prices in enumerate(self.prices):
            total += prices[taken[number]] if number in taken else min(prices)
        return math.ceil(Fraction(total, self.scale))


class RestrictedProgram:
    """The linear program of a rule; its columns for options lie behind those of `JointProgram`."""

    def __init__(self, problem: Problem, moment: int, choices: Sequence[Choice]) -> None:
        network = problem.computed
        assert network is not None
        known, grid = contents(network, problem.offload), grid_of(network, {moment}, moment)
        room = rooms(known, grid, problem.platform.memory, True)
        self.program = program = JointProgram(problem, known, grid, room)
        self.choices = list(choices)
        again = program.again[WINDOW]
        # Where the columns of each choice begin, behind the others.
        self.first = [0, *np.cumsum([len(choice.options) for choice in self.choices]).tolist()]
        options = [option for choice in self.choices for option in choice.options]
        pairs = [(c, number) for number, option in enumerate(options) for c in option]
        rows = [again[c] for c, _ in pairs if c in again]
        columns = [number for c, number in pairs if c in again]
        old, new = len(program.cost), self.first[-1]
        link: Any = csc_array((np.ones(len(rows)), (rows, columns)), shape=(old, new))
        data = program.rows
        shape = (len(data.low), old)
        matrix: Any = csr_array((data.values, (data.rows, data.columns)), shape=shape)
        # What makes nothing of further use has no column; it takes time all the same.
        vain = [(c, number) for c, number in pairs if c not in again]
        compute = data.keys.index(("compute", WINDOW, ()))
        lengths = [-network.computations[c].duration / program.unit for c, _ in vain]
        places = ([compute] * len(vain), [number for _, number in vain])
        taken: Any = csr_array((lengths, places), shape=(len(data.low), new))
        self.matrix: Any = csr_array(hstack([matrix, matrix @ link + taken]))
        self.cost = np.concatenate([program.cost, np.array(program.cost) @ link])
        upper = np.array(program.upper)
        upper[rows] = 0.0
        self.upper = np.concatenate([upper, np.ones(new)])
        owner = np.repeat(np.arange(len(self.choices)), np.diff(self.first))
        self.one: Any = csr_array(
            (np.ones(new), (owner, old + np.arange(new))), shape=(len(self.choices), old + new)
        )

    def solve(self, seconds: float, taken: Taken) -> tuple[Solved, np.ndarray] | None:
        """Return an optimum and the share of each option; other options have a price."""
        if seconds <= 0:
            return None
        old, cost = len(self.program.cost), self.cost.copy()
        for number, option in taken.items():
            row = slice(old + self.first[number], old + self.first[number + 1])
            cost[row] += _PENALTY
            cost[old + self.first[number] + option] -= _PENALTY
        answer = run_highs(
            "linprog",
            seconds,
            c=cost,
            A_ub=-self.matrix,
            b_ub=-np.array(self.program.rows.low),
            A_eq=self.one,
            b_eq=np.ones(len(self.choices)),
            bounds=np.stack([np.zeros(len(self.upper)), self.upper], axis=1),
            method="highs-ipm",
            options={"time_limit": seconds},
        )
        if answer.status != 0:
            return None
        keys, unit = self.program.rows.keys, self.program.unit
        marginals = dict(zip(keys, (-answer.ineqlin.marginals).tolist(), strict=True))
        lengths = ("compute", "link", "out", "in")
        weights = {
            key: weight if key[0] in lengths else weight * unit
            for key, weight in marginals.items()
            if weight > 0
        }
        return Solved(float(answer.fun) * unit, weights, answer.x[:old]), answer.x[old:]


@dataclass
class _Node:
    value: int
    taken: dict[int, int]
    weights: JointWeights
    shares: np.ndarray
    number: int = -1
    children: list[_Node] | None = None


def restricted_bound(
    problem: Problem,
    choices: Sequence[Choice],
    seconds: float,
    most: int,
    target: int | None = None,
) -> Restricted | None:
    """Return a proved bound on executions within a rule, or None if HiGHS solves nothing in time.

    Parameters
    ----------
    problem : Problem
        A problem with a network.
    choices : sequence of Choice
        The rule.
    seconds : float
        Seconds for everything.
    most : int
        Cases at most.
    target : int, optional
        More ticks than this are of no use.
    """
    deadline = time.monotonic() + seconds
    moment = cut_of(problem, members_of(choices))
    program, facts = RestrictedProgram(problem, moment, choices), Facts(problem, moment, choices)

    def solve(taken: dict[int, int], above: _Node | None) -> _Node | None:
        solved = program.solve(deadline - time.monotonic(), taken)
        if solved is None:
            return None
        best: _Node | None = None
        for over in _DENOMINATORS if above is None else _DENOMINATORS[:1]:
            weights = listed(whole_weights(program.program, solved[0], over), over)
            value = facts.weigh(weights).bound(taken)
            if best is None or value > best.value:
                best = _Node(value, taken, weights, solved[1])
        assert best is not None
        if above is not None and (parent := facts.weigh(above.weights).bound(taken)) > best.value:
            best.value, best.weights = parent, above.weights
        return best

    root = solve({}, None)
    if root is None:
        return None
    order, leaves = count(), 1
    waiting = [(root.value, next(order), root)]
    while waiting and leaves < most:
        value, _, node = heapq.heappop(waiting)
        number = _undecided(node, choices, program.first)
        if (target is not None and value >= target) or number is None:
            heapq.heappush(waiting, (value, next(order), node))
            break
        children = []
        for option in range(len(choices[number].options)):
            child = solve({**node.taken, number: option}, node)
            if child is None:
                break
            children.append(child)
        if len(children) < len(choices[number].options):
            heapq.heappush(waiting, (value, next(order), node))
            break
        node.number, node.children = number, children
        leaves += len(children) - 1
        for child in children:
            heapq.heappush(waiting, (child.value, next(order), child))
    return _written(root, choices, program.first)


def _undecided(node: _Node, choices: Sequence[Choice], first: Sequence[int]) -> int | None:
    """Return the choice that is most divided, or None."""
    scores = [
        (1.0 - float(node.shares[first[number] : first[number + 1]].max()), -number)
        for number in range(len(choices))
        if number not in node.taken
    ]
    found = max(scores, default=(0.0, 0))
    return -found[1] if found[0] > 1e-6 else None


def _written(root: _Node, choices: Sequence[Choice], first: Sequence[int]) -> Restricted:
    """Return the proof of a tree, each node before its cases."""
    multipliers: list[JointWeights] = []
    nodes: list[int | tuple[int, int]] = []
    leaves: list[_Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.children is not None:
            nodes.append((node.number, len(choices[node.number].options)))
            waiting += reversed(node.children)
            continue
        if node.weights not in multipliers:
            multipliers.append(node.weights)
        nodes.append(multipliers.index(node.weights))
        leaves.append(node)
    weakest = min(leaves, key=lambda leaf: leaf.value)
    chosen = tuple(int(weakest.shares[a:b].argmax()) for a, b in pairwise(first))
    return Restricted(weakest.value, JointCases(tuple(multipliers), tuple(nodes)), chosen)
