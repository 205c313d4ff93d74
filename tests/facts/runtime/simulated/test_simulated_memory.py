"""What takes memory of a simulated device, and its allocator against a plain one."""

import random
from itertools import pairwise

import pytest
import torch

from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.watch.tracker import LiveBytes
from offcert_lab.engines.allocator import CachingAllocator
from support.runtime.simulated_cases import device_with

MIB = 2**20


class Plain:
    """The rules of the allocator, by looking at all stretches of all segments every time.

    Each segment is a list of (bytes, in use); nothing is joined or sorted before it is needed.
    """

    def __init__(self, limit, granule):
        self.limit, self.granule = limit, granule
        self.segments = []

    def free(self, small):
        """Return the free stretches, joined, as (bytes, begin, segment)."""
        for segment in self.segments:
            if segment["small"] == small:
                at = segment["begin"]
                for size, used in joined(segment["rows"]):
                    if not used:
                        yield size, at, segment
                    at += size

    @property
    def reserved(self):
        return sum(segment["size"] for segment in self.segments)

    def take(self, size):
        granule = self.granule
        rounded = (size + granule - 1) // granule * granule
        small = rounded <= 2048 * granule
        fitting = [each for each in self.free(small) if each[0] >= rounded]
        if not fitting:
            wanted = self.segment_size(rounded, small)
            if self.reserved + wanted > self.limit:
                self.segments = [
                    each for each in self.segments if any(used for _, used in each["rows"])
                ]
            if self.reserved + wanted > self.limit:
                return None
            begin = self.end = getattr(self, "end", 0)
            self.end += wanted
            made = {"small": small, "begin": begin, "size": wanted, "rows": [(wanted, False)]}
            self.segments.append(made)
            fitting = [(wanted, begin, made)]
        found, begin, segment = min(fitting, key=lambda each: each[:2])
        left = found - rounded
        given = rounded if left >= (granule if small else 2048 * granule + 1) else found
        self.set(segment, begin, given, True)
        return begin, given

    def give_back(self, begin, size):
        for segment in self.segments:
            if segment["begin"] <= begin < segment["begin"] + segment["size"]:
                self.set(segment, begin, size, False)

    def set(self, segment, begin, size, used):
        rows, at = [], segment["begin"]
        for length, was in segment["rows"] if not used else joined(segment["rows"]):
            if at <= begin < at + length:
                assert was != used
                assert begin + size <= at + length
                head, tail = begin - at, at + length - begin - size
                rows += [row for row in ((head, was), (size, used), (tail, was)) if row[0]]
            else:
                rows.append((length, was))
            at += length
        segment["rows"] = rows

    def segment_size(self, rounded, small):
        if small:
            return 4096 * self.granule
        if rounded < 20480 * self.granule:
            return 40960 * self.granule
        unit = 4096 * self.granule
        return (rounded + unit - 1) // unit * unit


def joined(rows):
    out = []
    for size, used in rows:
        if out and not used and not out[-1][1]:
            out[-1] = (out[-1][0] + size, False)
        else:
            out.append((size, used))
    return out


@pytest.mark.parametrize("granule", [1, 512])
def test_memory_is_given_out_as_the_rules_say(granule):
    refused = given_back = 0
    for seed in range(30):
        chance = random.Random(seed)
        limit = chance.choice([50_000, 100_000, 200_000]) * granule
        tested, plain = CachingAllocator(limit, "a", granule), Plain(limit, granule)
        held = []
        for _ in range(120):
            if held and chance.random() < 0.45:
                block = held.pop(chance.randrange(len(held)))
                plain.give_back(block.address, block.size)
                tested.give_back(block)
            else:
                top = chance.choice([10, 2048, 4000, 20480, 40000])
                size = chance.randint(1, top) * granule - chance.randrange(granule)
                before = plain.reserved
                expected = plain.take(size)
                if expected is None:
                    refused += 1
                    with pytest.raises(torch.OutOfMemoryError, match=f"{size} bytes were asked"):
                        tested.take(size)
                else:
                    block = tested.take(size)
                    assert (block.address, block.size) == expected
                    held.append(block)
                given_back += plain.reserved < before
            reading = tested.read()
            assert reading.reserved == plain.reserved <= limit
            assert reading.allocated == sum(block.size for block in held)
            places = sorted((block.address, block.address + block.size) for block in held)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    assert refused > 20
    assert given_back > 5


