"""Densely connected networks."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from offcert.runtime.zoo._options import require_positive

_SHAPES = {  # depth: (growth, channels of the first convolution, layers of each block)
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    169: (32, 64, (6, 12, 32, 32)),
    201: (32, 64, (6, 12, 48, 32)),
}
_BOTTLENECK = 4


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

    def forward(self, features: list[Tensor]) -> Tensor:
        """Return the new features (batch, growth, height, width)."""
        # Every layer concatenates afresh, as in the paper's formula: this is the quadratic
        # memory that makes dense networks interesting here.
        x = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(x)))


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

    Parameters
    ----------
    depth
        121, 161, 169 or 201.
    classes
        Number of outputs.

    References
    ----------
    Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks.
    CVPR 2017, Table 1.
    """

    def __init__(self, depth: int, classes: int = 1000) -> None:
        super().__init__()
        require_positive(classes=classes)
        growth, channels, blocks = _SHAPES[depth]
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(channels),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )
        for index, layers in enumerate(blocks, 1):
            self.features.add_module(f"denseblock{index}", DenseBlock(layers, channels, growth))
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
