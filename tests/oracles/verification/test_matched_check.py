"""The plain re-run of heads and tails that move the same: it confirms what is true alone."""

import contextlib
import itertools
import operator
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.core.documents import canonical_digest
from offcert.core.errors import PlanError
from offcert.core.platform import Kind, Link
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import Simulator
from offcert.verification.document import verify
from offcert.verification.ends import check as matched_check
from offcert.verification.ends.check import ends_fault, within_reach
from offcert.verification.ends.join import joined
from offcert.verification.ends.prospects import Tables
from offcert.verification.ends.sides import gap_at, side_tables
from offcert.verification.findings import recheck
from offcert.verification.limits import BeyondLimitsError
from support.oracles.schedules import brute_force
from support.problems import claims as heads
from support.problems.claims import fault_of as matched_fault
from support.problems.random_instances import mixed_problem, problem_on, seeded
from support.seeds import by_seeds

Advice = dict[str, Any]
# The tensors that may leave before the cut, and those that may after it, with their gaps.
Sides = list[dict[int, tuple[int, int]]]


def movables_of(problem: Problem, pivot: int, least: int = 1) -> Sides:
    """Return the tensors of one gap that may leave before the pivot, and those after it."""
    gaps = Counter(gap.tensor for gap in problem.trace.gaps)
    single = [gap for gap in problem.trace.gaps if gaps[gap.tensor] == 1]
    large = [gap for gap in single if problem.trace.tensors[gap.tensor].size >= least]
    return [
        {gap.tensor: (gap.before, gap.after) for gap in large if gap.before < pivot},
        {gap.tensor: (gap.before, gap.after) for gap in large if gap.after > pivot},
    ]


def most_of(problem: Problem, movables: Sides) -> Counter[int]:
    """Return how often each size is there on the side that has it more often."""
    sides = [Counter(problem.trace.tensors[index].size for index in side) for side in movables]
    return Counter({size: max(side[size] for side in sides) for size in sides[0] | sides[1]})


def movable(problem: Problem, pivot: int) -> list[int]:
    """Return the sizes that may be told apart, as often as tensors of one side have them."""
    return sorted(most_of(problem, movables_of(problem, pivot)).elements())


def longest_ends(problem: Problem, pivot: int, most: int) -> tuple[Any, Any]:
    """Return the longest head and tail that can be proved, and the sizes counted for that."""
    across = tuple({tensor.size for tensor in problem.trace.tensors if gap_at(tensor, pivot)})
    times = []
    for side in range(2):
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            claim = (middle, 0) if side == 0 else (0, middle)
            if ends_fault(problem, pivot, heads.advice(pivot, claim, (across, across))) is None:
                low = middle
            else:
                high = middle - 1
        times.append(low)
    return tuple(times), (across, across)


def uneven_problem(seed: int) -> Problem:
    """Return a problem with few sizes, most often with different numbers of each on both sides."""
    rng = seeded(seed)
    count = rng.randint(7, 9)
    operations = [
        Operation(f"o{i}", rng.choice((0, 1, 2, 6)), rng.choice((0, 0, 3))) for i in range(count)
    ]
    tensors = []
    for index in range(rng.randint(4, 6)):
        opened = rng.randint(-1, count - 3)
        closed = min(count - 1, opened + rng.choice((2, 3, 4, count)))
        tensors.append(Tensor(f"t{index}", rng.choice((2, 4, 4, 4)), (opened, closed)))
    return problem_on(rng, Trace(operations, tensors), f"uneven-{seed}")


def small_problem(seed: int, largest: int) -> Problem:
    """Return a problem of any kind; every third is uneven."""
    return mixed_problem(seed, largest) if seed % 3 else uneven_problem(seed)


def cuts(seeds: range, largest: int) -> Iterator[tuple[Problem, int, int, tuple[Any, ...]]]:
    """Yield problems whose optimum is no compute time, it, and each pivot with its ends."""
    for seed in seeds:
        problem = small_problem(seed, largest)
        optimum = brute_force(problem)
        assert optimum is not None
        if optimum > problem.trace.compute_time:
            for pivot in range(len(problem.trace)):
                if movable(problem, pivot):
                    times, counted = longest_ends(problem, pivot, optimum + 3)
                    yield problem, optimum, pivot, (times, counted, (1, 1))


