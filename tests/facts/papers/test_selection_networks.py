"""The selection paper's networks: what it prints, from a table, against what its models say."""

import math

import pytest

from offcert.core.errors import InputError
from offcert.heuristics.checkpoint.live import sqrt_rule
from offcert.heuristics.checkpoint.selections import linear_selection, static_selection
from papers.checkpoint_chains.memory_models import dynamic_memory, static_memory
from papers.checkpoint_chains.networks import SELECTION_NETWORKS, selection_network
from papers.checkpoint_chains.stage_ends import stage_end_bytes

MIB = 2**20
# Checkpoints in the paper's Table 2 and §5.6.1; the input is one without being named.
PUBLISHED = {
    ("vgg19", "algorithm 6"): (2, 4, 6, 9, 11, 14, 16, 19, 21, 23, 24),
    ("vgg19", "algorithm 3"): (3, 6, 24),
    ("vgg19", "sqrt"): (5, 10, 15, 20, 24),
    ("vgg19", "plain"): (24,),
    ("alexnet", "algorithm 6"): (2, 4, 6, 8, 12, 14, 15),
    ("alexnet", "algorithm 3"): (2, 4, 12, 15),
    ("alexnet", "sqrt"): (4, 8, 12, 15),
    ("alexnet", "plain"): (15,),
    ("plain-alexnet", "algorithm 6"): (3, 4, 5, 9, 11, 12),
}
# Table 2, MiB: network, batch, then Algorithm 6, Algorithm 3, √n, PyTorch without checkpoints.
TABLE_2 = [
    ("vgg19", 128, 6444, 6835, 8404, 11262),
    ("vgg19", 256, 11220, 12004, 15139, 20850),
    ("vgg19", 320, 13609, 14592, 18511, None),
    ("vgg19", 384, 15997, 17177, None, None),
    ("vgg19", 400, 16594, 17824, None, None),
    ("alexnet", 128, 1002, 1003, 1106, 1174),
    ("alexnet", 4096, 9866, 9866, 13182, 15275),
]
METHODS = ("algorithm 6", "algorithm 3", "sqrt", "plain")


def published(network: str, method: str) -> tuple[int, ...]:
    return 0, *PUBLISHED[network, method]


def differences(row: tuple, measure) -> dict[str, tuple[float, int]]:
    """Return our and the published difference to Algorithm 6 in MiB, for each other method."""
    network, batch, first, *others = row
    base = measure(network, batch, published(network, "algorithm 6"))
    return {
        method: ((measure(network, batch, published(network, method)) - base) / MIB, value - first)
        for method, value in zip(METHODS[1:], others, strict=True)
        if value is not None
    }


def by_equation_9(network: str, batch: int, checkpoints: tuple[int, ...]) -> int:
    return dynamic_memory(selection_network(network, batch).output, checkpoints)


def at_stage_ends(network: str, batch: int, checkpoints: tuple[int, ...]) -> int:
    return stage_end_bytes(selection_network(network, batch, pytorch=True), checkpoints)


@pytest.mark.parametrize(("network", "layers"), [("vgg19", 24), ("alexnet", 15)])
def test_networks_have_as_many_layers_as_the_paper_counts(network: str, layers: int) -> None:
    assert len(selection_network(network)) == layers
    assert published(network, "plain")[-1] == layers


def test_shapes_known_from_elsewhere() -> None:
    vgg = selection_network("vgg19", 1)
    assert vgg.output[1] == 4 * 64 * 224 * 224
    assert (vgg.names[20], vgg.output[21]) == ("pool16", 4 * 512 * 7 * 7)
    alexnet = selection_network("alexnet", 1)
    assert alexnet.output[1:9] == tuple(
        4 * c * side * side
        for c, side in (
            (64, 55), (64, 27), (192, 27), (192, 13), (384, 13), (256, 13), (256, 13), (256, 6),
        )
    )  # fmt: skip
    # 19.6 and 0.7 thousand million multiplications.
    assert sum(vgg.forward) == pytest.approx(19_640, rel=0.01)
    assert sum(alexnet.forward) == pytest.approx(715, rel=0.03)


@pytest.mark.parametrize("batch", [1, 128, 400])
def test_algorithm_3_selects_the_published_checkpoints_of_vgg19(batch: int) -> None:
    found = static_selection(selection_network("vgg19", batch).output)
    assert found.checkpoints == published("vgg19", "algorithm 3")


