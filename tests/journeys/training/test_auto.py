"""Plans made on the way: training is bitwise plain training from the first step on."""

from __future__ import annotations

import copy
import re
import warnings
from contextlib import suppress
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.streaming.step_events import forecast
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.watch.tracker import LiveBytes
from offcert.training import offload

FAST = {"hardware": "v100-pcie", "time_limit": 0.5, "background": False}


def network() -> nn.Module:
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        for _ in range(4)
    ]
    return nn.Sequential(*blocks, nn.Linear(32, 4)).train()


class Pair:
    """Two copies of a network, trained side by side: the first one plainly."""

    def __init__(self) -> None:
        self.plain = network()
        self.planned = copy.deepcopy(self.plain)
        self.optimisers = [
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for model in (self.plain, self.planned)
        ]

    def step(self, rows: int = 64) -> None:
        inputs, labels = torch.randn(rows, 32), torch.randint(4, (rows,))
        state = torch.get_rng_state()
        for model, optimiser in zip((self.plain, self.planned), self.optimisers, strict=True):
            torch.set_rng_state(state)
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            optimiser.zero_grad()
        assert self.same()

    def steps(self, *rows: int) -> None:
        for each in rows:
            self.step(each)

    def same(self) -> bool:
        theirs = self.planned.state_dict()
        return all(
            torch.equal(value, theirs[name]) for name, value in self.plain.state_dict().items()
        )


