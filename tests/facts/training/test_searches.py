"""Searches while a model trains: what they have found so far is followed, and they end."""

import logging
import os
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from offcert.core.platform import Platform
from offcert.training import offload, search, together
from offcert.training.search import Order, SearchOutcome, SearchProcess, at_once
from offcert.training.study import OperationTimes
from support.runtime.captured import mean_step, problem_of_step


def network():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.Sigmoid())])


class Told:
    """A search whose findings a test says."""

    def __init__(self, order):
        self.order, self.now, self.end, self.closed = order, None, None, False

    def poll(self):
        return self.end

    def so_far(self):
        return self.now

    def close(self):
        self.closed = True


@pytest.fixture
def training(monkeypatch):
    """Return a training that waits for a search, with it and the plain model."""
    begun = []

    def begin(order, *, apart):
        begun.append(Told(order))
        return begun[-1]

    monkeypatch.setattr(together, "begin", begin)
    monkeypatch.setattr("offcert.training.auto.prepare", lambda: None)
    model = network()
    made = offload(model, "auto", memory="50%", hardware="v100-pcie", recompute="none")
    with made:
        take(model, 2)
        (told,) = begun
        assert made.steps == {"studied": 1, "planned": 1}
        yield made, model, told
    assert told.closed or told.end is not None


def take(model, steps):
    for _ in range(steps):
        model(torch.randn(8, 16)).square().mean().backward()
        model.zero_grad()


def certificate_of(order, factor=1):
    """Return a plan for an order; with another factor its steps take so many times as long."""
    found = at_once(order.problem)
    if factor == 1:
        return found
    schedule = found.result.schedule
    later = replace(
        schedule,
        starts=tuple(factor * each for each in schedule.starts),
        ends=tuple(factor * each for each in schedule.ends),
        transfers=tuple(
            replace(each, start=factor * each.start, end=factor * each.end)
            for each in schedule.transfers
        ),
    )
    return replace(found, result=replace(found.result, schedule=later))


def test_what_a_search_has_found_so_far_is_followed_before_step_twenty(training, caplog):
    made, model, told = training
    first = certificate_of(told.order)
    told.now = SearchOutcome(first)
    with caplog.at_level(logging.INFO, logger="offcert.training"):
        take(model, 5)
        assert made.certificates == []
        take(model, 12)
        assert made.certificates == [first]
        assert made.steps == {"studied": 1, "planned": 18}
        # It ends with the same, which needs no other plan.
        plan = made.step_plans[0]
        told.end = SearchOutcome(replace(first, result=replace(first.result, runtime=9.0)))
        take(model, 2)
    assert made.step_plans[0] is plan
    assert made.certificates == [first]
    said = [each.message for each in caplog.records]
    assert sum(each.startswith("plan for Sequential") for each in said) == 1
    assert sum("has ended after 9.0 s: the plan is kept, time proved" in each for each in said) == 1
    assert made.steps == {"studied": 1, "planned": 20}


def test_a_better_plan_at_the_end_takes_the_place_of_the_one_so_far(training):
    made, model, told = training
    best = certificate_of(told.order)
    # The first that is found cannot be followed.
    broken = replace(best, problem=best.problem.with_memory(best.problem.plain().least_memory - 1))
    told.now = SearchOutcome(broken)
    take(model, 9)
    assert made.certificates == []
    told.now = SearchOutcome(certificate_of(told.order, 4))
    take(model, 3)
    assert made.certificates == [told.now.certificate]
    # Later it is looked at what has been found since, and now and then only.
    told.now = SearchOutcome(certificate_of(told.order, 2))
    take(model, 20)
    assert made.certificates == [told.now.certificate]
    told.end = SearchOutcome(best)
    take(model, 2)
    assert made.certificates == [best]
    assert made.promises[-1]["slowdown"] < made.promises[-2]["slowdown"]
    assert set(made.steps) == {"studied", "planned"}


