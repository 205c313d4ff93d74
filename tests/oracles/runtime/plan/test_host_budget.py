"""Host memory as a limit: refused, or the fewest bytes go into a file; beside brute force."""

import random
from itertools import combinations

import pytest
import torch

from offcert.core.errors import InputError, OffcertError
from offcert.questions.placement.problem import PlacementProblem, Residence, placement_faults
from offcert.questions.schedule.residences import HOST_ALIGNMENT, least_covering
from offcert.runtime.device.pinned import FileArena, SplitArena
from offcert.runtime.plan.host_layout import HostLayout, layout_within, placed


def spilled_bytes(plan) -> int:
    """Return the bytes that are written to the file in a step."""
    pairs = zip(plan.keys, plan.problem.residences, strict=True)
    return sum(residence.size for key, residence in pairs if key in plan.spilled)


def _layout(rows, alignment=1):
    residences = [Residence(f"x{n}", size, start, end) for n, (size, start, end) in enumerate(rows)]
    problem = PlacementProblem("host", residences, None, alignment)
    return HostLayout(problem, placed(problem), tuple(f"key {n}" for n in range(len(rows))))


def _random_rows(rng, count, largest=9):
    rows = []
    for _ in range(count):
        start = rng.randrange(6)
        rows.append((rng.randint(1, largest), start, start + rng.randint(1, 5)))
    return rows


def _least_spilled(rows, limit):
    """Return the fewest bytes that must go for the load of the others to be within the limit."""
    everyone = range(len(rows))
    best = None
    for count in range(len(rows) + 1):
        for gone in combinations(everyone, count):
            kept = [rows[n] for n in everyone if n not in gone]
            load = max(
                (sum(s for s, a, b in kept if a <= t < b) for t in range(12)),
                default=0,
            )
            if load <= limit:
                size = sum(rows[n][0] for n in gone)
                best = size if best is None else min(best, size)
    return best


def test_what_fits_stays_as_it_is():
    layout = _layout([(5, 0, 4), (3, 1, 2)])
    for limit in (None, layout.pool, layout.pool + 1):
        plan = layout_within(layout, limit, spill=True)
        assert (plan, plan.registered, plan.spilled) == (layout, layout.pool, frozenset())
        assert (plan.in_file, spilled_bytes(plan)) == (0, 0)


def test_what_does_not_fit_is_refused_in_one_sentence():
    layout = _layout([(5 * 2**20, 0, 4), (3 * 2**20, 1, 2)])
    with pytest.raises(InputError) as caught:
        layout_within(layout, 2**20)
    assert str(caught.value) == (
        "the plan needs 8.00 MiB of host memory (8388608 bytes), but may have 1.00 MiB (1048576): "
        "allow it more, or let what is too much go into a file"
    )
    with pytest.raises(InputError, match="at least 0 bytes, not -1"):
        layout_within(layout, -1, spill=True)


def test_a_plan_worked_out_by_hand():
    # All at once: 5 + 4 + 3 = 12. Of 8, the least that can go is 4.
    plan = layout_within(_layout([(5, 0, 9), (4, 1, 8), (3, 2, 7)]), 8, spill=True)
    assert plan.spilled == {"key 1"}
    assert (plan.registered, plan.in_file, spilled_bytes(plan)) == (8, 4, 4)
    assert plan.offsets["key 1"] == 8


@pytest.mark.parametrize("seed", range(60))
def test_the_rest_fits_nothing_overlaps_and_hardly_more_goes_than_must(seed):
    rng = random.Random(seed)
    rows = _random_rows(rng, rng.randint(1, 7))
    layout = _layout(rows)
    limit = rng.randrange(layout.pool)
    plan = layout_within(layout, limit, spill=True)
    assert plan.registered <= limit
    assert placement_faults(plan.problem, plan.placement) == []
    for key, residence in zip(layout.keys, layout.problem.residences, strict=True):
        offset = plan.offsets[key]
        inside = offset + residence.size <= plan.registered
        assert inside is (key not in plan.spilled)
        assert inside or offset >= plan.registered
    least = _least_spilled(rows, limit)
    assert least <= spilled_bytes(plan) <= least + max(size for size, _, _ in rows)