def some_advice(rng: random.Random, sizes: list[int]) -> Advice:
    least = rng.choice([0, *sizes])
    left = sorted({size for size in sizes if size >= least})
    some = [size for size in left if rng.random() < 0.5]
    levels: list[list[int]] = []
    for level in rng.choice(([[]], [[], left], [[], some, left], [left], [some, left])):
        if not levels or set(level) > set(levels[-1]):
            levels.append(level)
    return {
        "unit": rng.choice((1, 1, 1, 2, 5)),
        "free_below": least,
        "levels": levels,
        "spare": rng.randrange(min(3, sum(size >= least for size in sizes))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1))
def test_no_advice_makes_a_false_bound_true(block: int) -> None:
    rng = random.Random(block)
    refused = confirmed = longer = early = uneven = 0
    for problem, optimum, pivot, ends in cuts(range(9000 + 20 * block, 9020 + 20 * block), 4):
        compute = problem.trace.compute_time
        uneven += operator.ne(*movables_of(problem, pivot))
        (head, tail), *counted = ends
        for less in ((0, 0), (1, 0), (0, 3)):
            advice = some_advice(rng, movable(problem, pivot))
            # A shorter head or tail leaves more to be shown by what moves on both sides.
            times = max(0, head - less[0]), max(0, tail - less[1])
            ends = (times, *counted)
            for claim in (optimum + 1, optimum + 2, optimum + 1 + rng.randint(0, optimum)):
                fault = matched_fault(problem, pivot, *ends, claim, **advice)
                assert fault is not None
                assert "details." in fault
                refused += 1
                early += "free_below" in fault
            claims = range(max(compute, sum(ends[0])) + 1, optimum + 1)
            for claim in {*claims[:2], *claims[-2:], *rng.sample(claims, min(4, len(claims)))}:
                if matched_fault(problem, pivot, *ends, claim, **advice) is None:
                    confirmed += 1
                    assert within_reach(problem, claim, heads.advice(pivot, *ends, **advice))
                    longer += claim == optimum
    assert refused > 300
    assert early > 100
    assert confirmed > 20
    assert longer > 2
    # Gaps wholly on one side of the pivot.
    assert uneven > 50


