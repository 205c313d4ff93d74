"""Densely connected networks."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from offcert.core.errors import InputError
from offcert.core.messages import show

# By depth: growth, channels of the first convolution, layers of each block. Given by the DenseNet
# paper.
SHAPES = {
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    169: (32, 64, (6, 12, 32, 32)),
    201: (32, 64, (6, 12, 48, 32)),
}
# Channels of a bottleneck, for each of the growth. Given by the DenseNet paper.
_BOTTLENECK = 4
# Where the network can be cut between stages.
BLOCKS, LAYERS = "blocks", "layers"


class DenseLayer(nn.Module):
    """Bottleneck layer of a dense block, fed with all features before it."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        width = _BOTTLENECK * growth
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, growth, 3, padding=1, bias=False)

    def new_features(self, x: Tensor) -> Tensor:
        """Return the features (batch, growth, height, width) that the layer adds to all before."""
        x = self.conv1(self.relu1(self.norm1(x)))
        return self.conv2(self.relu2(self.norm2(x)))

    def forward(self, features: list[Tensor]) -> Tensor:
        """Return the new features (batch, growth, height, width)."""
        # Every layer concatenates afresh, as in the paper's formula: this is the quadratic
        # memory that makes dense networks interesting here.
        return self.new_features(torch.cat(features, 1))


class JoiningLayer(DenseLayer):
    """The same layer where one tensor goes in and one comes out, so that it is a stage."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return the input and the new features, concatenated."""
        return torch.cat([x, self.new_features(x)], 1)


class DenseBlock(nn.Module):
    """Layers in which each reads the input and the outputs of all earlier ones."""

    def __init__(self, layers: int, inputs: int, growth: int) -> None:
        super().__init__()
        for index in range(layers):
            layer = DenseLayer(inputs + index * growth, growth)
            self.add_module(f"denselayer{index + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input and all new features, concatenated."""
        features = [x]
        for layer in self.children():
            features.append(layer(features))
        return torch.cat(features, 1)


def _joining_block(layers: int, inputs: int, growth: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            (f"denselayer{index + 1}", JoiningLayer(inputs + index * growth, growth))
            for index in range(layers)
        )
    )


# Functions that make the blocks of each view.
_BLOCKS = {BLOCKS: DenseBlock, LAYERS: _joining_block}


def _transition(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(inputs),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(inputs, outputs, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


class DenseNet(nn.Module):
    """A DenseNet-BC with compression 0.5 for images of any size from 29 pixels on.

    With the stages ``"blocks"`` the layers of a block hand on a list of tensors, so that a block is
    one stage; with ``"layers"`` each hands on its input and its new features in one tensor, so that
    each is one. Both compute the same, with the same parameters; gradients are summed in other
    orders.

    References
    ----------
    Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks. CVPR 2017,
    Table 1.
    """

    def __init__(self, depth: int, classes: int = 1000, stages: str = BLOCKS) -> None:
        super().__init__()
        if stages not in _BLOCKS:
            raise InputError(f"stages must be {' or '.join(_BLOCKS)}, not {show(stages)}")
        make_block = _BLOCKS[stages]
        growth, channels, blocks = SHAPES[depth]
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(channels),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )
        for index, layers in enumerate(blocks, 1):
            self.features.add_module(f"denseblock{index}", make_block(layers, channels, growth))
            channels += layers * growth
            if index < len(blocks):
                transition = _transition(channels, channels // 2)
                self.features.add_module(f"transition{index}", transition)
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        x = functional.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(functional.adaptive_avg_pool2d(x, (1, 1)), 1))
