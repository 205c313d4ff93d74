"""What has been waited for has happened, and nothing else has."""

import gc
from fractions import Fraction

import pytest
import torch

from offcert.core.errors import OffcertError
from offcert.core.platform import Platform
from offcert.runtime.device.interface import CopiedStorage, Device
from offcert.runtime.simulated import SimulatedDevice, by_chance, early
from support.runtime.simulated_cases import (
    counting,
    device_with,
    fetch,
    is_poison,
    part,
    send,
    whole,
)


def test_a_tensor_leaves_and_comes_back():
    device = device_with()
    arena = device.arena(1000)
    tensor = torch.randn(250)
    kept = tensor.clone()
    sent = send(device, tensor, arena)
    device.compute.wait(sent)
    del tensor
    data, back = fetch(device, 1000, arena)
    device.compute.wait(back)
    assert torch.equal(data.view(torch.float32), kept)
    assert not device.races


def test_a_copy_happens_when_compute_waits_for_it_and_not_before():
    device = device_with()
    arena = device.arena(8)
    tensor = counting(8)
    sent = send(device, tensor, arena)
    assert is_poison(arena.view(0, 8))
    later = device.arena(8)
    device.copy_out([part(tensor, later)])
    device.compute.wait(sent)
    assert torch.equal(arena.view(0, 8), tensor)
    assert is_poison(later.view(0, 8))
    device.synchronise()
    assert torch.equal(later.view(0, 8), tensor)


def test_a_wait_carries_out_what_the_other_stream_waits_for():
    device = device_with()
    arena = device.arena(8)
    tensor = counting(8)
    sent = send(device, tensor, arena)
    data, back = fetch(device, 8, arena, after=[sent])
    assert is_poison(data)
    device.compute.wait(back)
    assert torch.equal(data, tensor)


def test_a_reload_that_does_not_wait_for_its_own_copy_out_brings_poison():
    device = device_with()
    arena = device.arena(8)
    sent = send(device, counting(8), arena)
    data, back = fetch(device, 8, arena)
    device.compute.wait(back)
    assert is_poison(data)
    device.compute.wait(sent)
    assert is_poison(data)


def test_chains_of_waits_may_be_long():
    device = device_with()
    arena = device.arena(1)
    tensor = counting(1)
    event = device.compute.record()
    for _ in range(5000):
        device.out.wait(event)
        device.copy_out([part(tensor, arena)])
        device.back.wait(device.out.record())
        device.copy_back([part(tensor, arena)])
        event = device.back.record()
    device.compute.wait(event)
    assert torch.equal(arena.view(0, 1), counting(1))


def test_a_storage_that_died_before_its_copy_leaves_poison_on_the_host():
    device = device_with()
    arena = device.arena(8)
    tensor = counting(8)
    arena.view(0, 8).copy_(tensor)
    sent = send(device, tensor, arena)
    del tensor
    device.compute.wait(sent)
    assert is_poison(arena.view(0, 8))


def test_a_storage_that_autograd_alone_keeps_is_copied():
    # No Python object of the tensor or of its storage is left, and yet they live.
    device = device_with()
    weight = torch.randn(10, requires_grad=True)
    hidden = weight.exp()
    loss = hidden.sin().sum()
    kept = hidden.detach().clone()
    arena = device.arena(40)
    sent = send(device, hidden.detach(), arena)
    del hidden
    gc.collect()
    device.compute.wait(sent)
    assert torch.equal(arena.view(0, 40).view(torch.float32), kept)
    loss.backward()
    assert [race.kind for race in device.races] == []


def test_a_storage_emptied_in_place_is_as_good_as_dead():
    device = device_with()
    arena = device.arena(8)
    tensor = counting(8)
    sent = send(device, tensor, arena)
    tensor.untyped_storage().resize_(0)
    device.compute.wait(sent)
    assert is_poison(arena.view(0, 8))


def test_a_copy_back_into_a_storage_that_died_is_lost():
    device = device_with()
    arena = device.arena(8)
    data, back = fetch(device, 8, arena)
    del data
    device.compute.wait(back)


def test_a_queued_copy_takes_what_is_there_when_it_runs():
    # Changed in place after the copy had been handed over, and before it was waited for.
    device = device_with()
    arena = device.arena(8)
    tensor = counting(8)
    sent = send(device, tensor, arena)
    tensor.zero_()
    device.compute.wait(sent)
    assert torch.equal(arena.view(0, 8), torch.zeros(8, dtype=torch.uint8))


