"""What a step saves on another device than the model's is left where it is."""

import pytest
import torch

from support.runtime.stream_steps import Layers, followed


class _WithSeed(torch.autograd.Function):
    """Saves a tensor without data, as attention on a GPU saves its seed on the host."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, torch.empty(4, device="meta"))
        return torch.sin(x)

    @staticmethod
    def backward(ctx, gradient):
        x, seed = ctx.saved_tensors
        assert seed.device.type == "meta"
        return gradient * torch.cos(x)


@pytest.mark.parametrize("tensors", ["real", "fake"])
def test_it_is_no_part_of_what_moves(on, tensors):
    followed(on, Layers(5, _WithSeed.apply), steps=1, tensors=tensors)