def test_plans_made_on_the_way_are_carried_out_by_the_streams_of_a_device(pair: Pair) -> None:
    platform = Platform(0, Fraction(61, 5))
    device = SimulatedDevice(platform, strict=True)
    asked = {"memory": "25%", "recompute": "none", **FAST}
    with offload(pair.planned, "auto", device=device, timed=True, **asked) as training:
        pair.steps(64, 64, 64)
        assert training.report.planned
        assert training.report.offloaded_bytes > 0
        [program] = training.step_plans
        # Its link has the rate of the hardware model, so all times are as forecast.
        assert training.times == forecast(program.problem, program.timetable)
    assert device.races == []
    assert device.pinned_bytes == 0


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_one_step_is_studied_and_the_others_follow_a_plan(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", count=True, **FAST) as training:
        for _ in range(4):
            pair.step()
        assert training.report.planned
        assert training.report.follows_prediction
        assert training.report.within_limit
        assert training.report.offloaded_bytes > 0
        assert repr(training) == (
            "<Offload of Sequential: 1 plan; steps: 1 studied, 3 planned; entered>"
        )
        assert str(training.report).startswith("step        planned\nmemory ")
    assert repr(training).endswith("not entered>")
    assert training.steps == {"studied": 1, "planned": 3}
    (certificate,) = training.certificates
    assert certificate.problem.source is not None
    assert certificate.problem.source["capture"]["tensors"] == "real"
    assert not certificate.problem.source["measured"]


def test_times_are_measured_where_no_hardware_is_named(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", time_limit=1.0, background=False) as training:
        for _ in range(6):
            pair.step()
    # Times are those of steps that follow a makeshift.
    assert training.steps == {"studied": 1, "planned": 5}
    problem = training.certificates[0].problem
    assert problem.source is not None
    assert problem.source["measured"]
    assert all(operation.duration > 0 for operation in problem.trace.operations)


def test_with_an_example_even_the_first_step_follows_a_plan(pair: Pair) -> None:
    example = TrainingStep(
        pair.planned,
        lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        lambda: (torch.randn(64, 32), torch.randint(4, (64,))),
    )
    with offload(pair.planned, "auto", memory="25%", example=example, **FAST) as training:
        pair.step()
        pair.step()
    assert training.steps == {"planned": 2}


def test_every_kind_of_step_gets_a_plan_up_to_a_number(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", max_plans=2, **FAST) as training:
        pair.steps(20, 64)
        pair.planned.eval()
        with pytest.warns(OffloadWarning, match="no plan for this step"):
            pair.planned(torch.randn(64, 32)).square().mean().backward()
        pair.planned.zero_grad()
        pair.planned.train()
        pair.steps(20, 64)
    assert training.steps == {"studied": 2, "planned": 2, "unplanned": 1}


def test_smaller_steps_follow_the_plan_of_the_largest(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", count=True, max_plans=2, **FAST) as training:
        for rows in (20, 19, 16, 24, 20, 7, 64, 33, 64, 30, 2):
            pair.step(rows)
            assert training.report.within_limit
    # 24 takes the place of 20, and 64, more than twice as large, gets a plan of its own.
    assert training.steps == {"studied": 3, "planned": 8}
    assert [each.capture.calls[0][0][0][1] for each in training.step_plans] == [[24, 32], [64, 32]]


def test_the_device_budget_leaves_room_for_parameters_and_optimiser(pair: Pair) -> None:
    budget = 10**6
    with offload(
        pair.planned, "auto", device_memory=budget, optimiser=pair.optimisers[1], **FAST
    ) as training:
        for _ in range(2):
            pair.step()
    problem = training.certificates[0].problem
    parameters = sum(p.numel() * 4 for p in pair.planned.parameters())
    buffers = sum(b.numel() * b.element_size() for b in pair.planned.buffers())
    # Gradients and momentum take as much as the parameters each; the batch has 64 rows. Of buffers
    # there are copies where modules run again: as they were, and to be changed again.
    assert problem.platform.memory == budget - 3 * parameters - 3 * buffers - 64 * 32 * 4


def test_a_budget_that_nothing_fits_into_is_said_and_training_goes_on(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="10B", **FAST) as training:
        pair.step()
        with pytest.warns(OffloadWarning, match="no plan fits"):
            pair.step()
        pair.step()
    assert training.certificates[0].result.status is SolveStatus.INFEASIBLE
    assert training.steps["planned"] == 0


def told(given: dict[str, object], rows: int = 2) -> tuple[str, list[str]]:
    """Return what is said of a budget, and then how the steps were after all warnings."""
    pair = Pair()
    optimiser = pair.optimisers[1] if "device_memory" in given else None
    with (
        pytest.warns(OffloadWarning) as found,
        offload(pair.planned, "auto", optimiser=optimiser, time_limit=1.0, **given) as training,
    ):
        pair.steps(*rows * [64])
    (message,) = {str(each.message) for each in found}
    return message, [str(training.report.deviation), *training.steps]


@pytest.mark.parametrize("given", [{"memory": 20000}, {"device_memory": 90000}])
@pytest.mark.parametrize("times", [{}, {"hardware": "v100-pcie"}])
def test_an_impossible_budget_is_told_with_operation_bytes_and_the_least_that_works(
    given: dict[str, int], times: dict[str, str]
) -> None:
    message, known = told({**given, **times})
    # No step is timed before it is said; and what is said once is the reason of every step.
    assert known == [
        message.removesuffix("; training goes on with the tensors on the device"),
        "studied",
        "unplanned",
    ]
    assert re.match(r"no plan fits: \S+ .*needs \S+ KiB even when all else has left, ", message)
    assert "Infeasibility(" not in message
    (budget,) = given
    least = re.search(rf"a plan certainly exists is {budget}=([0-9]+) \(.* KiB\)", message)
    assert least is not None
    pair = Pair()
    asked = {budget: int(least[1]), **FAST}
    with (
        warnings.catch_warnings(action="error"),
        offload(pair.planned, "auto", optimiser=pair.optimisers[1], count=True, **asked) as made,
    ):
        pair.steps(64, 64, 64)
        assert made.report.planned
        assert made.report.within_limit


def test_an_impossible_budget_is_told_before_the_training_where_there_is_an_example(
    pair: Pair,
) -> None:
    example = TrainingStep(
        pair.planned, lambda model, batch: model(batch).mean(), torch.zeros(64, 32)
    )
    with pytest.warns(OffloadWarning, match="no plan fits: .* needs .* a plan certainly exists is"):
        training = offload(pair.planned, "auto", memory="10B", example=example, strict=True, **FAST)
    with training, pytest.raises(PlanError, match=r"^no plan fits: .* needs .* even when all else"):
        pair.planned(torch.zeros(64, 32))


def test_a_device_without_room_for_the_model_alone_is_refused_before_the_training() -> None:
    model = network()
    parameters = sum(4 * each.numel() for each in model.parameters())
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    least = 3 * parameters + buffers
    with pytest.raises(InputError, match=f"device memory must be at least {least} bytes, not"):
        offload(model, "auto", device_memory=least - 1, optimiser=momentum)
    offload(model, "auto", device_memory=least, optimiser=momentum)
    with pytest.raises(InputError, match="the optimiser's state, whose size is not known"):
        offload(model, "auto", device_memory=10**9)


class Passing(TorchDispatchMode):
    """A mode of the user's own."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_stay_in_their_order(pair: Pair) -> None:
    outer, inner = Passing(), Passing()
    with outer, offload(pair.planned, "auto", memory="25%", **FAST) as training:
        pair.step()
        # Our recording still watches; this one is entered after it and left after it.
        with inner:
            pair.step()
            # The makeshift's first steps are counted: below what it was entered after.
            counter, *others = _get_current_dispatch_mode_stack()
            assert isinstance(counter, LiveBytes)
            assert others == [outer, inner]
            for _ in range(2):
                pair.step()
            assert _get_current_dispatch_mode_stack() == [outer, inner]
        assert _get_current_dispatch_mode_stack() == [outer]
    assert not _get_current_dispatch_mode_stack()
    assert training.steps == {"studied": 1, "planned": 3}


def test_nothing_stays_when_a_step_fails_while_it_is_studied(pair: Pair) -> None:
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in pair.planned.modules()]
    with suppress(ZeroDivisionError), offload(pair.planned, "auto", memory="25%", **FAST):
        pair.planned(torch.randn(8, 32))
        raise ZeroDivisionError
    assert not _get_current_dispatch_mode_stack()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert hooks == [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in pair.planned.modules()
    ]


def test_evaluation_between_steps_is_no_step(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", **FAST) as training:
        pair.step()
        pair.planned.eval()
        with torch.no_grad():
            pair.planned(torch.randn(8, 32))
        pair.planned.train()
        pair.step()
    assert training.steps == {"studied": 1, "planned": 1}


def test_strict_training_does_not_object_to_being_studied(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", strict=True, max_plans=1, **FAST):
        pair.step()
        pair.step()
        pair.planned.eval()
        with pytest.raises(PlanError, match="no plan for this step"):
            pair.planned(torch.randn(48, 32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"plan": "best", "memory": 1}, "or the path of a certificate's file, not 'best'"),
        ({"plan": "auto"}, "exactly one of memory and device_memory"),
        ({"plan": "auto", "memory": 1, "device_memory": 1}, "exactly one of memory"),
        ({"plan": "auto", "memory": 6}, 'memory 6 needs a unit: "6GiB", "6MB" or bytes, "6B"'),
        ({"plan": "auto", "memory": -1}, 'memory must be bytes, or a text such as "6GiB", not -1'),
        (
            {"plan": "auto", "memory": 1.5},
            'memory must be bytes, or a text such as "6GiB", not 1.5',
        ),
        ({"plan": "auto", "memory": "25"}, 'memory "25" needs a unit'),
        ({"plan": "auto", "memory": "200%"}, 'memory must be at most 100%, .*, not "200%"'),
        ({"plan": "auto", "device_memory": "6"}, 'device_memory "6" needs a unit'),
        ({"plan": "auto", "memory": "1B", "time_limit": 0}, "time_limit must be a positive number"),
        (
            {"plan": "auto", "memory": "1B", "time_limit": "5"},
            "time_limit must be a number, not '5'",
        ),
        ({"plan": "auto", "memory": "1B", "max_plans": "two"}, "max_plans must be an integer"),
        ({"plan": "auto", "memory": "1B", "max_plans": 0}, "max_plans must be at least 1"),
        (
            {"plan": "auto", "memory": "1B", "hardware": "abacus"},
            'hardware must be one of .*, not "abacus"',
        ),
    ],
)
def test_bad_input_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        offload(network(), **given)  # type: ignore[arg-type]


def test_budgets_are_for_plans_that_are_made(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", **FAST) as training:
        pair.step()
        pair.step()
    with pytest.raises(InputError, match='memory can only be given with plan="auto"'):
        offload(pair.planned, training.certificates[0], memory=5)


def test_certificates_made_on_the_way_can_be_followed_again(pair: Pair) -> None:
    with offload(pair.planned, "auto", memory="25%", **FAST) as training:
        pair.step()
        pair.step()
    with (
        warnings.catch_warnings(action="error"),
        offload(pair.planned, training.certificates) as again,
    ):
        pair.step()
    assert again.steps == {"planned": 1}


def test_training_goes_on_where_a_plan_cannot_be_carried_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(*_: object, **__: object) -> None:
        raise PlanError("its transfers wait for each other")

    monkeypatch.setattr("offcert.training.making.step_plan", stuck)
    with offload(pair.planned, "auto", memory="25%", **FAST) as training:
        with pytest.warns(OffloadWarning, match="wait for each other"):
            pair.steps(64, 64)
        assert training.step_plans == []
