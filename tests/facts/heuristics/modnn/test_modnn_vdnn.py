"""vDNN on task graphs: its waiting by hand, and that its schedules hold."""

from fractions import Fraction

import pytest

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.modnn.vdnn_tasks import best_vdnn, vdnn_least, vdnn_tasks
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.problem import Round
from offcert_lab.modnn.networks import modnn_network
from offcert_lab.modnn.tasks import step_round
from papers.sub_batch import vdnn_plus

# Two convolutions and a linear layer, their gradients, and what they read; each task takes 10.
NAMES = ("FP a", "FP b", "FP c", "BP1 c", "BP2 c", "BP1 b", "BP2 b", "BP1 a", "BP2 a")
TENSORS = (
    Tensor("X", 30, (0, 8)),
    Tensor("Y a", 6, (0, 1, 6, 7)),
    Tensor("Y b", 6, (1, 2, 4, 5)),
    Tensor("Y c", 1, (2, 3)),
    Tensor("delta c", 1, (3, 4, 5)),
    Tensor("delta b", 6, (5, 6, 7)),
    Tensor("delta a", 6, (7, 8)),
)


def three_layers(memory: int) -> Problem:
    trace = Trace([Operation(name, 10) for name in NAMES], TENSORS)
    return Problem("t", trace, Platform(memory, Fraction(1)))


def test_each_transfer_is_overlapped_with_one_task() -> None:
    found = vdnn_tasks(three_layers(60))
    # Y a leaves during FP b, Y b during FP c; X was made by FP a, so nobody has read it there.
    # Y b comes back for BP2 c during BP1 c. Y a, for BP2 b, is not sent for before BP1 b: the
    # search for what is lacking ends at a convolution.
    assert [(str(t.kind), t.start, t.end) for t in found.schedule.transfers] == [
        *(("offload", 10, 16), ("offload", 20, 26), ("prefetch", 30, 36), ("prefetch", 50, 56))
    ]
    assert found.schedule.starts == (0, 10, 20, 30, 40, 50, 60, 70, 80)
    assert check(three_layers(60), found.schedule) == []


def test_a_transfer_longer_than_its_task_delays_the_next() -> None:
    slow = Problem("t", three_layers(0).trace, Platform(60, Fraction(1, 4)))
    found = vdnn_tasks(slow)
    # Y a takes 24 ticks to leave while FP b takes 10: FP c begins at 34, not at 20.
    # Y b takes as long, so BP1 c begins at 58, and Y b returns from then to 82.
    assert found.schedule.starts[:5] == (0, 10, 34, 58, 82)
    assert check(slow, found.schedule) == []
    assert vdnn_tasks(slow, policy="none").schedule.makespan == 90


def test_what_is_refused() -> None:
    with pytest.raises(MethodError, match="the policy of vDNN must be"):
        vdnn_tasks(three_layers(60), policy="some")
    with pytest.raises(MethodError, match="needs a task graph"):
        vdnn_tasks(Problem("t", Trace([Operation("a", 1)], []), Platform(1, Fraction(1))))
    least = vdnn_least(three_layers(0).trace)
    assert check(three_layers(least), vdnn_tasks(three_layers(least)).schedule) == []
    with pytest.raises(NoPlanError, match="vDNN lacks 1 bytes"):
        vdnn_tasks(three_layers(least - 1))
    with pytest.raises(NoPlanError, match="no policy of vDNN"):
        best_vdnn(three_layers(30))


@pytest.mark.parametrize("name", ["vgg16", "resnet34"])
def test_policies_hold_on_networks(name: str) -> None:
    layers = modnn_network(name, 64)
    found = step_round(layers, 8)
    peak = found.chosen(found.menu.fastest()).peak_memory
    for part in (60, 75, 100):
        problem = Problem(name, found.trace, Platform(peak * part // 100, Fraction(12)))
        for policy in ("none", "all", "conv"):
            try:
                made = vdnn_tasks(problem, found.menu, policy)
            except NoPlanError:
                continue
            chosen = Problem(name, made.trace, problem.platform)
            assert check(chosen, made.schedule) == []
            assert made.policy == policy
    assert part == 100
    assert made.schedule.makespan >= best_vdnn(problem, found.menu).schedule.makespan


def test_vdnn_plus_takes_smaller_sub_batches_until_they_fit() -> None:
    layers = modnn_network("vgg16", 64)
    one = step_round(layers, 1)
    memory = one.chosen(one.menu.leanest()).peak_memory
    assert one.chosen(one.menu.leanest()).least_memory < memory

    def problem(found: Round) -> Problem:
        return Problem("vgg", found.trace, Platform(memory, Fraction(12)))

    size, found = vdnn_plus(lambda images: step_round(layers, images), 32, problem)
    assert size == 1
    assert check(Problem("vgg", found.trace, problem(one).platform), found.schedule) == []
    with pytest.raises(NoPlanError):
        vdnn_plus(
            lambda images: step_round(layers, images),
            32,
            lambda made: Problem("vgg", made.trace, Platform(memory // 2, Fraction(12))),
        )
