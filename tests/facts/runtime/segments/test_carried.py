"""What a program makes of a step is known without running it: against a capture of it."""

import json

import pytest
from test_joint_networks import BLOCKS, GPT, RESNET, images, tokens
from test_segment_traps import Three

from offcert.core.carried.record import RECORD
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.program import Program, Segment
from offcert.questions.schedule.carried import carried_on
from offcert.runtime.capture import capture
from offcert.runtime.plan.place import place, program_of, steady
from offcert.verification.execution import execution_faults
from support.runtime.captured import mean_step
from support.runtime.joint_training import again, carried_by, live, problem_of, segment


@pytest.fixture(scope="module", params=["resnet18", "gpt"])
def network(request):
    step = images("resnet18") if request.param == "resnet18" else tokens(dropout=0.3)
    problem, captured = problem_of(step)
    return step, problem, captured, RESNET if request.param == "resnet18" else GPT


def test_runs_events_and_live_bytes_are_those_of_a_capture(network):
    step, _, captured, programs = network
    for placed in programs.values():
        found = carried_by(captured, placed)
        assert execution_faults(captured.network, found.execution) == []
        program = program_of(placed, captured.ranges, captured.ticks)
        followed = place(program, captured.ranges, captured.ticks, found.unread)
        real = capture(step, program=followed)
        assert [tuple(tick) for tick in real.ticks] == list(found.ticks)
        rows = [tuple(storage.place[:4]) for storage in real.storages]
        assert rows == [row[:4] for row in found.saved]
        (peaks, ends), (bounds, expected) = live(real.trace), live(found.execution.trace)
        assert ends == expected
        # Workspaces are those of the first runs, in which autograd keeps more.
        assert all(peak <= bound for peak, bound in zip(peaks, bounds, strict=True))
        moving = [row[4] for row in found.saved if row[4] is not None]
        assert moving
        assert all(found.execution.trace.tensors[tensor].evictable for tensor in moving)


def test_programs_come_back(network):
    _, problem, captured, programs = network
    for placed in programs.values():
        program = program_of(placed, captured.ranges, captured.ticks)
        # Several calls may be the same operations: what they are is what counts.
        twice = program_of(
            place(program, captured.ranges, captured.ticks), captured.ranges, captured.ticks
        )
        assert twice == program
        assert carried_on(problem, program) == carried_by(captured, placed)
    record = json.loads(json.dumps(RECORD.write(captured.record)))
    assert RECORD.read(Fields(record)) == captured.record


def test_ranges_whose_inputs_are_changed_in_place_are_left_out(network):
    _, _, captured, _ = network
    paths = {each.path for each in captured.ranges.calls}
    left = {each.path for each in steady(captured.network, captured.ranges)}
    gone = {path for path in paths - left if path.endswith("relu")}
    assert gone == {path for path in paths if path.endswith("relu")}
    assert (set(BLOCKS) | {"layer1"} if gone else {"h.0", "h"}) <= left


def test_segments_that_are_no_range():
    problem, captured = problem_of(mean_step(Three(), 6, 8))
    program = Program([Segment(2, 3)])
    with pytest.raises(InputError, match="nothing runs from"):
        place(program, captured.ranges, captured.ticks)
    with pytest.raises(InputError, match="nothing runs from"):
        carried_on(problem, program)
    with pytest.raises(InputError, match="has not run"):
        program_of(again(segment("blocks.7")), captured.ranges, captured.ticks)
