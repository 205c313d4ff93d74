"""A wait that is missing is found, as a race and by wrong bytes; and one that is not is not."""

from fractions import Fraction

import pytest
import torch

from offcert.core.platform import Link, Platform
from offcert.runtime.simulated import RaceError, RaceKind
from support.runtime.simulated_cases import counting, device_with, fetch, is_poison, part, send

SIZE = 40


def round_trip(without=None, **options):
    """Let a tensor leave and come back, without one of the waits that it needs."""
    device = device_with(**options)
    arena = device.arena(SIZE)
    original = counting(SIZE)
    tensor = original.clone()
    device.ran(10)
    if without != "operators":
        device.out.wait(device.compute.record())
    device.copy_out([part(tensor, arena)])
    sent = device.out.record()
    if without != "copy out":
        device.compute.wait(sent)
    del tensor
    data = device.allocate(SIZE)
    if without != "allocation":
        device.back.wait(device.compute.record())
    if without != "reload":
        device.back.wait(sent)
    device.copy_back([part(data, arena)])
    back = device.back.record()
    device.ran(10)
    if without != "copy back":
        device.compute.wait(back)
    # What an operator would read now.
    read = data.clone()
    del data
    return device, torch.equal(read, original)


def test_with_all_waits_nothing_is_found():
    device, right = round_trip()
    assert right
    assert device.races == []


@pytest.mark.parametrize(
    ("without", "kinds", "right"),
    [
        # As late as can be, but for the operators: these were early.
        ("operators", [RaceKind.OPERATORS], True),
        ("copy out", [RaceKind.FREE], False),
        ("allocation", [RaceKind.ALLOCATION], True),
        ("copy back", [RaceKind.FREE], False),
        # The wait for the memory has waited for the copy out before; see below.
        ("reload", [], True),
    ],
)
def test_a_wait_that_is_missing_is_found(without, kinds, right):
    device, was_right = round_trip(without)
    assert was_right is right
    assert [race.kind for race in device.races] == kinds


def test_a_reload_that_races_its_own_copy_out():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    sent = send(device, tensor, arena)
    data, back = fetch(device, SIZE, arena)
    device.compute.wait(back)
    assert is_poison(data)
    assert [race.kind for race in device.races] == [RaceKind.HOST]
    assert device.races[0].what == (
        "simulated: a copy back of 40 bytes at 0 of the host may run at the same time as one out "
        "there"
    )
    device.compute.wait(sent)
    del tensor, data
    assert len(device.races) == 1


def test_a_place_on_the_host_written_again_while_it_is_read():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    sent = send(device, tensor, arena)
    data, back = fetch(device, SIZE, arena, after=[sent])
    # One byte of another tensor, at the end.
    other = counting(1)
    later = send(device, other, arena, SIZE - 1)
    assert [race.kind for race in device.races] == [RaceKind.HOST]
    device.compute.wait(later)
    device.compute.wait(back)
    assert data[-1] == other[0] != tensor[-1]


def test_neighbours_on_the_host_are_in_nobodys_way():
    device = device_with()
    arena, tensor = device.arena(3 * SIZE), counting(SIZE)
    send(device, tensor, arena, SIZE)
    for offset in (0, 2 * SIZE):
        fetched, back = fetch(device, SIZE, arena, offset)
        device.compute.wait(back)
        del fetched
    assert device.races == []


def test_two_readers_of_a_place_are_in_nobodys_way():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    sent = send(device, tensor, arena)
    copies = [fetch(device, SIZE, arena, after=[sent]) for _ in range(2)]
    for data, back in copies:
        device.compute.wait(back)
        assert torch.equal(data, tensor)
    assert device.races == []


def test_a_storage_sent_before_it_has_come_back():
    device = device_with()
    arena, other = device.arena(SIZE), device.arena(SIZE)
    data, back = fetch(device, SIZE, arena)
    sent = send(device, data, other)
    assert [race.kind for race in device.races] == [RaceKind.COPY]
    assert device.races[0].what == (
        "simulated: a copy out of 40 bytes may run at the same time as one back of the same storage"
    )
    device.compute.wait(back)
    device.compute.wait(sent)


def test_operators_run_after_the_event_may_have_written_the_tensor():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    event = device.compute.record()
    device.ran(1)
    device.out.wait(event)
    device.copy_out([part(tensor, arena)])
    device.synchronise()
    assert [race.kind for race in device.races] == [RaceKind.OPERATORS]


def test_a_copy_back_into_what_operators_made_comes_after_them():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    device.ran(1)
    device.copy_back([part(tensor, arena)])
    device.synchronise()
    assert [race.kind for race in device.races] == [RaceKind.OPERATORS]


def test_what_was_waited_for_through_another_stream_is_known():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    device.back.wait(send(device, tensor, arena))
    device.compute.wait(device.back.record())
    assert torch.equal(arena.view(0, SIZE), tensor)
    del tensor
    assert device.races == []


def test_a_host_that_has_synchronised_needs_no_events():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    device.ran(5)
    device.synchronise()
    device.copy_out([part(tensor, arena)])
    device.synchronise()
    expected = tensor.clone()
    del tensor
    data = device.allocate(SIZE)
    device.synchronise()
    device.copy_back([part(data, arena)])
    device.synchronise()
    assert torch.equal(data, expected)
    arena.close()
    assert device.races == []


def test_an_arena_is_given_back_only_when_the_host_has_waited():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    device.compute.wait(send(device, tensor, arena))
    # The host has handed over a wait, but has not waited itself.
    arena.close()
    assert [race.kind for race in device.races] == [RaceKind.CLOSE]
    assert "40 bytes was given back before the host had waited for a copy out" in str(device.races)


def test_a_strict_device_says_so_once_when_it_is_synchronised():
    device, _ = round_trip("copy out", strict=True)
    with pytest.raises(
        RaceError,
        match=r"^simulated: a storage of 40 bytes was dropped before compute had waited for its "
        r"copy out$",
    ):
        device.synchronise()
    device.synchronise()
    device.close()


def test_storages_are_forgotten_when_they_die():
    device = device_with()
    arena, tensor = device.arena(SIZE), counting(SIZE)
    device.compute.wait(send(device, tensor, arena))
    data, back = fetch(device, SIZE, arena)
    assert len(device._storages) == 2
    device.compute.wait(back)
    del tensor, data
    assert len(device._storages) == 0


@pytest.mark.parametrize(("link", "ordered", "crossings"), [
    ("simplex", False, 1), ("simplex", True, 0), ("duplex", False, 0)
])  # fmt: skip
def test_copies_that_only_a_simplex_link_puts_in_order_are_counted(link, ordered, crossings):
    device = device_with(platform=Platform(0, Fraction(1), Link(link)))
    arena = device.arena(16)
    sent = send(device, counting(8), arena)
    fetch(device, 8, arena, 8, after=[sent] if ordered else [])
    assert device.crossings == crossings
