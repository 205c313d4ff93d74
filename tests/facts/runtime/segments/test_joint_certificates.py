"""Certificates that hold executions, followed by `follow`."""

import copy
from dataclasses import replace
from fractions import Fraction

import pytest
from test_joint_networks import GPT, tokens

from offcert.core.errors import InputError, PlanError
from offcert.core.result import SolveStatus
from offcert.heuristics.evictions.rules import sequential
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.carried import translated
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.place import program_of
from offcert.runtime.plan.predict import predict
from support.runtime.captured import seeded
from support.runtime.joint_training import carried_by, problem_of


@pytest.fixture(scope="module")
def case():
    step = tokens(dropout=0.3)
    problem, captured = problem_of(step)
    return step, problem, captured


def certified(problem, execution, limit=None):
    """Return a certificate as a search would make it, without bounds."""
    executed = problem if execution is None else problem.executed(execution)
    limit = limit or executed.memory_at(Fraction(1, 2))
    problem, executed = problem.with_memory(limit), executed.with_memory(limit)
    schedule = simulate(executed, sequential(executed))
    return Certificate(
        problem, Result(SolveStatus.FEASIBLE, schedule, (), execution=execution), "test"
    )


def trained(step, certificate):
    model = copy.deepcopy(step.model)
    with seeded(1), follow(model, certificate, options=FollowOptions(count=True)) as context:
        step.run(model, step.make_batch()).backward()
    return context


def test_an_execution_is_carried_out(case):
    step, problem, captured = case
    execution = carried_by(captured, GPT["products stay"]).execution
    context = trained(step, certified(problem, execution))
    assert context.report.follows_prediction
    assert context.report.within_limit
    assert context.report.offloaded_bytes > 0


def test_what_the_strategy_alone_says_is_followed_as_far_as_it_can_be(case):
    step, problem, captured = case
    program = program_of(GPT["products stay"], captured.ranges, captured.ticks)
    strategy = program.strategy(captured.network).without_unread(captured.network)
    execution = replace(strategy.expand(captured.network), program=program.to_json())
    certificate = certified(problem, execution)
    real = carried_by(captured, GPT["products stay"]).execution
    plan = translated(certificate.result.schedule.plan(execution.trace), execution, real)
    moved = {real.trace.gaps[move.gap].tensor for move in plan.moves}
    # A little more stays than the strategy says.
    peak = predict(real.trace, plan).peak
    limit = certificate.problem.platform.memory
    assert limit < peak < problem.peak_memory
    with pytest.raises(PlanError, match="more than the limit"):
        follow(step.model, certificate)
    roomy = replace(certificate, problem=certificate.problem.with_memory(peak))
    context = trained(step, roomy)
    assert context.report.follows_prediction
    assert context.report.offloaded_bytes == sum(real.trace.tensors[t].size for t in moved) > 0


def test_executions_that_no_program_makes(case):
    step, problem, captured = case
    execution = carried_by(captured, GPT["blocks"]).execution
    for wrong, message in (
        (replace(execution, program=None), "holds no program"),
        (replace(execution, program={"segments": []}), "is not what its program makes"),
    ):
        with pytest.raises(InputError, match=message):
            follow(step.model, certified(problem, wrong))
