"""Staging by itself, without a step: any order, any room, and what was read ahead."""

import random

import pytest
import torch

from offcert.runtime.simulated import SimulatedDevice, by_chance, early, late
from offcert.runtime.streaming.staging import Ring, Staged, Staging


def test_whoever_comes_to_bytes_of_a_ring_waits_for_who_was_there_last():
    chance = random.Random(0)
    for size in (1, 5, 64, 100):
        ring, last = Ring(size), {}
        for turn in range(300):
            wanted = chance.randint(1, size)
            foreseen = ring.gone(wanted)
            slot, gone = ring.take(wanted)
            assert gone == foreseen
            assert 0 <= slot.begin <= slot.begin + wanted <= size
            at = range(slot.begin, slot.begin + wanted)
            assert {each.used for each in gone} == {last[byte] for byte in at if byte in last}
            # An event, as far as the ring is concerned.
            slot.used = turn
            last |= dict.fromkeys(at, turn)


def _copies(device, size, order=(), count=4, each=100, directory=None):
    """Return staging, storages in a file, and their bytes on the device."""
    file = device.file(count * 128, directory)
    rows = [Staged(n, file, n * 128, each) for n in range(count)]
    data = [torch.full((each,), n + 1, dtype=torch.uint8) for n in range(count)]
    return Staging(device, size, [[rows[n]] for n in order]), rows, data, file


def _device(**options):
    return SimulatedDevice(**options)


@pytest.mark.parametrize("size", [128, 192, 256, 512, 1024])
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (0, 1, 2, 3), (2, 2, 0)])
def test_any_order_and_any_room(size, order):
    for adversary in (late, early, by_chance(5)):
        device = _device(adversary=adversary)
        staging, rows, data, file = _copies(device, size, order)
        staging.begin()
        for row, bytes_ in zip(rows, data, strict=True):
            device.out.wait(device.compute.record())
            staging.send([(row, bytes_)])
            device.compute.wait(device.out.record())
        for number in (3, 0, 2, 2, 1):
            back = device.allocate(100)
            device.back.wait(device.compute.record())
            staging.bring([(rows[number], back)])
            device.compute.wait(device.back.record())
            assert back.eq(number + 1).all()
        # What is written anew is read anew, whatever has been read ahead.
        data[1].fill_(77)
        device.compute.ran(1)
        device.out.wait(device.compute.record())
        staging.send([(rows[1], data[1])])
        device.compute.wait(device.out.record())
        back = device.allocate(100)
        device.back.wait(device.compute.record())
        staging.bring([(rows[1], back)])
        device.compute.wait(device.back.record())
        assert back.eq(77).all()
        staging.settle()
        device.synchronise()
        staging.close()
        file.close()
        assert device.races == []
        assert device.pinned_bytes == 0


def test_what_comes_back_next_is_read_before_it_is_asked_for():
    device = _device(adversary=early)
    staging, rows, data, _ = _copies(device, 1024, (3, 2, 1, 0))
    staging.begin()
    for row, bytes_ in zip(rows, data, strict=True):
        device.out.wait(device.compute.record())
        staging.send([(row, bytes_)])
    assert list(staging._ahead) == [(3,), (2,), (1,), (0,)]
    back = device.allocate(100)
    device.back.wait(device.compute.record())
    staging.bring([(rows[3], back)])
    assert list(staging._ahead) == [(2,), (1,), (0,)]
    # One that is not in its order lets those before it go.
    staging.bring([(rows[1], back)])
    assert list(staging._ahead) == [(0,)]


def sent(device, staging, row, data):
    device.out.wait(device.compute.record())
    staging.send([(row, data)])


def brought(device, staging, row):
    """Return what comes back."""
    back = device.allocate(row.size)
    device.back.wait(device.compute.record())
    staging.bring([(row, back)])
    device.compute.wait(device.back.record())
    return back


def test_what_was_read_ahead_is_not_taken_for_what_is_written_anew_or_for_what_lay_there():
    device = _device(adversary=early)
    staging, rows, data, _ = _copies(device, 512, (1,))
    staging.begin()
    sent(device, staging, rows[1], data[1])
    assert list(staging._ahead) == [(1,)]
    data[1].fill_(77)
    device.compute.ran(1)
    sent(device, staging, rows[1], data[1])
    assert brought(device, staging, rows[1]).eq(77).all()
    # The next step begins as the first one did.
    staging.begin()
    sent(device, staging, rows[1], data[1])
    slot = staging._ahead[1,].slot
    for n in (0, 2, 3, 0):
        sent(device, staging, rows[n], data[n])
    # Others have been in its slot meanwhile; it has been read anew.
    assert staging._ahead[1,].slot is not slot
    assert brought(device, staging, rows[1]).eq(77).all()
    staging.settle()
    assert device.races == []


def test_bytes_of_a_file_are_written_after_they_have_been_read():
    device = _device()
    staging, rows, data, file = _copies(device, 1024, (0,))
    sent(device, staging, rows[0], data[0])
    # Read, but never asked for.
    assert list(staging._ahead) == [(0,)]
    sent(device, staging, Staged("other", file, rows[0].offset, 100), data[1])
    staging.settle()
    assert device.races == []


def test_out_waits_for_back_where_one_comes_to_a_slot_of_the_other():
    device = _device()
    staging, rows, data, _ = _copies(device, 128)
    sent(device, staging, rows[0], data[0])
    device.compute.wait(device.out.record())
    back = device.allocate(100)
    device.back.wait(device.compute.record())
    staging.bring([(rows[0], back)])
    sent(device, staging, rows[1], data[1])
    device.compute.wait(device.out.record())
    device.compute.wait(device.back.record())
    assert back.eq(1).all()
    assert device.races == []


def test_storages_of_a_smaller_step_that_come_back_together_are_read_ahead_where_they_are_wanted():
    # The second one begins elsewhere in its slot if the first one is smaller than in the order.
    device = _device(adversary=early)
    file = device.file(1024, None)
    planned, actual = (
        [Staged(0, file, 0, size), Staged(1, file, 512, size)] for size in (300, 100)
    )
    staging = Staging(device, 2048, [planned])
    data = [torch.full((100,), n + 1, dtype=torch.uint8) for n in range(2)]
    staging.begin()
    device.out.wait(device.compute.record())
    staging.send(list(zip(actual, data, strict=True)))
    assert list(staging._ahead) == [(0, 1)]
    back = [device.allocate(100) for _ in actual]
    device.back.wait(device.compute.record())
    staging.bring(list(zip(actual, back, strict=True)))
    device.compute.wait(device.back.record())
    device.synchronise()
    assert [each.unique().tolist() for each in back] == [[1], [2]]
    staging.settle()
    staging.close()
    file.close()
    assert device.races == []
