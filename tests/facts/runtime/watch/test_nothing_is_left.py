"""Contexts that nest, end in any order, by exceptions or in other threads, leave nothing behind."""

from __future__ import annotations

import random
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_state
from torch.optim import optimizer as optimizer_state
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.runtime.follow.offload import Offload, follow
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.segments.alone import segmented
from support.runtime.captured import evict_everything, mean_step
from support.runtime.joint_training import again, carried_by, problem_of

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
)
COMPILE = torch.compile


class Gate(nn.Module):
    """Lets a thread wait inside of it, or raises."""

    def __init__(self) -> None:
        super().__init__()
        self.raises: type[BaseException] | None = None
        self.inside: threading.Event | None = None
        self.goes_on: threading.Event | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inside is not None and self.goes_on is not None:
            self.inside.set()
            assert self.goes_on.wait(30)
        if self.raises is not None:
            raise self.raises
        return x.tanh()


def network() -> nn.Sequential:
    """Return two blocks and what is around them."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), Gate()) for _ in range(2)]
    return nn.Sequential(nn.Linear(8, 8), *blocks, nn.Linear(8, 8))


def everything_leaves(module: nn.Module) -> tuple[Any, Any]:
    """Return a plan for a step of a module, and its problem."""
    problem, _ = problem_of(mean_step(module, 4, 8))
    return evict_everything(problem), problem


def blocks_run_again(model: nn.Module) -> StepPlan:
    """Return a plan under which a block runs again, and all that may leave leaves."""
    problem, captured = problem_of(mean_step(model, 4, 8))
    carried = carried_by(captured, again("1"))
    plan = evict_everything(problem.executed(carried.execution))
    return step_plan(problem, plan, carried.execution)


@pytest.fixture(scope="module")
def plans() -> dict[str, Any]:
    model = network()
    return {
        "whole": everything_leaves(model),
        "part": everything_leaves(model[1]),
        "again": blocks_run_again(model),
    }


def context(plans: dict[str, Any], kind: str, model: nn.Sequential) -> Any:
    if kind == "segments":
        return segmented(model, again("2"))
    if kind == "again":
        return Offload(model, [plans[kind]])
    return follow(model[1] if kind == "part" else model, *plans[kind])


def of_the_thread() -> None:
    """Assert that nothing is left in the calling thread."""
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert _get_current_dispatch_mode_stack() == []
    assert _get_current_function_mode_stack() == []
    assert torch._C._len_torch_dispatch_stack() == 0
    torch.func.grad(lambda a: (a * a).sum())(torch.ones(3))


def of_the_model(model: nn.Module, before: list[set[str]]) -> None:
    """Assert that nothing is left on a model, on the classes of its modules, and in the process."""
    assert [set(vars(each)) for each in model.modules()] == before
    for each in model.modules():
        assert [name for name in HOOKS if getattr(each, name)] == []
        assert "_call_impl" not in vars(type(each)) or type(each) is nn.Module
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
    for parameter in model.parameters():
        assert not parameter._backward_hooks
        assert not parameter._post_accumulate_grad_hooks
    assert not module_state._has_any_global_hook()
    assert not optimizer_state._global_optimizer_post_hooks
    assert torch.compile is COMPILE


def train(model: nn.Module, raises: type[BaseException] | None = None) -> None:
    """Train for a step, in which a module may raise."""
    gates = [each for each in model.modules() if isinstance(each, Gate)]
    gates[-1].raises = raises
    try:
        model(torch.randn(4, 8)).mean().backward()
    except (ArithmeticError, KeyboardInterrupt):
        pass
    finally:
        gates[-1].raises = None


def in_a_thread(model: nn.Module, raises: type[BaseException] | None, found: list[Any]) -> None:
    def run() -> None:
        try:
            train(model, raises)
            of_the_thread()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@pytest.mark.parametrize("seed", range(4))
def test_contexts_in_any_order_leave_nothing_behind(plans, seed):
    chance, model, found = random.Random(seed), network(), []
    before = [set(vars(each)) for each in model.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(25):
            open_ones: list[Any] = []
            for _ in range(chance.randint(2, 8)):
                does = chance.choice(["enter", "enter", "train", "raise", "thread", "end"])
                if does == "enter" and len(open_ones) < 4:
                    made = context(plans, chance.choice([*plans, "segments"]), model)
                    made.__enter__()
                    open_ones.append(made)
                elif does == "end" and open_ones:
                    open_ones.pop(chance.randrange(len(open_ones))).__exit__(None, None, None)
                elif does == "thread":
                    in_a_thread(model, chance.choice([None, ArithmeticError]), found)
                else:
                    errors = [ArithmeticError, KeyboardInterrupt]
                    train(model, chance.choice(errors) if does == "raise" else None)
            chance.shuffle(open_ones)
            while open_ones:
                failing = chance.choice([None, ArithmeticError])
                error = None if failing is None else failing()
                open_ones.pop().__exit__(failing, error, None)
            of_the_thread()
            of_the_model(model, before)
    assert found == []


@pytest.mark.parametrize("kind", ["whole", "part", "again"])
def test_a_context_that_ends_while_another_thread_is_inside_of_the_model(plans, kind):
    model, found = network(), []
    before = [set(vars(each)) for each in model.modules()]
    gate = model[1][3]
    assert isinstance(gate, Gate)

    def run() -> None:
        try:
            model(torch.randn(4, 8)).mean().backward()
            of_the_thread()
        except BaseException as error:
            found.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with context(plans, kind, model):
            gate.inside, gate.goes_on = threading.Event(), threading.Event()
            thread = threading.Thread(target=run)
            thread.start()
            assert gate.inside.wait(30)
        gate.goes_on.set()
        thread.join()
        gate.inside = gate.goes_on = None
    assert found == []
    of_the_thread()
    of_the_model(model, before)
