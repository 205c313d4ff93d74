"""The moDNN paper's networks: published counts, what tasks use, algorithms worked out by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.questions.split.menu import Alternative
from offcert_lab.modnn.algorithms import (
    GIGABYTE,
    K40,
    Accelerator,
    Convolution,
    Pass,
    alternatives,
)
from offcert_lab.modnn.networks import NETWORKS, Builder, Layers, modnn_network
from offcert_lab.modnn.problems import modnn_step, regular_sizes
from offcert_lab.modnn.tasks import step_round, step_split


def parameters(layers: Layers) -> int:
    return sum(map(layers.parameters, range(len(layers.layers))))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # As the networks' authors and common implementations count them.
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet34", 21_797_672),
        ("resnet152", 60_192_808),
    ],
)
def test_published_numbers_of_parameters(name: str, expected: int) -> None:
    assert parameters(modnn_network(name)) == expected


def test_layers_that_names_promise() -> None:
    def count(name: str, *kinds: str) -> int:
        return sum(layer.kind in kinds for layer in modnn_network(name).layers)

    for name, depth in (("vgg16", 16), ("vgg19", 19), ("vgg101", 101)):
        assert count(name, "convolution", "linear") == depth
    # The convolutions of skips do not count.
    for name, depth, skips in (("resnet34", 34, 3), ("resnet152", 152, 4)):
        assert count(name, "convolution", "linear") == depth + skips


def ideal_memory(name: str) -> int:
    """Return the bytes of everything together, with the fastest algorithms (paper, §7)."""
    found = step_round(modnn_network(name), NETWORKS[name].batch)
    trace = found.chosen(found.menu.fastest())
    largest = max(operation.workspace for operation in trace.operations)
    return sum(tensor.size for tensor in trace.tensors) + largest


def test_what_the_paper_says_about_the_ideal_case() -> None:
    ideal = {name: ideal_memory(name) for name in NETWORKS}
    # §7.1: only ResNet-34 fits into 12 GB; of the others, only FCN fits into 24 GB.
    assert [name for name, size in ideal.items() if size <= 12 * GIGABYTE] == ["resnet34"]
    assert [name for name, size in ideal.items() if size <= 24 * GIGABYTE] == ["resnet34", "fcn"]
    # "Nearly 100 GB" and "only 1.4 GB".
    assert 95 < ideal["vgg101"] / GIGABYTE < 100
    one = step_round(modnn_network("vgg101"), 1)
    assert round(one.chosen(one.menu.leanest()).least_memory / GIGABYTE, 1) == 1.4


def four_layers() -> Layers:
    """Return a network as in Fig. 1: convolution, pooling, convolution, fully connected layer."""
    net = Builder(8, apart=False)
    x = net.convolution("c1", 0, 4, 3)
    x = net.maximum("p2", x)
    x = net.convolution("c3", x, 6, 3)
    net.linear("f4", x, 10, relu=False)
    return net.made("four")


def test_tasks_of_a_network_of_four_layers() -> None:
    found = step_round(four_layers(), 5)
    names = [operation.name for operation in found.trace.operations]
    assert names == [
        *("input", "FP c1", "FP p2", "FP c3", "FP f4", "BP1 f4", "BP2 f4", "BP1 c3", "BP2 c3"),
        *("BP1 p2", "BP1 c1", "BP2 c1"),
    ]
    uses = {
        tensor.name: (tensor.size, [names[use] for use in tensor.uses if use >= 0])
        for tensor in found.trace.tensors
    }
    assert uses == {
        "weights": (8 * (4 * 28 + 6 * 37 + 10 * 97), ["BP2 c1"]),
        "X": (4 * 5 * 3 * 64, ["input", "FP c1", "BP2 c1"]),
        "labels": (20, ["input", "BP1 f4"]),
        # Its ReLU, and the pooling that follows, need it again.
        "Y c1": (4 * 5 * 4 * 64, ["FP c1", "FP p2", "BP1 c1"]),
        "Y p2": (4 * 5 * 4 * 16, ["FP p2", "FP c3", "BP2 c3", "BP1 c1"]),
        "Y c3": (4 * 5 * 6 * 16, ["FP c3", "FP f4", "BP2 f4", "BP1 c3"]),
        "Y f4": (4 * 5 * 10, ["FP f4", "BP1 f4"]),
        "delta f4": (4 * 5 * 10, ["BP1 f4", "BP2 f4", "BP1 c3"]),
        "delta c3": (4 * 5 * 6 * 16, ["BP1 c3", "BP2 c3", "BP1 p2"]),
        "delta p2": (4 * 5 * 4 * 16, ["BP1 p2", "BP1 c1"]),
        "delta c1": (4 * 5 * 4 * 64, ["BP1 c1", "BP2 c1"]),
    }


def test_weights_that_may_leave_come_first_and_belong_to_tasks() -> None:
    found = step_round(four_layers(), 5, weights_leave=True)
    names = [operation.name for operation in found.trace.operations]
    assert names[:3] == ["write back W f4", "write back W c3", "write back W c1"]
    uses = {t.name: [names[use] for use in t.uses] for t in found.trace.tensors}
    assert uses["W f4"] == ["write back W f4", "FP f4", "BP1 c3"]
    assert uses["W c1"] == ["write back W c1", "FP c1"]
    assert uses["dW c3"] == ["BP2 c3"]
    held = step_round(four_layers(), 5)
    assert [o.duration for o in found.trace.operations[3:]] == list(held.trace.durations)


def test_a_normalisation_needs_what_it_made_for_its_gradient() -> None:
    found = step_round(modnn_network("resnet34", 64), 2)
    names = [operation.name for operation in found.trace.operations]
    (made,) = [tensor for tensor in found.trace.tensors if tensor.name == "Y conv2_1.b"]
    # It has no activation; the sum that reads it needs it no more.
    assert [names[use] for use in made.uses] == ["FP conv2_1.b", "FP conv2_1.sum", "BP1 conv2_1.b"]


def test_images_that_are_transformed_at_a_time_bound_workspaces() -> None:
    shape = Convolution(64, 64, 3, 1, 56, 56)
    for chunk in (32, 64):
        ways = alternatives(replace(K40, chunk=chunk), shape, Pass.FORWARD, 256)
        # A square of 58, of which 58 × 30 frequencies are stored, each two numbers of four bytes.
        plane = 58 * 30 * 2 * 4
        assert {way.name: way.workspace for way in ways}["fft"] == plane * (128 * chunk + 64 * 64)


def test_skips_have_several_gaps_and_gradients_add_up() -> None:
    found = step_round(modnn_network("resnet34", 64), 2)
    names = [operation.name for operation in found.trace.operations]
    uses = {t.name: [names[use] for use in t.uses if use >= 0] for t in found.trace.tensors}
    assert uses["Y conv2_1.sum"] == [
        *("FP conv2_1.sum", "FP conv2_2.a", "FP conv2_2.sum", "BP2 conv2_2.a", "BP1 conv2_1.sum")
    ]
    assert uses["delta conv2_2.sum"] == [*("BP1 conv2_2.sum", "BP1 conv2_2.b", "BP1 conv2_1.sum")]


def test_the_last_sub_batch_has_what_is_left() -> None:
    split = step_split(four_layers(), 11, 4)
    assert [(each.images, each.count) for each in split.rounds] == [(4, 2), (3, 1)]
    assert split.batch == 11
    assert regular_sizes(256) == [256, 192, 128, 64, 32, 16, 8, 4, 2, 1]
    assert regular_sizes(6) == [6, 4, 2, 1]
    step = modnn_step("resnet34", 6, image=32)
    assert step.sizes == (6, 4, 2, 1)
    with pytest.raises(InputError, match="at most the batch, 6, not 7"):
        modnn_step("resnet34", 6, [7], image=32)


# A processor that computes a flop and moves a byte a nanosecond.
ONE = Accelerator("one", 10**9, 1, 10**9, 10**9, 0)


def test_workspaces_by_hand() -> None:
    shape = Convolution(channels=2, outputs=3, kernel=3, stride=1, read_side=4, made_side=4)
    ways = {way.name: way for way in alternatives(K40, shape, Pass.FORWARD, 40)}
    sizes = {
        "gemm": 2 * 9 * 16 * 4,
        # 16 points of 4 tiles for 5 channels of 32 images, and of 6 filters.
        "winograd": 16 * (4 * 5 * 32 + 6) * 4,
        # A square of 6, of which 6 × 4 frequencies are stored, each two numbers.
        "fft": 6 * 4 * 2 * (5 * 32 + 6) * 4,
    }
    for name, way in ways.items():
        assert way.workspace == sizes.get(name, 0)
    assert "implicit-gemm" in ways


def test_products_are_made_of_full_tiles_and_waves() -> None:
    # 128 rows by 64 columns are one tile: 2 · 128 · 64 · 10 flops at a tenth of 10⁹ a second.
    tenth = Accelerator("t", 10**8, 1, 1, 1, 0)
    whole = tenth.product_time(128, 64, 10, 1, Fraction(1, 2))
    assert whole == 2 * 128 * 64 * 10 * 10 * 2
    # A row more: a tile of 16 rows has (16 · 192) / (128 · 80) of the speed; 9 of them are best.
    assert tenth.product_time(129, 64, 10, 1, Fraction(1, 2)) > whole
    # With two processors, one tile takes as long, and two take no longer.
    two = Accelerator("t", 2 * 10**8, 2, 1, 1, 0)
    assert two.product_time(128, 64, 10, 1, Fraction(1, 2)) <= whole
    assert two.product_time(128, 128, 10, 1, Fraction(1, 2)) == whole


def test_a_convolution_of_single_pixels_needs_no_workspace() -> None:
    shape = Convolution(8, 16, 1, 1, 7, 7)
    (way,) = alternatives(ONE, shape, Pass.DATA, 3)
    assert isinstance(way, Alternative)
    assert (way.name, way.workspace) == ("gemm", 0)


def test_unknown_networks() -> None:
    with pytest.raises(InputError, match="network must be one of vgg16, "):
        modnn_network("vgg11")
    with pytest.raises(InputError, match="the image is too small"):
        modnn_network("vgg16", 16)