def test_where_all_are_needed_at_once_the_fewest_bytes_go():
    rng = random.Random(1)
    for _ in range(40):
        rows = [(rng.randint(1, 30), n, 20 - n) for n in range(rng.randint(1, 8))]
        limit = rng.randrange(sum(size for size, _, _ in rows))
        assert spilled_bytes(layout_within(_layout(rows), limit, spill=True)) == _least_spilled(
            rows, limit
        )


def test_some_of_the_limit_is_for_copies_on_their_way():
    rows = [(600, n, 20 - n) for n in range(10)]
    layout = _layout(rows, HOST_ALIGNMENT)
    assert layout.pool == 6400

    def staged(limit):
        plan = layout_within(layout, limit, spill=True, staged=True)
        assert plan.registered + plan.staging <= limit
        assert plan.registered + plan.in_file == 6400
        return plan.staging

    # Four of the largest, but no more than a quarter; one of them at least, but at most half.
    assert [staged(limit) for limit in (6399, 4000, 2560, 1280, 1279, 0)] == [
        1536,
        960,
        640,
        640,
        0,
        0,
    ]
    many = _layout([(64, n, 99 - n) for n in range(40)], HOST_ALIGNMENT)
    assert layout_within(many, 2500, spill=True, staged=True).staging == 256
    assert layout_within(layout, 6400, spill=True, staged=True).staging == 0


def test_aligned_addresses_and_a_limit_that_is_not():
    rows = [(100, 0, 3), (60, 1, 2), (200, 1, 3)]
    plan = layout_within(_layout(rows, HOST_ALIGNMENT), 300, spill=True)
    assert plan.registered <= 300
    assert all(offset % HOST_ALIGNMENT == 0 for offset in plan.offsets.values())
    assert placement_faults(plan.problem, plan.placement) == []


def test_nothing_may_stay():
    plan = layout_within(_layout([(5, 0, 3), (0, 1, 2)]), 0, spill=True)
    assert (plan.registered, spilled_bytes(plan)) == (0, 5)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_that_covers_is_that_of_brute_force(seed):
    rng = random.Random(seed)
    sizes = [rng.randint(1, 50) for _ in range(rng.randint(1, 8))]
    excess = rng.randint(1, sum(sizes))
    found = least_covering(range(len(sizes)), sizes, excess)
    assert len(set(found)) == len(found)
    sums = [sum(chosen) for count in range(len(sizes) + 1) for chosen in combinations(sizes, count)]
    assert sum(sizes[n] for n in found) == min(total for total in sums if total >= excess)


def test_many_large_ones_are_told_apart_well_enough():
    rng = random.Random(0)
    sizes = [rng.randint(2**20, 2**28) for _ in range(60)]
    excess = sum(sizes) // 3
    found = least_covering(range(60), sizes, excess)
    covered = sum(sizes[n] for n in found)
    assert excess <= covered <= excess * 1.002


def test_two_arenas_behind_each_other(tmp_path):
    first, second = FileArena(64, str(tmp_path)), FileArena(100, str(tmp_path))
    arena = SplitArena(first, second)
    assert arena.size == 164
    arena.view(0, 64).fill_(1)
    arena.view(64, 100).copy_(torch.arange(100).to(torch.uint8))
    assert first.view(0, 64).eq(1).all()
    assert second.view(90, 10).tolist() == list(range(90, 100))
    assert arena.locate(63) == (first, 63)
    assert arena.locate(64) == (second, 0)
    with pytest.raises(OffcertError, match="8 bytes at 60 lie in two arenas"):
        arena.view(60, 8)
    arena.close()
