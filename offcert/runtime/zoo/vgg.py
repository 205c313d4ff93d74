"""AlexNet and VGG, as PyTorch modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AlexNet(nn.Module):
    """AlexNet in its single-tower form, for images of any size from 63 pixels on.

    References
    ----------
    Krizhevsky: One weird trick for parallelizing convolutional neural networks. 2014,
    arXiv:1404.5997 (the layer sizes); Krizhevsky, Sutskever, Hinton: ImageNet Classification with
    Deep Convolutional Neural Networks. NeurIPS 2012 (the network).
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


# By depth: 3x3 convolutions in each of the five groups. Given by the VGG paper.
_CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
# Channels of each group. Given by the VGG paper.
_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """A VGG network of depth 11, 13, 16 or 19 for images of any size from 32 pixels on.

    These are configurations A, B, D and E.

    References
    ----------
    Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition. ICLR
    2015, Table 1.
    """

    def __init__(self, depth: int, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in zip(_WIDTHS, _CONVOLUTIONS[depth], strict=True):
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
