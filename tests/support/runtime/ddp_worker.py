"""The processes of a test: each trains a network with DistributedDataParallel, plain or not."""

from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from offcert.core.errors import InputError
from offcert.runtime.follow.offload import follow
from offcert.runtime.follow.options import FollowOptions
from support.runtime.captured import evict_everything, evicted_bytes, mean_step, problem_of_step
from support.runtime.ranks import leave


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 8),
        nn.BatchNorm1d(8),
        nn.Sigmoid(),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.Linear(8, 8),
    )


def train(model: Any, rank: int) -> list[list[torch.Tensor]]:
    """Return the gradients and buffers after each of three steps; each rank has its own batches."""
    torch.manual_seed(100 + rank)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    states = []
    for turn in range(3):
        optimiser.zero_grad()
        if turn == 1:
            # Accumulation without a reduction.
            with model.no_sync():
                model(torch.randn(4, 8)).square().mean().backward()
        model(torch.randn(4, 8)).square().mean().backward()
        states.append([parameter.grad.clone() for parameter in model.parameters()])
        optimiser.step()
        states.append([buffer.clone() for buffer in model.buffers()])
    return states


def main(rank: int, size: int, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    plain = train(DistributedDataParallel(network()), rank)
    model = DistributedDataParallel(network())
    problem = problem_of_step(mean_step(network(), 4, 8))
    plan = evict_everything(problem)
    with follow(model, plan, problem, FollowOptions(count=True)) as made:
        ours = train(model, rank)
        report = made.report
    # The second process is given another plan.
    gaps = set(range(len(problem.trace.gaps) - rank))
    try:
        with follow(model, evict_everything(problem, gaps), problem):
            refused = None
    except InputError as error:
        refused = str(error)
    found = {
        "refused": refused,
        "equal": all(
            torch.equal(one, other)
            for mine, theirs in zip(ours, plain, strict=True)
            for one, other in zip(mine, theirs, strict=True)
        ),
        "gradients": [gradient.tolist() for gradient in ours[-2]],
        "steps": dict(made.steps),
        "follows": report.follows_prediction,
        "moved": report.offloaded_bytes == evicted_bytes(problem, plan) > 0,
        "hooks": sum(len(module._forward_hooks) for module in model.modules()),
    }
    torch.save(found, results)
    leave()
