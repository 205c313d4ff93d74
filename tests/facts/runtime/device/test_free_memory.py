"""Memory is counted before it is taken: the system's, that of groups, and space for files."""

import gc
import mmap
import os
import tempfile
from types import SimpleNamespace

import pytest
from test_pinned_arenas import Registered

from offcert.core.errors import OffcertError
from offcert.runtime.device import host as module
from offcert.runtime.device.host import HostStore, free_memory, in_memory, require_free
from offcert.runtime.device.pinned import FileArena, PageableArena, PinnedArena

MIB = 2**20
KIB = 2**10


def system(root, available=1000, **files):
    """Write what the kernel says into files."""
    rows = {"proc/meminfo": f"MemTotal: 9999 kB\nMemAvailable: {available} kB\n"}
    for name, text in {**rows, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def group(path, limit, used, *pages, names=("memory.max", "memory.current")):
    prefix = "total_" if names[0] != "memory.max" else ""
    stat = "".join(
        f"{prefix}{n}_file {p}\n" for n, p in zip(("active", "inactive"), pages, strict=False)
    )
    return {
        f"sys/fs/cgroup/{path}{names[0]}": f"{limit}\n",
        f"sys/fs/cgroup/{path}{names[1]}": f"{used}\n",
        f"sys/fs/cgroup/{path}memory.stat": f"anon 12345\n{stat}",
    }


def test_without_groups_it_is_what_the_system_has(tmp_path):
    assert free_memory(system(tmp_path)) == 1000 * KIB
    assert free_memory(tmp_path / "nowhere") is None


def test_the_tightest_group_counts_and_files_that_were_read_are_no_use(tmp_path):
    of = {"proc/self/cgroup": "0::/outer/inner\n"}
    outer, inner = group("outer/", 900_000, 500_000), group("outer/inner/", "max", 1)
    system(tmp_path, **of, **outer, **inner)
    assert free_memory(tmp_path) == 400_000
    # Of the 500,000 bytes, 100,000 are read files, which go first.
    system(tmp_path, **group("outer/", 900_000, 500_000, 30_000, 70_000))
    assert free_memory(tmp_path) == 500_000
    system(tmp_path, **group("outer/inner/", 700_000, 690_000))
    assert free_memory(tmp_path) == 10_000
    system(tmp_path, **group("outer/inner/", 700_000, 710_000))
    assert free_memory(tmp_path) == 0
    system(tmp_path, available=5, **group("outer/inner/", 700_000, 1))
    assert free_memory(tmp_path) == 5 * KIB


def test_the_first_version_of_groups_and_containers_that_see_another_name(tmp_path):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    system(
        tmp_path,
        **{"proc/self/cgroup": "5:cpu,memory:/docker/abc\n1:pids:/docker/abc\n0::/\n"},
        **group("memory/", 600_000, 100_000, 0, 50_000, names=names),
    )
    assert free_memory(tmp_path) == 550_000
    # Without a limit the kernel says a number that nobody has.
    system(tmp_path, **group("memory/", 9223372036854771712, 100_000, names=names))
    assert free_memory(tmp_path) == 1000 * KIB


@pytest.mark.parametrize("made", [PageableArena, lambda size: PinnedArena(size, Registered())])
def test_an_arena_that_the_host_has_no_room_for_is_refused_before_it_is_mapped(monkeypatch, made):
    monkeypatch.setattr(module, "free_memory", lambda: 3 * MIB)
    monkeypatch.setattr(mmap, "mmap", lambda *asked: pytest.fail("mapped"))
    with pytest.raises(OffcertError) as caught:
        made(3 * MIB + 1)
    assert str(caught.value) == (
        f"no room for {3 * MIB + 1} bytes of offloaded tensors: the host has {3 * MIB} bytes of "
        "memory left"
    )


def test_an_arena_that_others_leave_no_room_for_half_way_is_given_back(monkeypatch):
    # Before it is mapped, before the first half and before the second.
    free = [4 * MIB, 4 * MIB, MIB]
    monkeypatch.setattr(module, "free_memory", lambda: free.pop(0))
    registrar = Registered()
    with pytest.raises(OffcertError, match=rf"no room for {4 * MIB} bytes .*last {2 * MIB} of"):
        PinnedArena(4 * MIB, registrar, chunk=2 * MIB)
    gc.collect()
    assert registrar.known == {}
    assert registrar.log == ["register", "unregister"]


def test_memory_that_is_not_registered_is_taken_before_a_step_needs_it():
    arena = PageableArena(3 * MIB + 5, chunk=MIB)
    assert not arena.registered
    assert list(arena.pieces(7, 100)) == [(7, 100)]
    arena.view(3 * MIB, 5).fill_(7)
    assert arena.view(0, arena.size).sum() == 35
    arena.close()


def test_what_is_unknown_or_little_is_not_refused(monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: None)
    require_free(2**60)
    monkeypatch.setattr(module, "free_memory", lambda: 0)
    require_free(MIB - 1)
    with pytest.raises(OffcertError, match="the host has 0 bytes of memory left"):
        require_free(MIB)


@pytest.mark.parametrize("made", [FileArena, HostStore])
def test_a_file_takes_no_more_than_the_disk_has(tmp_path, monkeypatch, made):
    space = os.statvfs(tmp_path)
    fake = SimpleNamespace(f_bavail=1000, f_frsize=space.f_frsize)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: fake)
    monkeypatch.setattr(os, "posix_fallocate", lambda *asked: pytest.fail("allocated"))
    free = 1000 * space.f_frsize
    with pytest.raises(
        OffcertError, match=rf"no room for {free + 1} bytes .* {free} bytes are free"
    ):
        made(free + 1, str(tmp_path))


@pytest.mark.parametrize("made", [FileArena, HostStore])
def test_a_file_in_memory_takes_memory(tmp_path, monkeypatch, made):
    monkeypatch.setattr(module, "free_memory", lambda: 2 * MIB)
    monkeypatch.setattr(module, "in_memory", lambda descriptor: False)
    made(2 * MIB + 1, str(tmp_path))
    monkeypatch.setattr(module, "in_memory", lambda descriptor: True)
    with pytest.raises(OffcertError, match=f"the host has {2 * MIB} bytes of memory left"):
        made(2 * MIB + 1, str(tmp_path))


def test_which_files_are_in_memory(tmp_path):
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        device = os.fstat(file.fileno()).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        rows = "21 1 0:0 / /x rw - proc proc rw\n36 35 {} / /tmp rw shared:1 - {} none rw\n"
        for kind, expected in (("tmpfs", True), ("ext4", False)):
            root = system(tmp_path / kind, **{"proc/self/mountinfo": rows.format(number, kind)})
            assert in_memory(file.fileno(), root) is expected
        assert not in_memory(file.fileno(), tmp_path / "nowhere")
