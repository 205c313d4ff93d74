"""The networks of the re-forwarding paper's Table 1: shapes against the zoo, and the table."""

from __future__ import annotations

from math import prod

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.runtime.zoo import build
from papers.checkpoint_graphs.networks import TABLE_1, reforwarding_network


def produced(name: str, kinds: tuple[type[nn.Module], ...], image: int) -> list[int]:
    """Return bytes of what the modules of some kinds write in a forward pass of the zoo's."""
    with torch.device("meta"):
        model = build(name)
        found: list[int] = []
        for module in model.modules():
            if isinstance(module, kinds):
                module.register_forward_hook(
                    lambda _, args, out: found.append(4 * prod(out.shape)),
                )
        model(torch.empty(2, 3, image, image))
    return sorted(found)


@pytest.mark.parametrize(
    "name", ["alexnet", "vgg11", "vgg19", "resnet18", "resnet152", "densenet121", "densenet161"]
)
def test_convolutions_have_the_sizes_of_the_zoo(name: str) -> None:
    graph = reforwarding_network(name, 2)
    own = [s for s, label in zip(graph.sizes, graph.names, strict=True) if label[:4] == "conv"]
    assert sorted(own) == produced(name, (nn.Conv2d,), 224)


def test_inception_has_the_sizes_of_the_zoo() -> None:
    graph = reforwarding_network("inception_v3", 2, 299)
    for label, kind in (("conv", nn.Conv2d), ("norm", nn.BatchNorm2d)):
        own = [s for s, n in zip(graph.sizes, graph.names, strict=True) if n[:4] == label]
        # The paper's has no auxiliary classifier: two convolutions, and a norm each.
        zoo = produced("inception_v3", (kind,), 299)
        extra = list(zoo)
        for size in own:
            extra.remove(size)
        assert len(extra) in (0, 2)


def test_resnet18_by_hand() -> None:
    """One image: 64 channels of 112 x 112 twice, then pooled, then eight blocks."""
    graph = reforwarding_network("resnet18")
    first, half = 4 * 64 * 112 * 112, 4 * 64 * 56 * 56
    assert graph.sizes[:8] == (4 * 3 * 224 * 224, first, first, half, half, half, half, half)
    assert graph.names[4:8] == ("conv4", "norm5", "conv6", "sum7")
    assert graph.predecessors[7] == 1 << 6 | 1 << 3
    # Input and stem, five blocks of four, three with a convolution more, and the classifier.
    assert len(graph) == 4 + 5 * 4 + 3 * 5 + 2
    assert graph.sizes[-1] == 4000


def test_the_table_agrees_with_itself() -> None:
    assert len({row.name for row in TABLE_1}) == 15
    for row in TABLE_1:
        assert round(100 * (1 - row.reforwarding / row.regular)) == pytest.approx(row.cut, abs=1)


def test_sizes_follow_the_batch() -> None:
    one, four = reforwarding_network("densenet121"), reforwarding_network("densenet121", 4)
    assert [4 * size for size in one.sizes] == list(four.sizes)
    assert 4 * arbitrary_graph_solver(one).objective == arbitrary_graph_solver(four).objective


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet19",), "network must be one of .*, not 'resnet19'"),
        (("resnet18", 0), "batch must be at least 1, not 0"),
        (("vgg11", 1, 16), "the image is too small"),
        (("inception_v3", 1, 60), "the image is too small"),
    ],
)
def test_what_does_not_exist_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reforwarding_network(*arguments)
