"""AlexNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offcert.runtime.zoo._options import require_positive, require_probability


class AlexNet(nn.Module):
    """AlexNet in its single-tower form, for images of any size from 63 pixels on.

    Parameters
    ----------
    classes
        Number of outputs.
    dropout
        Probability with which an input of the first two linear layers is dropped.

    References
    ----------
    Krizhevsky: One weird trick for parallelizing convolutional neural networks. 2014,
    arXiv:1404.5997 (the layer sizes); Krizhevsky, Sutskever, Hinton: ImageNet Classification
    with Deep Convolutional Neural Networks. NeurIPS 2012 (the network).
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        require_positive(classes=classes)
        require_probability(dropout=dropout)
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
