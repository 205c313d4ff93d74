"""What is kept so that it does not run again, but nobody needs: it is not stored."""

import torch
from torch import nn

from offcert.core.carried.carry import carry
from offcert.core.program import Program
from offcert.runtime.plan.place import place, program_of
from offcert.runtime.segments.placed import Kept
from support.runtime.captured import mean_step
from support.runtime.joint_training import again, carried_by, compare_joint, problem_of, segment


class Doubled(nn.Module):
    """Twice its input, which autograd does not save."""

    def forward(self, x):
        return x * 2


class Block(nn.Module):
    """What `first` makes is read by `twice` alone, and what that makes is saved by `second`."""

    def __init__(self):
        super().__init__()
        self.act = nn.Tanh()
        self.first = nn.Linear(8, 16, bias=False)
        self.twice = Doubled()
        self.second = nn.Linear(16, 8)

    def forward(self, x):
        return self.second(self.twice(self.first(self.act(x))))


class Looking(Block):
    """Looks at numbers that only what is kept reads."""

    def forward(self, x):
        y = self.first(self.act(x))
        self.twice.largest = y.detach().max().item() > 1e9
        return self.second(self.twice(y) if not self.twice.largest else y)


class Tailed(nn.Module):
    """Like `Block`, but the last two calls are those of a module."""

    def __init__(self):
        super().__init__()
        self.act = nn.Tanh()
        self.first = nn.Linear(8, 16, bias=False)
        self.tail = nn.Sequential(Doubled(), nn.Linear(16, 8), nn.Tanh())

    def forward(self, x):
        return self.tail(self.first(self.act(x)))


def network(*blocks):
    torch.manual_seed(0)
    return nn.Sequential(*blocks, nn.Linear(8, 1))


def sizes(carried, prefix):
    return [each.size for each in carried.execution.trace.tensors if each.name.startswith(prefix)]


def test_what_only_kept_operators_read_is_not_stored():
    placed = again(segment("0", "0.first", "0.twice"), segment("1", "1.first", "1.twice"))
    joint = compare_joint(mean_step(network(Block(), Block()), 4, 8), placed).require_followed()
    trace = joint.carried.execution.trace
    # 4 rows of 16 numbers, or 64 KiB for short: in each segment one storage for all that is lent.
    assert sizes(joint.carried, "stand-in") == [256, 256]
    turn = next(n for n, each in enumerate(trace.operations) if each.name.startswith("B:"))
    named = {each.name: each for each in trace.tensors}
    lasting = [name for name, each in named.items() if each.uses[0] < turn <= each.uses[-1]]
    assert not any("0.first" in name for name in lasting)
    assert any("0.twice" in name for name in lasting)


def test_what_runs_again_has_what_it_reads():
    # Where the next operator runs again, it reads what the layer has made: that is stored.
    placed = again(segment("0", "0.first"), "1")
    joint = compare_joint(mean_step(network(Block(), Block()), 4, 8), placed).require_followed()
    assert sizes(joint.carried, "stand-in") == []
    assert all(not places for places in joint.carried.unread.values())


def test_what_a_segment_inside_is_given_is_stored():
    inside = segment("0", "0.first", inner=[segment("0.tail", "0.tail.0")])
    joint = compare_joint(mean_step(network(Tailed(), Block()), 4, 8), again(inside, "1"))
    joint.require_followed(exactly=False)
    assert sizes(joint.carried, "stand-in") == []


def test_a_segment_that_looks_at_what_is_not_stored_is_refused():
    step = mean_step(network(Looking(), Block()), 4, 8)
    _, captured = problem_of(step)
    placed = again(segment("0", "0.first", Kept("leave", "0.first"), "0.twice"))
    found = carried_by(captured, placed)
    assert sizes(found, "stand-in")
    joint = compare_joint(step, placed)
    # Gradients are those of plain training: it was seen in the rehearsal.
    assert not joint.reports[-1].planned
    assert "reads again what only kept operators" in str(joint.offload.refused)


def test_programs_name_what_is_not_stored():
    _, captured = problem_of(mean_step(network(Block()), 4, 8))
    made = again(segment("0", "0.first", "0.twice"))
    program = program_of(made, captured.ranges, captured.ticks)
    assert isinstance(program, Program)
    found = carry(captured.network, program, captured.ranges, captured.record, captured.ticks)
    placed = place(program, captured.ranges, captured.ticks, found.unread)
    assert placed.segments[0].kept[0] == Kept("enter", "0.first", unread=(0,))
    assert program_of(placed, captured.ranges, captured.ticks) == program
