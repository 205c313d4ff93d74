"""Networks that are not in the zoo: what others train must work too."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import prepare, record
from support.stage_recordings import real_recording


class Attention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = self.project(x).unflatten(2, (3, 4, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
        return x + mixed.transpose(1, 2).flatten(2)


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.position = nn.Parameter(torch.randn(1, 17, 16))
        self.blocks = nn.Sequential(Attention(), nn.LayerNorm(16), Attention(0.1))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.blocks(x)[:, 0])


class ConvNext(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.depthwise = nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm, self.wide = nn.LayerNorm(8), nn.Linear(8, 32)
        self.narrow = nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.1))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)
        return self.head((x + self.scale * y).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(),
            nn.Upsample(scale_factor=2),
        )  # fmt: skip
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)

    def forward(self, x):
        x = functional.leaky_relu(self.down(x), 0.1, inplace=True)
        return self.up(torch.cat([x, self.inner(x)], dim=1)).permute(0, 2, 3, 1)


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16, padding_idx=0)
        self.attention = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, tokens):
        x = self.embed(tokens)
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.head(self.norm(x + y))


IMAGE = (2, 3, 16, 16)
CASES = {
    "vision transformer": (Vision, IMAGE),
    "convnext": (ConvNext, IMAGE),
    "u-net": (UNet, IMAGE),
    "multi-head attention": (Multihead, (2, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_fake_equals_real(name):
    build, shape = CASES[name]
    workload = Workload(None, shape)
    model = build()
    fake = record(prepare(model, workload))
    real = real_recording(model, workload)
    assert real.trace() == fake.trace()
    assert (real.at_end, real.peaks) == (fake.at_end, fake.peaks)
