"""The order in which the outward search takes its regions."""

import random
from dataclasses import dataclass

from offcert.formulations.labels.outward.split import Agenda


@dataclass(eq=False)
class Item:
    length: int


def test_the_shortest_comes_first_and_what_came_first_of_equals() -> None:
    agenda: Agenda[Item] = Agenda()
    items = [Item(length) for length in (5, 3, 4, 3)]
    for item in items:
        agenda.push(item)
    assert agenda.least(9) == 3
    assert agenda.take(9) == [items[1], items[3], items[2], items[0]]
    assert agenda.least(9) == 9
    assert agenda.take(1) == []


def test_every_item_is_taken_once_ripe_or_not_and_the_least_is_that_of_the_rest() -> None:
    rng = random.Random(1)
    agenda: Agenda[Item] = Agenda()
    waiting: list[Item] = []
    ripe: set[Item] = set()
    out_of_turn = 0
    for _ in range(2000):
        if not waiting or rng.random() < 0.5:
            item = Item(rng.randrange(50))
            waiting.append(item)
            if rng.random() < 0.2:
                ripe.add(item)
            agenda.push(item, ripe=item in ripe)
        else:
            shortest = min(item.length for item in waiting)
            assert agenda.least(-1) == shortest
            [taken] = agenda.take(1)
            waiting.remove(taken)
            if taken.length > shortest:
                out_of_turn += 1
                assert taken in ripe
                assert taken.length == min(
                    item.length for item in [taken, *waiting] if item in ripe
                )
    assert out_of_turn > 20
