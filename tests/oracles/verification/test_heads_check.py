"""The plain re-run of heads and tails: it confirms what is true and nothing else."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.chains import cnn_chain
from offcert.certification.method import Effort
from offcert.certification.methods import solve
from offcert.certification.search import Search
from offcert.certification.search_steps import labels as searched_steps
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.certification.search_steps.labels import climb_heads
from offcert.core.chain import Chain
from offcert.core.documents import canonical_digest
from offcert.core.platform import Kind, Link, Platform
from offcert.core.result import Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.ends import alone as searching
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.heads import heads_bound
from offcert.formulations.labels.ends.side import HeadSide, back, front
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.document import verify
from offcert.verification.ends import check as verifier
from offcert.verification.ends.check import can_end, within_reach
from offcert.verification.ends.prospects import Tables
from offcert.verification.ends.search import DONE, REACHED, TOO_LARGE
from support.oracles.schedules import brute_force
from support.oracles.side_sequences import least_end, random_side
from support.problems import claims as heads
from support.problems.claims import advice
from support.problems.random_instances import mixed_problem
from support.seeds import by_seeds

ANY = 2**60
PLENTY = 10**6
Claim = tuple[int, int, tuple[tuple[int, ...], ...], tuple[int, ...]]


def claims(
    problem: Problem, units: tuple[int, int], limit: int, max_labels: int
) -> Iterator[tuple[int, SideSearch, SideSearch]]:
    """Yield what the finder proves of both sides, at every operation that needs memory."""
    required = required_absent(problem, subset_sum=True)
    for pivot, need in enumerate(required):
        if need > 0:
            head = SideSearch(front(problem, required, pivot))
            tail = SideSearch(back(problem, required, pivot))
            for side, unit in zip((head, tail), units, strict=True):
                side.unit = unit
                side.improve(limit, max_labels, lambda: None)
            yield pivot, head, tail


def confirms(problem: Problem, proof: Heads, more: int = 0, claimed: int | None = None) -> bool:
    """Return whether head and tail are confirmed, a head that is so much longer."""
    value = sum(proof.times) if claimed is None else claimed
    rest = proof.pivot, proof.head + more, proof.tail, value + more
    return heads.confirms(problem, *rest, counted=proof.counted, units=proof.units)


def proved_by_search(problem: Problem, **options: Any) -> tuple[Heads, int]:
    """Return head and tail as they are found, and the labels that took."""
    outcome = heads_bound(problem, **{"upper_bound": ANY, "time_limit": 30} | options)
    assert outcome.proof is not None
    assert outcome.lower_bound == sum(outcome.proof.times)
    return outcome.proof, outcome.labels


@by_seeds(5000, 5240, 60)
def test_what_the_search_proves_is_confirmed_and_no_tick_more(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seeds.start)
    confirmed = refused = coarse = partial = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        compute = problem.trace.compute_time
        units = rng.choice(((1, 1), (1, 1), (2, 5), (9, 1)))
        few = rng.choice((1, 3, PLENTY, PLENTY))
        limit = rng.choice((compute // 2, ANY, ANY))
        monkeypatch.setattr(searching, "STRIDE", 1 if few < PLENTY else 10**4)
        for pivot, head, tail in claims(problem, units, limit, few):
            total = head.bound + tail.bound
            claim: dict[str, Any] = {"counted": (head.counted, tail.counted), "units": units}
            if total <= compute:
                continue
            times = head.bound, tail.bound
            assert heads.confirms(problem, pivot, *times, total, **claim)
            assert within_reach(problem, total, advice(pivot, times, **claim))
            confirmed += 1
            coarse += units != (1, 1)
            partial += not (head.exact and tail.exact)
            if head.exact and tail.exact:
                everything = tuple(
                    tuple({item.size for item in side.side.items}) for side in (head, tail)
                )
                for more in ((1, 0), (0, 1)):
                    times = head.bound + more[0], tail.bound + more[1]
                    best = {"counted": (everything[0], everything[1]), "units": units}
                    assert not heads.confirms(problem, pivot, *times, total + 1, **best)
                    refused += 1
    assert min(confirmed, refused) > 40
    assert min(coarse, partial) > 10


@pytest.mark.slow
@by_seeds(6000, 6200, 50)
def test_no_advice_makes_a_false_bound_true(seeds: range) -> None:
    rng = random.Random(seeds.start)
    tried = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        optimum = brute_force(problem)
        assert optimum is not None
        sizes = sorted({problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))})
        for pivot in range(len(problem.trace)):
            across = {problem.trace.gap_size(gap) for gap in problem.trace.gaps_over[pivot]}
            for _ in range(6):
                head = rng.randint(0, optimum + 1)
                counted = [
                    tuple(s for s in rng.choice((sizes, sorted(across))) if rng.random() < 0.7)
                    for _ in range(2)
                ]
                units = rng.choice((1, 1, 2, 3, 5)), rng.choice((1, 1, 2, 4))
                times = head, optimum + 1 - head
                assert not heads.confirms(
                    problem,
                    pivot,
                    *times,
                    optimum + 1,
                    counted=(counted[0], counted[1]),
                    units=units,
                )
                tried += 1
    assert tried > 1000


def waiting_problem() -> tuple[Problem, Heads]:
    """Return a problem whose bound exceeds its compute time."""
    chain = Chain((3, 5, 4, 6), (6, 9, 8, 11), (9, 7, 9, 5, 1), (1, 1, 1, 1, 1))
    problem = Problem("waiting", chain, Platform(chain.trace().least_memory, Fraction(1, 3)))
    proof, _ = proved_by_search(problem)
    assert problem.trace.compute_time < sum(proof.times) <= (brute_force(problem) or 0)
    assert confirms(problem, proof)
    return problem, proof


def long_problem() -> tuple[Problem, Heads]:
    """Return a chain whose head has to be searched for, with some sizes counted."""
    problem = cnn_chain(24, 1)
    problem = problem.with_memory(problem.memory_at(Fraction(0)))
    proof, labels = proved_by_search(problem, max_labels=10_000)
    assert labels > 10
    assert proof.counted[0]
    assert confirms(problem, proof)
    return problem, proof


def test_every_part_of_the_advice_matters() -> None:
    problem, proof = long_problem()
    head, tail = proof.times
    counted = proof.head_counted
    assert not confirms(problem, proof, 1)
    for wrong in (
        {"head": head + 1},
        {"tail": tail + 1},
        {"head": head - 1},
        {"tail": tail - 1},
        {"head": -1, "tail": head + tail + 1},
        {"head": head + tail + 1, "tail": -1},
        {"pivot": -1},
        {"pivot": len(problem.trace)},
        {"pivot": 0},
        {"head_counted": ()},
        {"head_counted": (-counted[0],), "tail_counted": ()},
        {"head_counted": (*counted, counted[0])},
        {"head_unit": 0},
        {"tail_unit": -3},
        {"head_unit": 2**70},
        {"head_unit": 1000, "tail_unit": 1000},
        {"head": 2**70},
    ):
        assert not confirms(problem, replace(proof, **wrong), claimed=head + tail), wrong


def test_what_the_finder_uses_of_a_problem_is_not_taken_for_granted() -> None:
    problem, proof = long_problem()
    roomier = problem.with_memory(problem.memory_at(Fraction(1, 20)))
    faster = problem.with_bandwidth(problem.platform.bandwidth * Fraction(101, 100))
    for other in (roomier, faster, replace(problem, transfers=Transfers.FRACTIONAL)):
        assert not confirms(other, proof)
    # Head and tail use one direction each, so a duplex link does not help.
    duplex = replace(problem.platform, link=Link.DUPLEX)
    assert confirms(replace(problem, platform=duplex), proof)


def test_bounds_that_need_no_can_end() -> None:
    problem, _ = waiting_problem()
    compute = problem.trace.compute_time
    assert heads.confirms(problem, -1, 0, 0, compute)
    assert not heads.confirms(problem, -1, compute + 1, 0, compute + 1)
    infeasible = problem.with_memory(problem.trace.least_memory - 1)
    assert heads.confirms(infeasible, -1, 0, 0, 10**9)
    for pivot in (-1, len(problem.trace)):
        assert not within_reach(problem, 0, advice(pivot, (0, 0)))


@pytest.mark.parametrize(("stages", "seed"), [(24, 0), (24, 1), (30, 0)])
def test_chains_like_networks(stages: int, seed: int) -> None:
    problem = cnn_chain(stages, seed)
    problem = problem.with_memory(problem.memory_at(Fraction(0)))
    proof, labels = proved_by_search(problem, max_labels=1_000)
    claim: dict[str, Any] = {"counted": proof.counted, "units": proof.units}
    claimed = proof.pivot, *proof.times, sum(proof.times)
    # Each label is compared with all that could replace it before it is expanded.
    assert heads.confirms(problem, *claimed, **claim, max_labels=labels)
    if labels > 1000:
        assert not heads.confirms(problem, *claimed, **claim, max_labels=10)
    assert not confirms(problem, proof, 1000)


def alone(**changes: Any) -> Tables:
    """Return a side as arrays: by default one operation and two tensors, which must both leave."""
    numbers: dict[str, Any] = {
        "clock": [0, 3],
        "need": [0, 10],
        "floor": [3, 3],
        "at_hand": [0, 10],
        "units": [5],
        "times": [4],
        "ready": [[0, 0]],
        "amount": [2],
        "radix": [1],
        "rate": [5, 4],
    }
    unit = changes.pop("unit", 1)
    arrays = {name: np.array(value, np.int64) for name, value in (numbers | changes).items()}
    return Tables(**arrays, bases=arrays["amount"] + 1, unit=unit)


def test_a_search_says_when_a_side_can_end() -> None:
    # Both leave after the operation: 3 + 4 + 4.
    assert can_end(alone(), 11, 100) == REACHED
    assert can_end(alone(), 10, 100) == DONE
    assert can_end(alone(), 11, 0) == TOO_LARGE
    # One tensor is not enough, unless nobody counts.
    few = {"amount": [1], "ready": [[0]], "at_hand": [0, 10]}
    assert can_end(alone(**few), 100, 100) == DONE
    assert can_end(alone(**few, radix=[0]), 11, 100) == REACHED
    # Even then no more can move than there is.
    assert can_end(alone(**(few | {"at_hand": [0, 9]}), radix=[0]), 100, 100) == DONE
    assert can_end(alone(need=[0, 0]), 3, 100) == REACHED
    assert can_end(alone(need=[0, 0]), 2, 100) == DONE


def test_one_label_has_waited_less_and_the_other_has_a_free_link() -> None:
    # The second operation needs a byte: the small tensor, ready at 2, or the large one at 5.
    side = alone(
        clock=[0, 2, 102],
        need=[0, 1, 7],
        floor=[102, 102, 102],
        at_hand=[5, 6, 7],
        units=[1, 5],
        times=[1, 5],
        ready=[[0, 1], [-1, 0]],
        amount=[2, 1],
        radix=[1, 3],
        rate=[1, 1],
    )
    # The small one first: the operation runs from 3 to 103, and what it writes leaves until 104.
    assert can_end(side, 103, 100) == DONE
    # With more time the other label survives, too, but alone it would end at 106.
    assert can_end(side, 104, 100) == can_end(side, 105, 100) == REACHED


@pytest.mark.parametrize(("one", "two"), [(1, 5), (5, 1)])
def test_the_label_with_the_free_link_may_be_the_one(one: int, two: int) -> None:
    # Either tensor lets the second operation run, both the third, a large one as well the fourth,
    # and what that writes leaves last: 5 + 1 + 20 in the better order, then 20 and 5.
    side = alone(
        clock=[0, 2, 6, 10, 30],
        need=[0, 1, 6, 26, 33],
        floor=[30] * 5,
        at_hand=[two + 20, 26, 26, 26, 33],
        units=[one, two, 7, 20],
        times=[1, 5, 5, 20],
        ready=[[0], [-1], [3], [-1]],
        amount=[1, 1, 1, 1],
        radix=[1, 2, 4, 8],
        rate=[5, 1],
    )
    assert can_end(side, 50, 100) == DONE
    assert can_end(side, 51, 100) == can_end(side, 52, 100) == REACHED


@pytest.mark.parametrize("bandwidth", [Fraction(1), Fraction(2, 3), Fraction(3)])
def test_the_search_equals_all_sequences(bandwidth: Fraction) -> None:
    rng = random.Random(11)
    for _ in range(400):
        side = random_side(rng, bandwidth)
        end = least_end(side)
        exact = tables_of(side, bandwidth, counted=True, unit=1)
        assert can_end(exact, end - 1, 10**4) == DONE
        # What a tight limit drops early must not crowd out what is needed under a loose one.
        for limit in (*range(end, end + 8), 2 * end, 10**6):
            assert can_end(exact, limit, 10**4) == REACHED
        for counted, unit in ((False, 1), (True, 3), (False, 2)):
            tables = tables_of(side, bandwidth, counted=counted, unit=unit)
            assert can_end(tables, end, 10**4) == REACHED


def tables_of(side: HeadSide, bandwidth: Fraction, *, counted: bool, unit: int) -> Tables:
    sizes = sorted({item.size for item in side.items})
    groups = [[item for item in side.items if item.size == size] for size in sizes]
    widest = max(map(len, groups))
    last = len(side.prefix) - 1
    return alone(
        clock=side.prefix,
        need=side.required,
        floor=side.floor,
        at_hand=[
            sum(-(-item.size // unit) for item in side.items if item.ready < run)
            for run in range(last + 1)
        ],
        units=[-(-size // unit) for size in sizes],
        times=[group[0].time for group in groups],
        ready=[[v.ready for v in group] + [0] * (widest - len(group)) for group in groups],
        amount=[len(group) for group in groups],
        radix=[counted * math.prod(len(g) + 1 for g in groups[:c]) for c in range(len(groups))],
        rate=[bandwidth.numerator, bandwidth.denominator],
        unit=unit,
    )


def scaled(problem: Problem, factor: int) -> Problem:
    trace, platform = problem.trace, problem.platform
    operations = [replace(o, workspace=factor * o.workspace) for o in trace.operations]
    tensors = [replace(tensor, size=factor * tensor.size) for tensor in trace.tensors]
    out, into = (factor * platform.rate(kind) for kind in Kind)
    platform = replace(
        platform, memory=factor * platform.memory, bandwidth=out, prefetch_bandwidth=into
    )
    return replace(problem, network=Trace(operations, tensors), platform=platform)


@pytest.mark.parametrize("factor", [10**6, 2**50])
def test_large_sizes_are_searched_in_coarse_units(factor: int) -> None:
    problem, proof = waiting_problem()
    large = scaled(problem, factor)
    again, _ = proved_by_search(large)
    assert sum(again.times) == sum(proof.times)
    assert confirms(large, again)
    assert not confirms(large, again, 1)
    assert within_reach(large, 0, again)
    fine = replace(again, head_unit=1, tail_unit=1)
    assert within_reach(large, 0, fine) == (max(required_absent(large)) < 2**22)


@pytest.mark.parametrize(
    "bandwidth",
    [Fraction(10**30), Fraction(10**25, 3), Fraction(10**30 + 7, 10**31), Fraction(2**62 + 1)],
)
def test_bandwidths_beyond_64_bits(bandwidth: Fraction) -> None:
    problem, _ = waiting_problem()
    problem = problem.with_bandwidth(bandwidth)
    proof, _ = proved_by_search(problem)
    assert sum(proof.times) > problem.trace.compute_time
    assert confirms(problem, proof)
    assert not confirms(problem, proof, 1)


def test_bandwidths_beyond_64_bits_where_nothing_can_move() -> None:
    problem, _ = waiting_problem()
    problem = problem.with_bandwidth(Fraction(10**30 + 7, 10**30 + 9))
    compute = problem.trace.compute_time
    # Before the first operation and after the last one nothing is over.
    for pivot, times in ((0, (0, compute)), (len(problem.trace) - 1, (compute, 0))):
        assert within_reach(problem, 0, advice(pivot, times))
        assert not heads.confirms(problem, pivot, *times, compute + 1)


def test_times_beyond_64_bits_are_out_of_reach() -> None:
    operations = [Operation(f"o{index}", 1) for index in range(40)]
    trace = Trace(operations, [Tensor("a", 1, (0, 39)), Tensor("b", 1, (20,))])
    for exponent, reached in ((50, True), (59, False)):
        problem = Problem("long", trace, Platform(1, Fraction(1, 2**exponent)))
        proof, _ = proved_by_search(problem, upper_bound=2**63)
        assert sum(proof.times) == 2 * 2**exponent + 3 == brute_force(problem)
        assert within_reach(problem, 0, proof) == reached
        assert confirms(problem, proof) == reached


@cache
def document_text() -> str:
    problem = cnn_chain(24, 1)
    problem = problem.with_memory(problem.memory_at(Fraction(0)))
    return json.dumps(solve(problem, "atomic-heads", time_limit=30).to_json())


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(document_text())
    return loaded


def resealed(tampered: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in tampered.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


def forged(**changes: Any) -> list[str]:
    """Return the faults of a certificate with other details but a digest that fits."""
    tampered = document()
    bound = tampered["bounds"][-1]
    assert bound["method"] == "atomic-heads"
    if "value" in changes:
        bound["value"] = tampered["lower_bound"] = changes.pop("value")
    bound["details"] |= changes
    return [text for text in verify(resealed(tampered)).faults if "atomic-heads" in text]


def test_a_certificate_with_heads_and_tails_is_verified() -> None:
    verification = verify(document())
    assert verification.faults == []
    bound = verification.bounds[-1]
    assert (bound.method, bound.evidence) == ("atomic-heads", "proved")
    assert bound.finding == "computed again"
    assert bound.value == verification.certificate.result.lower_bound
    assert all(bound.value > other.value for other in verification.bounds[:-1])


def test_forged_details_are_refused() -> None:
    bound = document()["bounds"][-1]
    details, value = bound["details"], bound["value"]
    assert forged() == []
    assert forged(value=value - 1) == []
    assert forged(value=value + 1)
    assert forged(value=value + 1, head=details["head"] + 1)
    assert forged(value=value + 1, tail=details["tail"] + 1)
    for name in ("head", "tail"):
        assert forged(**{name: details[name] - 1})
        assert forged(**{name: details[name] + 1})
        assert forged(**{name: -1})
        assert forged(**{f"{name}_unit": 0})
        assert forged(**{f"{name}_counted": [0]})
        assert forged(**{f"{name}_counted": [10**9]})
        assert forged(**{f"{name}_counted": 3})
    assert forged(head=None)
    assert forged(pivot=-1)
    assert forged(pivot=details["pivot"] + 5)
    assert forged(solver="offcert")
    for name in ("pivot", "head", "tail"):
        tampered = document()
        del tampered["bounds"][-1]["details"][name]
        assert any(f"details.{name}" in text for text in verify(resealed(tampered)).faults)


def test_a_changed_document_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> bool:
        raise AssertionError("searched")

    monkeypatch.setattr(verifier, "heads_fault", never)
    tampered = document()
    tampered["settings"]["seed"] += 1
    verification = verify(tampered)
    assert any(text.startswith("digest") for text in verification.faults)
    assert "not computed again" in verification.bounds[-1].finding
    with pytest.raises(AssertionError, match="searched"):
        verify(document())


def test_what_is_too_much_to_confirm_is_only_attested(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cnn_chain(24, 1)
    problem = problem.with_memory(problem.memory_at(Fraction(0)))
    monkeypatch.setattr(searched_steps, "MOST_CONFIRMED_LABELS", 1)
    certificate = solve(problem, "atomic-heads", time_limit=30)
    bound = certificate.result.bounds[-1]
    assert (bound.method, bound.evidence) == ("atomic-heads", Evidence.ATTESTED)
    assert bound.details["solver"] == "offcert"
    assert verify(certificate.to_json()).faults == []


def test_a_bound_that_says_nothing_new_is_left_out() -> None:
    left_out = 0
    for seed in range(20):
        problem = mixed_problem(seed, 4)
        search = Search(problem, 30)
        climb_combinatorial(search, Effort(30))
        known = search.proved_bound
        climb_heads(search, Effort(30))
        methods = [bound.method for bound in search.bounds]
        assert ("atomic-heads" in methods) == (search.proved_bound > known)
        left_out += "atomic-heads" not in methods
    assert 0 < left_out < 20
