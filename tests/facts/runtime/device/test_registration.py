"""Arenas that are registered in the background: in order, beside copies, and given back whole."""

import gc
import threading

import pytest
import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device import registration
from offcert.runtime.device.pinned import PinnedArena
from offcert.runtime.device.registration import RegistrationError

PAGE = 4096


class Registrar:
    """Registers a chunk when it is let to; the first one always."""

    def __init__(self, refused=()):
        self.base = None
        self.known, self.log, self.prepared = set(), [], 0
        self._refused = refused
        self._let = threading.Semaphore(1)
        self.entered = threading.Semaphore(0)

    def begin_thread(self):
        self.prepared += 1

    def register(self, address, size):
        self.base = address if self.base is None else self.base
        self.entered.release()
        assert self._let.acquire(timeout=60)
        chunk = (address - self.base) // PAGE
        if chunk in self._refused:
            raise RegistrationError(f"chunk {chunk} is refused")
        self.known.add(chunk)
        self.log.append(chunk)

    def let(self, count=1):
        self._let.release(count)

    def unregister(self, address):
        self.known.remove((address - self.base) // PAGE)
        self.log.append("unregister")

    def settle(self):
        self.log.append("settle")


@pytest.fixture
def alone(monkeypatch):
    """One thread registers, so that the order is known."""
    monkeypatch.setattr(registration, "THREADS", 1)


def ended(arena):
    for thread in _threads(arena):
        thread.join(timeout=60)
        assert not thread.is_alive()
    return arena.pinning


def _threads(arena):
    made = arena._finalizer.peek()[1].__self__
    return made._threads


def arena_of(registrar, chunks, order=(), base=0):
    """Return an arena whose first chunk is the base of all addresses."""
    order = [(chunk * PAGE, PAGE) for chunk in order]
    registrar.base = None
    return PinnedArena(chunks * PAGE, registrar, chunk=PAGE, order=order)


@pytest.mark.usefixtures("alone")
def test_chunks_are_registered_in_the_order_in_which_they_are_needed():
    registrar = Registrar()
    arena = arena_of(registrar, 6, order=[0, 4, 2, 4])
    # The first one is there at once, and the others are still to come.
    assert registrar.log == [0]
    assert (arena.pinning.registered, arena.pinning.ended) == (PAGE, False)
    assert arena.pending(0) is None
    assert arena.pending(4 * PAGE) is not None
    registrar.let(5)
    found = ended(arena)
    assert registrar.log == [0, 4, 2, 1, 3, 5]
    assert (found.size, found.registered, found.ended, found.refused) == (6 * PAGE,) * 2 + (
        True,
        "",
    )
    assert found.threads == registrar.prepared == 1
    assert found.seconds > 0
    assert all(arena.pending(at) is None for at in range(0, 6 * PAGE, PAGE))
    arena.close()
    assert registrar.known == set()
    assert arena.pinning == found


@pytest.mark.usefixtures("alone")
def test_a_tensor_over_many_chunks_has_all_of_them_registered_in_its_turn():
    registrar = Registrar()
    order = [(0, 1), (PAGE + 5, 3 * PAGE - 5)]
    arena = PinnedArena(6 * PAGE, registrar, chunk=PAGE, order=[(4 * PAGE, 10), *order])
    registrar.let(5)
    ended(arena)
    first = registrar.base
    assert registrar.log == [0, -4, -3, -2, -1, 1]
    assert arena.view(0, 1).data_ptr() == first - 4 * PAGE
    arena.close()


@pytest.mark.usefixtures("alone")
def test_a_chunk_to_which_something_was_copied_before_its_turn_keeps_it():
    registrar = Registrar()
    arena = arena_of(registrar, 3, order=[0, 1, 2])
    # The thread is at the second chunk, which nobody can copy to meanwhile.
    assert registrar.entered.acquire(timeout=60)
    assert registrar.entered.acquire(timeout=60)
    with arena.pending(2 * PAGE):
        arena.view(2 * PAGE, PAGE).fill_(7)
        registrar.let(2)
        # Nor is a chunk registered that somebody copies to.
        assert not registrar.entered.acquire(timeout=0.05)
        assert 2 not in registrar.known
    ended(arena)
    assert registrar.log == [0, 1, 2]
    assert arena.view(2 * PAGE, PAGE).eq(7).all()
    assert arena.view(PAGE, PAGE).eq(0).all()
    arena.close()


@pytest.mark.usefixtures("alone")
def test_what_is_refused_in_the_background_stays_as_it_is_and_is_told():
    registrar = Registrar(refused=[2])
    arena = arena_of(registrar, 5, order=[0, 1])
    registrar.let(4)
    found = ended(arena)
    assert (found.registered, found.ended) == (2 * PAGE, True)
    assert found.refused == "chunk 2 is refused"
    # No more is tried, and what is registered stays so.
    assert registrar.known == {0, 1}
    assert arena.pending(PAGE) is None
    with arena.pending(3 * PAGE):
        arena.view(3 * PAGE, 5).fill_(1)
    arena.close()
    assert registrar.known == set()


def test_what_is_refused_at_once_is_raised_and_leaves_nothing():
    registrar, before = Registrar(refused=[0]), set(threading.enumerate())
    with pytest.raises(RegistrationError, match="chunk 0 is refused"):
        arena_of(registrar, 5, order=[3])
    assert registrar.known == set()
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("alone")
def test_an_error_of_another_kind_ends_the_registering_not_the_program():
    class Broken(Registrar):
        def begin_thread(self):
            raise MemoryError("no stack")

    arena = arena_of(Broken(), 5, order=[3])
    assert "no stack" in ended(arena).refused
    arena.close()


def test_the_host_is_asked_before_each_chunk(monkeypatch):
    monkeypatch.setattr(registration, "THREADS", 1)
    asked = []

    def require_free(size, of):
        asked.append((size, of))
        if len(asked) == 3:
            raise OffcertError("the host has 5 bytes of memory left")

    monkeypatch.setattr(registration, "require_free", require_free)
    registrar = Registrar()
    registrar.let(5)
    arena = arena_of(registrar, 5, order=[])
    found = ended(arena)
    assert asked == [(PAGE, 5 * PAGE)] * 3
    assert found.refused == "the host has 5 bytes of memory left"
    assert found.registered == 2 * PAGE
    arena.close()


@pytest.mark.parametrize("dropped", [False, True])
def test_closing_waits_for_the_threads_and_registers_no_more(dropped):
    registrar = Registrar()
    arena = arena_of(registrar, 40, order=[])
    threads = _threads(arena)
    # One of them is at a chunk, as if the device took its time.
    for _ in range(2):
        assert registrar.entered.acquire(timeout=60)
    threading.Timer(0.05, registrar.let, [40]).start()
    if dropped:
        del arena
        gc.collect()
    else:
        arena.close()
    assert not any(thread.is_alive() for thread in threads)
    assert registrar.known == set()
    assert registrar.log.count("settle") == 1
    # After the settling nothing was registered.
    after = registrar.log[registrar.log.index("settle") :]
    assert set(after) == {"settle", "unregister"}
    assert registrar.log.count("unregister") == 2


@pytest.mark.usefixtures("alone")
def test_an_arena_that_is_collected_in_a_registering_thread_is_given_back():
    inner = Registrar()
    kept = [arena_of(inner, 3, order=[])]
    inner.let(2)
    ended(kept[0])
    collected_in = []

    class Dropping(Registrar):
        def register(self, address, size):
            # Whatever is collected as garbage is collected in any thread.
            if self.known:
                kept.clear()
                gc.collect()
                collected_in.append(threading.current_thread())
            super().register(address, size)

    outer = Dropping()
    outer.let(1)
    arena = arena_of(outer, 2, order=[])
    (thread,) = _threads(arena)
    ended(arena)
    assert collected_in == [thread]
    for other in threading.enumerate():
        if other.name == "offcert-unregister":
            other.join(timeout=60)
    assert inner.known == set()
    arena.close()
    assert outer.known == set()


def test_without_threads_the_caller_registers_everything(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    registrar = Registrar()
    registrar.let(4)
    arena = arena_of(registrar, 5, order=[3])
    monkeypatch.undo()
    assert len(registrar.known) == 5
    assert arena.pinning.threads == 0
    arena.close()
    assert registrar.known == set()


def test_many_threads_register_each_byte_once_and_lose_none():
    registrar = Registrar()
    registrar.let(200)
    arena = arena_of(registrar, 64, order=[(number * 7) % 64 for number in range(64)])
    pattern = torch.arange(PAGE).to(torch.uint8)
    for chunk in range(64):
        # As a device does that copies while the chunks are registered.
        held = arena.pending(chunk * PAGE)
        if held is None:
            arena.view(chunk * PAGE, PAGE).copy_(pattern)
        else:
            with held:
                arena.view(chunk * PAGE, PAGE).copy_(pattern)
    assert ended(arena).registered == 64 * PAGE
    assert sorted(registrar.log) == list(range(64))
    assert all(arena.view(at, PAGE).equal(pattern) for at in range(0, 64 * PAGE, PAGE))
    arena.close()
    assert registrar.known == set()