def test_sizes_are_those_of_pytorch():
    memory = CachingAllocator(None, "a")

    def takes(size):
        before = memory.read()
        block = memory.take(size)
        after = memory.read()
        return block, after.allocated - before.allocated, after.reserved - before.reserved

    assert takes(0)[1:] == (0, 0)
    assert takes(1)[1:] == (512, 2 * MIB)
    assert takes(MIB)[1:] == (MIB, 0)
    assert takes(MIB)[1:] == (MIB, 2 * MIB)
    # What is left of 20 MiB serves others, unless it is 1 MiB or less.
    assert takes(MIB + 1)[1:] == (MIB + 512, 20 * MIB)
    assert takes(10 * MIB - 1)[1:] == (10 * MIB, 0)
    assert takes(8 * MIB - 512)[1:] == (9 * MIB - 512, 0)
    # From 10 MiB on, segments of their own.
    assert takes(10 * MIB)[1:] == (10 * MIB, 10 * MIB)
    assert takes(11 * MIB)[1:] == (12 * MIB, 12 * MIB)
    assert takes(31 * MIB - 1)[1:] == (32 * MIB, 32 * MIB)


def test_memory_falls_to_pieces_and_ideal_memory_does_not():
    for allocator, fits in ((CachingAllocator(3 * 4096, "a", 1), False), (None, True)):
        device = device_with(memory=3 * 4096, allocator=allocator)
        held = [device.allocate(2048) for _ in range(6)]
        # Every other one goes; half of the memory is free, but no two neighbours.
        del held[::2]
        assert device.memory().allocated == 3 * 2048
        if fits:
            assert device.allocate(2 * 2048).numel() == 4096
        else:
            with pytest.raises(torch.OutOfMemoryError, match="4096 bytes were asked"):
                device.allocate(2 * 2048)


def test_segments_of_which_nothing_is_used_make_room_for_others():
    device = device_with(allocator=CachingAllocator(2 * 4096, "a", 1))
    held = [device.allocate(2048) for _ in range(4)]
    assert device.memory().reserved == 2 * 4096
    del held[:2]
    # 3 KiB do not fit beside 2 KiB in a small segment, nor does a large one into the limit.
    with pytest.raises(torch.OutOfMemoryError):
        device.allocate(3000)
    assert device.memory().reserved == 4096
    held.clear()
    assert device.memory().allocated == 0
    assert device.memory().reserved == 4096


def test_ideal_memory_ends_at_the_last_byte():
    device = device_with(memory=100)
    held = [device.allocate(60), device.allocate(40)]
    with pytest.raises(
        torch.OutOfMemoryError,
        match="device simulated is out of memory: 1 bytes were asked for, for which 1 would be "
        "taken; of 100, 100 are taken and 100 of these in use",
    ):
        device.allocate(1)
    del held[0]
    assert device.memory() == MemoryReading(40, 40, 100, 100, 40, 100)
    device.reset_peaks()
    assert device.memory() == MemoryReading(40, 40, 40, 40, 40, 40)


def test_memory_is_taken_until_the_storage_has_died_whoever_holds_it():
    device = device_with()
    data = device.allocate(64)
    view = data.view(torch.float32)[3:]
    del data
    assert device.memory().allocated == 64
    del view
    assert device.memory().allocated == 0


def test_what_a_tracker_counts_takes_memory():
    device, tracker = device_with(), LiveBytes()
    device.watch(tracker)
    before = torch.zeros(1000)
    with tracker:
        tracker.start()
        made = before[:10] + 1
        grown = made * 2
        assert device.memory().allocated == tracker.live == 80
        # Given out by the device and counted by the tracker as well: once.
        with tracker.paused():
            fetched = device.allocate(40)
        tracker.adopt(fetched)
        assert device.memory().allocated == tracker.live == 120
        noticed = device.allocate(8)
        assert device.memory().allocated == tracker.live == 128
        del noticed
        tracker.exclude([grown])
        assert device.memory().allocated == tracker.live == 80
        del made, grown
        assert device.memory().allocated == tracker.live == 40
        kept = torch.zeros(10)
        tracker.start()
        # Of another count; what the device gave out is still there.
        assert device.memory().allocated == 40
        del kept, fetched
        assert device.memory() == MemoryReading(0, 0, 128, 128, 0, 128)


def test_what_two_trackers_count_takes_memory_once():
    device, trackers = device_with(), (LiveBytes(), LiveBytes())
    tensor = torch.zeros(10)
    for tracker in trackers:
        device.watch(tracker)
        tracker.adopt(tensor)
    assert device.memory().allocated == 40
    del tensor
    assert device.memory() == MemoryReading(0, 0, 40, 40, 0, 40)


def test_an_operator_whose_output_has_no_room_raises():
    device, tracker = device_with(memory=100), LiveBytes()
    device.watch(tracker)
    with tracker:
        tracker.start()
        made = torch.zeros(20)
        with pytest.raises(torch.OutOfMemoryError, match="80 bytes were asked for"):
            made + 1
        assert device.memory().allocated == tracker.live == 80
        half = made[:5] + 1
        assert device.memory().allocated == tracker.live == 100
        del made, half
    assert device.memory().allocated == 0


def test_an_allocation_that_has_no_room_leaves_nothing_behind():
    device = device_with(memory=10)
    with pytest.raises(torch.OutOfMemoryError):
        device.allocate(11)
    assert device.memory() == MemoryReading(0, 0, 0, 0)
    assert device.allocate(10).numel() == 10
