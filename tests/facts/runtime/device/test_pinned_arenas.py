"""Arenas: exactly as large as asked for, unregistered once whatever happens."""

import gc
import itertools
import mmap
import subprocess
import sys
import textwrap

import pytest
import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.pinned import CHUNK, FileArena, PinnedArena
from offcert.runtime.device.registration import stretches


class Registered:
    """A registrar that keeps a list."""

    def __init__(self, fails=False, broken=False):
        self.known, self.log, self._fails, self._broken = {}, [], fails, broken

    def register(self, address, size):
        if self._fails:
            raise OffcertError("too much")
        assert address % mmap.PAGESIZE == 0
        self.known[address] = size
        self.log.append("register")

    def unregister(self, address):
        del self.known[address]
        self.log.append("unregister")

    def settle(self):
        self.log.append("settle")
        if self._broken:
            raise RuntimeError("an illegal memory access was encountered")


@pytest.mark.parametrize("size", [1, 4096, 4097, 3 * 2**20 + 5])
def test_it_has_exactly_the_bytes_asked_for(size):
    registrar = Registered()
    arena = PinnedArena(size, registrar)
    assert list(registrar.known.values()) == [size] == [arena.size]
    assert arena.view(0, size).untyped_storage().nbytes() == size
    arena.view(size - 1, 1).fill_(7)
    assert arena.view(0, size)[-1] == 7
    arena.close()
    assert registrar.known == {}


def test_it_is_unregistered_once_and_after_what_is_pending():
    registrar = Registered()
    arena = PinnedArena(10, registrar)
    view = arena.view(2, 4)
    view.fill_(3)
    assert not arena.closed
    arena.close()
    arena.close()
    assert arena.closed
    assert registrar.log == ["register", "settle", "unregister"]
    # Whoever has a view may still look.
    assert view.tolist() == [3] * 4


def test_it_is_unregistered_when_nobody_has_it_any_more():
    registrar = Registered()
    arena = PinnedArena(10, registrar)
    view = arena.view(0, 10)
    del arena
    gc.collect()
    assert registrar.log == ["register", "settle", "unregister"]
    view.fill_(1)


def test_it_is_unregistered_after_an_exception_and_after_an_error_of_the_device():
    registrar = Registered()
    with pytest.raises(ZeroDivisionError):
        _use_and_fail(registrar)
    gc.collect()
    assert registrar.known == {}
    registrar = Registered(broken=True)
    arena = PinnedArena(10, registrar)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        arena.close()
    assert registrar.known == {}
    assert arena.closed


def _use_and_fail(registrar):
    arena = PinnedArena(10, registrar)
    arena.view(0, 10 // (arena.size - 10))


def test_it_is_unregistered_when_the_interpreter_ends():
    program = """
        from offcert.runtime.device.pinned import PinnedArena

        class Registrar:
            def register(self, address, size): print("register", size)
            def unregister(self, address): print("unregister")
            def settle(self): print("settle")

        arena = PinnedArena(10, Registrar())
        raise SystemExit(3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (3, ["register", "10", "settle", "unregister"])


def test_an_interrupt_while_it_is_registered_leaves_nothing():
    class Interrupted(Registered):
        def register(self, address, size):
            super().register(address, size)
            raise KeyboardInterrupt

    registrar = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        PinnedArena(10, registrar)
    gc.collect()
    assert registrar.known == {}


def test_what_cannot_be_registered_leaves_nothing():
    registrar = Registered(fails=True)
    with pytest.raises(OffcertError, match="too much"):
        PinnedArena(10, registrar)
    gc.collect()
    assert registrar.log == []


@pytest.mark.parametrize("refused", range(4))
def test_of_an_arena_in_chunks_each_is_registered_and_unregistered_once(refused):
    class Refusing(Registered):
        def register(self, address, size):
            if len(self.log) == refused:
                raise OffcertError("no more")
            super().register(address, size)

    registrar = Refusing()
    sizes = [8192, 8192, 100]
    if refused < 3:
        # Also half-way nothing stays, and nothing is unregistered that never was registered.
        with pytest.raises(OffcertError, match="no more"):
            PinnedArena(sum(sizes), registrar, chunk=8192)
        assert registrar.log == ["register"] * refused + ["unregister"] * refused
        assert registrar.known == {}
        return
    arena = PinnedArena(sum(sizes), registrar, chunk=8192)
    assert list(registrar.known.values()) == sizes
    assert list(registrar.known) == [arena.view(at, 1).data_ptr() for at in (0, 8192, 16384)]
    arena.close()
    arena.close()
    assert registrar.log == ["register"] * 3 + ["settle"] + ["unregister"] * 3


def test_all_chunks_are_unregistered_also_if_one_is_in_the_way():
    class Broken(Registered):
        def unregister(self, address):
            super().unregister(address)
            if len(self.known) == 1:
                raise RuntimeError("an illegal memory access was encountered")

    registrar = Broken()
    arena = PinnedArena(3 * 4096, registrar, chunk=4096)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        arena.close()
    assert registrar.known == {}


def test_bytes_are_cut_where_chunks_end():
    for offset, size, chunk in itertools.product(range(9), range(9), range(1, 6)):
        found = list(stretches(offset, size, chunk))
        assert [at for begin, part in found for at in range(begin, begin + part)] == list(
            range(offset, offset + size)
        )
        assert all(part > 0 for _, part in found)
        assert all(begin // chunk == (begin + part - 1) // chunk for begin, part in found)
        # No piece could be longer.
        assert all(begin % chunk == 0 for begin, _ in found[1:])


def test_chunks_are_whole_pages_far_below_what_drivers_refuse():
    assert CHUNK % 2**21 == 0
    assert CHUNK <= 2**38


@pytest.mark.parametrize("size", [2**62, 2**70])
def test_what_cannot_be_had_is_refused(size, tmp_path):
    with pytest.raises(OffcertError, match=f"no room for {size} bytes of offloaded tensors"):
        PinnedArena(size, Registered())
    with pytest.raises(OffcertError, match=f"no room for {size} bytes of offloaded tensors"):
        FileArena(size, str(tmp_path))


def test_an_arena_of_nothing_is_not_registered():
    registrar = Registered()
    arena = PinnedArena(0, registrar)
    assert arena.view(0, 0).numel() == 0
    arena.close()
    assert registrar.log == []
    assert arena.closed


def test_a_file_holds_what_is_written_and_has_no_name(tmp_path):
    arena = FileArena(5000, str(tmp_path))
    arena.view(0, 5000).copy_(torch.arange(5000).to(torch.uint8))
    assert arena.view(4000, 1000).equal(torch.arange(4000, 5000).to(torch.uint8))
    assert list(tmp_path.iterdir()) == []
    arena.close()
    assert FileArena(0, "/nowhere").view(0, 0).numel() == 0
