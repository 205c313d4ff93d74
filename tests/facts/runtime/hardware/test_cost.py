import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from offcert.runtime.hardware import Hardware, OperationClass, hardware
from offcert.runtime.hardware.attention import attention_scratch
from offcert.runtime.hardware.cost import computed_as, operator_cost, operator_ns
from offcert.runtime.profiling.profile import profile

aten = torch.ops.aten


class Costs(TorchDispatchMode):
    """Records the cost of every operator."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.calls.append((func.overloadpacket, operator_cost(func, args, kwargs, out)))
        return out

    def of(self, packet):
        return [cost for name, cost in self.calls if name is packet]


def costs(function):
    with Costs() as recorded:
        function()
    return recorded


def launches(recorded):
    """Return what launches something, from the first convolution on.

    Weights are initialised with other operators on fake tensors.
    """
    calls = [(packet, cost) for packet, cost in recorded.calls if cost != (0, 0)]
    start = [packet for packet, _ in calls].index(aten.convolution)
    return calls[start:]


def only(function):
    """Return the cost of the one operator that launches something in `function`."""
    (cost,) = [cost for _, cost in costs(function).calls if cost != (0, 0)]
    return cost


def test_convolution_and_its_backward():
    # ResNet's first layer: 112 x 112 outputs, 64 channels, 7 x 7 x 3 products each.
    layer = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
    x = torch.randn(2, 3, 224, 224, requires_grad=True)
    recorded = costs(lambda: layer(x).sum().backward())
    forward = 2 * 2 * 112 * 112 * 64 * 7 * 7 * 3
    sizes = [4 * size for size in (2 * 3 * 224 * 224, 64 * 3 * 7 * 7, 2 * 64 * 112 * 112)]
    assert recorded.of(aten.convolution) == [(forward, sum(sizes))]
    # The gradient comes in expanded from one number, then both gradients go out.
    x_size, weight_size, _ = sizes
    assert recorded.of(aten.convolution_backward) == [(2 * forward, 2 * (x_size + weight_size) + 4)]


def nanoseconds(function, *packets, once=False):
    """Return the times of operators in a function, on a card that moves a byte in 1 ns."""
    rates = {"float16": 10**30}
    card = Hardware("toy", 10**29, 10**9, 1, 1, 0, "none", rates=rates, once=once)
    found = []

    class Times(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket in packets:
                found.append(operator_ns(card, func, args, kwargs or {}, out))
            return out

    with Times():
        function()
    return found


def test_images_are_rearranged_for_tensor_cores_unless_their_channels_are_last():
    layer = nn.Conv2d(4, 8, 1, bias=False).half()
    x = torch.randn(2, 4, 5, 5).half().requires_grad_()
    grad = torch.ones(2, 8, 5, 5).half()
    image, out, weight = 2 * 2 * 4 * 25, 2 * 2 * 8 * 25, 2 * 4 * 8
    last = {"memory_format": torch.channels_last}
    lies, given = x.detach().to(**last).requires_grad_(), grad.to(**last)
    both = aten.convolution, aten.convolution_backward
    forward, backward = image + out + weight, 2 * (image + out + weight)
    assert nanoseconds(lambda: layer(lies).backward(given), *both) == [forward, backward]
    moved = 2 * (image + out)
    found = nanoseconds(lambda: layer(x).backward(grad), *both)
    assert found == [forward + moved, backward + 2 * moved]
    # At best, the gradient is read once for both gradients, and nothing is rearranged.
    found = nanoseconds(lambda: layer(x).backward(grad), *both, once=True)
    assert found == [forward, backward - out]


def test_normalisation_reads_its_input_twice_in_training():
    x, layer = torch.randn(2, 4, 50, 50, requires_grad=True), nn.BatchNorm2d(4)
    size = 4 * x.numel()
    both = aten.native_batch_norm, aten.native_batch_norm_backward
    found = nanoseconds(lambda: layer(x).backward(torch.ones_like(x)), *both)
    assert [time // size for time in found] == [3, 5]
    found = nanoseconds(lambda: layer(x).backward(torch.ones_like(x)), *both, once=True)
    assert [time // size for time in found] == [2, 3]
    layer.eval()
    assert nanoseconds(lambda: layer(x), *both)[0] // size == 2


def test_the_backward_of_a_layer_norm_reads_again_for_its_parameters():
    x, layer = torch.randn(64, 32, requires_grad=True), nn.LayerNorm(32)
    for trained, reads in ((True, 5), (False, 3)):
        layer.requires_grad_(trained)
        backward = aten.native_layer_norm_backward
        (time,) = nanoseconds(lambda: layer(x).backward(torch.ones_like(x)), backward)
        assert time // (4 * x.numel()) == reads


def test_backward_of_a_first_layer_leaves_the_input_out():
    layer = nn.Conv2d(3, 8, 3, bias=False)
    x = torch.randn(1, 3, 10, 10)
    recorded = costs(lambda: layer(x).sum().backward())
    ((forward, _),) = recorded.of(aten.convolution)
    ((backward, _),) = recorded.of(aten.convolution_backward)
    assert forward == backward == 2 * 8 * 8 * 8 * 3 * 3 * 3


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_groups_divide_the_work_of_both_passes(kind):
    x = torch.randn(1, 8, 10, 10, requires_grad=True)
    flops = {}
    for groups in (1, 8):
        layer = kind(8, 8, 3, padding=1, groups=groups, bias=False)
        recorded = costs(lambda layer=layer: layer(x).sum().backward())
        ((forward, _),) = recorded.of(aten.convolution)
        ((backward, _),) = recorded.of(aten.convolution_backward)
        assert backward == 2 * forward
        flops[groups] = forward
    assert flops[1] == 8 * flops[8] == 2 * 10 * 10 * 8 * 8 * 3 * 3


def test_matrix_products():
    a, b, bias = torch.randn(5, 7), torch.randn(7, 11), torch.randn(11)
    moved = 4 * (5 * 7 + 7 * 11 + 5 * 11)
    assert only(lambda: a @ b) == (2 * 5 * 7 * 11, moved)
    assert only(lambda: torch.addmm(bias, a, b)) == (2 * 5 * 7 * 11, moved + 4 * 11)
    assert only(lambda: torch.bmm(a[None], b[None])) == (2 * 5 * 7 * 11, moved)


def test_fused_attention_counts_both_products():
    shape = (2, 4, 16, 8)
    query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))
    recorded = costs(lambda: scaled_dot_product_attention(query, key, value).sum().backward())
    work = [flops for _, (flops, _) in recorded.calls if flops]
    product = 2 * 2 * 4 * 16 * 16 * 8
    assert work == [2 * product, 5 * product]


def test_causal_attention_computes_the_scores_that_are_seen():
    """Of 16 tokens the first sees one, the last 16: 136 of 256 scores; two heads share a key."""
    query = torch.randn(2, 4, 16, 8, requires_grad=True)
    key, value = (torch.randn(2, 2, 16, 8, requires_grad=True) for _ in range(2))
    recorded = costs(
        lambda: (
            scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            .sum()
            .backward()
        )
    )
    work = [flops for packet, (flops, _) in recorded.calls if "flash" in packet.__name__]
    assert work == [count * 2 * 2 * 4 * 136 * 8 for count in (2, 5)]


def test_what_attention_takes_beside_tensors_by_hand():
    """One sequence of 200 tokens, filled up to 256; 4 heads of 40 columns, filled up to 64."""
    query = torch.empty(1, 4, 200, 40, dtype=torch.bfloat16)
    key = torch.empty(1, 2, 200, 40, dtype=torch.bfloat16)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    sums = 4 * 4 * 256 * (64 + 1)
    assert attention_scratch(backward, (query, query, query, query)) == sums
    expanded = 2 * 4 * 200 * 40 * 2
    assert attention_scratch(backward, (query, query, key, key)) == sums + expanded
    assert attention_scratch(aten.mm.default, (query, query)) == 0


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(6, 4),
        lambda x: x.t(),
        lambda x: x[1:].detach(),
        lambda x: x[:, :1].expand(4, 6),
        lambda x: x.split(2),
        lambda x: aten._unsafe_view(x, (24,)),
        lambda x: x.unsqueeze_(0),
        lambda x: torch.empty_like(x),
        lambda x: x.is_same_size(x),
    ],
)
def test_views_metadata_and_allocations_are_free(view):
    x = torch.randn(4, 6)
    recorded = costs(lambda: view(x))
    assert {cost for _, cost in recorded.calls} <= {(0, 0)}


@pytest.mark.parametrize(
    ("function", "moves"),
    [
        (lambda x, y: x + y, 3),
        (lambda x, y: x + x, 2),  # read once
        (lambda x, y: x.add_(y), 3),  # x is read and written
        (lambda x, y: x.relu_(), 2),
        (lambda x, y: x.copy_(y), 2),  # x is only written
        (lambda x, y: x.zero_(), 1),
        (lambda x, y: x.bernoulli_(0.5), 1),
        (lambda x, y: x.t().contiguous(), 2),
        (lambda x, y: torch.cat([x, y]), 4),
        (lambda x, y: torch._foreach_add_([x, y], 1.0), 4),
        (lambda x, y: x.to(torch.float64), 3),  # the copy is twice as large
    ],
)
def test_tensors_moved(function, moves):
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    assert only(lambda: function(x, y)) == (0, moves * 4 * 6 * 4)


def test_expanded_tensors_move_what_they_have_in_memory():
    row, x = torch.randn(6).expand(4, 6), torch.randn(4, 6)
    assert only(lambda: row + x) == (0, 4 * (6 + 2 * 4 * 6))


def test_embedding_reads_the_rows_it_needs():
    table, tokens = torch.randn(1000, 16), torch.tensor([[1, 2, 3]])
    cost = only(lambda: nn.functional.embedding(tokens, table))
    assert cost == (0, 2 * 3 * 16 * 4 + 3 * 8)


def test_fake_tensors_cost_what_real_ones_do():
    def train():
        layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        layer(torch.randn(2, 3, 9, 9)).square().mean().backward()

    real = costs(train)
    with FakeTensorMode():
        fake = costs(train)
    assert launches(real) == launches(fake)
    assert len(launches(real)) > 10


class Kinds(TorchDispatchMode):
    """Records in which type every operator with products computes, and what for."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if operator_cost(func, args, kwargs, out)[0]:
            self.found.append(computed_as(func, args))
        return out


