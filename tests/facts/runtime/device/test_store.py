import gc
import os
from pathlib import Path

import pytest
import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.host import HostStore


def test_bytes_come_back_as_they_went():
    store = HostStore(1000)
    first, second = store.view(0, 400), store.view(400, 600)
    values = torch.arange(100, dtype=torch.float32)
    first.copy_(values.view(torch.uint8))
    second.fill_(7)
    assert torch.equal(store.view(0, 400).view(torch.float32), values)
    assert int(store.view(400, 600).sum()) == 600 * 7


def test_the_file_has_no_name_and_goes_with_the_store(tmp_path):
    store = HostStore(4096, str(tmp_path))
    store.view(0, 4096).fill_(1)
    assert os.listdir(tmp_path) == []
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) in maps.read_text()
        del store
        gc.collect()
        assert str(tmp_path) not in maps.read_text()


def test_an_empty_store_needs_no_file():
    assert HostStore(0, "/nowhere").view(0, 0).numel() == 0


@pytest.mark.parametrize(("size", "directory"), [(2**60, None), (10, "/nowhere")])
def test_no_room_is_said_before_anything_is_moved(size, directory):
    with pytest.raises(OffcertError, match=f"no room for {size} bytes"):
        HostStore(size, directory)


@pytest.mark.parametrize("size", [0, 1000, 2**20 + 4])
def test_storages_are_written_and_read_whatever_their_size(size: int) -> None:
    store = HostStore(size + 8)
    values = torch.arange(size // 4, dtype=torch.int32)
    store.view(0, size + 8).fill_(255)
    store.write(4, values.untyped_storage(), size)
    back = torch.empty(size, dtype=torch.uint8)
    store.read(4, back, size)
    assert torch.equal(back.view(torch.int32), values)
    # Nothing beside them has changed.
    assert store.view(0, 4).tolist() == [255] * 4
    assert store.view(size + 4, 4).tolist() == [255] * 4
