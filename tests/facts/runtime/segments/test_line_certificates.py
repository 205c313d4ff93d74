"""Lines from the profile to training: searched for, certified, carried out."""

import copy
from dataclasses import replace
from fractions import Fraction

from test_joint_networks import images

from offcert import certify
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.plan.place import carried_by
from offcert.runtime.profiling.profile import profile
from support.runtime.captured import _train, require_same, standard_loop


def test_a_certified_plan_with_lines_is_carried_out():
    step = images("resnet18", size=64, batch=4, wide=True)
    problem = replace(profile(step, hardware="v100-sxm2"), recompute=Recompute.ANY)
    problem = problem.with_memory(problem.memory_at(Fraction(3, 10)))
    certificate = certify(problem, time_limit=8, workers=1, target_gap=0.02)
    execution = certificate.result.execution
    assert execution is not None
    _, _, placed = carried_by(problem, execution)
    assert any(segment.line for segment in placed.nested())
    plain = copy.deepcopy(step.model)
    expected = list(_train(plain, step, standard_loop(step), 3, None, None))
    found = []
    with follow(step.model, certificate, options=FollowOptions(count=True)) as context:
        for state in _train(step.model, step, standard_loop(step), 3, None, None):
            found.append(state)
            report = context.report
            assert report.planned, report.deviation
            assert report.follows_prediction
            assert report.within_limit
            assert report.peak <= problem.platform.memory < problem.trace.peak_memory
    for theirs, ours in zip(expected, found, strict=True):
        require_same(theirs, ours)
