"""Networks of the zoo with fewer layers, or channels, for what does not depend on their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from offcert.runtime.zoo import densenet, resnet


@contextmanager
def shallow() -> Iterator[None]:
    """Build DenseNet-121 and ResNet-50 with every kind of layer, and of place it can be at."""
    growth, channels, _ = densenet.SHAPES[121]
    with (
        patch.dict(densenet.SHAPES, {121: (growth, channels, (2, 3, 3, 2))}),
        patch.dict(resnet.LAYERS, {50: (2, 2, 1, 2)}),
    ):
        yield


@contextmanager
def narrow() -> Iterator[None]:
    """Build ResNets with an eighth of the channels, for what does not depend on their number."""
    with patch.object(resnet, "WIDTHS", tuple(width // 8 for width in resnet.WIDTHS)):
        yield
