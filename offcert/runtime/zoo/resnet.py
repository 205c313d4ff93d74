"""Residual networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# By depth: blocks of each group. Given by the ResNet paper.
LAYERS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
# Channels of each group. Given by the ResNet paper.
WIDTHS = (64, 128, 256, 512)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class _Block(nn.Module):
    """The parts that both kinds of residual block share: the skip connection and the sum."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                _conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU(inplace=True)

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        out = self.residual(x)
        identity = x if self.downsample is None else self.downsample(x)
        # `add_`, not `+=`: torch.fx traces `+=` to an addition out of place, which would
        # give the traced network another memory curve than the eager one.
        return self.relu(out.add_(identity))


class BasicBlock(_Block):
    """Two 3x3 convolutions around a skip connection (He et al., Fig. 5 left)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: Tensor) -> Tensor:
        """Return the block's value before the skip connection is added."""
        out = self.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(out))


class Bottleneck(_Block):
    """1x1, 3x3 and 1x1 convolutions around a skip connection (He et al., Fig. 5 right).

    The 3x3 convolution carries the stride, as in the implementation whose parameter counts
    and accuracies are commonly published; the paper puts it on the first 1x1.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def residual(self, x: Tensor) -> Tensor:
        """Return the block's value before the skip connection is added."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.bn3(self.conv3(out))


class ResNet(nn.Module):
    """A residual network of depth 18, 34, 50, 101 or 152 for images of any size.

    Bottlenecks from 50 on. References
    ----------
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. CVPR 2016, Table 1.
    """

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(self, depth: int, classes: int = 1000) -> None:
        super().__init__()
        block = Bottleneck if depth >= 50 else BasicBlock
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = WIDTHS[0]
        for index, (width, layers) in enumerate(zip(WIDTHS, LAYERS[depth], strict=True), 1):
            blocks = []
            for layer in range(layers):
                blocks.append(block(channels, width, 2 if index > 1 and layer == 0 else 1))
                channels = width * block.expansion
            self.add_module(f"layer{index}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))
