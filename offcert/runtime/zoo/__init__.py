"""Published networks, written out so that no other package is needed.

All of them can be traced by `torch.fx` in training mode and use in-place activations where
their reference implementations do, so that their memory is the published networks' memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.core.messages import meant, show
from offcert.core.options import require_count
from offcert.runtime.zoo.densenet import LAYERS, DenseNet
from offcert.runtime.zoo.gpt import GPT
from offcert.runtime.zoo.inception import InceptionV3
from offcert.runtime.zoo.resnet import ResNet
from offcert.runtime.zoo.vgg import VGG, AlexNet

__all__ = ["build", "default_shape", "names", "stage_options"]


@dataclass(frozen=True)
class _Network:
    builder: Callable[..., nn.Module]
    shape: tuple[int, ...]
    options: dict[str, Any]


# The shape of a batch of images, and the sizes of the smallest transformer. Arbitrary.
_IMAGES = (32, 3, 224, 224)
_TINY = {"layers": 2, "heads": 2, "width": 32, "vocabulary": 128, "context": 32}


def _network(builder: Callable[..., nn.Module], shape: tuple[int, ...] = _IMAGES) -> _Network:
    """Collect the options of a network, with their defaults."""
    parameters = inspect.signature(builder).parameters
    return _Network(builder, shape, {name: p.default for name, p in parameters.items()})


_NETWORKS: dict[str, _Network] = {
    **{f"resnet{depth}": _network(partial(ResNet, depth)) for depth in (18, 34, 50, 101, 152)},
    **{f"densenet{depth}": _network(partial(DenseNet, depth)) for depth in (121, 161, 169, 201)},
    "inception_v3": _network(InceptionV3, (32, 3, 299, 299)),
    **{f"vgg{depth}": _network(partial(VGG, depth)) for depth in (11, 13, 16, 19)},
    "alexnet": _network(AlexNet),
    "gpt": _network(GPT, (8, 1024)),
    "gpt-tiny": _network(partial(GPT, **_TINY), (4, 32)),
}


def names() -> list[str]:
    """Return the names of all networks, families together and small ones first."""
    return list(_NETWORKS)


def build(name: str, **options: Any) -> nn.Module:
    """Build a network of `names()` with fresh weights, in training mode.

    Options are `classes` (networks on images), `stages` (DenseNet), `dropout` (VGG, AlexNet,
    Inception v3, GPT), `layers`, `heads`, `width`, `vocabulary`, `context` (GPT). The network is on
    PyTorch's default device; under `torch.device("meta")` it takes no memory.
    """
    network = _find(name)
    for option in options:
        if option not in network.options:
            known = ", ".join(network.options)
            raise InputError(f"network {name} has no option {show(option)}, but {known or 'none'}")
        value, kind = options[option], type(network.options[option])
        if kind is int:
            require_count(value, option)
        elif kind is float and not (isinstance(value, int | float) and 0 <= value < 1):
            raise InputError(f"{option} must be a number in [0, 1), not {show(value)}")
    return network.builder(**options)


def stage_options(name: str) -> dict[str, Any]:
    """Return the options with which a network is cut into the stages of the papers.

    A DenseNet is cut at every dense layer, as the authors of the offloading paper cut it; other
    networks need nothing said.
    """
    return {"stages": LAYERS} if "stages" in _find(name).options else {}


def default_shape(name: str) -> tuple[int, ...]:
    """Return the input shape that a network is usually judged at, batch size first."""
    return _find(name).shape


def _find(name: str) -> _Network:
    if name not in _NETWORKS:
        known = ", ".join(_NETWORKS)
        hint = meant(name, _NETWORKS)
        raise InputError(f"the zoo has no network {show(name)}, but {known}{hint}")
    return _NETWORKS[name]
