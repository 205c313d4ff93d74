"""Lines whose calls are made in containers, which take no part in the lines."""

import pytest
import torch
from torch import nn

from offcert.core.program import Program, Segment
from offcert.runtime.plan.place import place
from support.runtime.captured import mean_step
from support.runtime.joint_training import compare_joint, problem_of


class Around(nn.Module):
    """A container that is called twice, between layers: six operations."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between = nn.Linear(6, 6), nn.LayerNorm(6)
        self.pair = nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x):
        return self.pair(self.between(self.pair(self.first(x))))


FIRST, BETWEEN = ("first", 0), ("between", 0)
PAIR = [[("pair.0", call), ("pair.1", call)] for call in (0, 1)]

PROGRAMS = {
    # The container is a part of a line: it runs again by its calls, not by its own code.
    "in a line": (
        Program([Segment(0, 3, (), (Segment(1, 2),))]),
        [((FIRST, *PAIR[0], BETWEEN), [PAIR[0]])],
    ),
    "one call of it": (
        Program([Segment(0, 2, (), (Segment(1, 1), Segment(2, 2, (2,))))]),
        [((FIRST, *PAIR[0]), [(), ()])],
    ),
    # A line goes into the container, whose other call runs again as a whole.
    "into one that runs again": (
        Program([Segment(0, 1), Segment(4, 5, (4,))]),
        [((FIRST, PAIR[0][0]), []), ((), [])],
    ),
    "through two": (
        Program([Segment(1, 5, (3,), (Segment(1, 2), Segment(4, 5)))]),
        [((*PAIR[0], BETWEEN, *PAIR[1]), [PAIR[0], PAIR[1]])],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_go_into_containers_and_through_them(name):
    program, lines = PROGRAMS[name]
    step = mean_step(Around(), 4, 6)
    _, captured = problem_of(step)
    placed = place(program, captured.ranges, captured.ticks)
    found = [(each.line, [inner.line for inner in each.inner]) for each in placed.segments]
    assert found == [(tuple(line), [tuple(one) for one in inner]) for line, inner in lines]
    compare_joint(mean_step(Around(), 4, 6), placed).require_followed(exactly=False)