def test_where_nothing_is_found_the_makeshift_is_kept_and_that_is_said(training, caplog):
    made, model, told = training
    plan = made.step_plans[0]
    with caplog.at_level(logging.INFO, logger="offcert.training"):
        take(model, 20)
        said = [each.message for each in caplog.records]
        assert said == [
            "no certified plan for Sequential yet: 16 steps by it, and none found; the one without "
            "a certificate is kept"
        ]
        told.end = SearchOutcome(None, reason="the search did not end")
        take(model, 2)
    assert caplog.records[-1].message == (
        "no certified plan for Sequential yet: the search did not end; the one without a "
        "certificate is kept"
    )
    assert made.step_plans[0] is plan
    assert made.steps == {"studied": 1, "planned": 23}


def test_no_times_are_taken_while_memory_is_registered_unless_that_takes_long():
    times, rows = OperationTimes(None), []
    for number in range(14):
        disturbed = number < 2 or number > 4
        run = SimpleNamespace(
            disturbed=disturbed, timed=True, share=1.0, durations=lambda n=number: [n]
        )
        times.take(run)
        rows.append(times.complete)
    # The third, fourth and fifth, which are enough.
    assert rows.index(True) == 4
    slow = OperationTimes(None)
    while not slow.complete:
        slow.take(SimpleNamespace(disturbed=True, timed=True, share=1.0, durations=lambda: [7]))
    assert slow.durations() == [7]


@pytest.fixture(scope="module")
def order():
    problem = problem_of_step(mean_step(network(), 8, 16))
    operations = [replace(each, duration=10) for each in problem.trace.operations]
    slow = replace(
        problem,
        network=type(problem.trace)(operations, problem.trace.tensors),
        platform=Platform(problem.platform.memory, Fraction(1)),
    )
    return Order(slow.with_memory("50%"), None, 0.3)


def test_no_plan_is_slower_than_the_one_that_is_found_at_once(order, monkeypatch):
    quick = at_once(order.problem)
    kept = []

    def certify(problem, *, time_limit, keep):
        keep(certificate_of(order, 2))
        keep(quick)
        return certificate_of(order, 3)

    monkeypatch.setattr(search, "certify", certify)
    found = search.find(order, kept.append)
    assert found.certificate.result.objective == quick.result.objective
    assert kept == [quick]


def test_where_nothing_waits_there_is_nothing_to_search_for(order):
    fast = replace(order, problem=order.problem.with_bandwidth(Fraction(10**9), None))
    done = search.begin(fast, apart=True)
    certificate = done.poll().certificate
    assert certificate.result.objective == certificate.problem.trace.compute_time
    assert certificate.result.proved_bound == certificate.result.objective
    assert done.so_far() is None


@pytest.mark.slow
def test_a_process_that_was_made_before_takes_the_next_order(order):
    search.prepare()
    search.prepare()
    (waiting,) = search.PREPARED
    assert waiting.poll() is None
    begun = search.begin(order, apart=True)
    assert begun is waiting
    assert search.PREPARED == []
    begun._process.wait(timeout=300)
    # The last that was found lies there as well as the outcome.
    so_far = begun.so_far()
    found = begun.poll()
    assert found.certificate.result.objective <= at_once(order.problem).result.objective
    assert so_far is None or so_far.certificate.result.objective >= (
        found.certificate.result.objective
    )
    search.prepare()
    (waiting,) = search.PREPARED
    search.forget_prepared()
    assert waiting._process.poll() is not None


def test_a_process_that_does_not_end_is_ended(order, tmp_path, monkeypatch):
    sleeping = tmp_path / "python"
    sleeping.write_text("#!/bin/sh\nexec sleep 100\n")
    sleeping.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(sleeping))
    monkeypatch.setattr(search, "MORE", -(10**9))
    began = SearchProcess()
    began.give(order)
    pid = began._process.pid
    assert began.poll() == SearchOutcome(None, reason="the search did not end")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
