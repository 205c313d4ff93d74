"""A small network on the simulated device, and the gradients of one step of it."""

import torch


def network(count=3, width=8):
    torch.manual_seed(0)
    layers = []
    for _ in range(count):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers).cuda()


def batch(width=8):
    return torch.randn(4, width, device="cuda")


def gradients(model):
    return [each.grad for each in model.parameters()]