def test_algorithm_3_attains_what_is_published_for_alexnet() -> None:
    """Layers 12 and 13 are of one size: which of them is stored makes no difference."""
    sizes = selection_network("alexnet").output
    assert sizes[12] == sizes[13]
    found = static_selection(sizes)
    assert found.memory == static_memory(sizes, published("alexnet", "algorithm 3"))
    assert set(found.checkpoints) ^ set(published("alexnet", "algorithm 3")) <= {12, 13}


@pytest.mark.parametrize("network", ["vgg19", "alexnet"])
@pytest.mark.parametrize("batch", [128, 4096])
def test_what_is_published_for_algorithm_6_is_optimal(network: str, batch: int) -> None:
    sizes = selection_network(network, batch).output
    optimum = linear_selection(sizes).memory
    assert dynamic_memory(sizes, published(network, "algorithm 6")) == optimum
    assert dynamic_memory(sizes, published(network, "algorithm 3")) >= optimum


def test_the_plain_alexnet_is_optimal_only_if_the_input_has_no_gradient() -> None:
    sizes = selection_network("plain-alexnet").output
    found = published("plain-alexnet", "algorithm 6")
    gradients = (0, *sizes[1:])
    optimum = linear_selection(sizes, gradients).memory
    assert dynamic_memory(sizes, found, gradients) == optimum
    # By Eq. (9) to the letter, it takes a fifth more than the best.
    assert dynamic_memory(sizes, found) > 1.2 * linear_selection(sizes).memory


@pytest.mark.parametrize("network", ["vgg19", "alexnet"])
def test_the_rule_of_roots_selects_what_is_published(network: str) -> None:
    found = sqrt_rule(selection_network(network).output)
    assert found.checkpoints == published(network, "sqrt")


@pytest.mark.parametrize("row", TABLE_2[:5], ids=str)
def test_differences_on_vgg19_by_equation_9(row: tuple) -> None:
    found = differences(row, by_equation_9)
    found.pop("plain", None)
    for ours, theirs in found.values():
        # Differences of two rounded numbers; above batch 256 what is published bends by 0.4 %.
        assert ours == pytest.approx(theirs, abs=1 if row[1] <= 256 else 5)
    if row[1] == 128:
        assert [ours for ours, _ in found.values()] == [392, 1960]


@pytest.mark.parametrize("row", TABLE_2, ids=str)
def test_differences_on_both_networks_at_the_ends_of_stages(row: tuple) -> None:
    found = differences(row, at_stage_ends)
    plain = found.pop("plain", None)
    for ours, theirs in found.values():
        assert ours == pytest.approx(theirs, abs=2 if row[1] in (128, 256, 4096) else 5)
    if plain is not None:
        # AlexNet: what flattening returns is a view, and takes nothing.
        assert plain[0] == pytest.approx(plain[1], rel=0.001 if row[0] == "vgg19" else 0.06)


def test_equation_9_does_not_explain_alexnet() -> None:
    """Places of maxima, 8 bytes each, are missing in it; on VGG-19 that cancels by chance."""
    for row, ours in ((TABLE_2[5], 84), (TABLE_2[6], 2694)):
        found = differences(row, by_equation_9)["sqrt"]
        assert math.floor(found[0]) == ours
        assert found[1] > 1.2 * ours


def test_pytorch_keeps_places_and_masks() -> None:
    for name in SELECTION_NETWORKS:
        published_sizes, real = selection_network(name, 2), selection_network(name, 2, pytorch=True)
        assert sum(published_sizes.extra) == 0 < sum(real.extra)
        assert (published_sizes.gradient[0], real.gradient[0]) == (2 * 4 * 3 * 224 * 224, 0)
    extra = dict(zip(real.names, real.extra, strict=True))
    # The hidden output of the convolution in floats, and 8 bytes a place.
    assert extra["conv1+pool"] == 2 * (4 * 64 * 55 * 55 + 8 * 64 * 27 * 27)
    assert extra["dropout"] in (2 * 9216, 2 * 4096)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="network must be one of vgg19, alexnet, plain-alexnet"):
        selection_network("vgg16")
    with pytest.raises(InputError, match="batch must be at least 1, not 0"):
        selection_network("vgg19", 0)
