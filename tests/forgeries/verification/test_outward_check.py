"""The re-run of outward bounds: what it must refuse, whatever the advice, and how it says so."""

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.core.documents import canonical_digest
from offcert.core.errors import MethodError
from offcert.core.platform import Link
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Trace
from offcert.formulations.labels.outward import tree as trees
from offcert.formulations.labels.outward.bound import proof_of
from offcert.formulations.labels.outward.tree import Tree
from offcert.proofs.kinds.labels import Outward
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.document import verify
from offcert.verification.findings import recheck
from offcert.verification.limits import BeyondLimitsError
from offcert.verification.outward import check as outward_check
from offcert.verification.outward import sets as outward_sets
from offcert.verification.outward import tables as outward_tables
from offcert.verification.outward.check import outward_fault
from support.oracles.schedules import brute_force
from support.problems.outward import cases, no_pause
from support.problems.random_instances import mixed_problem

Advice = dict[str, Any]


def advised(problem: Problem, pivot: int, least: int, target: int) -> Outward:
    """Return what a search for schedules shorter than `target` divides, proved or not."""
    tree = Tree(problem, pivot, (least, 1) if least > 1 else (1,), no_pause)
    while not tree.finished(target) and tree.nodes < 300:
        tree.step(target, lambda schedule: target)
    return proof_of(tree, target)


def overreaching(
    seeds: Iterable[int], stages: int, over: int, *, duplex: bool = False
) -> Iterator[tuple[Problem, int, Outward]]:
    """Yield problems with their optima and advice for bounds so far above them."""
    for problem, optimum, pivot, least, rng in cases(seeds, stages, duplex=duplex):
        with suppress(MethodError), pytest.MonkeyPatch.context() as patch:
            # With fewer sets one by one, parts are divided in other ways.
            patch.setattr(trees, "AT_ONCE", rng.choice((0, 3, 32)))
            patch.setattr(trees, "FEW_SETS", rng.choice((1, 3, 100)))
            yield problem, optimum, advised(problem, pivot, least, optimum + over)


def fault(problem: Problem, proof: Outward, claim: int, **changes: Any) -> str | None:
    return outward_fault(problem, claim, replace(proof, **changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "stages", "over", "duplex"),
    [
        (0, 4, 1, False),
        (3000, 5, 1, False),
        (3060, 5, 3, False),
        (0, 4, 1, True),
        (3000, 5, 1, True),
    ],
)
def test_no_claim_above_the_optimum_is_established(
    first: int, stages: int, over: int, duplex: bool
) -> None:
    refused = established = 0
    seeds = range(first, first + 35)
    for problem, optimum, proof in overreaching(seeds, stages, over, duplex=duplex):
        said = fault(problem, proof, optimum + over)
        assert said is not None, problem.name
        assert said.startswith(("as far as the search can tell", "details.splits["))
        refused += 1
        # What divides for more than can be proved, often does for what can.
        established += fault(problem, proof, optimum) is None
    assert refused > 7
    assert established > refused // 4


def mutated(rng: random.Random, proof: Outward) -> Advice:
    """Return advice with something wrong in it: pieces left out, repeated, or changed."""
    splits = [list(split) for split in proof.splits]
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(splits) + 1)
        match rng.randrange(6):
            case 0:
                del splits[place:]
            case 1:
                splits.insert(place, [])
            case 2:
                splits.insert(place, ["bytes", rng.choice((-1, 0, 10, 10**30))])
            case 3:
                splits.insert(place, ["ticks", rng.choice((-(10**30), 0, 3))])
            case 4 if place < len(splits):
                del splits[place]
            case _ if place < len(splits) and len(splits[place]) > 1:
                changed = rng.randrange(1, len(splits[place]))
                splits[place][changed] = rng.choice(([0], [1, 2], -1, 0, 1, 7, 10**30))
    return {
        "free_below": rng.choice(((1,), (30, 1), proof.free_below)),
        "windows": rng.choice(((1,), (2, 1), proof.windows)),
        "splits": splits,
    }


@pytest.mark.parametrize("duplex", [False, True])
def test_wrong_advice_can_only_make_the_answer_no(duplex: bool) -> None:
    tried = 0
    for problem, optimum, proof in overreaching(range(6000, 6040), 4, 1, duplex=duplex):
        rng = random.Random(problem.name)
        for _ in range(12):
            assert fault(problem, proof, optimum + 1, **mutated(rng, proof)) is not None
            tried += 1
    assert tried > 200


def forget_crossings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outward_check, "with_crossing", lambda cut, limits, places: [limits])


def let_nothing_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outward_sets, "absent_besides", lambda *parts: 0)


def drop_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(cut: Any, limits: Any, ticks: int, longest: int) -> Any:
        found = outward_sets.listed(cut, limits, ticks, longest)
        return None if found is None else found[:-1]

    monkeypatch.setattr(outward_check, "listed", too_much)


