"""What a capture says of the insides of operations, against counting moment by moment."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from offcert.core.trace import Operation
from offcert.runtime.capture.network import build_within
from support.problems.random_instances import seeded


class Cut:
    """Moments, cut into operations: all that is asked of a line."""

    def __init__(self, ticks, count):
        self.ticks, self.moments = ticks, range(count)

    def __len__(self):
        return len(self.ticks)

    def operation(self, moment):
        return max(sum(tick <= moment for tick in self.ticks) - 1, 0)


@dataclass
class Recording:
    """Random lives of storages, and the line that they lie on."""

    line: Cut
    lives: list

    def starts(self):
        return [0, *self.line.ticks[1:], len(self.line.moments)]

    def operation(self, life):
        """Return the operations in which it is made and dies."""
        died = life.record.died
        end = len(self.line) if died is None else self.line.operation(died)
        return self.line.operation(life.record.born), end

    def alive(self, moment, without=()):
        return sum(
            life.record.size
            for number, life in enumerate(self.lives)
            if number not in without
            and life.record.born <= moment
            and (life.record.died is None or moment <= life.record.died)
        )

    def old(self, operation):
        return {n for n, life in enumerate(self.lives) if self.operation(life)[0] < operation}

    def held(self, operation, without=()):
        """Return what a trace counts during an operation."""
        return sum(
            life.record.size
            for number, life in enumerate(self.lives)
            if number not in without
            for first, last in [self.operation(life)]
            if first != last and first <= operation <= last
        )

    def peak(self, operation, without=()):
        first, end = self.starts()[operation : operation + 2]
        return max(self.alive(moment, without) for moment in range(first, end))


def recording(rng):
    count = rng.randint(4, 14)
    ticks = [rng.randint(0, 1), *sorted(rng.sample(range(2, count), rng.randint(1, 2)))]
    lives = []
    for _ in range(rng.randint(2, 9)):
        born = rng.randrange(count)
        died = None if rng.random() < 0.2 else rng.randint(born, count - 1)
        lives.append(SimpleNamespace(record=SimpleNamespace(
            size=rng.randint(1, 9), born=born, died=died
        )))  # fmt: skip
    return Recording(Cut(ticks, count), lives)


def within_of(found, unpacked=()):
    operations = [
        Operation(f"o{each}", 1, max(0, found.peak(each) - found.held(each)))
        for each in range(len(found.line))
    ]
    # Every storage is a value of its own.
    value_of = {id(life): number for number, life in enumerate(found.lives)}
    return operations, build_within(found.lives, value_of, found.line, operations, unpacked)


@pytest.mark.parametrize("seed", range(60))
def test_operations_take_what_they_take_whatever_is_there(seed):
    rng = seeded(seed)
    found = recording(rng)
    operations, within = within_of(found)
    for number, operation in enumerate(operations):
        making = within.making_of.get(number)
        old = found.old(number)
        for _ in range(20):
            without = {each for each in old if rng.random() < 0.5}
            needed = found.peak(number, without) - found.held(number, without)
            more = making.more if making and not without.isdisjoint(making.values) else 0
            assert needed <= operation.workspace + more
        # With nothing that is older it takes no less.
        alone = max(0, found.peak(number, old) - found.held(number, old))
        assert alone == operation.workspace + (making.more if making else 0)
        assert making is None or making.more > 0


@pytest.mark.parametrize("seed", range(60))
def test_what_is_begun_when_something_is_asked_for(seed):
    rng = seeded(seed)
    found = recording(rng)
    last = len(found.line) - 1
    first, end = found.starts()[last : last + 2]
    moments = sorted(rng.sample(range(first, end), min(end - first, 2)))
    saved = [rng.randrange(found.line.ticks[last]) for _ in moments]
    _, within = within_of(found, list(zip(moments, saved, strict=True)))
    old = found.old(last)
    # What is there when the operation begins; nothing of it has died before the first moment.
    before = sum(
        found.lives[n].record.size for n in old if found.operation(found.lives[n])[1] >= last
    )
    asked = {}
    for moment, saver in zip(moments, map(found.line.operation, saved), strict=True):
        asked.setdefault(saver, moment)
    counts = {
        saver: (
            *(max(0, each) for each in (
                found.alive(moment) - before,
                max(found.alive(m) for m in range(first, moment + 1)) - before,
            )),
            found.alive(moment, old),
            max(found.alive(m, old) for m in range(first, moment + 1)),
        )
        for saver, moment in asked.items()
    }  # fmt: skip
    rows = {
        ask.saver: (ask.left, ask.most, ask.left_otherwise, ask.most_otherwise)
        for ask in within.asks
    }
    assert rows == (counts if any(row[3] for row in counts.values()) else {})
    for ask in within.asks:
        moment = asked[ask.saver]
        dead = {n for n in old if found.operation(found.lives[n])[1] == last
                and found.lives[n].record.died < moment}  # fmt: skip
        assert set(ask.values) == dead
        assert within.first_ask(last, ask.saver, ask.saver) == ask
    assert within.first_ask(last, last, last) is None
