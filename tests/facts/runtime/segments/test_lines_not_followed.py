"""Programs that do not go on with a line: they train as without it, and it is reported."""

import copy
import warnings

import pytest
import torch
from test_joint_networks import nothing_leaves
from test_lines import SIMPLE, Calls, simple, step_of
from test_segment_traps import same_training
from torch import nn

from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.segments.alone import segmented
from support.runtime.joint_training import carried_by, problem_of


def deviations(change, function=simple, placed=SIMPLE):
    """Train as was captured, and then with another function; return what is reported of that."""
    step = step_of(function)
    plain = copy.deepcopy(step.model)
    problem, captured = problem_of(step)
    found = carried_by(captured, placed)
    executed = problem.executed(found.execution)
    plan = nothing_leaves(problem)
    problem = problem.with_memory(executed.trace.peak_memory)
    reports = []
    context = Offload(
        step.model, [step_plan(problem, plan, found.execution)], FollowOptions(count=True)
    )
    with warnings.catch_warnings(record=True) as told, context:
        warnings.simplefilter("always")
        for turn in range(3):
            for model in (step.model, plain):
                model.function = change if turn == 1 else function
                torch.manual_seed(turn)
                model(torch.randn(6, 8)).square().mean().backward()
            for ours, theirs in zip(step.model.parameters(), plain.parameters(), strict=True):
                assert torch.equal(ours.grad, theirs.grad)
            for ours, theirs in zip(step.model.buffers(), plain.buffers(), strict=True):
                assert torch.equal(ours, theirs)
            reports.append(context.report.deviation)
    assert reports[0] is reports[2] is None
    if reports[1] is None:
        assert not told
        assert context.steps == {"planned": 3}
    else:
        assert any("did not follow its plan" in str(each.message) for each in told)
        assert context.steps == {"planned": 2, "deviating": 1}
    return reports[1]


def adds(m, x):
    y = m.drop(m.norm(m.first(x)))
    y += 1
    return m.second(m.act(y))


def skips(m, x):
    return m.second(m.drop(m.norm(m.first(x))))


def swaps(m, x):
    return m.second(m.drop(m.act(m.norm(m.first(x)))))


def replaces(m, x):
    return m.second(m.act(m.drop(m.norm(m.first(x))).exp()))


def stops(m, x):
    return m.act(m.drop(m.norm(m.first(x))))


def hooks(m, x):
    y = m.drop(m.norm(m.first(x)))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return m.second(m.act(y))


def names(m, x):
    return m.second(m.act(m.drop(m.norm(input=m.first(x)))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (adds, "norm to second run again only in part: act is given something else"),
        (skips, "second is called before act"),
        (swaps, "act is called before drop"),
        (replaces, "act is given something else"),
        (hooks, "other saved-tensor hooks"),
        (names, "they are not given one tensor"),
    ],
)
def test_line_that_is_not_followed(change, message):
    assert message in deviations(change)


def test_line_that_ends_early_does_less():
    assert deviations(stops) is None


def test_another_result_that_the_line_does_not_take():
    def function(m, x):
        y = m.drop(m.norm(m.first(x)))
        side = y.sigmoid() * m.first.weight.sum()
        return m.second(m.act(y)) + side

    # What is computed beside the line was not captured, but the line itself is followed.
    same_training(step_of(simple), SIMPLE, offloading=False)
    model, plain = Calls(function), Calls(function)
    with segmented(model, SIMPLE):
        for each in (model, plain):
            torch.manual_seed(1)
            each(torch.ones(6, 8).cumsum(0)).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_exception_within_a_line():
    class Fails(nn.Module):
        def forward(self, x):
            kept.append(x.exp())
            raise RuntimeError("as wanted")

    def function(m, x):
        y = m.drop(m.norm(m.first(x)))
        try:
            m.act(y)
        except RuntimeError:
            # Part of the call that failed belongs to the graph.
            return m.second(y) + kept.pop()
        return m.second(y)

    kept = []
    model = Calls(function)
    model.act = Fails()
    plain = copy.deepcopy(model)
    for each in (model, plain):
        each.function = function
    with segmented(model, SIMPLE):
        torch.manual_seed(1)
        model(torch.ones(6, 8).cumsum(0)).sum().backward()
        kept.clear()
    torch.manual_seed(1)
    plain(torch.ones(6, 8).cumsum(0)).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
