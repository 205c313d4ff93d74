"""Random programs with streams: what the audit finds, beside all orders that the events allow."""

import random

import pytest
import torch

from offcert.runtime.simulated.streams import late
from offcert_lab.engines import audit_engine
from offcert_lab.engines.machine import Machine
from offcert_lab.engines.orders import Orders
from offcert_lab.engines.recorder import EngineRecorder
from offcert_lab.engines.shim import simulated
from support.seeds import by_seeds

SIZE = 4
DOES = ("write", "copy", "out", "back", "host", "read", "wait", "wait", "sync")


class Program:
    """A few operators, copies and waits, drawn by a seed; each writes something of its own."""

    def __init__(self, seed, *, drops=False):
        self.seed = seed
        self.drops = drops

    def __call__(self):
        coins = random.Random(self.seed)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        devices = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
        hosts = [torch.zeros(SIZE).pin_memory() for _ in range(2)]
        torch.cuda.synchronize()
        read = []
        for step in range(7):
            device, host = coins.randrange(2), coins.randrange(2)
            with torch.cuda.stream(coins.choice(streams)):
                match coins.choice(
                    ["write", "copy", "out", "back", "host", "read", "wait", "wait", "sync"]
                ):
                    case "write":
                        devices[device].add_(2.0**step).mul_(3)
                    case "copy":
                        devices[device][:2].copy_(devices[1 - device][1:3])
                    case "out":
                        hosts[host].copy_(devices[device], non_blocking=True)
                    case "back":
                        devices[device].copy_(hosts[host], non_blocking=True)
                    case "host":
                        hosts[host][2:].add_(100.0 * step)
                    case "read":
                        read.append(hosts[host].tolist())
                    case "wait":
                        torch.cuda.current_stream().wait_stream(coins.choice(streams))
                    case "sync":
                        coins.choice(streams).synchronize()
                if self.drops and coins.random() < 0.3:
                    devices[device] = torch.full((SIZE,), float(step), device="cuda")
        return devices, hosts


def recorded(program):
    """Run a program; return its orders, and what was found."""
    machine = Machine(late)
    recorder = EngineRecorder(machine)
    with simulated(recorder):
        kept = program()
    orders = Orders(machine, recorder.living())
    recorder.ended = True
    del kept
    return orders, machine.findings


def all_orders(orders, most):
    """Yield all legal orders, up to so many."""
    stack = [([0] * len(orders.queues), [])]
    count = 0
    while stack and count < most:
        done, order = stack.pop()
        if len(order) == len(orders.works):
            count += 1
            yield order
        for stream in orders.ready(done):
            after = done.copy()
            after[stream] += 1
            stack.append((after, [*order, orders.queues[stream][done[stream]]]))


def visible(values):
    """Return what can be told apart: values that were read, and bytes at the end."""
    got = sorted((number, value.tolist()) for number, value in values.got.items())
    left = sorted((number, data.tolist()) for number, data in values.bytes.items())
    return repr((got, left))


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_what_is_clean_has_one_outcome(seeds):
    """Whatever an order of a program can show is found; drops included."""
    clean = 0
    for seed in seeds:
        orders, findings = recorded(Program(seed, drops=seed % 2 == 1))
        if not findings:
            clean += 1
            outcomes = {visible(orders.run(order)) for order in all_orders(orders, 40)}
            assert len(outcomes) == 1, seed
    assert clean > 2


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_what_can_be_shown_is_shown(seeds):
    """A wrong value is shown of all programs that have one, by two orders for each finding."""
    wrong = 0
    for seed in seeds:
        found = audit_engine(Program(seed), orders=0)
        orders, _ = recorded(Program(seed))
        outcomes = {visible(orders.run(order)) for order in all_orders(orders, 40)}
        shown = any("if the second" in each.shown for each in found.findings)
        assert shown >= (len(outcomes) > 1), seed
        wrong += shown
    assert wrong > 10


@by_seeds(0, 30, 30)
def test_a_program_that_waits_for_all_is_clean(seeds):
    """The same programs, in which the host waits after each step, have no fault."""
    for seed in seeds:
        with_waits = audit_engine(_waiting(Program(seed, drops=True)), orders=1)
        assert with_waits.clean, (seed, str(with_waits))


def _waiting(program):
    """Return a program in which each copy and each operator is waited for."""

    def run():
        original = torch.cuda.stream

        class Waits(original):
            def __exit__(self, *error):
                super().__exit__(*error)
                torch.cuda.synchronize()

        torch.cuda.stream = Waits
        try:
            return program()
        finally:
            torch.cuda.stream = original

    return run
