"""The processes of a test: devices that train under a plan, and last the host that adds up."""

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed
from torch import nn

from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.host_gradients import HostGradients, add_gradients
from offcert.runtime.sub_batches import sub_batch_steps, sub_batches
from support.runtime.captured import evict_everything, problem_of_step
from support.runtime.ranks import leave, run_ranks

STEPS, ITEMS, PART = 3, 6, 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16),
        nn.BatchNorm1d(16),
        nn.Sigmoid(),
        nn.Linear(16, 8),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


def loss_of(model: Any, batch: Any) -> Any:
    return model(batch).square().mean()


def batch_of(rank: int, step: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(ITEMS, 8, generator=rng)


def gradients(model: nn.Module, batch: Any, exchange: HostGradients | None = None) -> None:
    """Run a batch in sub-batches; with an exchange, all but the last one keep their gradients."""
    for part in sub_batches(batch, PART):
        with nullcontext() if exchange is None or part.last else exchange.kept():
            part.scaled(loss_of(model, part.batch)).backward()


def _gradients_of(model: Any) -> list[torch.Tensor]:
    return [each.grad.clone() for each in model.parameters()]


def train(model: nn.Module, rank: int, exchange: HostGradients) -> list[list[torch.Tensor]]:
    """Return the gradients and the parameters after every step."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(STEPS):
        gradients(model, batch_of(rank, step), exchange)
        exchange.finish()
        found.append(_gradients_of(model))
        optimiser.step()
        optimiser.zero_grad()
        found.append([parameter.detach().clone() for parameter in model.parameters()])
    return found


def reference(devices: int) -> list[list[torch.Tensor]]:
    """Return what plain data-parallel training makes: device after device in one process."""
    models = [network() for _ in range(devices)]
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    found = []
    for step in range(STEPS):
        for rank, model in enumerate(models):
            gradients(model, batch_of(rank, step))
        rows = zip(*(model.parameters() for model in models), strict=True)
        for row in rows:
            total = row[0].grad.clone()
            for other in row[1:]:
                total += other.grad
            total /= devices
            for each in row:
                each.grad.copy_(total)
        found.append(_gradients_of(models[0]))
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        found.append([parameter.detach().clone() for parameter in models[0].parameters()])
    return found


def main(rank: int, size: int, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    devices = size - 1
    if rank == devices:
        add_gradients(network().parameters(), range(devices), 2 * STEPS)
        torch.save({"reference": reference(devices)}, results)
    else:
        model = network()
        with HostGradients(model.parameters(), devices) as exchange:
            plain = train(model, rank, exchange)
        model = network()
        (step,) = sub_batch_steps(TrainingStep(network(), loss_of, batch_of(rank, 0)), PART)
        problem = problem_of_step(step)
        plan = evict_everything(problem)
        with (
            follow(model, plan, problem) as made,
            HostGradients(model.parameters(), devices) as exchange,
        ):
            planned = train(model, rank, exchange)
        found = {
            "plain": plain,
            "planned": planned,
            "steps": dict(made.steps),
            "moved": made.report.offloaded_bytes,
            "hooks": sum(
                len(each._post_accumulate_grad_hooks or ()) for each in model.parameters()
            ),
        }
        torch.save(found, results)
    leave()


if __name__ == "__main__":
    run_ranks(main)
