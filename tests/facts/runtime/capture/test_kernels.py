"""Under our rules fake tensors say of the CPU's kernels what the kernels do."""

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves, tree_map

from offcert.runtime.capture import capture
from offcert.runtime.capture.kernels import CpuKernels
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import HARDWARE
from support.runtime.captured import compare

aten = torch.ops.aten
HALF = torch.randn(4, 6, 8).bfloat16()
WIDTH, CHANNELS = torch.ones(8), torch.ones(6)
ENDS = torch.tensor([2, 3, 3, 5], dtype=torch.int32)
EXPERTS = torch.randn(4, 8, 16)

CALLS = {
    "layer norm": (aten.native_layer_norm, HALF, [8], WIDTH, WIDTH, 1e-5),
    "layer norm of one type": (aten.native_layer_norm, HALF.float(), [8], WIDTH, WIDTH, 1e-5),
    "layer norm without parameters": (aten.native_layer_norm, HALF, [8], None, None, 1e-5),
    "group norm": (aten.native_group_norm, HALF, CHANNELS, CHANNELS, 4, 6, 8, 2, 1e-5),
    "group norm backward": (
        aten.native_group_norm_backward, HALF, HALF, torch.ones(4, 2), torch.ones(4, 2), CHANNELS,
        4, 6, 8, 2, [True, True, True],
    ),
    "batch norm": (
        aten.native_batch_norm, HALF, CHANNELS, CHANNELS, CHANNELS * 0, CHANNELS, True, 0.1, 1e-5,
    ),
    "batch norm in evaluation": (
        aten.native_batch_norm, HALF, CHANNELS, CHANNELS, CHANNELS * 0, CHANNELS, False, 0.1, 1e-5,
    ),
    "experts over rows": (aten._grouped_mm, torch.randn(5, 8), EXPERTS, ENDS),
    "experts over columns": (
        aten._grouped_mm, torch.randn(16, 8), torch.randn(8, 4), torch.tensor([3, 8]).int(),
    ),
    "experts in a batch": (aten._grouped_mm, torch.randn(4, 4, 8), EXPERTS),
    "experts of bfloat16": (
        aten._grouped_mm, torch.randn(5, 8).bfloat16(), EXPERTS.bfloat16(), ENDS,
    ),
}  # fmt: skip


def described(outputs):
    return [
        (t.dtype, tuple(t.shape), t.stride(), t.untyped_storage().nbytes())
        for t in tree_leaves(outputs)
    ]


@pytest.mark.parametrize("name", CALLS)
def test_outputs_are_those_of_the_kernel(name):
    function, *arguments = CALLS[name]
    mode = FakeTensorMode()
    fakes = tree_map(
        lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, arguments
    )
    with mode, CpuKernels():
        found = function(*fakes)
    assert described(found) == described(function(*arguments))


def test_without_them_a_plan_for_mixed_precision_cannot_be_followed():
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolutions = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            kinds = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(6)
            self.norms = nn.ModuleList(kinds)

        def forward(self, x):
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                x = torch.relu(norm(convolution(x)))
            return x

    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    step = TrainingStep(Normalised(), run, lambda: torch.randn(2, 4, 6, 6))
    outcome = compare(step, tensors="fake").require_followed()
    saved = {(row[2], tuple(row[3])) for row in outcome.problem.source["capture"]["saved"]}
    # Statistics of each normalisation.
    assert {("float32", (4,)), ("float32", (2, 2)), ("float32", (2, 4, 6, 1))} <= saved


class Attends(nn.Module):
    """Attention of four heads of queries, and as many or fewer of keys and values."""

    def __init__(self, heads: int, dtype: torch.dtype, masked: bool, autocast: bool) -> None:
        super().__init__()
        self.heads, self.masked, self.autocast = heads, masked, autocast
        self.queries = nn.Linear(16, 64, dtype=dtype)
        self.keys = nn.Linear(16, 16 * heads, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        shared = self.heads < 4
        mask = torch.ones(256, 256, dtype=torch.bool) if self.masked else None
        query, key = (
            layer(x).unflatten(-1, (-1, 16)).transpose(1, 2) for layer in (self.queries, self.keys)
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return scaled_dot_product_attention(
                query, key, key, mask, 0.1, not self.masked, enable_gqa=shared
            )


@pytest.mark.parametrize(
    ("card", "dtype", "heads", "kernel"),
    [
        ("a100-80gb-sxm", torch.bfloat16, 4, "flash-2"),
        ("a100-80gb-sxm", torch.bfloat16, 2, "flash-2"),
        ("a100-80gb-sxm", torch.float32, 4, "efficient"),
        ("a100-80gb-sxm", torch.float32, 2, "math"),
        ("v100-pcie", torch.float16, 4, "efficient"),
        ("v100-pcie", torch.float16, 2, "math"),
        ("v100-pcie", torch.bfloat16, 4, "math"),
        ("t4", torch.float16, 4, "efficient"),
    ],
)
def test_attention_keeps_what_the_cards_kernel_keeps(
    card: str, dtype: torch.dtype, heads: int, kernel: str
) -> None:
    assert attention_on(card, dtype, heads) == kernel


def test_a_mask_and_autocast_decide_about_the_kernel() -> None:
    a100 = "a100-80gb-sxm"
    assert attention_on(a100, torch.bfloat16, 4, masked=True) == "efficient"
    assert attention_on(a100, torch.float32, 2, autocast=True) == "flash-2"


def attention_on(
    card: str, dtype: torch.dtype, heads: int, masked: bool = False, autocast: bool = False
) -> str:
    """Return how a card computes attention, after a look at whether the scores are kept."""
    model = Attends(heads, dtype, masked, autocast)
    step = TrainingStep(model, lambda m, x: m(x).sum(), torch.zeros(1, 256, 16, dtype=dtype))
    found = capture(step, tensors="fake", hardware=HARDWARE[card])
    (kernel,) = found.attention
    # Of four heads and 256 tokens, in float32.
    scores = 4 * 4 * 256 * 256
    assert (found.trace.peak_memory > scores) == (kernel == "math")
    return kernel
