"""Joint bounds against brute force, and forged multipliers by their places."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.result import Bound
from offcert.formulations.joint.bound import JointCuts
from offcert.formulations.joint.room import grid_of
from offcert.proofs import registry
from offcert.proofs.joint_document import pack, unpack
from offcert.proofs.kinds.multipliers import JointProof
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.verification.findings import recheck
from offcert.verification.joint.room import largest_sum
from support.oracles.joint import least_time
from support.problems.joint import joint_problem, solvable


def bound(problem: Problem, moments: tuple[int, ...], whole: bool) -> Bound | None:
    """Return the bound of a grid with all spans."""
    network = problem.computed
    assert network is not None
    grid = grid_of(network, moments)
    return JointCuts(problem, whole=whole).cut(grid, 60)


def by_cases(problem: Problem, target: int | None = None) -> Bound:
    """Return the bound of all moments if runs again are decided."""
    network = problem.computed
    assert network is not None
    grid = grid_of(network, range(2 * len(network) - 1))
    found = JointCuts(problem, target).cases(grid, 60)
    assert found is not None
    return found


@pytest.mark.slow
def test_no_bound_exceeds_brute_force_and_all_moments_say_most() -> None:
    reached = improved = closed = 0
    for number, (problem, best) in zip(range(40), solvable(100), strict=False):
        assert problem.computed is not None
        rng = random.Random(number)
        every = range(2 * len(problem.computed) - 1)
        full = bound(problem, tuple(every), True)
        some = sorted(rng.sample(every, rng.randint(0, len(every))))
        part = bound(problem, tuple(some), rng.random() < 0.5)
        assert full is not None
        assert part is not None
        for found in (full, part):
            assert recheck(found, problem) is None
        assert problem.computed.compute_time <= part.value <= full.value <= best, problem
        reached += full.value == best
        if full.value < best:
            decided = by_cases(problem, best)
            assert recheck(decided, problem) is None
            assert full.value <= decided.value <= best, problem
            closed += decided.value == best
        improved += full.value > problem.computed.compute_time
    assert reached >= 25
    assert improved >= 14
    assert closed >= 1


def spikes(seed: int) -> Problem:
    """Return a problem in which values are read between two runs that leave little memory."""
    rng = random.Random(seed)
    memory = rng.randint(6, 9)
    size = rng.randint(3, 6)
    again = rng.random() < 0.8
    made = [
        Computation("A", rng.randint(1, 9), writes=(0,)),
        Computation("B", rng.randint(1, 9), reads=(0,), writes=(1,), repeatable=again),
        Computation("S", rng.randint(1, 9), rng.randint(memory - 2, memory), repeatable=False),
        Computation("D", rng.randint(1, 3), reads=(0, 1), repeatable=False),
        Computation("T", rng.randint(1, 5), rng.randint(memory - 2, memory), repeatable=False),
        Computation("E", 1, reads=tuple(rng.sample(range(2), rng.randint(0, 1))), repeatable=False),
    ]
    values = [Value("x", memory - size), Value("y", rng.randint(0, size))]
    platform = Platform(memory, Fraction(1), rng.choice(list(Link)))
    return Problem("spikes", Network(made, values), platform, recompute="any")


@pytest.mark.slow
def test_what_is_decided_between_spikes_exceeds_no_optimum() -> None:
    tried = reached = 0
    for problem in map(spikes, range(22)):
        assert problem.computed is not None
        found = JointCuts(problem).between(60)
        best = least_time(problem)
        if found is not None and best is not None:
            assert recheck(found, problem) is None
            assert problem.computed.compute_time <= found.value <= best, problem
            tried += 1
            reached += found.value == best
    assert tried >= 6
    assert reached >= 1


@cache
def changed_in_place() -> Problem:
    """Return a problem whose x may leave while C changes it: the checker asks when it was written.

    So it takes 21 ticks, not the 29 of an x that leaves only after C.
    """
    network = Network(
        [
            Computation("A", 1, writes=(0,)),
            Computation("C", 10, reads=(0,), writes=(1,), repeatable=False),
            Computation("S", 1, workspace=8, repeatable=False),
            Computation("D", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 8), Value("x'", 0, base=0)],
    )
    return Problem("changed", network, Platform(8, Fraction(1)), recompute=Recompute.ANY)


@cache
def changed_again() -> Problem:
    """Return a problem whose x is best made and changed again, and leaves between the two.

    C reads y, which is back only at the end of T; x has the time of T to leave.
    """
    network = Network(
        [
            Computation("Y", 1, writes=(0,), repeatable=False),
            Computation("U", 24, repeatable=False),
            Computation("A", 1, writes=(1,)),
            Computation("C", 0, reads=(0, 1), writes=(2,)),
            Computation("S", 1, workspace=28, repeatable=False),
            Computation("R", 1, workspace=20, repeatable=False),
            Computation("T", 24, repeatable=False),
            Computation("S'", 1, workspace=28, repeatable=False),
            Computation("D", 1, reads=(1, 2), repeatable=False),
        ],
        [Value("y", 20), Value("x", 8), Value("x'", 0, base=1)],
    )
    platform = Platform(28, Fraction(1), Link.DUPLEX)
    return Problem("changed again", network, platform, recompute=Recompute.ANY)


def test_a_copy_may_begin_to_leave_before_it_is_changed_in_place() -> None:
    assert (least_time(changed_in_place()), least_time(changed_again())) == (21, 63)
    for problem, moments, most in (
        (changed_in_place(), tuple(range(7)), 21),
        (changed_again(), (5, 9, 12, 13, 15), 62),
    ):
        found = bound(problem, moments, True)
        assert found is not None
        assert (found.value, recheck(found, problem)) == (most, None)


@pytest.mark.parametrize(
    ("problem", "moments", "claimed", "proved", "multipliers"),
    [
        # That x' has not left when C ends, whoever says so: no share of it, or a fact.
        (
            changed_in_place,
            (3, 4),
            27,
            19,
            {"available": [[2, 1, 16]], "returned": [[2, 1, 8]], "link": [[1, 1], [2, 1]]},
        ),
        (
            changed_in_place,
            range(7),
            29,
            21,
            {
                "available": [[6, 1, 8]],
                "kept": [[6, 1, 8], [26, 1, 8]],
                "origin": [[26, 1, 8]],
                "link": [[2, 1], [4, 1], [6, 1]],
            },
        ),
        (
            changed_in_place,
            (3, 4),
            27,
            19,
            {
                "available": [[2, 1, 16]],
                "left": [[0, 1, 8]],
                "returned": [[2, 1, 8]],
                "link": [[1, 1], [2, 1]],
            },
        ),
        # That no copy of x is there when C begins.
        (
            changed_in_place,
            (2, 4),
            26,
            10,
            {
                "available": [[2, 1, 24]],
                "left": [[3, 1, 8]],
                "returned": [[2, 1, 16]],
                "link": [[0, 1], [2, 1]],
            },
        ),
        # That x' leaves during T or after it only if it, not x, is there when T begins.
        (
            changed_again,
            (5, 9, 12, 13, 15),
            64,
            59,
            {
                "over": 60,
                "available": [[2, 0, 400], [2, 2, 160], [5, 0, 1200], [5, 2, 480]],
                "inputs": [[2, 3, 0, 400], [5, 3, 0, 1200]],
                "kept": [[2, 2, 320]],
                "left": [[3, 2, 297], [13, 2, 23]],
                "origin": [[2, 2, 160], [5, 2, 720]],
                "returned": [[2, 1, 320]],
                "runs": [[10, 3, 80], [13, 2, 23]],
                "out": [[1, 60], [2, 40], [4, 37]],
                "in": [[2, 20], [5, 60]],
            },
        ),
    ],
)
def test_that_it_leaves_only_after_the_change_is_refused(
    problem: Callable[[], Problem],
    moments: Sequence[int],
    claimed: int,
    proved: int,
    multipliers: dict[str, Any],
) -> None:
    pairs = combinations(range(1, len(moments) + 2), 2)
    proof = JointProof(
        moments=tuple(moments),
        spans=tuple((one, two) for one, two in pairs if two > one + 1),
        whole=True,
        proof=pack({"over": 1} | multipliers),
    )
    said = recheck(registry.proved("joint-lp", claimed, proof), problem())
    assert said == f"the document says {claimed}, but its proof gives {proved}"
    assert recheck(registry.proved("joint-lp", proved, proof), problem()) is None


@pytest.mark.parametrize("weights", [{"out": [[0, 1]], "in": [[0, 1]]}, {"in": [[0, 2]]}])
def test_a_window_counts_once_whatever_it_lasts_as_long_as(weights: dict[str, Any]) -> None:
    proof = JointProof(moments=(5,), spans=(), whole=True, proof=pack({"over": 1} | weights))
    said = recheck(registry.proved("joint-lp", 0, proof), changed_again())
    assert said == "proof.in: window 0 counts more than once"


def test_a_bound_for_whole_values_is_refused_where_transfers_may_pause() -> None:
    problem, found = example(offload=True)
    assert found.details["whole"]
    assert recheck(found, problem) is None
    for transfers in (Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL):
        fault = recheck(found, replace(problem, transfers=transfers))
        assert fault == f"details.whole must be false with {transfers} transfers"
    alone = replace(problem, offload=False, transfers=Transfers.FRACTIONAL)
    proof = bound(alone, (4,), True)
    assert proof is not None
    assert recheck(proof, alone) is None


@cache
def example(offload: bool = False) -> tuple[Problem, Bound]:
    """Return the example of the theory page, and its bound."""
    network = Network(
        [
            Computation("A", 2, writes=(0,)),
            Computation("B", 3, reads=(0,), writes=(1,)),
            Computation("S", 1, 4, repeatable=False),
            Computation("D", 1, reads=(1,), repeatable=False),
        ],
        [Value("x", 3), Value("y", 2)],
    )
    problem = Problem("example", network, Platform(5, 1), recompute="any", offload=offload)
    found = bound(problem, tuple(range(7)), True)
    assert found is not None
    return problem, found


def test_the_example_in_brute_force() -> None:
    for offload, best, proved in ((False, 12, 12), (True, 11, 10)):
        problem, found = example(offload)
        assert least_time(problem) == best
        assert found.value == proved


@pytest.mark.parametrize(
    ("family", "multiplier", "fault"),
    [
        ("available", [0, 1, 1], "proof.available[0]: value 1 is not made before the span begins"),
        ("available", [99, 1, 1], "proof.available[0]: there is no such place"),
        ("available", [3, 99, 1], "proof.available[0]: there is no such place"),
        ("inputs", [6, 1, 1, 9], "proof.inputs[0]: computation 1 does not read value 1"),
        ("inputs", [6, 2, 0, 9], "proof.inputs[0]: computation 2 does not run again there"),
        ("inputs", [5, 1, 0, 9], "proof.inputs[0]: computation 1 does not run again there"),
        ("kept", [7, 1, 9], "proof.kept[0]: nothing needs to be kept beyond the end"),
        ("left", [7, 1, 9], "proof.left[0]: value 1 cannot leave"),
        ("returned", [7, 1, 9], "proof.returned[0]: value 1 cannot leave"),
        ("runs", [6, 3, 9], "proof.runs[0]: computation 3 does not run again there"),
        ("returns", [7, 0, 9], "proof.returns[0]: value 0 cannot leave"),
        ("memory", [0, 9], "proof.memory[0]: boundary 0 is no moment of a first run"),
        ("memory", [8, 9], "proof.memory[0]: boundary 8 is no moment of a first run"),
        ("outputs", [8, 9], "proof.outputs[0]: boundary 8 is no moment of a first run"),
        ("outputs", [2, 9], "proof.outputs[0]: at boundary 2 nothing is discarded to save memory"),
        ("origin", [0, 0, 9], "proof.origin[0]: value 0 is not made before the span begins"),
        ("link", [0, 10**6], "proof.link: window 0 counts more than once"),
        ("link", [8, 1], "proof.link[0]: there is no such place"),
        ("out", [0, 1], "proof.out[0]: there is no such place"),
        ("memory", [1, 0], "proof.memory[0][1] must be at least 1, not 0"),
        ("memory", [1], "proof.memory[0] must be 2 integers, not [1]"),
    ],
)
def test_a_multiplier_of_no_fact_is_refused_with_its_place(
    family: str, multiplier: list[int], fault: str
) -> None:
    problem, found = example()
    document = unpack(found.details["proof"], "proof")
    document[family] = [multiplier]
    forged = replace(found, details=dict(found.details) | {"proof": pack(document)})
    said = recheck(forged, problem)
    assert said is not None
    assert said.startswith(fault)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ([], "proof.tree ends before all cases are there"),
        ([[1, 0], 0], "proof.tree ends before all cases are there"),
        ([[1, 0], [1, 1], 0, 1], "proof.tree ends before all cases are there"),
        ([[1, 0], 0, 1, 1], "proof.tree[3] belongs to no node before it"),
        ([[1, 0], 0, 2], "proof.tree[2] must be below 2, not 2"),
        ([[1, 0], [1, 0], 0, 1, 1], "proof.tree[1] is decided above it"),
        ([[1, 3], 0, 1], "proof.tree[0]: computation 3 does not run again in span 1"),
        ([[1, 9], 0, 1], "proof.tree[0]: computation 9 does not run again in span 1"),
        ([[99, 0], 0, 1], "proof.tree[0]: computation 0 does not run again in span 99"),
        ([[2, 0], 0, 1], "proof.tree[0]: computation 0 does not run again in span 2"),
        ([[1, 4], 0, 1], "proof.tree[0]: computation 4 does not run again in span 1"),
        ([[0, 0], 0, 1], "proof.tree[0]: computation 0 does not run again in span 0"),
        ([[1], 0, 1], "proof.tree[0] must be a span and a computation, or a number, not"),
        ([[1, 0], 1, 0], "the document says"),
        ([0], "the document says"),
        ([1], "the document says"),
    ],
)
def test_cases_that_are_not_all_are_refused_with_their_place(tree: list[Any], fault: str) -> None:
    problem, found = half_moved()
    assert recheck(found, problem) is None
    document = unpack(found.details["proof"], "proof")
    assert len(document["multipliers"]) == 2
    document["tree"] = tree
    said = recheck(replace(found, details=dict(found.details) | {"proof": pack(document)}), problem)
    assert said is not None
    assert said.startswith(fault)


def half_moved() -> tuple[Problem, Bound]:
    """Return the example of the theory page for cases, and its bound."""
    network = Network(
        [
            Computation("A", 4, writes=(0,)),
            Computation("B", 6, writes=(1,)),
            Computation("S", 5, 16, repeatable=False),
            Computation("D", 17, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 8), Value("y", 8)],
    )
    problem = Problem("cases", network, Platform(16, 1), recompute="any")
    found = JointCuts(problem).cases(grid_of(network, (4,)), 60)
    assert found is not None
    return problem, found


def test_a_run_is_again_or_not_at_all() -> None:
    problem, found = half_moved()
    undecided = bound(problem, (4,), True)
    assert undecided is not None
    assert (undecided.value, found.value, least_time(problem)) == (35, 36, 42)
    assert recheck(found, problem) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"moments": [7]}, "details.moments[0] must be below 7, not 7"),
        ({"moments": [3, 3]}, "details.moments[1] must be above 3, not 3"),
        ({"spans": [[0, 1]]}, "details.spans[0] must be two boundaries, at most 8, with another"),
        ({"spans": [[3, 3]]}, "details.spans[0] must be two boundaries, at most 8, with another"),
        ({"spans": [[4, 2]]}, "details.spans[0] must be two boundaries, at most 8, with another"),
        ({"spans": [[1, 4, 6]]}, "details.spans[0] must be two boundaries, at most 8, with anoth"),
        ({"spans": [[0, 9]]}, "details.spans[0] must be two boundaries, at most 8, with another"),
        ({"moments": []}, "details.spans[0] must be two boundaries, at most 1, with another"),
        ({"spans": []}, "proof.available["),
    ],
)
def test_a_cut_that_is_none_is_refused_with_its_place(change: dict[str, Any], fault: str) -> None:
    problem, found = example()
    said = recheck(replace(found, details=dict(found.details) | change), problem)
    assert said is not None
    assert said.startswith(fault)


def test_more_spans_than_any_proof_needs_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, found = example()
    monkeypatch.setattr("offcert.verification.joint.verifier.LARGEST", 40)
    assert recheck(found, problem) == "details.moments and details.spans are too many"
    assert problem.computed is not None
    spans = len(found.details["moments"]) + len(found.details["spans"]) + 1
    most = spans * len(problem.computed)
    for limit, fault in (
        (most, None),
        (most - 1, "details.moments and details.spans are too many"),
    ):
        monkeypatch.setattr("offcert.verification.joint.verifier.LARGEST", limit)
        assert recheck(found, problem) == fault


def test_a_joint_bound_is_about_a_network() -> None:
    problem, found = example()
    traced = replace(problem, network=problem.trace, recompute=Recompute.NONE)
    assert recheck(found, traced) == "nothing is known of what is computed from what"


def test_a_fault_of_a_case_has_its_place() -> None:
    problem, found = half_moved()
    document = unpack(found.details["proof"], "proof")
    document["multipliers"][1] = {"over": 1, "memory": [[0, 1]]}
    forged = replace(found, details=dict(found.details) | {"proof": pack(document)})
    said = str(recheck(forged, problem))
    assert said.startswith("proof.multipliers[1].memory[0]: boundary 0 is no moment")


def test_nothing_takes_time_where_there_is_no_memory() -> None:
    network = Network(
        [Computation("A", 3, writes=(0,)), Computation("B", 4, reads=(0,))], [Value("x", 0)]
    )
    problem = Problem("empty", network, Platform(0, 1), recompute="any")
    found = bound(problem, (1, 2), True)
    assert found is not None
    assert (found.value, recheck(found, problem)) == (7, None)


def test_more_than_multipliers_prove_is_refused() -> None:
    problem, found = example()
    said = recheck(replace(found, value=13), problem)
    assert said == "the document says 13, but its proof gives 12"
    assert recheck(replace(found, value=11), problem) is None


def test_the_largest_sum_is_that_of_all_subsets() -> None:
    rng = random.Random(5)
    for _ in range(200):
        sizes = [rng.choice((1, 2, 3)) * rng.randint(1, 9) for _ in range(rng.randint(0, 6))]
        most = rng.randint(0, 40)
        sums = [
            sum(size for bit, size in enumerate(sizes) if chosen >> bit & 1)
            for chosen in range(1 << len(sizes))
        ]
        assert largest_sum(sizes, most) == max(s for s in sums if s <= most)


def test_problems_of_both_kinds_are_drawn() -> None:
    drawn = [joint_problem(seed) for seed in range(30)]
    assert {problem.offload for problem in drawn} == {False, True}
    assert {problem.platform.link for problem in drawn} == {"simplex", "duplex"}
