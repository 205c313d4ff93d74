"""On fake tensors the modules of `torch.nn` make and save as many bytes as on real ones.

Whatever differs needs a rule in `offcert.runtime.capture.kernels`: this finds the operators.
"""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from offcert.core.errors import InputError
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from support.runtime.captured import compare


class Call(nn.Module):
    """Calls a module with what it is given, and with what a function makes of that."""

    def __init__(self, module, second=None, **options):
        super().__init__()
        self.module, self.second, self.options = module, second, options

    def forward(self, x):
        others = () if self.second is None else (self.second(x),)
        return self.module(x, *others, **self.options)


class Unpooled(nn.Module):
    """Pools, and undoes it."""

    def __init__(self, d):
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{d}d")(2, return_indices=True)
        self.back = getattr(nn, f"MaxUnpool{d}d")(2)

    def forward(self, x):
        return self.back(*self.pool(x))


class Side(nn.Module):
    """Modules side by side, each with an input of its own, behind an operator that is trained."""

    def __init__(self, cases):
        super().__init__()
        self.branches = nn.ModuleList(module for module, _ in cases)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        total = self.scale * 0
        for branch, x in zip(self.branches, inputs, strict=True):
            y = branch(x * self.scale if x.is_floating_point() else x)
            made = [leaf for leaf in tree_leaves(y) if isinstance(leaf, torch.Tensor)]
            floating = [leaf for leaf in made if leaf.is_floating_point()]
            total = total + sum(leaf.float().square().mean() for leaf in floating)
        return total


def recurrent():
    x = torch.randn(2, 6, 16)
    cases = [(nn.LSTM(16, 24, bias=False), x), (nn.LSTM(16, 24, proj_size=8), x)]
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        cases += [
            (kind(16, 24, batch_first=True), x),
            (kind(16, 24, 2, bidirectional=True, dropout=0.3), x),
        ]
    return [*cases, *((kind(16, 24), x[0]) for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell))]


def spatial(d, sides, mode):
    """Return modules for data of so many dimensions."""

    def of(name, *arguments, **options):
        return getattr(nn, f"{name}{d}d")(*arguments, **options)

    x = torch.randn(4, 8, *sides)
    modules = [
        of("Conv", 8, 6, 3, padding=1),
        of("Conv", 8, 8, 3, groups=8, bias=False),
        of("ConvTranspose", 8, 6, 3, stride=2),
        of("BatchNorm", 8),
        of("InstanceNorm", 8, affine=True),
        of("MaxPool", 2),
        of("AvgPool", 2),
        of("LPPool", 2, 2),
        of("AdaptiveMaxPool", 2),
        of("AdaptiveAvgPool", 2),
        of("ReflectionPad", 1),
        of("ReplicationPad", 1),
        of("Dropout", 0.3),
        Unpooled(d),
        nn.Upsample(scale_factor=2, mode=mode),
        nn.Upsample(scale_factor=2),
    ]
    return [(module, x) for module in modules]


def plane():
    """Return modules for images, and those that take any data."""
    x = torch.randn(4, 8, 8, 8)
    modules = (
        nn.CircularPad2d(1),
        nn.ConstantPad2d(1, 0.5),
        nn.GroupNorm(2, 8),
        nn.LayerNorm((8, 8)),
        nn.RMSNorm((8, 8)),
        nn.PReLU(8),
        nn.AlphaDropout(0.3),
        nn.FeatureAlphaDropout(0.3),
        nn.Upsample(scale_factor=2, mode="bicubic"),
        nn.FractionalMaxPool2d(2, output_size=2),
        nn.LocalResponseNorm(2),
        nn.CrossMapLRN2d(2),
        nn.PixelShuffle(2),
        nn.ChannelShuffle(2),
        nn.Unfold(2),
    )
    cases = [*((module, x) for module in modules), (nn.Fold((8, 8), 4), torch.randn(4, 32, 25))]
    return cases + spatial(2, (8, 8), "bilinear")


ACTIVATIONS = (
    "ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid ReLU ReLU6 RReLU SELU CELU "
    "GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink GLU Flatten"
)


def activations():
    return [(getattr(nn, name)(), torch.randn(4, 8, 8, 8)) for name in ACTIVATIONS.split()]


def others():
    x, tokens, ids = torch.randn(6, 16), torch.randn(4, 6, 16), torch.randint(0, 20, (6, 7))
    cases = [(kind(-1), x) for kind in (nn.Softmin, nn.Softmax, nn.LogSoftmax)]
    cases += [(nn.Linear(16, 8), tokens), (Call(nn.Bilinear(16, 16, 8), torch.tanh), x)]
    cases += [(Call(nn.CosineSimilarity(), torch.tanh), x), (nn.Embedding(20, 16), ids)]
    cases += [(Call(nn.PairwiseDistance(), torch.tanh), x)]
    cases += [(nn.Embedding(20, 16, padding_idx=1, scale_grad_by_freq=True), ids)]
    for mode in ("sum", "mean", "max"):
        cases += [(nn.EmbeddingBag(20, 16, mode=mode, padding_idx=p), ids) for p in (None, 1)]
    for dropout in (0.0, 0.1):
        attention = Attention(nn.MultiheadAttention(16, 2, dropout), True)
        cases += [(attention, tokens), (Attention(attention.module, False), tokens)]
        cases += [(nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True), tokens)]
        cases += [(Call(nn.TransformerDecoderLayer(16, 2, 32, dropout), torch.tanh), tokens)]
    return cases


