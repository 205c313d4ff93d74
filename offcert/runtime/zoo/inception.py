"""Inception v3."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_Size = int | tuple[int, int]


class ConvNorm(nn.Module):
    """Convolution, batch normalisation and ReLU: the unit all of Inception is made of."""

    def __init__(
        self, inputs: int, outputs: int, kernel: _Size, stride: int = 1, padding: _Size = 0
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated features."""
        return functional.relu(self.bn(self.conv(x)), inplace=True)


def _row(inputs: int, outputs: int, length: int) -> ConvNorm:
    return ConvNorm(inputs, outputs, (1, length), padding=(0, length // 2))


def _column(inputs: int, outputs: int, length: int) -> ConvNorm:
    return ConvNorm(inputs, outputs, (length, 1), padding=(length // 2, 0))


def _smooth(x: Tensor) -> Tensor:
    return functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)


class InceptionA(nn.Module):
    """Branches with one 5x5 and with two 3x3 convolutions (Szegedy et al., Fig. 5)."""

    def __init__(self, inputs: int, pool: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(inputs, 64, 1)
        self.branch5x5_1 = ConvNorm(inputs, 48, 1)
        self.branch5x5_2 = ConvNorm(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = ConvNorm(inputs, 64, 1)
        self.branch3x3dbl_2 = ConvNorm(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = ConvNorm(96, 96, 3, padding=1)
        self.branch_pool = ConvNorm(inputs, pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' features, concatenated."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        branches = [self.branch1x1(x), self.branch5x5_2(self.branch5x5_1(x)), double]
        return torch.cat([*branches, self.branch_pool(_smooth(x))], 1)


class InceptionB(nn.Module):
    """Reduction from the 35x35 to the 17x17 grid (Szegedy et al., Fig. 10)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = ConvNorm(inputs, 384, 3, stride=2)
        self.branch3x3dbl_1 = ConvNorm(inputs, 64, 1)
        self.branch3x3dbl_2 = ConvNorm(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = ConvNorm(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' features, concatenated."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        pooled = functional.max_pool2d(x, kernel_size=3, stride=2)
        return torch.cat([self.branch3x3(x), double, pooled], 1)


class InceptionC(nn.Module):
    """7x7 convolutions factorised into rows and columns (Szegedy et al., Fig. 6)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(inputs, 192, 1)
        self.branch7x7_1 = ConvNorm(inputs, width, 1)
        self.branch7x7_2 = _row(width, width, 7)
        self.branch7x7_3 = _column(width, 192, 7)
        self.branch7x7dbl_1 = ConvNorm(inputs, width, 1)
        self.branch7x7dbl_2 = _column(width, width, 7)
        self.branch7x7dbl_3 = _row(width, width, 7)
        self.branch7x7dbl_4 = _column(width, width, 7)
        self.branch7x7dbl_5 = _row(width, 192, 7)
        self.branch_pool = ConvNorm(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' features, concatenated."""
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), single, double, self.branch_pool(_smooth(x))], 1)


class InceptionD(nn.Module):
    """Reduction from the 17x17 to the 8x8 grid."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = ConvNorm(inputs, 192, 1)
        self.branch3x3_2 = ConvNorm(192, 320, 3, stride=2)
        self.branch7x7x3_1 = ConvNorm(inputs, 192, 1)
        self.branch7x7x3_2 = _row(192, 192, 7)
        self.branch7x7x3_3 = _column(192, 192, 7)
        self.branch7x7x3_4 = ConvNorm(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' features, concatenated."""
        small = self.branch3x3_2(self.branch3x3_1(x))
        large = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        pooled = functional.max_pool2d(x, kernel_size=3, stride=2)
        return torch.cat([small, self.branch7x7x3_4(large), pooled], 1)


class InceptionE(nn.Module):
    """Branches that split into a row and a column (Szegedy et al., Fig. 7)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(inputs, 320, 1)
        self.branch3x3_1 = ConvNorm(inputs, 384, 1)
        self.branch3x3_2a = _row(384, 384, 3)
        self.branch3x3_2b = _column(384, 384, 3)
        self.branch3x3dbl_1 = ConvNorm(inputs, 448, 1)
        self.branch3x3dbl_2 = ConvNorm(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = _row(384, 384, 3)
        self.branch3x3dbl_3b = _column(384, 384, 3)
        self.branch_pool = ConvNorm(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' features, concatenated."""
        one = self.branch1x1(x)
        fork = self.branch3x3_1(x)
        single = torch.cat([self.branch3x3_2a(fork), self.branch3x3_2b(fork)], 1)
        fork = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        double = torch.cat([self.branch3x3dbl_3a(fork), self.branch3x3dbl_3b(fork)], 1)
        return torch.cat([one, single, double, self.branch_pool(_smooth(x))], 1)


class InceptionV3(nn.Module):
    """Inception v3 for images of any size from 75 pixels on; published for 299.

    It has 23,834,568 parameters for 1000 classes. The number usually quoted, 27,161,264, is that
    with an auxiliary head, which is left out: there is one output, as a chain needs.

    References
    ----------
    Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer
    Vision. CVPR 2016.
    """

    def __init__(self, classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = ConvNorm(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = ConvNorm(32, 32, 3)
        self.Conv2d_2b_3x3 = ConvNorm(32, 64, 3, padding=1)
        self.maxpool1 = nn.MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = ConvNorm(64, 80, 1)
        self.Conv2d_4a_3x3 = ConvNorm(80, 192, 3)
        self.maxpool2 = nn.MaxPool2d(3, stride=2)
        self.Mixed_5b = InceptionA(192, 32)
        self.Mixed_5c = InceptionA(256, 64)
        self.Mixed_5d = InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b = InceptionC(768, 128)
        self.Mixed_6c = InceptionC(768, 160)
        self.Mixed_6d = InceptionC(768, 160)
        self.Mixed_6e = InceptionC(768, 192)
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b = InceptionE(1280)
        self.Mixed_7c = InceptionE(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, classes)
        self._initialise()

    def _initialise(self) -> None:
        # The reference truncates these at 20 standard deviations and more, that is never,
        # with a loop on the values that fake tensors could not take.
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.normal_(module.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))
        x = self.Mixed_7a(self.Mixed_6e(self.Mixed_6d(x)))
        x = self.Mixed_7c(self.Mixed_7b(x))
        return self.fc(torch.flatten(self.dropout(self.avgpool(x)), 1))
