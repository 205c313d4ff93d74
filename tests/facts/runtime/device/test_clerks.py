"""Threads of the host that copy: in order, not before events, and gone when nobody needs them."""

import threading

import pytest
import torch

from offcert.core.errors import OffcertError
from offcert.runtime.device.host import ThreadClerk
from offcert.runtime.device.pinned import FileArena


class Gate:
    """An event that a test reaches."""

    def __init__(self, error=None):
        self.opened, self.error = threading.Event(), error

    @property
    def reached(self):
        return self.opened.is_set()

    def wait_here(self):
        assert self.opened.wait(60)
        if self.error is not None:
            raise self.error


def _files():
    first, second = FileArena(64), FileArena(64)
    first.view(0, 64).copy_(torch.arange(64).to(torch.uint8))
    second.view(0, 64).zero_()
    return first, second


def clerks():
    return [each for each in threading.enumerate() if each.name.startswith("a clerk")]


def test_a_thread_copies_in_order_and_not_before_events_and_ends():
    first, second = _files()
    begun = []
    clerk, other = ThreadClerk("a clerk", lambda: begun.append(threading.get_ident())), None
    gate = Gate()
    done = clerk.copy((first, 8), (second, 16), 4, [gate])
    last = clerk.copy((second, 16), (second, 40), 4)
    # Whoever orders a copy goes on.
    assert not done.reached
    assert second.view(0, 64).eq(0).all()
    other = ThreadClerk("a clerk, too")
    third = other.copy((second, 40), (first, 0), 4, [last])
    gate.opened.set()
    third.wait_here()
    assert done.reached
    assert last.reached
    assert first.view(0, 4).tolist() == second.view(16, 4).tolist() == [8, 9, 10, 11]
    assert begun != [threading.get_ident()]
    assert len(clerks()) == 2
    clerk.close()
    other.close()
    assert clerks() == []


def test_what_goes_wrong_in_a_thread_reaches_all_who_wait_for_it():
    first, second = _files()
    clerk, other = ThreadClerk("a clerk"), ThreadClerk("a clerk, too")
    gate = Gate(RuntimeError("an illegal memory access was encountered"))
    done = clerk.copy((first, 8), (second, 16), 4, [gate])
    after = other.copy((second, 16), (first, 0), 4, [done])
    gate.opened.set()
    for each in (after, done):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            each.wait_here()
        assert not each.reached
    assert first.view(0, 4).tolist() == [0, 1, 2, 3]
    # The thread goes on.
    clerk.copy((first, 8), (second, 16), 4).wait_here()
    clerk.close()
    other.close()


def test_a_thread_that_collects_garbage_does_not_wait_for_itself():
    first, second = _files()
    clerk = ThreadClerk("a clerk")
    found, orders = [], []

    class Collecting(Gate):
        def wait_here(self):
            # As if a context that nobody has any more were closed here.
            super().wait_here()
            try:
                orders[-1].wait_here()
            except OffcertError as error:
                found.append(str(error))
            clerk.close()

    gate = Collecting()
    orders.append(clerk.copy((first, 8), (second, 16), 4, [gate]))
    orders.append(clerk.copy((first, 8), (second, 20), 4))
    gate.opened.set()
    orders[-1].wait_here()
    clerk.close()
    assert found == ["a thread that copies cannot wait for copies to be made"]
    assert second.view(16, 8).tolist() == [8, 9, 10, 11] * 2


def test_a_thread_ends_when_nobody_has_its_clerk():
    clerk = ThreadClerk("a clerk")
    first, second = _files()
    clerk.copy((first, 8), (second, 16), 4).wait_here()
    (thread,) = clerks()
    del clerk
    thread.join(60)
    assert not thread.is_alive()
