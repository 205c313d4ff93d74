"""A fluid bound called proved is re-checked without a solver, and every forgery is named."""

from __future__ import annotations

import base64
import copy
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from offcert.certify.search_steps.fluid import as_bound, document
from offcert.core.platform import Link, Platform
from offcert.core.result import Bound
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.fluid.tree import prove
from offcert.proofs import fluid_document
from offcert.proofs.fluid_document import KINDS, Weights, pack, unpack
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verify.fluid.model import FluidModel, speeds
from offcert.verify.recheck import recheck
from support.oracles.schedules import brute_force
from support.problems.random_instances import FAMILIES, problem_on, random_problem, seeded
from support.seeds import by_seeds


def middling(seed: int) -> Problem:
    """A problem of up to 14 stages whose tree has more than one node."""
    rng = seeded(seed)
    problem = problem_on(rng, FAMILIES[seed % 5](rng, rng.randint(6, 14)), f"middling-{seed}")
    return replace(problem, transfers=Transfers.INTERRUPTIBLE)


def crowded() -> Problem:
    """A problem where the larger of two tensors must leave: keeping it cannot be."""
    operations = [
        Operation(name, 2, room) for name, room in zip("fgtcb", (0, 0, 7, 0, 0), strict=True)
    ]
    tensors = [Tensor("x", 6, (0, 4)), Tensor("y", 4, (1, 3))]
    return Problem("crowded", Trace(operations, tensors), Platform(10, Fraction(1)))


@cache
def packed(seed: int) -> tuple[Problem, Bound]:
    problem = middling(seed)
    return problem, as_bound(problem, "fluid-milp", prove(problem), whole=False)


