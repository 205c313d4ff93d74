"""Algorithm 1: executions by hand, and schedules and addresses that hold on any trace."""

from fractions import Fraction

import pytest

from offcert.core.errors import NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.modnn.scheduler import ModnnOutcome, algorithm_1, modnn
from offcert.instances.cnn import CnnChains
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert.questions.split.menu import Alternative, Menu
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem, seeded
from support.seeds import by_seeds


def problem(
    memory: int, durations: list[int], tensors: list[tuple[str, int, tuple[int, ...]]]
) -> Problem:
    """Return a problem on a link that carries a byte a tick."""
    operations = [Operation(f"o{i}", duration) for i, duration in enumerate(durations)]
    trace = Trace(operations, [Tensor(*tensor) for tensor in tensors])
    return Problem("t", trace, Platform(memory, Fraction(1)))


def transfers(outcome: ModnnOutcome) -> list[tuple[str, int, int]]:
    return [(str(t.kind), t.start, t.end) for t in outcome.schedule.transfers]


def places(outcome: ModnnOutcome) -> set[tuple[str, int, int, int]]:
    pairs = zip(outcome.residences.residences, outcome.placement.addresses, strict=True)
    return {(each.name, address, each.start, each.end) for each, address in pairs}


# x is used at the beginning and at the end; while o2 runs, it does not fit beside y and z.
ROUND_TRIP = problem(
    10, [10] * 5, [("x", 4, (0, 1, 4)), ("y", 4, (1, 2)), ("z", 4, (2, 3)), ("u", 2, (3, 4))]
)


def test_a_round_trip_by_hand() -> None:
    found = algorithm_1(ROUND_TRIP)
    # x was written at 10, and is copied at once; it is sent for before o3, which is just in time.
    assert transfers(found) == [("offload", 10, 14), ("prefetch", 30, 34)]
    assert found.schedule.starts == (0, 10, 20, 30, 40)
    assert places(found) == {
        ("x", 0, 0, 20),
        ("y", 4, 10, 30),
        ("z", 0, 20, 40),
        ("u", 4, 30, 50),
        ("x", 6, 30, 50),
    }
    assert found.defragmentations == 0
    assert simulate(ROUND_TRIP, modnn(ROUND_TRIP)).makespan == 50


def test_a_workspace_delays_no_prefetch_that_need_not_start_yet() -> None:
    # As above, with a task more before x is needed: o3 leaves no room for x, but o4 does.
    tensors = [("x", 4, (0, 1, 5)), ("y", 4, (1, 2)), ("z", 4, (2, 3)), ("u", 2, (3, 4))]
    longer = problem(10, [10] * 6, [*tensors, ("v", 2, (4, 5))])
    fast = Menu({3: (Alternative("slow", 10), Alternative("fast", 9, 3))})
    found = algorithm_1(longer, fast)
    assert found.choice == (1,)
    assert transfers(found) == [("offload", 10, 14), ("prefetch", 39, 43)]
    assert found.schedule.makespan == 59


@pytest.mark.parametrize(
    ("operation", "duration", "workspace", "chosen", "makespan"),
    [
        # Two bytes are free beside y and z.
        (2, 4, 2, 1, 44),
        # Three are not, and both are in use.
        (2, 4, 3, 0, 50),
        # Beside z and u, four bytes are free, which x needs to come back: that costs 4.
        (3, 9, 3, 0, 50),
        # Here that is worth it: x comes after o3, from 35 to 39.
        (3, 5, 3, 1, 49),
        # Two bytes would leave x too little as well.
        (3, 5, 4, 1, 49),
    ],
)
def test_what_an_algorithm_saves_and_what_its_workspace_costs(
    operation: int, duration: int, workspace: int, chosen: int, makespan: int
) -> None:
    menu = Menu({operation: (Alternative("slow", 10), Alternative("fast", duration, workspace))})
    found = algorithm_1(ROUND_TRIP, menu)
    assert found.choice == (chosen,)
    assert found.schedule.makespan == makespan
    assert check(Problem("t", found.trace, ROUND_TRIP.platform), found.schedule) == []


def test_everything_is_vacated_where_free_room_is_in_pieces() -> None:
    # q lies between p and r, which are gone when s needs room; q is needed at once.
    pieces = problem(
        6, [10] * 3, [("p", 2, (0, 1)), ("q", 2, (0, 2)), ("r", 2, (0, 1)), ("s", 4, (2,))]
    )
    found = algorithm_1(pieces)
    assert found.defragmentations == 1
    assert transfers(found) == [("offload", 10, 12), ("prefetch", 20, 22)]
    assert found.schedule.starts == (0, 10, 22)
    assert ("q", 0, 22 - 2, 32) in places(found)
    assert ("s", 2, 20, 32) in places(found) or ("s", 2, 22, 32) in places(found)