def share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what is under way for all on both sides."""
    monkeypatch.setattr(outward_check, "shortest", lambda first, last, near, far: sum(far))


def close_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = outward_tables.places_after

    def fewer(places: Any, columns: Any) -> Any:
        return plain([[place - 1 for place in listed] for listed in places], columns)

    monkeypatch.setattr(outward_tables, "places_after", fewer)


def take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both directions of a duplex link wait for each other, with nothing under way."""
    plain = outward_tables.cut_at

    def turns(*parts: Any) -> Any:
        cut = plain(*parts)
        return replace(cut, sides=tuple(side._replace(shared=True) for side in cut.sides))

    monkeypatch.setattr(outward_check, "cut_at", turns)
    forget_crossings(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "break_it",
    [forget_crossings, let_nothing_leave, drop_a_set, share_nothing, close_too_early, take_turns],
)
def test_a_checker_that_forgets_something_is_found_out(break_it: Any) -> None:
    wrong = 0
    # In some of these something has to be under way at the cut.
    seeds = [*range(3000, 3040), 3045, 3072, 3223, 3262, 3290]
    for problem, optimum, proof in overreaching(seeds, 5, 1, duplex=break_it is take_turns):
        with pytest.MonkeyPatch.context() as patch:
            break_it(patch)
            splits = proof.splits
            if break_it is forget_crossings:
                # The parts with nothing under way come first, so the rest is left over.
                splits = _first_part(proof.splits)
            wrong += fault(problem, proof, optimum + 1, splits=splits) is None
    assert wrong > 0


def _first_part(splits: list[list[Any]]) -> list[list[Any]]:
    waiting = 1
    for index, split in enumerate(splits):
        waiting += outward_sets.parts_of(split, "") - 1
        if waiting == 0:
            return splits[: index + 1]
    return splits


@cache
def example() -> tuple[Problem, int, Outward]:
    """Return a problem, its optimum, and advice that shows it, with several kinds of divisions."""
    problem = mixed_problem(3310, 5)
    optimum = brute_force(problem)
    assert optimum is not None
    pivot = max(range(len(problem.trace)), key=problem.trace.demand.__getitem__)
    return problem, optimum, advised(problem, pivot, 1, optimum)


def details() -> dict[str, Any]:
    _, _, proof = example()
    return {
        "pivot": proof.pivot,
        "free_below": list(proof.free_below),
        "windows": list(proof.windows),
        "splits": list(proof.splits),
    }


def examined(above: int = 0, **changes: Any) -> str | None:
    problem, optimum, _ = example()
    return recheck(Bound("outward", optimum + above, Evidence.PROVED, details() | changes), problem)


def test_a_bound_of_a_certificate_is_searched_again() -> None:
    assert len(details()["splits"]) > 3
    assert examined() is None
    assert examined(-1) is None
    said = examined(1)
    assert said is not None
    assert f"does not establish {example()[1] + 1}" in said


def test_a_certificate_with_such_a_bound_is_verified() -> None:
    problem, optimum, _ = example()
    document = solve(problem, "bounds", time_limit=5).to_json()
    for above, finding in ((0, "computed again"), (1, "as far as the search can tell")):
        value = optimum + above
        bound = {"method": "outward", "value": value, "evidence": "proved", "details": details()}
        content = document | {"bounds": [bound], "lower_bound": value}
        del content["digest"]
        verification = verify(content | {"digest": canonical_digest(content)})
        assert finding in verification.bounds[0].finding
        assert verification.valid == (above == 0), verification.faults


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("details.pivot", {"pivot": -1}),
        ("details.pivot", {"pivot": 99}),
        ("details.pivot", {"pivot": "3"}),
        ("details.pivot must be an operation during which", {"pivot": 0}),
        ("details.free_below", {"free_below": []}),
        ("details.free_below", {"free_below": [1, 30]}),
        ("details.free_below[0]", {"free_below": [0]}),
        ("details.free_below", {"free_below": 1}),
        ("details.windows", {"windows": []}),
        ("details.windows", {"windows": [1, 1]}),
        ("details.windows[0]", {"windows": [0]}),
        ("details.splits", {"splits": {}}),
        ("details.splits[0]", {"splits": [3]}),
        ("details.splits[0]", {"splits": [[]]}),
        ("details.splits[0]", {"splits": [["halves"]]}),
        ("details.splits[0]", {"splits": [[["bytes"], 3]]}),
        ("details.splits[0]", {"splits": [["bytes"]]}),
        ("details.splits[0]", {"splits": [["bytes", 1.5]]}),
        ("details.splits[0]", {"splits": [["bytes", True]]}),
        ("details.splits[0]", {"splits": [["class", 1]]}),
        ("details.splits[0]", {"splits": [["class", 10**30, 1]]}),
        ("details.splits[0]", {"splits": [["ticks", 1]]}),
        ("details.splits[0]", {"splits": [["sets", 3]]}),
        ("details.splits[0]", {"splits": [["sets"]]}),
        ("details.splits[0]", {"splits": [["sets", [1], [10**30]]]}),
        ("details.splits[0]", {"splits": [["window"]], "windows": [1]}),
        ("details.splits[0]", {"splits": [["detail", 3]]}),
        ("details.splits[0]", {"splits": [["detail", 0]]}),
        ("details.splits[0]", {"splits": [["detail", 10**9]]}),
        ("details.splits ends", {"splits": []}),
        ("details.solver", {"solver": "offcert"}),
    ],
)
def test_forged_details_are_refused_by_name(place: str, changes: dict[str, Any]) -> None:
    if place == "details.splits[0]" and isinstance(changes["splits"][0], list):
        changes = {**changes, "splits": filled_up(changes["splits"])}
    said = examined(**changes)
    assert said is not None
    assert place in said, said


