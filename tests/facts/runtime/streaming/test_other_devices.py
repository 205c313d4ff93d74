"""What a step saves on another device than the model's, or by the kernels of another device."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from offcert.runtime.follow.offload import OffloadWarning
from offcert.runtime.streaming.synchronous import lacking
from offcert.runtime.watch.saved_hooks import SavedPlace
from support.runtime.stream_steps import Layers, closed, context, followed, gradients, same


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


class Dropping(Layers):
    """Drops parts of what it computes, by the kernels of CUDA or by those of the CPU."""

    fused = False

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
            # On CUDA `nn.Dropout` runs this operator, which keeps a mask of booleans.
            x = torch.native_dropout(x, 0.5, True)[0] if self.fused else functional.dropout(x)
        return x


def test_masks_of_dropout_leave_and_come_back_where_they_are_of_booleans(on):
    model = Dropping()
    model.fused = True
    made, _ = followed(on, model)
    moved = {place.dtype for parts in made.step_plans[0].parts.values() for place in parts}
    assert moved == {"float32", "bool"}


def test_a_plan_for_masks_of_floats_says_where_they_come_from(on):
    model = Dropping()
    made, device = context(on, model)
    model.fused = True
    expected = gradients(on, copy.deepcopy(model))
    with made, pytest.warns(OffloadWarning, match="has not saved the float32 tensor of shape 4x8"):
        assert same(closed(on, made, model), expected)
    # The step was captured on the CPU.
    told = "masks of dropout: profile the model where it is trained, on cuda"
    assert (told in made.report.deviation) is not on.is_simulated
    on.settled(device)


def test_what_is_lacking_is_said_with_the_device_of_the_capture():
    said = []
    step = SimpleNamespace(
        left_out=(),
        name=lambda operation: f"F:{operation}",
        deviate=said.append,
        step_plan=SimpleNamespace(capture=SimpleNamespace(device="cpu")),
    )
    place = SavedPlace(1, 128, "float32", (4, 8), 0)
    lacking(step, place, 3, "cuda")
    assert said == [
        "F:1 has not saved the float32 tensor of shape 4x8 that should leave before F:3; it was "
        "captured from a model on cpu, whose kernels may keep other tensors, such as masks of "
        "dropout: profile the model where it is trained, on cuda"
    ]