def test_what_would_be_vacated_again_is_not_sent_for() -> None:
    # o5 reads x and writes w; beside both there is no room for h, which nobody has used yet.
    useless = problem(
        10,
        [10] * 7,
        [
            ("x", 4, (0, 1, 5)),
            ("y", 7, (2, 3)),
            ("h", 3, (3, 6)),
            ("w", 4, (5, 6)),
        ],
    )
    found = algorithm_1(useless)
    assert found.defragmentations == 1
    assert found.schedule.starts == (0, 10, 20, 30, 40, 61, 74)
    back = [(start, end) for kind, start, end in transfers(found) if kind == "prefetch"]
    assert back == [(57, 61), (71, 74)]


@pytest.mark.parametrize("part", [Fraction(0), Fraction(1, 4), Fraction(9, 10)])
def test_a_chain_has_a_plan_from_its_least_memory_on(part: Fraction) -> None:
    # Its gradients may not leave, and lie between free rooms once activations have left.
    defragmented = 0
    for seed in range(6):
        chain = CnnChains(stages=8).problem(seed)
        limited = chain.with_memory(chain.memory_at(part))
        found = algorithm_1(limited)
        assert check(limited, found.schedule) == []
        assert overlaps(found) == []
        assert found.placement.pool(found.residences) <= limited.platform.memory
        assert simulate(limited, modnn(limited)).makespan <= found.schedule.makespan
        defragmented += found.defragmentations
    assert defragmented


def test_of_equal_delays_what_is_needed_last_leaves() -> None:
    # Both could leave for c without any delay: a is needed by o4, b by o6.
    tensors = [("a", 2, (0, 2, 4)), ("b", 2, (1, 2, 6)), ("c", 2, (3, 5))]
    found = algorithm_1(problem(4, [10] * 7, tensors))
    assert transfers(found) == [("offload", 20, 22), ("prefetch", 50, 52)]
    assert found.schedule.makespan == 70


def test_a_task_that_fits_nowhere() -> None:
    with pytest.raises(NoPlanError, match="no room for what o1 reads and writes"):
        algorithm_1(problem(5, [1, 1], [("x", 3, (0, 1)), ("y", 3, (1,))]))
    with pytest.raises(NoPlanError, match="at the start does not fit"):
        algorithm_1(problem(5, [1, 1], [("x", 6, (-1, 1))]))


def overlaps(outcome: ModnnOutcome) -> list[tuple[str, str]]:
    """Return who lies on whom, from the definition."""
    pairs = list(zip(outcome.residences.residences, outcome.placement.addresses, strict=True))
    return [
        (first.name, second.name)
        for number, (first, here) in enumerate(pairs)
        for second, there in pairs[number + 1 :]
        if first.start < second.end and second.start < first.end
        if here < there + second.size and there < here + first.size
    ]


@pytest.mark.parametrize("seed", range(200))
def test_schedules_and_addresses_hold_on_any_trace(seed: int) -> None:
    drawn = mixed_problem(seed, 5)
    rng = seeded(seed)
    size = max((tensor.size for tensor in drawn.trace.tensors), default=1)
    menu = Menu(
        {
            operation: [
                Alternative("a", rng.randint(0, 20)),
                Alternative("b", rng.randint(0, 9), rng.randint(0, size)),
            ]
            for operation in rng.sample(range(len(drawn.trace)), 2)
        }
    )
    try:
        found = algorithm_1(drawn, menu)
    except NoPlanError:
        # Whatever fits at all has a plan: everything may be vacated before each task.
        assert menu.chosen(drawn.trace, menu.leanest()).least_memory > drawn.platform.memory
        return
    chosen = Problem("t", found.trace, drawn.platform)
    assert found.trace == menu.chosen(drawn.trace, found.choice)
    assert check(chosen, found.schedule) == []
    assert overlaps(found) == []
    pool = found.placement.pool(found.residences)
    assert pool <= drawn.platform.memory
    again = simulate(chosen, found.schedule.plan(found.trace)).makespan
    assert again <= found.schedule.makespan
    if seed < 60 and len(found.trace.gaps) <= 5:
        least = brute_force(chosen)
        assert least is not None
        assert least <= again


@by_seeds(0, 40, 20)
def test_every_plan_is_found_where_fragments_do_not_matter(seeds: range) -> None:
    # With tensors of one size, any free piece serves any of them.
    missed = 0
    for seed in seeds:
        rng = seeded(seed)
        count = rng.randint(3, 6)
        operations = [Operation(f"o{i}", rng.randint(0, 9)) for i in range(count)]
        uses = [sorted(rng.sample(range(count), rng.randint(2, count))) for _ in range(5)]
        trace = Trace(operations, [Tensor(f"t{i}", 3, tuple(each)) for i, each in enumerate(uses)])
        tight = Problem("t", trace, Platform(trace.least_memory, Fraction(1)))
        found = algorithm_1(tight)
        assert check(tight, found.schedule) == []
        missed += found.defragmentations
    assert missed < 20


def test_offloads_name_the_first_gap_that_is_used() -> None:
    found = algorithm_1(ROUND_TRIP)
    (offload,) = [each for each in found.schedule.transfers if each.kind is Kind.OFFLOAD]
    gap = ROUND_TRIP.trace.gaps[offload.gap]
    assert (gap.before, gap.after) == (1, 4)
