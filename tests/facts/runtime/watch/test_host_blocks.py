"""Memory of the host that is touched before something is copied to it."""

import gc
import threading

import torch

from offcert.runtime.watch.rule import HostBlocks


def test_parts_of_blocks_do_not_overlap_and_hold_what_is_written():
    blocks = HostBlocks(1000)
    parts = [blocks.take(size) for size in (300, 0, 700, 1, 2500, 999)]
    assert [part.numel() for part in parts] == [300, 0, 700, 1, 2500, 999]
    for number, part in enumerate(parts):
        part.fill_(number)
    assert all((part == number).all() for number, part in enumerate(parts))
    # The first three share a block; what is larger than a block has one of its own.
    addresses = [part.untyped_storage().data_ptr() for part in parts]
    assert addresses[0] == addresses[1] == addresses[2] != addresses[3]
    assert [part.untyped_storage().nbytes() for part in parts] == [
        1000,
        1000,
        1000,
        1000,
        2500,
        1000,
    ]


def test_all_of_a_block_is_touched_by_threads():
    # Larger than what one of them touches at a time.
    taken = HostBlocks().take(2**24 + 5)
    assert int(torch.count_nonzero(taken)) == 0


def test_no_thread_outlives_it():
    blocks = HostBlocks(10)
    blocks.take(5)
    assert any(each.name.startswith("offcert-touch") for each in threading.enumerate())
    threads = [each for each in threading.enumerate() if each.name.startswith("offcert-touch")]
    del blocks
    gc.collect()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
