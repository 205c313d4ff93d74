"""The processes of a test: each trains a network sharded by `fully_shard`, plain or not."""

from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from offcert.core.errors import InputError
from offcert.runtime.capture.run import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from offcert.training.offload import offload as train_under
from support.runtime.captured import evict_everything, problem_of_step
from support.runtime.ranks import leave

HALF = MixedPrecisionPolicy(torch.bfloat16, torch.float32)


def network(size: int, **options: Any) -> Any:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)]
    model = nn.Sequential(nn.Linear(16, 16), *blocks, nn.Linear(16, 16))
    mesh = init_device_mesh("cpu", (size,))
    for block in blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(batch).float().square().mean()
    return found


def train(model: Any, rank: int, accumulate: int = 1, training: Any = None) -> list[Any]:
    """Return losses, the shards in the end, and the reports; each rank has its own batches."""
    torch.manual_seed(100 + rank)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, reports = [], []
    for number in range(3 * accumulate):
        last = (number + 1) % accumulate == 0
        model.set_requires_gradient_sync(last)
        loss = loss_of(model, torch.randn(64, 16))
        loss.backward()
        losses.append(loss.detach())
        reports += [training.report] if training is not None else []
        if last:
            optimiser.step()
            optimiser.zero_grad()
    shards = [each.to_local().detach().clone() for each in model.parameters()]
    return [losses + shards, reports]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def given(rank: int, size: int, **options: Any) -> dict[str, Any]:
    """Everything leaves that may."""
    plain, _ = train(network(size, **options), rank)
    model = network(size, **options)
    step = TrainingStep(model, loss_of, torch.randn(64, 16))
    # Without data no process waits for another one: here only one of them captures.
    problem = problem_of_step(step, tensors="fake")
    same = capture(step, tensors="real").trace == problem.trace
    plan = evict_everything(problem)
    with follow(model, plan, problem, FollowOptions(count=True)) as made:
        ours, reports = train(model, rank, training=made)
    refused = None
    try:
        gaps = set(range(len(problem.trace.gaps) - rank))
        with follow(model, evict_everything(problem, gaps), problem):
            pass
    except InputError as error:
        refused = str(error)
    return {
        "equal": equal(plain, ours),
        "steps": dict(made.steps),
        "follows": all(each.follows_prediction for each in reports),
        "moved": min(each.offloaded_bytes for each in reports),
        "same": same,
        "refused": refused,
    }


def auto(rank: int, size: int) -> dict[str, Any]:
    """Gradients are accumulated: three kinds of steps, each with a plan."""
    plain, _ = train(network(size, mp_policy=HALF), rank, 3)
    model = network(size, mp_policy=HALF)
    asked: dict[str, Any] = {"memory": "40%", "hardware": "v100-pcie", "time_limit": 0.5}
    with train_under(model, "auto", **asked, background=False, count=True) as made:
        ours, reports = train(model, rank, 3, made)
    planned = [each for each in reports if each.planned]
    return {
        "equal": equal(plain, ours),
        "steps": dict(made.steps),
        "within": all(max(each.peaks) <= each.limit for each in planned),
        "plans": [each.digest for each in made.step_plans],
    }


def main(rank: int, size: int, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    found = {
        "resharded": given(rank, size),
        "kept": given(rank, size, reshard_after_forward=False),
        "auto": auto(rank, size),
    }
    torch.save(found, results)
    leave()
