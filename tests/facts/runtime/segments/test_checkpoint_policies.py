"""Certificates that only recompute, carried out by PyTorch's selective checkpointing alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from offcert.core.carried.ranges import RANGES
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.plan.policies import checkpoint_policies, for_policies
from offcert.runtime.watch.guard import OffloadWarning, RecomputeError
from offcert.runtime.watch.tracker import LiveBytes
from support.runtime.joint_training import again, carried_by, line, problem_of, segment

pytestmark = pytest.mark.slow


def layers(*after: type[nn.Module], count: int = 6) -> nn.Sequential:
    return nn.Sequential(
        *(m for _ in range(count) for m in (nn.Linear(64, 64), *(a() for a in after)))
    )


def inside(*kept: str, first: str = "2", last: str = "9") -> Any:
    return again(segment("", *kept, children=(first, last)))


def step_of(model: nn.Module) -> TrainingStep:
    return TrainingStep(model, mean_square, torch.randn(32, 64))


def mean_square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


def certificate_of(step: TrainingStep, placed: Any, *, room: int = 10**9) -> Any:
    """Return what a certificate holds of a program: its problem, execution and schedule."""
    problem, captured = problem_of(step)
    problem = problem.with_memory(room)
    execution = carried_by(captured, placed).execution
    executed = problem.executed(execution)
    schedule = simulate(executed, Plan())
    result = SimpleNamespace(schedule=schedule, execution=execution, memory=None, status="FEASIBLE")
    return SimpleNamespace(problem=problem, result=result)


def trained(step: TrainingStep, model: nn.Module) -> tuple[list[torch.Tensor], int]:
    """Return loss and gradients of a step, and the most bytes it had alive."""
    torch.manual_seed(3)
    tracker = LiveBytes()
    parameters = list(model.parameters())
    hooks = [
        each.register_post_accumulate_grad_hook(lambda p: tracker.exclude([p.grad]))
        for each in parameters
    ]
    with tracker:
        tracker.start()
        loss = step.run(model, step.batch)
        loss.backward()
    for hook in hooks:
        hook.remove()
    return [loss.detach(), *(p.grad.clone() for p in parameters)], tracker.most


def follow(step: TrainingStep, policies: Any) -> tuple[bool, int]:
    """Return whether all numbers are those of plain training, and the most bytes alive."""
    expected, _ = trained(step, copy.deepcopy(step.model))
    model = copy.deepcopy(step.model)
    with policies.applied(model):
        found, most = trained(step, model)
    assert "forward" not in model.__dict__
    return all(map(torch.equal, found, expected)), most


@pytest.mark.parametrize(
    ("model", "placed"),
    [
        (layers(nn.Tanh), inside()),
        (layers(nn.Tanh), inside("3", "7")),
        # The result of 2 is read by 3 alone, which is kept: PyTorch holds it all the same.
        (layers(nn.Tanh), inside("2", "3", "7")),
        (
            layers(nn.Tanh),
            again(segment("", children=("2", "5")), segment("", "8", children=("6", "9"))),
        ),
        (layers(nn.Tanh, nn.Dropout), inside(last="11")),
        (layers(nn.Tanh, nn.Dropout), inside("4", "7", last="11")),
        # Dropout on a CPU changes its mask in place before it is used.
        (layers(nn.Tanh, nn.Dropout), inside("5", "8", "11", last="11")),
        (nn.Sequential(layers(nn.Tanh), nn.Linear(64, 64), layers(nn.Tanh)), again("0", "2")),
        (
            nn.Sequential(layers(nn.Tanh), layers(nn.Tanh)),
            again(segment("0", "0.3", inner=[segment("0", children=("6", "9"))]), "1.0"),
        ),
    ],
)
def test_pytorch_alone_does_as_predicted_bit_by_bit(model, placed):
    torch.manual_seed(1)
    step = step_of(model)
    policies = checkpoint_policies(certificate_of(step, placed))
    same, most = follow(step, policies)
    assert same
    # Random numbers are counted with the state of their generator.
    random = any(isinstance(each, nn.Dropout) for each in model.modules())
    assert most == policies.peak or (random and policies.peak - 300 < most < policies.peak)
    assert not policies.changes


def test_what_nobody_reads_runs_again_where_there_is_no_room_to_hold_it():
    step = step_of(layers(nn.Tanh))
    placed = inside("2", "3", "4", "5")
    ample = checkpoint_policies(certificate_of(step, placed))
    least = certificate_of(step, placed).result.execution.trace.peak_memory
    assert least < ample.peak
    tight = checkpoint_policies(certificate_of(step, placed, room=least))
    same, most = follow(step, tight)
    assert same
    assert most == tight.peak <= least
    assert "computations run again whose results nobody reads (F:" in str(tight)


class Twice(nn.Module):
    """A norm that is called twice, and calls in a line."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
        self.out = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.out(self.norm(x)).sin()
        return x + self.down(self.up(self.norm(x)))


