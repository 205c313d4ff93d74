"""Small networks, plans for them, and training them compiled, with and without a plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn
from torch._dynamo.backends.debugging import boxed_nop as as_it_is

from offcert.core.computations import Run
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.backend import Backend, backend
from offcert.runtime.compiled.graph_plan import graph_plan
from offcert.runtime.plan.predict import predict
from offcert.runtime.profiling.profile import profile
from offcert.runtime.watch.operators import pure
from support.runtime.captured import evict_everything


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1)
        self.b = nn.BatchNorm2d(width)
        self.c = nn.ReLU(inplace=True)
        self.d = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.d(self.c(self.b(self.a(x)))))


class Block(nn.Module):
    """Attention written out, so that views, splits and a softmax are saved."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)
        weights = (q @ k.transpose(-2, -1)).masked_fill(mask, float("-inf")).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.feed(self.between(x))


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )


def _cnn() -> nn.Module:
    def part(fan: int) -> list[nn.Module]:
        return [nn.Conv2d(fan, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]

    return nn.Sequential(*part(3), nn.MaxPool2d(2), *part(4), nn.Flatten(), nn.Linear(64, 4))


def _dropout() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )


# How often the operator below has run in a process: state that PyTorch knows nothing of.
RUNS = [0]


@torch.library.custom_op("offcert_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor times one more at each call."""
    RUNS[0] += 1
    return x * RUNS[0]


counted.register_fake(torch.empty_like)
counted.register_autograd(lambda context, gradient: gradient)


@torch.library.custom_op("offcert_tests::declared", mutates_args=())
def declared(x: torch.Tensor) -> torch.Tensor:
    """Return twice a tensor."""
    return 2 * x


declared.register_fake(torch.empty_like)
declared.register_autograd(lambda context, gradient: 2 * gradient)
pure("offcert_tests::declared")


class Calling(nn.Module):
    """An operator of the user's own between others, so that it may run again beside these."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(torch.ops.offcert_tests, self.name)(x.cos()).sin()
        return result


def calling(name: str) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), Calling(name), nn.Linear(32, 32), nn.Linear(32, 4))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (_mlp, (16, 8)),
    "cnn": (_cnn, (4, 3, 8, 8)),
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), Residual(4), nn.Flatten(), nn.Linear(144, 4)
        ),
        (4, 3, 6, 6),
    ),
    "gpt": (lambda: nn.Sequential(Block(16, 2), nn.Linear(16, 4)), (2, 8, 16)),
    "dropout": (_dropout, (16, 8)),
    "counted": (partial(calling, "counted"), (16, 8)),
    "declared": (partial(calling, "declared"), (16, 8)),
}


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    found = model(batch)
    rows = found if isinstance(found, tuple) else (found,)
    return torch.stack([row.square().mean() for row in rows]).sum()


@cache
def step_of(name: str) -> TrainingStep:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    return TrainingStep(make(), loss_of, torch.randn(shape))


@cache
def problem_of(name: str) -> Problem:
    return profile(step_of(name), clock="graphs", hardware="v100-pcie")


def problem_for(model: nn.Module, batch: Any) -> Problem:
    return profile(TrainingStep(model, loss_of, batch), clock="graphs", hardware="v100-pcie")


def train(model: nn.Module, batch: Any, compiled: Any = None, steps: int = 2) -> list[torch.Tensor]:
    """Train a copy of a model, compiled by a backend or not at all; return all there is to see."""
    model = copy.deepcopy(model)
    torch._dynamo.reset()
    runs = model if compiled is None else torch.compile(model, backend=compiled, dynamic=False)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    found = []
    for turn in range(steps):
        torch.manual_seed(turn)
        loss = loss_of(runs, batch)
        loss.backward()
        found += [
            loss.detach(),
            *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        ]
        optimiser.step()
        optimiser.zero_grad()
    return found + [value.clone() for value in model.state_dict().values()]


@cache
def reference(name: str) -> list[torch.Tensor]:
    """Return what training makes of the same graphs without a plan."""
    step = step_of(name)
    return train(step.model, step.batch, plain(problem_of(name), as_it_is))


class Graphs:
    """A compiler that keeps the graphs, and runs them as they are."""

    def __init__(self, change: Callable[[fx.GraphModule], None] | None = None) -> None:
        self.modules: list[fx.GraphModule] = []
        self._change = change

    def __call__(self, module: fx.GraphModule, inputs: Any) -> Any:
        if self._change is not None:
            self._change(module)
        self.modules.append(module)
        return as_it_is(module, inputs)

    def names(self, graph: int) -> list[str]:
        return [node.name for node in self.modules[graph].graph.nodes]

    def count(self, target: Any) -> int:
        nodes = [node for module in self.modules for node in module.graph.nodes]
        return sum(node.target is target for node in nodes)


def everything(name: str, compiler: Any = as_it_is) -> Backend:
    """Return a backend for a plan that evicts every gap."""
    return leaving(problem_of(name), compiler=compiler)


def leaving(problem: Problem, **options: Any) -> Backend:
    """Return a backend for a plan that evicts every gap of a problem."""
    whole = problem.with_memory("100%")
    return backend(evict_everything(whole), whole, **{"compiler": as_it_is, **options})


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def with_some_again(network: Network) -> Execution:
    """Run every second computation again that may, right before the backward pass needs it."""
    chosen = set([n for n, each in enumerate(network.computations) if each.repeatable][1::2])
    runs: list[int] = []
    there: set[int] = set()

    def ready(computation: int, backward: bool) -> None:
        for value in network.computations[computation].reads:
            maker = network.writer[value]
            if backward and maker in chosen and maker not in there:
                there.add(maker)
                ready(maker, backward)
                runs.append(maker)

    for n, each in enumerate(network.computations):
        ready(n, not each.repeatable and each.name.startswith("B:"))
        runs.append(n)
    return Strategy(map(Run, runs)).without_unread(network).expand(network)


def moving_backend(problem: Problem, compiler: Any) -> Backend:
    """Return a backend for a plan by which all leaves that may, and something runs again."""
    assert problem.computed is not None
    execution = with_some_again(problem.computed)
    executed = problem.executed(execution)
    plan = evict_everything(executed)
    least = problem.with_memory(predict(executed.trace, plan).peak)
    return Backend(graph_plan(least, plan, execution), compiler=compiler)


def plain(problem: Problem, compiler: Any) -> Backend:
    return backend(Plan(), problem.with_memory("100%"), compiler=compiler)
