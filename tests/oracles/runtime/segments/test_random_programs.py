"""Random programs: the search, the derivation and the runtime say the same of what runs again.

The rules are on the page docs/theory/running-again.md.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from offcert.heuristics.joint.annealing import JointAnnealer
from offcert.heuristics.joint.plans import estimate, ranges_of
from offcert.heuristics.joint.state import JointState, new_state, program_of
from offcert.heuristics.joint.tables import Tables, tables_of
from offcert.questions.schedule.carried import carried_on
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import Capture, capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.plan.place import place
from offcert.verification.execution import execution_faults
from support.networks.interrupted_networks import changed, doubled, network
from support.runtime.captured import mean_step
from support.runtime.joint_training import compare_joint, live, problem_of


class Looped(nn.Module):
    """The blocks of another module, called one after the other by code of the user's own."""

    def __init__(self, blocks: nn.Sequential) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call them."""
        for block in self.blocks:
            x = block(x)
        return x


def step(name: str) -> TrainingStep:
    """Return a step in whose operations it matters what happens when, with noise."""
    blocks = network((doubled,), (changed, nn.Dropout(0.5)), (changed,), (doubled,))
    return mean_step(blocks if name == "sequence" else Looped(blocks), 4, 6)


@cache
def known(name: str) -> tuple[Problem, Capture, Tables]:
    problem, captured = problem_of(step(name))
    tables = tables_of(problem, ranges_of(problem))
    # A step that is captured without a device has no times: the search gets one tick each.
    return problem, captured, tables._replace(duration=tables.duration + 1)


def drawn(tables: Tables, seed: int) -> JointState:
    """Return the state that random changes lead to, of which none is refused."""
    annealer = JointAnnealer(tables, new_state(tables), seed, 0.0)
    annealer.run(40, 1e12, 1e12)
    return annealer.current


CASES = [
    *(("sequence", seed) for seed in (0, 2, 3, 4, 6, 8, 10)),
    *(("loop", seed) for seed in (0, 1, 2, 3, 6, 8)),
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_search_derivation_and_capture_agree(name: str, seed: int) -> None:
    problem, captured, tables = known(name)
    assert captured.network is not None
    state = drawn(tables, seed)
    program = program_of(state)
    assert program.segments
    carried = carried_on(problem, program)
    assert carried is not None
    assert execution_faults(captured.network, carried.execution) == []
    found = estimate(tables, state)
    assert found.runs == carried.execution.runs
    assert found.demand == carried.execution.trace.demand
    followed = place(program, captured.ranges, captured.ticks, carried.unread)
    real = capture(step(name), program=followed)
    assert [tuple(each.place[:4]) for each in real.storages] == [row[:4] for row in carried.saved]
    events = [tuple(tick) for tick in real.ticks]
    if any(each.name.startswith("begun") for each in carried.execution.trace.tensors):
        # A capture begins a new operation where one was interrupted.
        later = iter(events)
        assert all(tick in later for tick in carried.ticks)
    else:
        assert events == list(carried.ticks)
        (peaks, ends), (bounds, expected) = live(real.trace), live(carried.execution.trace)
        assert ends == expected
        assert all(peak <= bound for peak, bound in zip(peaks, bounds, strict=True))


@pytest.mark.parametrize(("name", "seed"), [("sequence", 4), ("sequence", 10), ("loop", 1)])
def test_training_does_what_they_say(name: str, seed: int) -> None:
    _, captured, tables = known(name)
    program = program_of(drawn(tables, seed))
    placed = place(program, captured.ranges, captured.ticks)
    compare_joint(step(name), placed, steps=2).require_followed()


def test_the_programs_are_not_all_simple() -> None:
    programs = [program_of(drawn(known(name)[2], seed)) for name, seed in CASES]
    segments = [each for program in programs for each in program.segments]
    assert sum(bool(each.inner) for each in segments) >= 2
    assert sum(bool(each.kept) for each in segments) >= 5
    found = [
        known("loop")[1].ranges.find(each.first, each.last)
        for name, seed in CASES
        for each in program_of(drawn(known(name)[2], seed)).segments
        if name == "loop"
    ]
    assert sum(bool(each is not None and each.line) for each in found) >= 2
