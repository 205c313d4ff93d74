"""When a link has moved so many bytes: the tree against moving them one item after the other."""

import random

import pytest

from offcert.formulations.combinatorial.relaxations import Availability


def moved_by(items: list[tuple[int, int]], amount: int, unit: int) -> int:
    """Move items of (ready, bytes) in their order until `amount` bytes have passed."""
    free = 0
    for ready, size in items:
        part = min(size, amount)
        free = max(free, ready) + part * unit
        amount -= part
        if amount == 0:
            break
    return free


def test_a_link_waits_for_what_is_not_there_yet() -> None:
    link = Availability([2, 0, 1], 3)
    link.put(2, 0, 4)
    link.put(1, 20, 5)
    # 4 bytes by 12; the fifth is there at 20.
    assert [link.time_to_move(amount) for amount in (1, 4, 5, 9)] == [3, 12, 23, 35]
    link.put(0, 10, 1)
    # By 15, and nothing waits for 20 before the sixth.
    assert [link.time_to_move(amount) for amount in (5, 6, 10)] == [15, 23, 35]
    link.take_away(2)
    assert [link.time_to_move(amount) for amount in (1, 2)] == [13, 23]


@pytest.mark.parametrize("seed", range(30))
def test_every_answer_is_that_of_moving_one_item_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    count, unit = rng.randint(1, 40), rng.choice((1, 7, 10**12))
    order = rng.sample(range(count), count)
    times = sorted(rng.randint(0, 50 * unit) for _ in range(count))
    ready = {item: times[place] for place, item in enumerate(order)}
    link = Availability(order, unit)
    there: dict[int, int] = {}
    asked = 0
    for _ in range(200):
        item = rng.randrange(count)
        if item in there and rng.random() < 0.5:
            link.take_away(item)
            del there[item]
        else:
            there[item] = rng.randint(1, 9)
            link.put(item, ready[item], there[item])
        if there:
            amount = rng.randint(1, sum(there.values()))
            rows = [(ready[item], there[item]) for item in order if item in there]
            assert link.time_to_move(amount) == moved_by(rows, amount, unit)
            asked += 1
    assert asked > 100