class Attention(Call):
    """Attention of tokens to each other, with weights or without."""

    def __init__(self, module, weights):
        super().__init__(module)
        self.weights = weights

    def forward(self, x):
        return self.module(x, x, x, need_weights=self.weights)


def losses():
    x, labels = torch.randn(6, 16), torch.randint(0, 16, (6,))
    targets = {
        "CrossEntropyLoss": labels,
        "NLLLoss": labels,
        "MultiMarginLoss": labels,
        "MultiLabelMarginLoss": torch.randint(0, 16, (6, 16)),
        "MultiLabelSoftMarginLoss": x.sigmoid().round(),
        "BCEWithLogitsLoss": x.sigmoid(),
        "KLDivLoss": x.softmax(1),
        "SoftMarginLoss": x.sign(),
        "HingeEmbeddingLoss": x.sign(),
        "PoissonNLLLoss": x.abs(),
    }
    targets |= dict.fromkeys(("MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss"), x.tanh())
    found = []
    for name, target in targets.items():
        for reduction in ("mean", "sum", "none") if name == "MSELoss" else ("mean",):
            # One each: a tensor without data is made anew of a target that nobody holds.
            own = target.clone()
            loss = Call(getattr(nn, name)(reduction=reduction), lambda y, target=own: target)
            found.append((nn.Sequential(nn.Linear(16, 16), loss), x))
    binary = Call(nn.BCELoss(), lambda y: torch.ones(6, 16))
    return [*found, (nn.Sequential(nn.Linear(16, 16), Wide(), binary), x)]


class Wide(nn.Module):
    """Probabilities of float32, whatever autocast makes of what comes before."""

    def forward(self, x):
        return x.float().sigmoid()


GROUPS = {
    "recurrent": recurrent,
    "lines": lambda: spatial(1, (16,), "linear"),
    "plane": plane,
    "space": lambda: spatial(3, (4, 4, 4), "trilinear"),
    "activations": activations,
    "others": others,
    "losses": losses,
}

# Under autocast those that it makes different.
RUNS = [*((group, False) for group in GROUPS), ("plane", True), ("others", True), ("losses", True)]


def step_of(cases, half):
    def run(model, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return model(inputs)

    return TrainingStep(Side(cases), run, [x for _, x in cases])


def described(captured):
    """Return what a capture says of bytes, by operator."""
    names = [operation.name for operation in captured.trace.operations]
    saved = [(names[each.place.operation], *each.place[1:4]) for each in captured.storages]
    tensors = [(names[each.uses[0]], each.size) for each in captured.trace.tensors]
    work = [(operation.name, operation.workspace) for operation in captured.trace.operations]
    return saved, tensors, work


@pytest.mark.parametrize(("group", "half"), RUNS)
def test_modules_make_and_save_the_same_bytes_on_fake_tensors(group, half):
    torch.manual_seed(0)
    step = step_of(GROUPS[group](), half)
    real, fake = (capture(step, clock="operators", tensors=tensors) for tensors in ("real", "fake"))
    for theirs, ours in zip(described(real), described(fake), strict=True):
        theirs, ours = Counter(theirs), Counter(ours)
        assert (dict(theirs - ours), dict(ours - theirs)) == ({}, {})
    # The real step may do no more than was foreseen; padding in circles makes fewer nodes.
    assert 0 <= fake.nodes[0] - real.nodes[0] <= 3


def test_what_the_processor_has_no_kernel_for_is_refused_on_fake_tensors_too():
    step = step_of([(nn.LSTM(16, 24), torch.randn(5, 6, 16))], half=True)
    found = []
    for tensors in ("real", "fake"):
        try:
            found.append(described(capture(step, tensors=tensors)))
        except InputError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_plan_for_recurrent_layers_made_on_fake_tensors_is_followed():
    torch.manual_seed(0)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LSTM(32, 48, 2, dropout=0.2), nn.LSTM(48, 16)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)[0]))[0]

    step = TrainingStep(Reader(), lambda m, x: m(x).square().mean(), lambda: torch.randn(9, 4, 32))
    outcome = compare(step, tensors="fake").require_followed()
    saved = sum(row[1] for row in outcome.problem.source["capture"]["saved"])
    reserved = [row[1] for row in outcome.problem.source["capture"]["saved"] if row[2] == "uint8"]
    # One reserve a layer, and most of what there is.
    assert len(reserved) == 3
    assert sum(reserved) > saved / 2


@pytest.mark.parametrize("name", ["_cudnn_rnn", "miopen_rnn"])
def test_reserves_that_only_a_device_knows_are_refused_by_name(name):
    class Device(nn.Module):
        def forward(self, x):
            weights = [torch.ones(8, 4), torch.ones(8, 2)]
            function = getattr(torch.ops.aten, name)
            hidden = torch.zeros(1, 3, 2)
            sizes = [None] if name == "_cudnn_rnn" else []
            more = [2, 0, 1] if name == "_cudnn_rnn" else [2, 1]
            return function(
                x, weights, 2, *sizes, hidden, hidden, 2, *more, False, 0.0, True, False, [], None
            )

    step = TrainingStep(Device(), lambda m, x: m(x)[0].sum(), torch.randn(5, 3, 4))
    with pytest.raises(InputError, match=f'what aten.{name} reserves .* tensors="real"'):
        capture(step, tensors="fake")