def filled_up(splits: list[Any]) -> list[Any]:
    """Have all parts that come after some advice left whole, unless that is no advice."""
    _, _, proof = example()
    parts = [outward_sets.parts_of(split, "") for split in proof.splits]
    roots = len(parts) - sum(parts)
    for more in range(100):
        longer = splits + [[]] * more
        with suppress(outward_sets.FaultError):
            outward_sets.places_of(longer, roots)
            return longer
    return splits


@pytest.mark.parametrize("name", ["pivot", "free_below", "windows", "splits"])
def test_details_that_are_missing_are_named(name: str) -> None:
    problem, optimum, _ = example()
    kept = {other: value for other, value in details().items() if other != name}
    said = recheck(Bound("outward", optimum, Evidence.PROVED, kept), problem)
    assert said == f'the field "details.{name}" is missing'


def test_advice_beyond_the_last_part_is_named() -> None:
    splits = details()["splits"]
    said = examined(splits=[*splits, []])
    assert said is not None
    assert f"details.splits[{len(splits)}] divides nothing" in said


def test_threads_find_the_same_and_name_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outward_check, "AT_ONCE", 2)
    said = []
    for problem, optimum, proof in overreaching(range(3000, 3030), 5, 0):
        for claim in (optimum, optimum + 1):
            alone = outward_fault(problem, claim, proof, workers=1)
            assert outward_fault(problem, claim, proof, workers=3) == alone
            said.append(alone)
    assert len(set(said)) > 3
    assert said.count(None) > len(said) // 4


def test_the_advice_on_each_part_is_found() -> None:
    two, three = ["bytes", 1], ["sets", [0], [1], [2]]
    roots, children = outward_sets.places_of([two, [], three, [], [], [], []], 2)
    assert roots == [0, 6]
    assert children == [[1, 2], [], [3, 4, 5], [], [], [], []]


def test_more_than_it_may_search_is_said() -> None:
    problem, optimum, proof = example()
    with pytest.raises(BeyondLimitsError, match="the search is too large"):
        outward_fault(problem, optimum, proof, max_labels=1)
    with pytest.raises(BeyondLimitsError, match="the time is over"):
        outward_fault(problem, optimum, proof, max_seconds=-1.0)
    assert "too large" in (outward_fault(problem, 2**80, proof) or "")


def test_it_applies_to_what_it_is_for() -> None:
    problem, optimum, proof = example()
    assert outward_fault(problem, optimum, proof) is None
    paused = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    assert "interruptible" in (outward_fault(paused, optimum, proof) or "")
    # On a duplex link there are fewer parts to begin with.
    duplex = replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))
    assert "divides nothing" in (outward_fault(duplex, optimum, proof) or "")
    # What needs no search is true whatever the advice.
    nonsense = replace(proof, pivot=-1, splits=(["nonsense"],))
    assert outward_fault(paused, problem.trace.compute_time, nonsense) is None
    infeasible = problem.with_memory(problem.trace.least_memory - 1)
    assert outward_fault(infeasible, 10**9, proof) is None


@pytest.mark.parametrize("bits", [40, 50, 52])
def test_numbers_that_do_not_fit_are_no_exceptions(bits: int) -> None:
    problem, optimum, proof = example()
    trace, platform = problem.trace, problem.platform
    tensors = [replace(tensor, size=tensor.size << bits) for tensor in trace.tensors]
    rate = platform.bandwidth * 2**bits + Fraction(1, 3)
    large = Problem(
        "large",
        Trace(trace.operations, tensors),
        replace(platform, memory=platform.memory << bits, bandwidth=rate),
    )
    undivided = replace(proof, free_below=(1,), windows=(1,), splits=([],))
    said = outward_fault(large, optimum + 1, undivided)
    assert said is not None


def test_the_two_numbers_of_a_label_tell_all_counts_apart() -> None:
    radix = outward_tables._radix([3, 1, 2])
    seen = {
        tuple((radix * (a, b, c)).sum(axis=1).tolist())
        for a in range(-3, 4)
        for b in range(-1, 2)
        for c in range(-2, 3)
    }
    assert len(seen) == 7 * 3 * 5