@pytest.mark.slow
@by_seeds(0, 200, 100)
def test_every_proof_found_is_established_again(seeds: range) -> None:
    for seed in seeds:
        kind = tuple(Transfers)[seed // 5 % 3]
        problem = replace(random_problem(seed + 9000), transfers=kind)
        whole, branching = kind is Transfers.ATOMIC, kind is not Transfers.FRACTIONAL
        proof = prove(
            problem, whole=whole, branching=branching, time_limit=0.0 if seed % 10 == 9 else 60.0
        )
        method = "fluid-milp" if branching else "fluid-lp"
        bound = as_bound(problem, method, proof, whole)
        assert recheck(bound, problem) is None, problem.name
        for value in (bound.value - 1, bound.value + 1):
            fault = recheck(replace(bound, value=value), problem)
            assert fault == f"the document says {value}, but its proof gives {bound.value}"


@by_seeds(0, 200, 200)
def test_any_weights_prove_no_more_than_the_optimum(seeds: range) -> None:
    """The checker's own arithmetic is sound for weights that no solver would give."""
    rng = seeded(11)
    above = useless = 0
    for seed in seeds:
        problem = random_problem(seed + 1500, largest=3)
        best = brute_force(problem)
        assert best is not None
        model = FluidModel(problem, required_absent(problem, subset_sum=True))
        count = len(problem.trace)
        for _ in range(5):
            rows = {
                kind: {o: rng.randint(1, 4) for o in range(count) if rng.random() < 0.15}
                for kind in KINDS
            }
            priced = model.price(Weights(rng.randint(1, 12), rows))
            if isinstance(priced, int):
                useless += 1
                continue
            bound = model.bound(priced, {})
            assert bound <= best, problem.name
            above += bound > problem.trace.compute_time
    assert above >= 20
    assert useless >= 20


def test_an_operation_that_lacks_room_ends_a_branch() -> None:
    problem = crowded()
    bound = as_bound(problem, "fluid-milp", prove(problem, target=99), whole=False)
    tree = unpack(bound.details["proof"], "proof")["tree"]
    assert [2] in tree
    assert recheck(bound, problem) is None
    assert bound.value <= (brute_force(problem) or 0)
    forged = edited(bound, lambda proof: proof["tree"].__setitem__(tree.index([2]), [1]))
    assert recheck(forged, problem) == (
        f"proof.tree[{tree.index([2])}] says that operation 1 lacks room, but it does not"
    )


def edited(bound: Bound, change: Callable[[Any], Any]) -> Bound:
    """The bound with its proof unpacked, changed and packed again."""
    proof = copy.deepcopy(unpack(bound.details["proof"], "proof"))
    change(proof)
    return replace(bound, details={**bound.details, "proof": pack(proof)})


def _first_leaf(tree: list[Any]) -> int:
    return next(place for place, node in enumerate(tree) if isinstance(node, int))


FORGERIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "multipliers taken away": (
        lambda proof: proof["multipliers"][0].update({kind: [] for kind in KINDS}),
        "but its proof gives",
    ),
    "larger multipliers": (
        lambda proof: proof["multipliers"][0].update(over=1, end=[[5, 90]]),
        "proof.multipliers[0] gives waiting before operation",
    ),
    "a negative multiplier": (
        lambda proof: proof["multipliers"][0].update(end=[[5, -1]]),
        "proof.multipliers[0].end[0][1] must be at least 1, not -1",
    ),
    "an unknown row": (
        lambda proof: proof["multipliers"][0].update(magic=[[0, 1]]),
        'the field "proof.multipliers[0].magic" is not known',
    ),
    "a row of no operation": (
        lambda proof: proof["multipliers"][0].update(due=[[999, 1]]),
        "proof.multipliers[0].due[0][0] must be below the number of operations",
    ),
    "a row given twice": (
        lambda proof: proof["multipliers"][0].update(due=[[3, 1], [3, 1]]),
        "proof.multipliers[0].due[1][0] must be at least 4, not 3",
    ),
    "a pair that is none": (
        lambda proof: proof["multipliers"][0].update(due=[[3, 1, 1]]),
        "proof.multipliers[0].due[0] must be an operation and a multiplier",
    ),
    "no denominator": (
        lambda proof: proof["multipliers"][0].pop("over"),
        'the field "proof.multipliers[0].over" is missing',
    ),
    "a denominator of 0": (
        lambda proof: proof["multipliers"][0].update(over=0),
        "proof.multipliers[0].over must be at least 1, not 0",
    ),
    "a missing leaf": (
        lambda proof: proof["tree"].pop(),
        "proof.tree lacks a node at its end: gap",
    ),
    "a leaf too many": (
        lambda proof: proof["tree"].append(0),
        "follows the end of the tree",
    ),
    "a gap decided twice": (
        lambda proof: proof["tree"].__setitem__(
            slice(_first_leaf(proof["tree"]), _first_leaf(proof["tree"]) + 1),
            [proof["tree"][0], 0, 0],
        ),
        "which is decided above it",
    ),
    "a gap of another problem": (
        lambda proof: proof["tree"].__setitem__(0, [0, 998, 999]),
        "proof.tree[0] must be a gap of the problem, not [0, 998, 999]",
    ),
    "multipliers that are not there": (
        lambda proof: proof["tree"].__setitem__(-1, 77),
        "must be below the number of multipliers",
    ),
    "multipliers of no leaf": (
        lambda proof: proof["multipliers"].append(proof["multipliers"][0]),
        "is used by no leaf",
    ),
    "a node that is none": (
        lambda proof: proof["tree"].__setitem__(0, [1, 2]),
        "proof.tree[0] must be a gap, an operation or a number, not [1, 2]",
    ),
    "an operation that does not exist": (
        lambda proof: proof["tree"].__setitem__(-1, [-1]),
        "must name an operation, not -1",
    ),
    "room that is not lacking": (
        lambda proof: proof["tree"].__setitem__(-1, [0]),
        "says that operation 0 lacks room, but it does not",
    ),
    "a truth value": (
        lambda proof: proof["tree"].__setitem__(-1, True),
        "must be an integer, not True",
    ),
    "no tree": (lambda proof: proof.update(tree=[]), "proof.tree lacks a node at its end"),
    "an unknown field": (
        lambda proof: proof.update(note=""),
        'the field "proof.note" is not known',
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_proof_is_rejected_with_its_place(name: str) -> None:
    problem, bound = packed(55)
    assert recheck(bound, problem) is None
    change, fault = FORGERIES[name]
    assert fault in (recheck(edited(bound, change), problem) or "")


def test_a_dropped_leaf_cannot_be_hidden_by_swapping_branches() -> None:
    """Each leaf's multipliers serve its own case: exchanged, some no longer suffice."""
    problem, bound = packed(55)
    tree = unpack(bound.details["proof"], "proof")["tree"]
    leaves = [place for place, node in enumerate(tree) if isinstance(node, int)]
    assert len({tree[place] for place in leaves}) > 1
    refused = 0
    for one, two in pairwise(leaves):
        if tree[one] == tree[two]:
            continue

        def swap(proof: Any, one: int = one, two: int = two) -> None:
            nodes = proof["tree"]
            nodes[one], nodes[two] = nodes[two], nodes[one]

        refused += recheck(edited(bound, swap), problem) is not None
    assert refused > 0


@pytest.mark.slow
@by_seeds(0, 40, 20)
def test_no_change_of_a_number_makes_a_proof_of_too_much(seeds: range) -> None:
    """Whatever is written into a proof: if it is accepted, its bound holds."""
    rng = seeded(3)
    accepted = 0
    for seed in seeds:
        problem = random_problem(seed + 9000)
        best = brute_force(problem)
        assert best is not None
        text = as_bound(problem, "fluid-milp", prove(problem, whole=True), whole=True)
        for _ in range(10):

            def change(proof: Any) -> None:
                item = rng.choice(proof["multipliers"])
                item["over"] = max(1, item["over"] + rng.choice((-1, 0, 1)))
                row = item[rng.choice(KINDS)]
                if row:
                    rng.choice(row)[1] += rng.randint(1, 3)

            forged = edited(text, change)
            fault = recheck(forged, problem) or ""
            if fault.startswith("the document says"):
                value = int(fault.split()[-1])
                assert recheck(replace(forged, value=value), problem) is None
                assert value <= best
                accepted += 1
    assert accepted >= 20


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "proof is cut off"),
        ("§", "proof is not base64 of compressed JSON"),
        ("abc", "proof is not base64 of compressed JSON"),
        (base64.b64encode(b"plain").decode(), "proof is not base64 of compressed JSON"),
        (base64.b64encode(zlib.compress(b"{")).decode(), "proof is not base64 of compressed JSON"),
        (base64.b64encode(zlib.compress(b"{}")[:-1]).decode(), "proof is cut off"),
        (
            base64.b64encode(zlib.compress(b"{}") + b"{}").decode(),
            "proof is cut off, or",
        ),
        (pack([]), "proof must be a JSON object"),
        (pack({}), 'the field "proof.multipliers" is missing'),
        (pack({"multipliers": [], "tree": 3}), "proof.tree must be a list"),
    ],
)
def test_what_is_no_proof_is_refused(text: str, fault: str) -> None:
    problem, bound = packed(55)
    found = recheck(replace(bound, details={"whole": False, "proof": text}), problem)
    assert (found or "").startswith(fault)