def test_queued_copies_keep_nothing_alive():
    device = device_with()
    arena = device.arena(8)
    reference = counting(8)
    view = whole(reference)
    device.copy_out([CopiedStorage(view, arena, 0)])
    assert torch._C._storage_Use_Count(reference.untyped_storage()._cdata) == 3
    del view
    assert torch._C._storage_Use_Count(reference.untyped_storage()._cdata) == 2


def test_what_nobody_has_written_is_poison():
    device = device_with()
    assert is_poison(device.allocate(100))
    assert torch.isnan(device.allocate(100).view(torch.float32)).all()
    assert torch.isnan(device.allocate(100).view(torch.bfloat16)).all()
    assert is_poison(device.arena(100).view(0, 100))
    assert device.allocate(0).numel() == 0


def test_parts_of_a_transfer_go_where_they_are_told():
    device = device_with()
    one, two = device.arena(100), device.arena(100)
    first, second = counting(10), counting(20)
    device.copy_out([part(first, one, 5), part(second, two, 80)])
    device.synchronise()
    assert torch.equal(one.view(5, 10), first)
    assert torch.equal(two.view(80, 20), second)
    assert is_poison(one.view(0, 5))
    assert is_poison(one.view(15, 85))


def test_a_part_may_be_a_piece_of_its_storage():
    device = device_with()
    arena, tensor = device.arena(8), counting(100)
    device.copy_out([CopiedStorage(whole(tensor)[20:28], arena, 0)])
    device.synchronise()
    assert torch.equal(arena.view(0, 8), tensor[20:28])


@pytest.mark.parametrize("offset", [-1, 1])
def test_copies_beyond_an_arena_are_refused(offset):
    device = device_with()
    with pytest.raises(OffcertError, match=f"8 bytes at {offset} .* has 8 bytes"):
        device.copy_out([part(counting(8), device.arena(8), offset)])


def test_the_host_knows_of_nothing_before_it_has_waited():
    device = device_with()
    arena, tensor = device.arena(8), counting(8)
    device.ran(5)
    operators = device.compute.record()
    sent = send(device, tensor, arena)
    device.compute.wait(sent)
    assert not operators.reached
    assert not sent.reached
    with pytest.raises(OffcertError, match="only once it has been reached"):
        device.nanoseconds(operators, sent)
    device.synchronise()
    assert operators.reached
    assert sent.reached
    assert device.nanoseconds(operators, sent) == 8
    device.out.wait(device.compute.record())
    device.copy_out([part(tensor, arena)])
    assert not device.out.record().reached


def test_an_event_after_a_wait_is_not_reached_before_what_it_waited_for():
    device = device_with()
    device.ran(5)
    device.out.wait(device.compute.record())
    assert not device.out.record().reached


def test_early_copies_run_at_once_and_the_host_may_see_it():
    device = device_with(adversary=early)
    arena, tensor = device.arena(8), counting(8)
    device.ran(5)
    sent = send(device, tensor, arena)
    assert torch.equal(arena.view(0, 8), tensor)
    assert sent.reached
    # To know it, the host has taken as long.
    assert device.nanoseconds(device.out.record(), device.compute.record()) == 0
    del tensor
    assert not device.races


def test_chance_is_the_same_for_the_same_seed():
    def ran(seed):
        device = device_with(adversary=by_chance(seed))
        arena = device.arena(64)
        tensors = [counting(1) for _ in range(64)]
        for index, tensor in enumerate(tensors):
            send(device, tensor, arena, index)
        return int((arena.view(0, 64) == 0).sum())

    counts = [ran(seed) for seed in range(5)]
    assert counts == [ran(seed) for seed in range(5)]
    assert len(set(counts)) > 1


def test_a_platform_gives_rates_and_link():
    platform = Platform(100, Fraction(3, 2), "duplex", Fraction(2))
    device: Device = SimulatedDevice(platform, name="of a platform")
    arena = device.arena(10)
    begin, tensor = device.compute.record(), counting(10)
    sent = send(device, tensor, arena)
    data, back = fetch(device, 10, arena)
    device.synchronise()
    assert device.nanoseconds(begin, sent) == 7
    assert device.nanoseconds(begin, back) == 5
    assert device.name == "of a platform"
    assert device.tensors == data.device
