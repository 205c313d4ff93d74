"""One recording, several clocks: each is a coarser view of the same step."""

from itertools import accumulate

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime import zoo
from offcert.runtime.capture import Clock, build, capture
from offcert.runtime.capture.run import _run_fake
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import hardware
from offcert.runtime.watch.events import OPERATOR, UNPACK


class Branches(nn.Module):
    """A skip, a layer that is called twice, one inside of another, and work between layers."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        y = torch.tanh(self.first(x))
        y = y + self.block(self.norm(y)) * torch.sigmoid(self.block(y))
        return self.norm(y), y.square().sum()


def branches():
    def run(model, x):
        output, penalty = model(x)
        return output.mean() + penalty

    return TrainingStep(Branches(), run, lambda: torch.randn(64, 16))


def of_zoo(name, *shape):
    def run(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    model = zoo.build(name).train()
    return TrainingStep(model, run, (torch.randn(shape), torch.zeros(shape[0], dtype=torch.int64)))


STEPS = {
    "branches": branches,
    "resnet18": lambda: of_zoo("resnet18", 2, 3, 64, 64),
}


@pytest.fixture(scope="module", params=STEPS)
def built(request):
    recorder, _ = _run_fake(STEPS[request.param](), hardware("v100-pcie"))
    clocks = Clock.MODULES, Clock.OPERATORS
    return recorder, *(build(recorder, clock, "fake", {}) for clock in clocks)


def test_modules_are_a_coarsening_of_operators(built):
    recorder, modules, operators = built
    assert len(modules.trace) < len(operators.trace)
    # Where an operation of modules ends, one of operators ends, too.
    ends = [list(accumulate(o.duration for o in each.trace.operations)) for each in built[1:]]
    assert set(ends[0]) <= set(ends[1])
    assert ends[0][-1] == ends[1][-1] == sum(moment.duration for moment in recorder.moments)
    assert {event.kind for event in operators.ticks} <= {OPERATOR, UNPACK}
    assert not {event.kind for event in modules.ticks} & {OPERATOR, UNPACK}


def test_both_have_the_peak_that_was_counted(built):
    recorder, modules, operators = built
    counted = max(moment.peak for moment in recorder.moments)
    assert modules.trace.peak_memory == operators.trace.peak_memory == counted


def test_both_need_the_same_least_memory(built):
    _, modules, operators = built
    least, finest = modules.trace.least_memory, operators.trace.least_memory
    assert least >= finest
    assert least - finest <= 0.01 * modules.trace.peak_memory


def test_both_save_the_same_storages(built):
    _, modules, operators = built
    saved = [
        [(s.place.size, s.place.dtype, s.place.shape) for s in each.storages] for each in built[1:]
    ]
    assert saved[0] == saved[1]
    # Whatever can be evicted at all is worth more gaps to the finer clock.
    evictable = [
        sum(t.size for t in each.trace.tensors if t.evictable) for each in (modules, operators)
    ]
    assert 0 < evictable[0] <= evictable[1]


@pytest.mark.parametrize("clock", ["modules", "operators"])
def test_names_say_where_and_ticks_are_told_apart(clock):
    found = capture(branches(), clock=clock, hardware=hardware("v100-pcie"))
    names = [operation.name for operation in found.trace.operations]
    assert len(set(found.ticks)) == len(found.ticks) == len(names)
    assert names[0].startswith("F:")
    assert names[-1].startswith("B:")
    if clock == "modules":
        assert "F:block.0 #2" in names
        assert "F:loss" in names
    assert found.clock == clock


def test_compiled_graphs_are_not_captured():
    with pytest.raises(InputError, match="graphs are traced, not captured"):
        capture(branches(), clock="graphs")
    with pytest.raises(ValueError, match="seconds"):
        capture(branches(), clock="seconds")
