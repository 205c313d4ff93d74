"""Searches that processes share: who asks first searches, and all follow what was found."""

from dataclasses import replace

import pytest
from torch import distributed as dist
from torch import nn

from offcert.core.errors import InputError
from offcert.core.trace import Trace
from offcert.training.search import Order
from offcert.training.together import Together, digest_of
from support.runtime.captured import mean_step, problem_of_step


@pytest.fixture(scope="module")
def captured():
    return problem_of_step(mean_step(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), 2, 4))


@pytest.fixture
def order(captured):
    def made(duration=1, more=0, rates=(1, None)):
        trace = captured.trace
        operations = [replace(each, duration=duration) for each in trace.operations]
        problem = replace(captured, network=Trace(operations, trace.tensors)).with_bandwidth(*rates)
        return Order(problem.with_memory(trace.peak_memory + more), None, 0.2)

    return made


def test_times_do_not_tell_orders_apart_but_limits_do(order):
    assert digest_of(order()) == digest_of(order(duration=5))
    assert digest_of(order()) == digest_of(order(rates=(3, 7)))
    assert digest_of(order()) != digest_of(order(more=1))
    assert digest_of(order()) != digest_of(replace(order(), room=10))


@pytest.mark.slow
def test_the_second_process_follows_what_the_first_has_found(order):
    store = dist.HashStore()
    first, second = Together(store, 0), Together(store, 0)
    ours = first.begin(order(), apart=False).poll()
    theirs = second.begin(order(duration=5), apart=False).poll()
    assert theirs.certificate.to_json() == ours.certificate.to_json()
    # In another training nothing is known of it.
    other = Together(store, 1).begin(order(), apart=False).poll()
    assert other is not ours


def test_nobody_waits_in_the_midst_of_training(order):
    store = dist.HashStore()
    store.add(f"offcert/0/{digest_of(order())}/asked", 1)
    search = Together(store, 0).begin(order(), apart=True)
    assert search.poll() is None


def test_a_process_that_does_not_answer_is_named(order):
    store = dist.HashStore()
    store.add(f"offcert/0/{digest_of(order())}/asked", 1)
    search = Together(store, 0).begin(order(), apart=True)
    with pytest.raises(InputError, match=r"has not answered in 0\.01 s"):
        search.waited(0.01)