def hopeless(tables: Tables, limit: int, run: int, state: tuple[int, int, int]) -> bool:
    """Return whether what is not ready yet, or what is lacking, takes too long for a state."""
    moved, free, waited = state
    ends = [waited + tables.floor[run]]
    for need, start, floor in zip(tables.need, tables.clock, tables.floor, strict=True):
        if need > moved:
            ends.append(
                free + -(-(need - moved) * tables.rate[1] // tables.rate[0]) - start + floor
            )
    return max(ends) > limit


def least_ends(tables: Tables, limit: int, most: int, enough: int) -> dict[tuple[int, int], int]:
    """Return the least end for each amount and code that a side can end with, trying everything.

    From `enough` units on, no tensor runs out.
    """
    last = len(tables.clock) - 1
    ends: dict[tuple[int, int], int] = {}
    stack = [(0, 0, 0, 0)]
    seen = set(stack)
    while stack:
        amount, code, free, waited = stack.pop()
        run = 0
        while run < last and tables.need[run] <= amount * tables.unit:
            run += 1
        if hopeless(tables, limit, run, (amount * tables.unit, free, waited)):
            continue
        if max(tables.need) <= amount * tables.unit:
            end = max(free, waited + int(tables.clock[last]))
            if end <= limit:
                ends[amount, code] = min(end, ends.get((amount, code), end))
        for c, units in enumerate(tables.units):
            told = tables.radix[c] > 0 and amount < enough
            rank = code // tables.radix[c] % tables.bases[c] if told else 0
            if rank == tables.amount[c] or amount + units > min(most, tables.at_hand[run]):
                continue
            ready = tables.ready[c, rank]
            if ready >= run:
                continue
            then = max(free, waited + int(tables.clock[ready + 1])) + int(tables.times[c])
            needs = (amount + units) * tables.unit
            late = waited if run == last or tables.need[run] > needs else then - tables.clock[run]
            more = int(tables.radix[c]) if told else 0
            child = (int(amount + units), code + more, then, max(waited, int(late)))
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return ends


def agreeing(tables: Tables, key: tuple[int, int], spare: int, least: int) -> set[tuple[int, int]]:
    """Return what is left of a key without up to `spare` tensors, if that is enough."""
    keys = {key}
    for c in itertools.chain.from_iterable(
        itertools.combinations_with_replacement(range(len(tables.units)), count)
        for count in range(1, spare + 1)
    ):
        amount, code = key
        digits = [code // w % n for w, n in zip(tables.radix, tables.bases, strict=True) if w]
        told = [i for i, weight in enumerate(tables.radix) if weight]
        if all(c.count(i) <= digits[place] for place, i in enumerate(told)):
            less = sum(int(tables.units[i]) for i in c), sum(int(tables.radix[i]) for i in c)
            keys.add((amount - less[0], code - less[1]))
    return {key for key in keys if key[0] * tables.unit >= least}


def by_hand(
    problem: Problem, pivot: int, ends: tuple[Any, ...], claim: int, advice: Advice, judge: bool
) -> str | None:
    """Return what the search should say, found without dominance, pruning or levels."""
    movables = movables_of(problem, pivot, max(1, advice["free_below"]))
    most_sizes = most_of(problem, movables)
    (head, tail), unit, levels = ends[0], advice["unit"], advice["levels"]
    sizes = list(most_sizes.elements())
    for place, counted in ((0, levels[0]), (1, levels[-1])):
        one, two = (
            side_tables(problem, pivot, kind, claim, counted, unit, side, most_sizes)
            for kind, side in zip(Kind, movables, strict=True)
        )
        need = int(one.need[-1])
        enough = need + sum(sorted(sizes)[: advice["spare"] + 1])
        enough = enough if judge else 10**4
        # What is too much is so at once or after the last operation has what it needs.
        most = max(*one.need, *two.need, enough) // unit + max(sizes) + 2
        most = most if judge else max(*one.at_hand, *two.at_hand)
        fronts, backs = (
            least_ends(side, by, most, -(-enough // unit))
            for side, by in ((one, claim - 1 - tail), (two, claim - 1 - head))
        )
        if judge and place == 0 and any(w * unit >= enough for w, _ in (*fronts, *backs)):
            return "free_below"
    joined = [
        front + back
        for key, front in fronts.items()
        for other, back in backs.items()
        if agreeing(one, key, advice["spare"], need) & agreeing(two, other, advice["spare"], need)
    ]
    return "levels" if min(joined, default=claim) < claim else None


@pytest.mark.slow
@pytest.mark.parametrize("judge", [True, False])
def test_the_search_says_what_trying_everything_says(
    judge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not judge:
        # What is early or late is overlooked, so that more depends on the rest.
        monkeypatch.setattr(matched_check.MatchedCut, "least_excess", lambda cut, need: 10**4)
    rng = random.Random(5)
    answers = {None: 0, "levels": 0} | ({"free_below": 0} if judge else {})
    for problem, optimum, pivot, ends in cuts(range(4000, 4025), 4):
        for _ in range(2):
            advice = some_advice(rng, movable(problem, pivot))
            lowest = max(problem.trace.compute_time, sum(ends[0])) + 1
            claims = range(lowest, max(lowest, optimum) + 2)
            for claim in {*claims[:2], *rng.sample(claims, min(2, len(claims)))}:
                fault = matched_fault(problem, pivot, *ends, claim, **advice)
                expected = by_hand(problem, pivot, ends, claim, advice, judge)
                assert (fault and expected in fault) if expected else fault is None, fault
                answers[expected] += 1
    assert min(answers.values()) > 5, answers


def some_schedules(problem: Problem, rng: random.Random) -> Iterator[Schedule]:
    """Yield schedules that evict what they like, when they like, as far as they get."""
    gaps, simulator = problem.trace.gaps, Simulator(problem)
    for _ in range(12):
        moves: list[tuple[float, Move]] = []
        left: dict[int, float] = {}
        for index, gap in enumerate(gaps):
            if rng.random() < 0.3:
                continue
            if gap.tensor not in left:
                written = problem.trace.tensors[gap.tensor].uses[0]
                left[gap.tensor] = rng.choice((gap.before, rng.randint(written, gap.before))) + 0.5
                moves.append((left[gap.tensor], Move(Kind.OFFLOAD, index, gap.after)))
            before = rng.choice((gap.after, rng.randint(gap.before + 1, gap.after)))
            moves.append((max(before - 0.3, left[gap.tensor]), Move(Kind.PREFETCH, index, before)))
        ordered = sorted(moves, key=operator.itemgetter(0))
        with contextlib.suppress(PlanError):
            yield simulator.run(Plan(move for _, move in ordered))


def beside(problem: Problem, pivot: int, schedule: Schedule, movables: Sides) -> tuple[int, int]:
    """Return how many movables of each side move there but are not absent at the cut."""
    cut = schedule.starts[pivot]
    moved: tuple[set[int], set[int]] = set(), set()
    for transfer in schedule.transfers:
        tensor = problem.trace.gaps[transfer.gap].tensor
        if transfer.kind is Kind.OFFLOAD and transfer.end <= cut and tensor in movables[0]:
            moved[0].add(tensor)
        if transfer.kind is Kind.PREFETCH and transfer.start >= cut and tensor in movables[1]:
            moved[1].add(tensor)
    return len(moved[0] - moved[1]), len(moved[1] - moved[0])


@pytest.mark.slow
@pytest.mark.parametrize("judge", [True, False])
@by_seeds(20000, 20100, 100)
def test_no_schedule_is_overlooked(
    seeds: range, judge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of this one schedule, head and tail are what it takes to the cut and from then on.
    monkeypatch.setattr(matched_check, "ends_fault", lambda *parts: None)
    if not judge:
        # The spare tensors are enough for it, whatever others do.
        monkeypatch.setattr(matched_check.MatchedCut, "least_excess", lambda cut, need: 10**4)
    rng = random.Random(11)
    seen: Counter[str] = Counter()
    for seed in seeds:
        problem = small_problem(seed, 6)
        for schedule in itertools.islice(some_schedules(problem, rng), 2):
            length = max(schedule.ends)
            for pivot in range(len(problem.trace) if length > problem.trace.compute_time else 0):
                sizes = movable(problem, pivot)
                if not sizes:
                    continue
                advice = some_advice(rng, sizes)
                least = max(1, advice["free_below"])
                more = max(beside(problem, pivot, schedule, movables_of(problem, pivot, least)))
                if not judge and more >= sum(size >= least for size in sizes):
                    continue
                advice |= {} if judge else {"spare": more}
                start = schedule.starts[pivot]
                cut = pivot, (start, length - start), ((), ()), (1, 1), length + 1
                fault = matched_fault(problem, *cut, **advice)
                assert fault is not None
                place = "free_below" if "free_below" in fault else "levels"
                assert place == "free_below" or int(fault.split()[-1]) <= length
                seen[place] += 1
                seen["exact"] += fault.endswith(f" {length}")
                seen["more"] += place == "levels" and more > 0
    assert seen["levels"] > 100
    assert seen["more"] > 30
    assert seen["exact"] > 10


@cache
def matched_problem() -> tuple[Problem, tuple[Any, ...], Advice]:
    """Return a problem whose best head and tail do not move the same, and how to prove the best."""
    problem = mixed_problem(1365, 5)
    assert brute_force(problem) == 409
    assert movable(problem, 5) == [27, 27, 36, 40]
    ends = longest_ends(problem, 5, 412)
    assert ends[0] == (187, 220)
    return problem, (5, *ends, (1, 1)), {"unit": 1, "free_below": 27, "levels": [[], [27]]}


def fault_of(claim: int, **changes: Any) -> str | None:
    problem, cut, advice = matched_problem()
    return matched_fault(problem, *cut, claim, **(advice | changes))


def test_what_must_move_the_same_takes_longer_than_head_and_tail() -> None:
    problem, (pivot, times, counted, units), advice = matched_problem()
    assert sum(times) == 407
    assert [fault_of(claim) for claim in (407, 408, 409)] == [None] * 3
    more = {"counted": counted, "units": units} | advice
    assert heads.confirms(problem, pivot, *times, 409, **more)
    assert not heads.confirms(problem, pivot, *times, 410, **more)
    # Without the number of tensors of that size, the sides agree in bytes alone.
    fault = fault_of(409, levels=[[]])
    assert fault is not None
    assert "details.levels" in fault
    assert fault.endswith("404")
    assert fault_of(409, levels=[[27]]) is None
    assert problem.platform.duplex
    simplex = replace(problem, platform=replace(problem.platform, link=Link.SIMPLEX))
    assert heads.confirms(simplex, pivot, *times, 409, **more)
    paused = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    assert not heads.confirms(paused, pivot, *times, 409, **more)


def test_without_head_and_tail_the_sides_need_not_move_the_same() -> None:
    problem, (pivot, _, counted, units), advice = matched_problem()
    for times in ((0, 0), (0, 220), (187, 0)):
        fault = matched_fault(problem, pivot, times, counted, units, 409, **advice)
        assert fault is not None
        assert "details.free_below" in fault


def test_tensors_that_return_early_or_leave_late_may_make_a_schedule_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    false = 0
    rng = random.Random(3)
    for problem, optimum, pivot, ends in cuts(range(12), 4):
        advice = some_advice(rng, movable(problem, pivot)) | {"spare": 0}
        claim = problem, pivot, *ends, optimum + 1
        fault = matched_fault(*claim, **advice)
        assert fault is not None
        with monkeypatch.context() as patch:
            # More than all tensors together, however they are rounded.
            patch.setattr(matched_check.MatchedCut, "least_excess", lambda cut, need: 10**4)
            if matched_fault(*claim, **advice) is None:
                assert "details.free_below" in fault
                false += 1
    assert false > 5


def details() -> dict[str, Any]:
    _, (pivot, times, counted, units), advice = matched_problem()
    return {
        "pivot": pivot,
        "head": times[0],
        "tail": times[1],
        "head_counted": list(counted[0]),
        "tail_counted": list(counted[1]),
        "head_unit": units[0],
        "tail_unit": units[1],
        **advice,
    }


NAMES = {"pivot", "unit", "free_below", "levels"} | {
    f"{side}{part}" for side in ("head", "tail") for part in ("", "_counted", "_unit")
}


def examined(value: int = 409, **changes: Any) -> str | None:
    bound = Bound("matched-heads", value, Evidence.PROVED, details() | changes)
    return recheck(bound, matched_problem()[0])


def test_a_bound_of_a_certificate_is_searched_again() -> None:
    assert details().keys() == NAMES
    assert examined() is None
    assert examined(408) is None
    fault = examined(410)
    assert fault is not None
    assert "does not establish 410" in fault


def test_a_certificate_with_such_a_bound_is_verified() -> None:
    document = solve(matched_problem()[0], "bounds", time_limit=5).to_json()
    bound = {"method": "matched-heads", "value": 409, "evidence": "proved", "details": details()}
    for head, finding in ((187, "computed again"), (188, "details.head is too much")):
        bound["details"] = details() | {"head": head}
        content = document | {"bounds": [bound], "lower_bound": 409}
        del content["digest"]
        verification = verify(content | {"digest": canonical_digest(content)})
        assert finding in verification.bounds[0].finding
        assert verification.valid == (head == 187), verification.faults


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("details.pivot", {"pivot": -1}),
        ("details.pivot", {"pivot": 99}),
        ("details.head", {"head": 188}),
        ("details.tail", {"tail": 221}),
        ("details.head", {"head": -1}),
        ("details.head", {"head": 2**70}),
        ("details.head_unit", {"head_unit": 0}),
        ("details.tail_counted", {"tail_counted": "27"}),
        ("details.unit", {"unit": 0}),
        ("details.unit", {"unit": 1.5}),
        ("details.free_below", {"free_below": -1}),
        ("details.free_below", {"free_below": None}),
        ("details.free_below", {"free_below": 1000}),
        ("details.free_below", {"head": 0}),
        ("details.free_below", {"free_below": 28, "levels": [[]]}),
        ("details.levels[1]", {"free_below": 28}),
        ("details.spare", {"spare": -1}),
        ("details.spare", {"spare": None}),
        ("details.spare", {"spare": 4}),
        ("details.spare", {"spare": 3, "free_below": 36, "levels": [[]]}),
        ("details.spare", {"spare": 1, "free_below": 28, "levels": [[]], "head": 0}),
        ("details.levels", {"levels": []}),
        ("details.levels", {"levels": 27}),
        ("details.levels", {"levels": [[]]}),
        ("details.levels", {"levels": [[], [36, 40]]}),
        ("details.levels[1]", {"levels": [[], 27]}),
        ("details.levels[1]", {"levels": [[], []]}),
        ("details.levels[1]", {"levels": [[27], []]}),
        ("details.levels[1]", {"levels": [[], [27, 27]]}),
        ("details.levels[1]", {"levels": [[], [28]]}),
        ("details.levels[1][0]", {"levels": [[], [0]]}),
        ("details.levels[1][0]", {"levels": [[], ["27"]]}),
        ("details.levels[1][0]", {"levels": [[], [True]]}),
        ("details.solver", {"solver": "offcert"}),
    ],
)
def test_forged_details_are_refused_by_name(place: str, changes: dict[str, Any]) -> None:
    fault = examined(**changes)
    assert fault is not None
    assert place in fault, fault


@pytest.mark.parametrize("name", ["pivot", "head", "tail"])
def test_details_that_are_missing_are_named(name: str) -> None:
    kept = {other: value for other, value in details().items() if other != name}
    fault = recheck(Bound("matched-heads", 409, Evidence.PROVED, kept), matched_problem()[0])
    assert fault == f'the field "details.{name}" is missing'


def test_numbers_that_are_too_large_are_no_exceptions() -> None:
    problem, cut, advice = matched_problem()
    assert within_reach(problem, 409, heads.advice(*cut, **advice))
    for changes in ({"unit": 2**62}, {"unit": 2**80}, {"unit": -1}, {"unit": 0}):
        assert not within_reach(problem, 409, heads.advice(*cut, **(advice | changes)))
        assert fault_of(409, **changes) is not None
    for changes in ({"free_below": 2**80}, {"levels": [[2**80]]}, {"levels": [[-27]]}):
        assert not within_reach(problem, 409, heads.advice(*cut, **(advice | changes)))
        assert fault_of(409, **changes) is not None
    for claim in (2**62, 2**80):
        assert not within_reach(problem, claim, heads.advice(*cut, **advice))
        assert fault_of(claim) is not None
    assert not within_reach(problem, 409, heads.advice(-1, *cut[1:], **advice))
    assert not within_reach(problem, 409, heads.advice(cut[0], (-1, 220), *cut[2:], **advice))
    with pytest.raises(BeyondLimitsError, match="is too large"):
        fault_of(409, max_labels=1)


def test_bounds_that_need_no_search() -> None:
    problem, cut, advice = matched_problem()
    compute = problem.trace.compute_time
    nonsense: Advice = {"unit": 0, "free_below": -1, "levels": []}
    assert matched_fault(problem, -1, (0, 0), ((), ()), (1, 1), compute, **nonsense) is None
    assert matched_fault(problem, -1, (0, 0), ((), ()), (1, 1), compute + 1, **nonsense)
    infeasible = problem.with_memory(problem.trace.least_memory - 1)
    assert matched_fault(infeasible, *cut, 10**9, **advice) is None
    # Head and tail alone may do.
    assert fault_of(407, levels=[]) is None


@pytest.mark.slow
def test_with_spare_tensors_more_can_be_proved_but_they_must_be_taken_into_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = false = 0
    for problem, optimum, pivot, ends in cuts(range(700, 760), 4):
        sizes = movable(problem, pivot)
        if len(sizes) == 1:
            continue
        advice: Advice = {"unit": 1, "free_below": 0, "levels": [sorted(set(sizes))]}
        (head, tail), *rest = ends
        ends = ((head, max(0, min(tail, optimum - 1 - head))), *rest)
        if optimum > problem.trace.compute_time:
            without = matched_fault(problem, pivot, *ends, optimum, **advice)
            fault = matched_fault(problem, pivot, *ends, optimum, spare=1, **advice)
            more += fault is None and "free_below" in (without or "")
        claim = problem, pivot, *ends, optimum + 1
        assert matched_fault(*claim, spare=1, **advice) is not None
        with monkeypatch.context() as patch:
            patch.setattr(
                matched_check, "joined", lambda *parts: joined(parts[0], parts[1], 0, parts[3])
            )
            false += matched_fault(*claim, spare=1, **advice) is None
    assert more > 3
    assert false > 3
