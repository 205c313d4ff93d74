"""Every number in every kind of proof, changed at random: what is accepted is true."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.certification.method import Effort
from offcert.certification.methods import METHODS
from offcert.certification.search import Search
from offcert.certification.search_steps.bounds import climb_combinatorial, climb_returns
from offcert.core.errors import MethodError
from offcert.core.result import Bound, Evidence
from offcert.formulations.combinatorial.large_tensors import (
    large_tensors_bound,
    sizes_worth_counting,
)
from offcert.proofs.joint_document import pack, unpack
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.verification.findings import recheck
from support.oracles.schedules import brute_force
from support.problems.joint import joint_proofs
from support.problems.least_memory import memory_proofs
from support.problems.passes import passes
from support.problems.random_instances import mixed_problem, random_problem

# Every kind of proof there is.
KINDS = [*PROOFS]
Path = tuple[Any, ...]


def found(method: str, problem: Problem) -> list[Bound]:
    """Return the bounds of one kind that our finders prove, whatever others would say."""
    search = Search(problem, 60)
    if method in METHODS:
        METHODS[method].alone(search, Effort(20, workers=1))
    elif method == "fractional-large-tensors":
        for smallest in (1, *sizes_worth_counting(problem)):
            search.add(large_tensors_bound(problem, smallest))
    elif method == "fractional-large-tensors-returns":
        climb_returns(search)
    else:
        climb_combinatorial(search, Effort(20))
    return [
        bound
        for bound in search.bounds
        if bound.method == method and bound.evidence is Evidence.PROVED
    ]


@cache
def proofs(kind: str) -> list[tuple[Problem, Bound, int]]:
    """Return problems with a proof of one kind, and what no bound may exceed."""
    if PROOFS[kind].minimise is Minimise.MEMORY:
        return memory_proofs(kind)
    if PROOFS[kind].recompute:
        return joint_proofs(kind)
    known: list[tuple[Problem, Bound, int]] = []
    for seed in range(9000, 9600):
        make = random_problem if kind.startswith("pivot") else mixed_problem
        problem = passes(seed, same=False) if kind == "fractional-pieces" else make(seed, 4)
        try:
            bounds = found(kind, problem)
        except MethodError:
            # It is not for such networks.
            continue
        bounds = [bound for bound in bounds if bound.value > problem.trace.compute_time]
        if not bounds:
            continue
        best = brute_force(problem)
        assert best is not None
        for bound in bounds:
            assert recheck(bound, problem) is None
            known.append((problem, bound, best))
        if len(known) >= 6:
            break
    return known


def opened(bound: Bound) -> dict[str, Any]:
    """Return a bound's value and details as one document, a packed proof unpacked."""
    details = copy.deepcopy(dict(bound.details))
    if "proof" in details:
        details["proof"] = unpack(details["proof"], "proof")
    return {"value": bound.value, "details": details}


def closed(bound: Bound, document: dict[str, Any]) -> Bound:
    details = dict(document["details"])
    if "proof" in details:
        details["proof"] = pack(details["proof"])
    return replace(bound, value=document["value"], details=details)


def numbers(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of all integers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers(inner, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def lists(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of all lists that hold something."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from lists(inner, (*path, key))
    elif isinstance(value, list):
        if value:
            yield path
        for index, inner in enumerate(value):
            yield from lists(inner, (*path, index))


def inside(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def mutate(document: dict[str, Any], data: st.DataObject) -> None:
    """Change one number, or drop, repeat or exchange members of a list."""
    many = list(lists(document))
    if many and data.draw(st.integers(0, 3)) == 0:
        members = inside(document, data.draw(st.sampled_from(many)))
        one = data.draw(st.integers(0, len(members) - 1))
        two = data.draw(st.integers(0, len(members) - 1))
        how = data.draw(st.integers(0, 2))
        if how == 0:
            del members[one]
        elif how == 1:
            members.insert(one, copy.deepcopy(members[two]))
        else:
            members[one], members[two] = members[two], members[one]
        return
    path = data.draw(st.sampled_from(list(numbers(document))))
    holder = inside(document, path[:-1])
    old = holder[path[-1]]
    fresh = st.sampled_from((0, 1, -1, old - 1, old + 1, 2 * old, -old, 10**30))
    holder[path[-1]] = data.draw(fresh)


def claimable(document: dict[str, Any], best: int) -> int:
    """Return what heads and tails of their own would be a proof of, and make it too much."""
    details = document["details"]
    if not isinstance(details.get("head"), int) or not isinstance(details.get("tail"), int):
        return best + 1
    lacking = max(0, best + 1 - details["head"] - details["tail"])
    details["head" if lacking % 2 else "tail"] += lacking
    return int(details["head"] + details["tail"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_of_a_proof_makes_a_false_bound_pass(kind: str) -> None:
    """At any value; the true one passes only if what was changed does not matter for it.

    A refusal names the place, or what the proof does establish.
    """
    known = proofs(kind)
    assert known
    refused = 0

    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def forge(data: st.DataObject) -> None:
        nonlocal refused
        problem, bound, best = data.draw(st.sampled_from(known))
        document = opened(bound)
        for _ in range(data.draw(st.integers(1, 3))):
            mutate(document, data)
        if data.draw(st.booleans()):
            claims = (best + 1, best + 7, 2 * best, claimable(document, best))
            document["value"] = data.draw(st.sampled_from(claims))
        forged = closed(bound, document)
        fault = recheck(forged, problem)
        if fault is not None and fault.startswith("the document says"):
            # A forger would claim just what the changed proof gives.
            forged = replace(forged, value=int(fault.split()[-1]))
            assert recheck(forged, problem) is None
            assert forged.value <= best, (problem.name, document)
        if fault is None:
            assert forged.value <= best, (problem.name, document)
            return
        refused += 1
        places = ("details.", "proof.", "field", "the document says", "too large")
        assert any(place in fault for place in places), fault

    forge()
    assert refused >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_tick_more_than_the_optimum_is_never_established(kind: str) -> None:
    for problem, bound, best in proofs(kind):
        assert bound.value <= best
        fault = recheck(replace(bound, value=best + 1), problem)
        assert fault is not None
        assert str(best + 1) in fault