def test_a_proof_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pack([0] * 1000)
    monkeypatch.setattr(fluid_document, "LARGEST", 1000)
    with pytest.raises(fluid_document.TooLongError, match="more than 1000 characters"):
        unpack(text, "proof")
    with pytest.raises(fluid_document.TooLongError, match="more than 1000"):
        pack([0] * 1000)


def test_a_proof_holds_for_its_kind_of_transfers_only() -> None:
    problem, bound = packed(55)
    fractional = replace(problem, transfers=Transfers.FRACTIONAL)
    assert "fractional" in (recheck(bound, fractional) or "")
    linear = replace(bound, method="fluid-lp")
    nodes = len(unpack(bound.details["proof"], "proof")["tree"])
    fault = f"proof.tree must be one leaf, not {nodes} nodes"
    assert recheck(linear, fractional) == recheck(linear, problem) == fault
    rounded = replace(bound, details={**bound.details, "whole": True})
    assert "details.whole must be false" in (recheck(rounded, problem) or "")
    assert "no schedule exists" in (
        recheck(bound, problem.with_memory(problem.trace.least_memory - 1)) or ""
    )


def test_a_proof_of_another_problem_is_rejected() -> None:
    problem, bound = packed(55)
    roomier = problem.with_memory(problem.platform.memory + 5)
    assert "but its proof gives" in (recheck(bound, roomier) or "")
    slower = problem.with_bandwidth(problem.platform.bandwidth * 2)
    assert "but its proof gives" in (recheck(bound, slower) or "")


def test_checking_takes_less_time_than_finding() -> None:
    problem = middling(55)
    began = time.perf_counter()
    proof = prove(problem)
    found = time.perf_counter() - began
    bound = as_bound(problem, "fluid-milp", proof, whole=False)
    assert len(document(problem, proof)["tree"]) > 5
    began = time.perf_counter()
    assert recheck(bound, problem) is None
    assert time.perf_counter() - began < found


@pytest.mark.parametrize("link", tuple(Link))
def test_a_duplex_link_moves_both_ways_in_one_tick(link: Link) -> None:
    """x leaves before o1 and returns before o3; z leaves before o3 and returns before o5."""
    rooms = (0, 6, 0, 6, 0, 0)
    operations = [Operation(f"o{o}", 4 if o == 2 else 1, room) for o, room in enumerate(rooms)]
    trace = Trace(operations, [Tensor("x", 6, (0, 3)), Tensor("z", 6, (1, 5))])
    problem = Problem("both", trace, Platform(12, Fraction(1), link))
    bound = as_bound(problem, "fluid-milp", prove(problem), whole=False)
    assert recheck(bound, problem) is None
    # Both move during and after o2: 6 ticks together or 12 one after the other.
    assert bound.value == brute_force(problem) == (22 if link is Link.DUPLEX else 28)
    # A byte of x that is back at o3, and one of z that has left by then, are worth one tick each.
    model = FluidModel(problem, required_absent(problem))
    rows: dict[str, dict[int, int]] = {kind: {} for kind in KINDS}
    rows |= {"due": {3: 2}, "end": {3: 1}}
    priced = [model.price(Weights(over, rows)) for over in (1, 2)]
    assert (priced[0] == 0) == (link is Link.DUPLEX)
    assert not isinstance(priced[1], int)
    # Of the six ticks before o3 each costs 2 or 1; during o3 only leaving pays.
    assert priced[1].ticks == (-13 if link is Link.DUPLEX else -7)


def test_each_direction_of_the_link_has_its_speed() -> None:
    rate, out, back = speeds(Platform(1, Fraction(7, 5)))
    assert (rate * out, rate * back) == (Fraction(7, 5), Fraction(7, 5))
    assert (out, back) == (1, 1)
