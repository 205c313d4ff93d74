"""The host's memory that a simulated device has registered."""

import gc

import pytest

from offcert.core.errors import OffcertError
from support.runtime.simulated_cases import counting, device_with, fetch, is_poison, send


def test_an_arena_takes_exactly_its_bytes_from_the_budget():
    device = device_with(pinned=100, name="tiny")
    one, two = device.arena(33), device.arena(67)
    assert (one.size, two.size, device.pinned_bytes) == (33, 67, 100)
    with pytest.raises(
        OffcertError,
        match=r"^device tiny may register 100 bytes of the host's memory and holds 100 of them: "
        r"no room for an arena of 1 bytes$",
    ):
        device.arena(1)
    one.close()
    one.close()
    assert device.pinned_bytes == 67
    assert device.arena(0).size == 0


def test_an_arena_that_was_forgotten_stays_pinned():
    device = device_with()
    device.arena(10)
    gc.collect()
    assert device.pinned_bytes == 10


def test_who_keeps_a_view_of_an_arena_given_back_finds_poison():
    device = device_with()
    arena = device.arena(8)
    view = arena.view(0, 8)
    view.zero_()
    arena.close()
    assert is_poison(view)
    with pytest.raises(OffcertError, match="after it has been given back"):
        arena.view(0, 8)
    with pytest.raises(OffcertError, match="the arena has 0 bytes"):
        send(device, counting(8), arena)


def test_copies_with_an_arena_given_back_are_lost_or_bring_poison():
    device = device_with()
    arena, tensor = device.arena(8), counting(8)
    sent = send(device, tensor, arena)
    data, back = fetch(device, 8, arena, after=[sent])
    data.zero_()
    arena.close()
    device.compute.wait(back)
    assert is_poison(data)
    assert is_poison(arena._data)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_arenas_in_chunks_hold_what_goes_over_their_borders(chunk):
    device = device_with(chunk=chunk, pinned=100)
    arena, tensor = device.arena(100), counting(90)
    assert device.pinned_bytes == 100
    sent = send(device, tensor, arena, 5)
    data, back = fetch(device, 90, arena, 5, after=[sent])
    device.compute.wait(back)
    assert data.equal(tensor)
    # One transfer, however many calls.
    assert (sent.time, back.time) == (90, 180)
    arena.close()
    assert device.pinned_bytes == 0
    with pytest.raises(OffcertError, match="no room for an arena of"):
        device.arena(101)
    assert device.pinned_bytes == 0
    device.synchronise()
    assert [race.kind for race in device.races] == ["close"]
