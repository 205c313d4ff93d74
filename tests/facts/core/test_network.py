"""Networks, strategies and what they expand to."""

from __future__ import annotations

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Run, Value
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.network_json import EXECUTION
from offcert.core.strategy import Strategy
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from support.problems.random_instances import cnn_chain, seeded
from support.problems.random_networks import (
    checkpoint_chain,
    random_network,
    random_strategy,
    recompute_problem,
)

# x -> F0 -> a -> F1 -> b, and back; B1 needs a and b, B0 needs a.
SMALL = Network(
    [
        Computation("F0", 2, 1, reads=(0,), writes=(1,)),
        Computation("F1", 3, 0, reads=(1,), writes=(2,), lean=1),
        Computation("B1", 4, 0, reads=(1, 2), writes=(3,), repeatable=False),
        Computation("B0", 5, 2, reads=(1, 3), writes=(4,), repeatable=False),
    ],
    [Value("x", 7), Value("a", 10), Value("b", 6), Value("db", 1), Value("da", 1)],
)


def uses(trace):
    return {(tensor.name, tensor.uses): tensor.size for tensor in trace.tensors}


def test_a_network_run_once_is_a_trace() -> None:
    trace = SMALL.trace()
    assert [(o.name, o.duration, o.workspace) for o in trace.operations] == [
        ("F0", 2, 1),
        ("F1", 3, 0),
        ("B1", 4, 0),
        ("B0", 5, 2),
    ]
    assert uses(trace) == {
        ("x", (-1, 0)): 7,
        ("a", (0, 1, 2, 3)): 10,
        ("b", (1, 2)): 6,
        ("db", (2, 3)): 1,
        ("da", (3,)): 1,
    }
    assert SMALL.own_memory == (18, 11, 17, 14)


def test_a_run_again_splits_a_tensor_in_two() -> None:
    # b is discarded at first, a is dropped after F1; both are made again before B1.
    strategy = Strategy([0, Run(1, (2,)), 0, 1, 2, 3])
    execution = strategy.expand(SMALL)
    assert execution.runs == (0, 1, 0, 1, 2, 3)
    assert execution.repeated == 2
    assert uses(execution.trace) == {
        ("x", (-1, 0, 2)): 7,
        ("a", (0, 1)): 10,
        ("a", (2, 3, 4, 5)): 10,
        ("b", (3, 4)): 6,
        ("db", (4, 5)): 1,
        ("da", (5,)): 1,
    }
    # A run that discards something has the workspace of a lean run.
    assert execution.trace.operations[1].workspace == 1
    assert execution.trace.operations[2].name == "F0 (run 2)"


def test_without_a_lean_workspace_what_is_discarded_takes_memory_while_it_is_made() -> None:
    execution = Strategy([Run(0, (1,)), 0, 1, 2, 3]).expand(SMALL)
    assert execution.trace.operations[0].workspace == 11


def test_what_nobody_reads_can_be_discarded() -> None:
    # b of the first run of F1 is made again before anybody reads it, and nobody reads da.
    strategy = Strategy([0, 1, 1, 2, 3]).without_unread(SMALL)
    assert [run.discards for run in strategy.runs] == [(), (2,), (), (), (4,)]


def test_what_changes_in_place_shares_memory_and_cannot_leave_before() -> None:
    network = Network(
        [
            Computation("F0", 1, writes=(0,)),
            Computation("F1", 1, writes=(2,)),
            Computation("relu", 1, reads=(0,), writes=(1,)),
            Computation("F2", 1, reads=(0, 1, 2)),
        ],
        [Value("a", 5), Value("a'", 0, base=0), Value("b", 3)],
    )
    assert uses(network.trace()) == {("a", (0, 1, 2, 3)): 5, ("b", (1, 3)): 3}


