"""Training whose steps are not as the first one was gets its plans all the same."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from offcert.runtime.follow.offload import Offload, OffloadWarning
from offcert.runtime.watch.operators import leave, sweep
from offcert.runtime.watch.tracker import LiveBytes
from offcert.training import offload

FAST = {"memory": "25%", "hardware": "v100-pcie", "time_limit": 0.5, "background": False}


def network() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1)) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(16, 4))


class Tasks(nn.Module):
    """One branch or the other, as an attribute says, a module variable, or a coin."""

    def __init__(self) -> None:
        super().__init__()
        self.task: str | None = "a"
        self.turn = 0
        self.a, self.b = network(), nn.Sequential(network(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        first = HIDDEN["task"] == "a" if self.task is None else self.task == "a"
        return self.a(x) if first else self.b(x)


HIDDEN = {"task": "a"}

Step = Callable[[nn.Module, int], None]


def descend(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def step(model: nn.Module, turn: int) -> None:
    model(torch.randn(32, 16)).square().mean().backward()
    descend(model)


def train(model: nn.Module, loop: Step, steps: int, plans: object = "auto") -> Offload:
    """Train plainly and under plans made on the way; all must be the same."""
    plain = copy.deepcopy(model)
    for turn in range(steps):
        torch.manual_seed(turn)
        loop(plain, turn)
    with offload(model, plans, **FAST if plans == "auto" else {}) as training:
        for turn in range(steps):
            torch.manual_seed(turn)
            loop(model, turn)
    same = map(torch.equal, model.state_dict().values(), plain.state_dict().values())
    assert all(same)
    return training


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return network()


def test_a_forward_pass_without_a_backward_pass_comes_first(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        if turn == 0:
            model(torch.randn(32, 16))
        step(model, turn)

    training = train(model, loop, 8)
    assert training.steps == {"studied": 2, "planned": 6}
    # The same plan, given.
    training = train(model, loop, 8, training.certificates)
    assert training.steps == {"unfinished": 1, "planned": 8}


def test_a_dry_run_with_other_inputs_comes_first(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        if turn == 0:
            model(torch.randn(8, 16))
        step(model, turn)

    assert train(model, loop, 6).steps == {"studied": 2, "planned": 4}


def test_losses_that_are_skipped_and_kept(model: nn.Module) -> None:
    kept = []

    def loop(model: nn.Module, turn: int) -> None:
        loss = model(torch.randn(32, 16)).square().mean()
        kept[:] = [loss]
        if turn % 5 != 0:
            loss.backward()
            descend(model)

    training = train(model, loop, 12)
    # The step after a loss that is kept has that one's bytes on the device as well.
    assert training.steps == {"studied": 2, "planned": 5, "deviating": 2, "unfinished": 2}


def test_a_call_that_never_has_a_backward_pass_is_a_part_of_the_step(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        teacher = model(torch.randn(32, 16)).detach()
        (model(torch.randn(32, 16)) - teacher).square().mean().backward()
        descend(model)

    training = train(model, loop, 6)
    assert training.steps == {"studied": 2, "planned": 4}
    assert len(training.step_plans[0].capture.calls) == 2


@pytest.mark.filterwarnings("ignore:a step did not follow its plan")
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("order", ["aaaaabbbbbbbbbbaaaaa", "abababababababababababab"])
def test_another_branch_is_another_kind_of_step(order: str, hidden: bool) -> None:
    torch.manual_seed(0)

    def loop(model: nn.Module, turn: int) -> None:
        HIDDEN["task"] = order[turn]
        if not hidden:
            model.task = order[turn]
        step(model, turn)

    model = Tasks()
    model.task = None if hidden else "a"
    training = train(model, loop, len(order))
    assert len(training.step_plans) == 2
    # Three that tell that there is another kind, and few that tell the kinds apart.
    assert training.steps["deviating"] <= 6
    assert training.steps["studied"] <= 4
    assert training.steps["planned"] >= len(order) - 8

    # Both plans, given: which one a step follows is learnt.
    model = Tasks()
    model.task = None if hidden else "a"
    training = train(model, loop, len(order), training.certificates)
    assert training.steps["deviating"] <= 3


@pytest.mark.filterwarnings("ignore:a step did not follow its plan")
def test_there_are_no_more_plans_than_asked_for() -> None:
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(5)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                if torch.rand(()) < 0.6:
                    x = layer(x)
            return x if x.requires_grad else self.layers[0](x)

    torch.manual_seed(0)
    training = train(Drops(), step, 25)
    assert 1 <= len(training.step_plans) <= 4
    # Eight at a time, as long as none has run all layers.
    assert training.steps["studied"] <= 16


class Words(nn.Module):
    """Whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rest = nn.Embedding(20, 16, sparse=True), network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.rest(self.words(x))
        return y


def test_sparse_gradients() -> None:
    def loop(model: nn.Module, turn: int) -> None:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randint(20, (32,))).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    torch.manual_seed(0)
    assert train(Words(), loop, 4).steps == {"studied": 1, "planned": 3}


def test_weights_that_are_results(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        weights = {name: 2.0 * each for name, each in model.named_parameters()}
        found = torch.func.functional_call(model, weights, (torch.randn(32, 16),))
        found.square().mean().backward()
        descend(model)

    training = train(model, loop, 4)
    assert training.steps["studied"] == 1


def test_transforms_beside_the_training(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            made = torch.func.functional_call(model, weights, (x[None],))
            return torch.as_tensor(made).square().mean()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0), randomness="different")
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        each(weights, torch.randn(3, 16))
        step(model, turn)

    with pytest.warns(OffloadWarning, match=r"within a transform of torch\.func"):
        training = train(model, loop, 4)
    assert training.steps == {"unplanned": 4, "studied": 1, "planned": 3}


def test_each_step_in_a_thread_of_its_own(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        thread = threading.Thread(target=step, args=(model, turn))
        thread.start()
        thread.join()

    assert train(model, loop, 5).steps == {"studied": 1, "planned": 4}


def test_a_backward_pass_in_another_thread_is_refused_by_name(model: nn.Module) -> None:
    def loop(model: nn.Module, turn: int) -> None:
        losses = []
        inputs = torch.randn(32, 16)
        thread = threading.Thread(
            target=lambda: losses.append(model(inputs).square().mean()),
        )
        thread.start()
        thread.join()
        losses[0].backward()
        descend(model)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        training = train(model, loop, 4)
    assert training.steps == {"studied": 1, "unplanned": 3}
    [reason] = [str(each.message) for each in told if "no plan can be made" in str(each.message)]
    assert "another thread" in reason
    assert all(each.category is OffloadWarning for each in told)


def test_a_mode_that_was_entered_in_another_thread_is_left_there() -> None:
    mode, turn = LiveBytes(), threading.Barrier(2)

    def work() -> None:
        mode.__enter__()
        turn.wait()
        turn.wait()
        sweep()
        assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        turn.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    turn.wait()
    leave(mode)
    turn.wait()
    turn.wait(timeout=10)
    thread.join()