def kinds(function):
    with Kinds() as recorded:
        function()
    return set(recorded.found)


def test_an_operator_computes_in_the_type_of_its_operands():
    layer = nn.Linear(4, 4)
    x = torch.randn(3, 4)
    assert kinds(lambda: layer(x).sum().backward()) == {("float32", OperationClass.PRODUCT)}
    assert kinds(lambda: layer.double()(x.double())) == {("float64", OperationClass.PRODUCT)}
    layer.bfloat16()
    assert kinds(lambda: layer(x.bfloat16()).sum().backward()) == {
        ("bfloat16", OperationClass.PRODUCT)
    }


def test_autocast_is_counted_in_the_type_that_it_casts_to():
    layer, x = nn.Linear(4, 4), torch.randn(3, 4)

    def train():
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer(x).sum()
        loss.backward()

    assert kinds(train) == {("bfloat16", OperationClass.PRODUCT)}


def test_convolutions_may_use_tf32_by_default_and_products_if_they_are_asked_to():
    layer, x = nn.Conv2d(2, 2, 3), torch.randn(1, 2, 5, 5)
    assert kinds(lambda: layer(x).sum().backward()) == {("tf32", OperationClass.CONVOLUTION)}
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    try:
        assert kinds(lambda: layer(x)) == {("float32", OperationClass.CONVOLUTION)}
    finally:
        torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.set_float32_matmul_precision("high")
    try:
        assert kinds(lambda: torch.mm(x[0, 0], x[0, 1])) == {("tf32", OperationClass.PRODUCT)}
    finally:
        torch.set_float32_matmul_precision("highest")


def test_attention_is_a_class_of_its_own():
    q = torch.randn(1, 2, 8, 4, dtype=torch.bfloat16, requires_grad=True)
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = kinds(lambda: scaled_dot_product_attention(q, q, q).sum().backward())
    assert found == {("bfloat16", OperationClass.ATTENTION)}


def test_a_step_in_bfloat16_is_shorter_on_tensor_cores_and_not_on_others():
    def ticks(dtype, name):
        # So much computing that neither traffic nor overhead counts.
        model = hardware(name, peak=True)
        wide = {"layers": 1, "width": 1024}
        problem = profile("gpt-tiny", "512x32", hardware=model, dtype=dtype, options=wide)
        return problem.trace.compute_time

    assert ticks("float32", "a100-80gb-sxm") > 3 * ticks("bfloat16", "a100-80gb-sxm")
    # Without tensor cores only the traffic is less.
    assert ticks("float32", "k40") < 1.5 * ticks("bfloat16", "k40")