def test_held_values_stay_if_they_are_there() -> None:
    network = Network(
        [
            Computation("F0", 1, writes=(0,)),
            Computation("F1", 1, reads=(0,), writes=(1,)),
            Computation("F2", 1, reads=(1,), holds=(0,)),
        ],
        [Value("a", 5), Value("b", 3)],
    )
    assert ("a", (0, 1, 2)) in uses(network.trace())


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([1], r"runs\[0\] \(F1\) reads a, which is not there"),
        ([0, 9], r"runs\[1\] names computation 9, of which there are 4"),
        ([Run(0, (2,))], r"runs\[0\] discards value 2, which it does not write"),
        ([0, Run(1, (5,))], r"runs\[1\] discards value 5"),
        ([Run(0, (1,)), 1], r"runs\[1\] \(F1\) reads a"),
    ],
)
def test_strategies_that_cannot_be_expanded(runs, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Strategy(runs).expand(SMALL)


@pytest.mark.parametrize(
    ("computations", "values", "message"),
    [
        ([], [], "at least one computation"),
        ([Computation("F", 1, reads=(0,))], [], r"computations\[0\].reads\[0\] must be below"),
        ([Computation("F", -1)], [], r"computations\[0\].duration must be at least 0"),
        ([Computation("F", 1, lean=-1)], [], r"computations\[0\].lean must be at least 0"),
        (
            [Computation("F", 1, reads=(0,)), Computation("G", 1, writes=(0,))],
            [Value("a", 1)],
            r"computations\[0\] reads values\[0\] \('a'\), which is not computed before it",
        ),
        (
            [Computation("F", 1, writes=(0,)), Computation("G", 1, writes=(0,))],
            [Value("a", 1)],
            "is written by computations 0 and 1",
        ),
        ([Computation("F", 1)], [Value("a", 1, base=0)], "memory of its own"),
        (
            [Computation("F", 1, writes=(0,))],
            [Value("b", 0, base=1), Value("a", 1)],
            r"must read values\[1\], which it changes in place",
        ),
        (
            [Computation("F", 1)],
            [Value("a", 1), Value("b", 2, base=0)],
            "must be 0 for a value with a base",
        ),
        ([Computation("F", 1, of=(0,))], [], r"computations\[0\].of\[0\] must be below 0"),
        ([Computation("F", 1, reads=(1, 0))], [Value("a", 1), Value("b", 1)], "increase strictly"),
    ],
)
def test_what_is_no_network(computations, values, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Network(computations, values)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_of_the_offloading_paper_is_the_same_trace(seed: int) -> None:
    chain = cnn_chain(seeded(seed), 2 + seed % 7)
    network = CheckpointChain.of(chain).network()
    found = {
        (t.name.replace("a", "x").replace("d", "y"), t.uses): t.size
        for t in network.trace().tensors
        if not t.name.startswith("e")
    }
    assert found == uses(chain.trace())
    assert network.trace().demand == chain.trace().demand


def test_memory_of_the_papers_operations() -> None:
    chain = CheckpointChain([1, 1], [1, 1], [5, 7, 2], [9, 3], [50, 70, 20], [100, 200], [300, 400])
    network = chain.network()
    kept = Strategy.plain(network).expand(network).trace.demand
    # F_all^1: its input, what it saves, its workspace; B^2: δ, ā, the input and its ā, workspace.
    assert kept[0] == 5 + 9 + 100
    assert kept[2] == 5 + (20 + 70) + 3 + 9 + 400
    lean = Strategy([Run(0, (3,)), 1, 2, 0, 3])
    with pytest.raises(InputError, match="reads e0"):
        Strategy([Run(0, (3,)), 1, 2, 3]).expand(network)
    # F_ck^1: its input, its output and its workspace.
    assert lean.expand(network).trace.demand[0] == 5 + 7 + 100


@pytest.mark.parametrize("seed", range(40))
def test_problems_and_executions_survive_their_documents(seed: int) -> None:
    rng = seeded(seed)
    chain = checkpoint_chain(rng, 4) if seed % 2 else random_network(rng, 5)
    problem = recompute_problem(rng, chain)
    assert problem_from_json(problem_to_json(problem)) == problem
    network = problem.computed
    assert network is not None
    execution = random_strategy(rng, network).expand(network)
    assert EXECUTION.read(Fields(EXECUTION.write(execution), "execution")) == execution


def test_problems_that_contradict_themselves() -> None:
    rng = seeded(1)
    problem = recompute_problem(rng, SMALL)
    document = problem_to_json(problem)
    with pytest.raises(InputError, match='recompute "chain" needs a chain'):
        problem_from_json(document | {"recompute": "chain"})
    with pytest.raises(
        InputError, match='recompute must be one of "none", "chain", "any", not "some"'
    ):
        problem_from_json(document | {"recompute": "some"})
    with pytest.raises(InputError, match="a deadline is only for problems that minimise memory"):
        problem_from_json(document | {"deadline": 5})
    plain = problem_to_json(problem.plain())
    with pytest.raises(InputError, match="a trace does not"):
        problem_from_json(plain | {"recompute": "any"})


def test_without_offloading_nothing_may_leave() -> None:
    chain = CheckpointChain([1] * 4, [1] * 4, [3] * 5)
    problem = recompute_problem(seeded(2), chain)
    held = problem_from_json(problem_to_json(problem) | {"offload": False})
    assert problem.trace.gaps
    assert not held.trace.gaps
    execution = Strategy.plain(chain.network()).expand(chain.network())
    assert problem.executed(execution).trace.gaps
    assert not held.executed(execution).trace.gaps