def test_calls_in_a_line_are_checkpoints_one_by_one():
    step = step_of(nn.Sequential(Twice(), nn.Tanh()))
    placed = again(line(("0.norm", 1), "0.up", "0.down"))
    policies = checkpoint_policies(certificate_of(step, placed))
    assert [each.path for each in policies.regions] == ["0.up", "0.down"]
    assert "call 2 of 0.norm: does not run again by itself" in policies.changes
    assert follow(step, policies) == (True, policies.peak)
    certificate = certificate_of(step, placed)
    certificate.problem = certificate.problem.with_memory(policies.peak - 1)
    with pytest.raises(
        InputError, match=r"call 2 of 0\.norm to 0\.down: each call is a checkpoint"
    ):
        checkpoint_policies(certificate)


def test_a_problem_for_policies_has_what_they_can_say():
    problem, captured = problem_of(step_of(nn.Sequential(Twice(), nn.Tanh())))
    found = for_policies(problem)
    assert not found.offload
    ranges = RANGES.read_in(Fields(found.source["capture"]), "ranges")
    assert captured.ranges.lines
    assert not ranges.lines
    assert {each.path for each in ranges.calls} >= {"0", "0.up"}
    assert "0.norm" not in {each.path for each in ranges.calls}
    with pytest.raises(InputError, match="profile the model"):
        for_policies(replace(problem, source=None))


def test_tensors_that_move_are_refused_by_name():
    certificate = certificate_of(step_of(layers(nn.Tanh)), again())
    with pytest.raises(InputError, match="nothing runs again"):
        checkpoint_policies(certificate)
    result = certificate.result
    transfers = [Transfer(Kind.OFFLOAD, 0, 0, 1)]
    result.schedule = Schedule(result.schedule.starts, result.schedule.ends, transfers)
    with pytest.raises(InputError, match=r"moves tensors \(.* first\), which no policy can say"):
        checkpoint_policies(certificate)


def test_statistics_that_would_count_twice_are_refused_before_the_step():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 64))
    policies = checkpoint_policies(certificate_of(step_of(model), inside(first="0", last="2")))
    with (
        pytest.raises(InputError, match="1 would count its statistics twice"),
        policies.applied(model),
    ):
        pass


class Counting(nn.Linear):
    """A layer that counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__(64, 64)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


def test_what_else_would_change_twice_is_refused_in_the_first_forward_pass():
    step = step_of(nn.Sequential(Counting(), nn.Tanh(), nn.Linear(64, 64)))
    policies = checkpoint_policies(certificate_of(step, inside(first="0", last="1")))
    with pytest.raises(InputError, match=r"aten\.add_\S* changes what was there before"):
        follow(step, policies)


def test_random_numbers_after_kept_ones_are_refused():
    step = step_of(layers(nn.Tanh, nn.Dropout))
    policies = checkpoint_policies(certificate_of(step, inside("5", last="11")))
    with pytest.raises(InputError, match=r"keeps what aten\.bernoulli_\S* draws"):
        follow(step, policies)


def test_a_change_after_the_call_is_seen_before_gradients_are_wrong():
    step = step_of(layers(nn.Tanh))
    policies = checkpoint_policies(certificate_of(step, inside("3", "9")))
    model = copy.deepcopy(step.model)
    model[10].register_forward_pre_hook(lambda module, args: (args[0].add_(1),))
    with policies.applied(model), pytest.raises(RecomputeError, match="changed in place"):
        step.run(model, step.batch).backward()


def test_another_step_is_said_and_trained_right():
    step = step_of(layers(nn.Tanh))
    policies = checkpoint_policies(certificate_of(step, inside("3", "5", "7")))
    model = copy.deepcopy(step.model)
    model[3] = nn.Sequential(nn.Tanh(), nn.Sigmoid())
    other = TrainingStep(model, mean_square, step.batch)
    with pytest.warns(
        OffloadWarning, match="does not compute as captured: operator 8 of 8 is aten.tanh"
    ):
        assert follow(other, policies)[0]


def test_earlier_versions_ask_again_and_hear_the_same():
    step = step_of(layers(nn.Tanh))
    [region] = checkpoint_policies(certificate_of(step, inside("3"))).regions
    policy, x = region.policy_fn(), torch.ones(2, 2)
    first = SimpleNamespace(is_recompute=False)
    asked = [torch.ops.aten.addmm.default, torch.ops.aten.tanh.default]
    told = []
    for op in asked:
        first.op_output = torch.ones(2, 2)
        told.append(policy(first, op, x))
    later = SimpleNamespace(is_recompute=True)
    assert [policy(later, op, x) for op in asked] == told
    assert [each.name for each in told] == ["MUST_RECOMPUTE", "MUST_SAVE"]


def test_compiled_regions_are_refused():
    step = step_of(layers(nn.Tanh))
    policies = checkpoint_policies(certificate_of(step, inside("3")))
    with policies.applied(step.model), pytest.raises(Exception, match="is compiled, and a policy"):
        torch.compile(step.model, backend="aot_eager")(step.batch)
