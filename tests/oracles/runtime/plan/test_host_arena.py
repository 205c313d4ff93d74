"""The arena on the host: bytes are shared, and never while they are needed."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import offcert
from offcert.core.platform import Kind
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.host import HostStore
from offcert.runtime.follow import offload
from offcert.runtime.plan import host_layout, step_plan
from offcert.runtime.plan.host_layout import HostLayout
from offcert.runtime.plan.predict import predict
from offcert.runtime.streaming.copies import HostCopies
from offcert.runtime.watch.entries import StorageEntry
from support.oracles.placement import least_pool
from support.problems.placements import random_placement_problem
from support.runtime.captured import Outcome, compare, mean_step, problem_of_step


class Branches(nn.Module):
    """Random layers of random widths, each on what some earlier ones have made."""

    def __init__(self, seed: int, stray: bool = False) -> None:
        super().__init__()
        rng = random.Random(seed)
        torch.manual_seed(seed)
        widths = [8]
        self.layers, self.sources = nn.ModuleList(), []
        for _ in range(rng.randint(4, 7)):
            sources = sorted(rng.sample(range(len(widths)), min(len(widths), rng.randint(1, 2))))
            sources = sorted({*sources, len(widths) - 1})
            width = rng.randint(2, 40)
            self.layers.append(nn.Linear(sum(widths[source] for source in sources), width))
            self.sources.append(sources)
            widths.append(width)
        self.stray = stray
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        made = [x]
        for index, (layer, sources) in enumerate(zip(self.layers, self.sources, strict=True)):
            # Every other step leaves out what the plan expects.
            skip = self.stray and self.calls % 2 == 0 and index == len(self.layers) // 2
            inside = torch.cat([made[source] for source in sources], 1)
            made.append(layer(inside) if skip else torch.sigmoid(layer(inside)))
        return made[-1]


def random_plan(rng: random.Random) -> Callable[[Problem], Plan]:
    """Return what evicts some gaps: tensors leave and return at any time in them."""

    def plan(problem: Problem) -> Plan:
        moves, gone = [], set()
        for number, gap in enumerate(problem.trace.gaps):
            if rng.random() < 0.2:
                continue
            release = rng.randint(gap.before + 1, gap.after)
            back = min(gap.after, release + rng.choice((0, 0, 1, 3, 100)))
            if gap.tensor in gone:
                release = gap.before + 1
            else:
                gone.add(gap.tensor)
                moves.append(Move(Kind.OFFLOAD, number, release))
            moves.append(Move(Kind.PREFETCH, number, max(release, back)))
        return Plan(moves)

    return plan


def step_of(seed: int, stray: bool = False) -> TrainingStep:
    return mean_step(Branches(seed, stray), 4, 8)


def train(seed: int, stray: bool = False) -> Outcome:
    """Compare plain training with training under a random plan, bit by bit."""
    return compare(
        step_of(seed, stray), steps=2, count=False, plan=random_plan(random.Random(seed))
    )


def moved(outcome: Outcome) -> int:
    """Return the bytes of all copies, each of which would have a place of its own."""
    sizes = outcome.offload.step_plans[0].host.problem.sizes
    return sum(sizes)


def test_random_plans_share_bytes_and_train_bitwise() -> None:
    shared = 0
    for seed in range(16):
        outcome = train(seed)
        host = outcome.offload.step_plans[0].host
        assert placement_faults(host.problem, host.placement) == []
        assert all(address % 64 == 0 for address in host.placement.addresses)
        for report in outcome.reports:
            assert report.planned, report.deviation
            assert (report.arena_bytes, report.arena_load) == (host.pool, host.load)
            assert (report.outside_entries, report.outside_bytes) == (0, 0)
            assert report.late_bytes == 0
        shared += host.pool < moved(outcome)
    assert shared > 10


@pytest.mark.filterwarnings("ignore:a step did not follow its plan")
def test_steps_that_leave_their_plan_train_bitwise() -> None:
    strayed = 0
    for seed in range(100, 112):
        outcome = train(seed, stray=True)
        strayed += sum(report.deviation is not None for report in outcome.reports)
        assert all(report.outside_entries == 0 for report in outcome.reports)
    assert strayed > 3


def squeezed(problem: PlacementProblem) -> Placement:
    """Return addresses at which everything overlaps everything."""
    return Placement([0] * len(problem.residences))


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_layout, "placed", squeezed)


@pytest.mark.usefixtures("overlapping")
def test_copies_that_would_overwrite_others_go_outside_of_the_arena() -> None:
    outside = 0
    for seed in range(8):
        outcome = train(seed)
        host = outcome.offload.step_plans[0].host
        assert host.pool == max(host.problem.sizes, default=0)
        for report in outcome.reports:
            assert report.planned, report.deviation
            assert report.outside_bytes <= report.offloaded_bytes
            assert bool(report.outside_entries) is bool(report.outside_bytes)
            outside += report.outside_entries
    assert outside > 20


@pytest.mark.usefixtures("overlapping")
def test_without_that_guard_an_overlapping_arena_is_found_by_these_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostCopies, "is_needed", staticmethod(lambda reference: False))
    wrong = 0
    for seed in range(8):
        try:
            train(seed)
        except AssertionError as error:
            assert str(error).startswith(("state.gradients", "state.parameters"))  # noqa: PT017
            wrong += 1
    assert wrong > 4


def test_residences_that_are_an_operation_too_short_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = step_plan.host_residences_in_order

    def short(trace, plan):
        return tuple(
            (of, replace(stay, end=max(stay.start + 1, stay.end - 1)))
            for of, stay in right(trace, plan)
        )

    monkeypatch.setattr(step_plan, "host_residences_in_order", short)
    assert sum(report.outside_entries for seed in range(10) for report in train(seed).reports) > 0


@pytest.mark.parametrize("seed", range(30))
def test_layouts_against_brute_force(seed: int) -> None:
    problem = random_placement_problem(seed, most=7, span=8)
    placement = host_layout.placed(problem)
    assert placement_faults(problem, placement) == []
    assert problem.load <= least_pool(problem) <= placement.pool(problem)
    assert placement == host_layout.placed(problem)
    if sum(problem.sizes) == problem.load:
        assert placement.pool(problem) == problem.load


def test_a_layout_is_a_problem_for_place_whose_bound_is_verified() -> None:
    problem = problem_of_step(step_of(3))
    plan = random_plan(random.Random(3))(problem)
    host = step_plan.step_plan(problem, plan).host
    assert len(host.keys) > 3
    assert {stay.start for stay in host.problem.residences} == {
        operation
        for operation, tensors in enumerate(predict(problem.trace, plan).releases)
        if tensors and operation in {move.before for move in plan.moves if move.kind == "offload"}
    }
    placed = offcert.place(host.problem, time_limit=2, workers=1)
    assert offcert.verify(placed).valid
    assert host.load <= placed.result.lower_bound <= placed.result.pool <= host.pool


def test_a_plan_that_moves_nothing_has_no_arena() -> None:
    problem = problem_of_step(step_of(0))
    made = offload.follow(step_of(0).model, Plan(), problem)
    assert (made.step_plans[0].host.pool, made.step_plans[0].host.load) == (0, 0)
    with made:
        step = step_of(0)
        step.run(made.follower.root, step.make_batch()).backward()
    assert made.report.arena_bytes == made.report.outside_entries == 0


class Away(StorageEntry):
    """A storage of which the test says where it is."""

    def __init__(self, key: str, values: list[int]) -> None:
        super().__init__(key, len(values))
        self.put(torch.tensor(values, dtype=torch.uint8))

    def leave(self, copies: HostCopies[str]) -> None:
        copies.write(self)
        self.drop()

    def back(self, copies: HostCopies[str]) -> list[int]:
        data = torch.empty(self.size, dtype=torch.uint8)
        copies.read(self, data)
        self.put(data)
        return data.tolist()


def laid_out(offsets: dict[str, int]) -> HostLayout[str]:
    """Return a layout of storages of four bytes each."""
    residences = [Residence(key, 4, 0, 1) for key in offsets]
    problem = PlacementProblem("", residences)
    return HostLayout(problem, Placement(list(offsets.values())), tuple(offsets))


def test_what_overlaps_is_found() -> None:
    found = laid_out({"a": 0, "b": 4, "c": 2, "d": 9}).overlapping
    expected = {"a": "ac", "b": "bc", "c": "abc", "d": "d"}
    assert {key: "".join(sorted(others)) for key, others in found.items()} == expected


def test_copies_by_hand() -> None:
    layout = laid_out({"a": 0, "b": 4, "c": 2})
    copies = HostCopies(layout, HostStore(8))
    a, b, c = (Away(key, [number] * 4) for number, key in enumerate("abc", 1))
    none = Away("none", [])
    assert copies.has(none)
    none.leave(copies)
    assert none.back(copies) == []
    a.leave(copies)
    b.leave(copies)
    assert [copies.has(each) for each in (a, b, c)] == [True, True, False]
    # Both are away; c lies across them.
    c.leave(copies)
    assert (copies.outside_entries, copies.outside_bytes) == (1, 4)
    assert [each.back(copies) for each in (a, b, c)] == [[1] * 4, [2] * 4, [3] * 4]
    assert all(copies.has(each) for each in (a, b, c))
    # a and b are back: what takes their place makes their copies worthless.
    other = Away("c", [7] * 4)
    fresh = HostCopies(layout, HostStore(8))
    a.leave(fresh)
    a.back(fresh)
    other.leave(fresh)
    assert not fresh.has(a)
    # One that has died needs nothing any more.
    del other
    a.leave(fresh)
    assert fresh.outside_entries == 0
    assert a.back(fresh) == [1] * 4


def test_a_copy_that_was_interrupted_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = laid_out({"a": 0, "b": 0})
    copies, a, b = HostCopies(layout, HostStore(4)), Away("a", [1] * 4), Away("b", [2] * 4)

    def interrupted(store: HostStore, offset: int, storage: object, size: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostStore, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            copies.write(a)
    assert not copies.has(a)
    b.leave(copies)
    with monkeypatch.context() as patch:
        patch.setattr(HostStore, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            copies.write(a)
    assert not copies.has(a)
    a.leave(copies)
    assert [each.back(copies) for each in (a, b)] == [[1] * 4, [2] * 4]
