"""The heap and the hash table of the label searches, against what Python has."""

import heapq
import random

import numpy as np

from offcert.formulations.labels.store import NONE, place_of, pop, push


def test_the_heap_gives_the_least_first_and_of_these_the_most() -> None:
    rng = random.Random(1)
    for count in (1, 2, 3, 50, 400):
        least = np.array([rng.randrange(6) for _ in range(count)], np.int64)
        most = np.array([rng.randrange(6) for _ in range(count)], np.int64)
        heap, size = np.empty(count, np.int32), 0
        expected: list[tuple[int, int]] = []
        waiting = list(range(count))
        while waiting or size:
            if waiting and (size == 0 or rng.random() < 0.6):
                label = waiting.pop()
                push(heap, size, label, least, most)
                size += 1
                heapq.heappush(expected, (int(least[label]), -int(most[label])))
            else:
                label = pop(heap, size, least, most)
                size -= 1
                assert (least[label], -most[label]) == heapq.heappop(expected)
        assert not expected


def test_the_table_tells_all_keys_apart_however_full_it_is() -> None:
    rng = random.Random(2)
    different = list({tuple(rng.randrange(3) for _ in range(4)) for _ in range(200)})
    keys = np.array(different, np.int16)
    # As full as it may be: one place is free.
    for count in (1, 3, 7, 31, 63):
        table = np.full(count + 1, NONE, np.int32)
        for label in range(count):
            place = place_of(table, keys, keys[label].astype(np.int64))
            assert table[place] == NONE
            table[place] = label
        for label in range(count):
            assert table[place_of(table, keys, keys[label].astype(np.int64))] == label
        assert table[place_of(table, keys, keys[count].astype(np.int64))] == NONE
