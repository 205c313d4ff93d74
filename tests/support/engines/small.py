"""A small network on the simulated device, and the gradients of one step of it."""

import torch


def network(count: int = 3, width: int = 8) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(count):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers).cuda()


def batch(width: int = 8) -> torch.Tensor:
    return torch.randn(4, width, device="cuda")


def gradients(model: torch.nn.Module) -> list[torch.Tensor | None]:
    return [each.grad for each in model.parameters()]
