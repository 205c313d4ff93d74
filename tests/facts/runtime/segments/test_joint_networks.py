"""Joint plans on networks: bit by bit the same training, and live bytes as predicted."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from offcert.questions.schedule.plan import Plan
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.segments.placed import Kept
from support.networks.shallow_networks import narrow, shallow
from support.runtime.joint_training import again, compare_joint, segment


def images(name, size=32, batch=2, *, wide=False, **options):
    torch.manual_seed(0)

    def run(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def draw():
        return torch.randn(batch, 3, size, size), torch.randint(10, (batch,))

    with nullcontext() if wide else narrow():
        model = zoo.build(name, classes=10, **options)
    return TrainingStep(model, run, draw)


def tokens(**options):
    torch.manual_seed(0)
    model = zoo.build("gpt", layers=3, context=16, vocabulary=50, width=16, heads=2, **options)
    return TrainingStep(
        model, lambda model, x: model(x).logsumexp(-1).mean(), lambda: torch.randint(50, (4, 16))
    )


BLOCKS = [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)]
# Of DenseNet-121 with fewer layers of each kind.
LAYERS = [f"features.denseblock{b}.denselayer{n}" for b, count in enumerate((2, 3, 3, 2), 1)
          for n in range(1, count + 1)]  # fmt: skip


def nothing_leaves(problem):
    return Plan([])


def keeping_convolutions(block):
    return segment(block, f"{block}.conv1", f"{block}.conv2")


RESNET = {
    "blocks": again(*BLOCKS),
    "convolutions stay": again(*map(keeping_convolutions, BLOCKS)),
    "nested": again(
        *(
            segment(f"layer{i}", children=("0", "1"),
                    inner=(segment(f"layer{i}.0"), keeping_convolutions(f"layer{i}.1")))
            for i in (1, 2, 3, 4)
        )
    ),
    "single layers": again("maxpool", *(f"{block}.bn{n}" for block in BLOCKS for n in (1, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", RESNET)
def test_resnet18(name):
    steps = 3 if name == "convolutions stay" else 1
    outcome = compare_joint(images("resnet18"), RESNET[name], steps=steps).require_followed()
    assert outcome.reports[-1].offloaded_bytes > 0
    assert outcome.reports[-1].peak < outcome.plain_peak


def test_recomputation_alone():
    outcome = compare_joint(images("resnet18"), RESNET["blocks"], plan=nothing_leaves, steps=1)
    assert outcome.require_followed().reports[-1].peak < outcome.plain_peak


def test_a_sum_that_stays_may_be_written_long_after_its_first_term():
    # Over what the norm computes, with the modules of a downsampling between, which run again.
    sums = [Kept("leave", "layer2.0.downsample"), Kept("enter", "layer2.0.relu", 1)]
    placed = again(segment("layer2", "layer2.0.bn2", *sums))
    compare_joint(images("resnet18"), placed, steps=2).require_followed()


def test_densenet121():
    placed = again(*map(keeping_convolutions, LAYERS[::2]), *LAYERS[1::2])
    with shallow():
        step = images("densenet121")
    outcome = compare_joint(step, placed, steps=3).require_followed()
    assert outcome.reports[-1].peak < outcome.plain_peak / 2


def convolutions_in_a_row():
    torch.manual_seed(0)
    layers = []
    for channels in (3, 8, 8, 16, 16):
        width = 8 if channels < 8 else 16
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
    layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(1024, 10)]
    model = nn.Sequential(*(layers[n] for n in (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13)))
    return TrainingStep(
        model, lambda model, x: model(x).square().mean(), lambda: torch.randn(2, 3, 16, 16)
    )


@contextmanager
def evaluated_by_a_compiler():
    """Let frames be evaluated as after a call of `torch.compile` whose backend has failed."""
    from torch._dynamo.eval_frame import set_eval_frame

    before = set_eval_frame(False)
    try:
        yield
    finally:
        set_eval_frame(before)


# A compiler's evaluator of frames holds arguments on the stack as long as a call runs.
@pytest.mark.parametrize("evaluated", [nullcontext, evaluated_by_a_compiler])
def test_changes_in_place_in_a_row(evaluated):
    placed = again(
        segment("", "4", "5", children=("2", "7"), inner=(segment("", children=("2", "3")),)),
        segment("", children=("8", "10")),
    )
    with evaluated():
        compare_joint(convolutions_in_a_row(), placed).require_followed()


MLP_IN_BLOCK = segment("h.0", inner=(segment("h.0.mlp"),))
GPT = {
    "blocks": again("h.0", "h.1", "h.2"),
    "products stay": again(
        *(segment(f"h.{i}", f"h.{i}.attn.c_attn", f"h.{i}.mlp.c_fc") for i in range(3))
    ),
    "dropouts stay": again(
        *(segment(f"h.{i}", f"h.{i}.attn.attn_dropout", f"h.{i}.mlp.dropout") for i in range(3))
    ),
    "nested": again(
        segment(
            "h",
            inner=(
                segment(
                    "h", children=("0", "1"), inner=(segment("h.0", inner=[segment("h.0.mlp")]),)
                ),
                segment("h.2", "h.2.attn.c_proj"),
            ),
        )
    ),
}


@pytest.mark.parametrize("name", GPT)
def test_gpt(name):
    outcome = compare_joint(tokens(dropout=0.3), GPT[name]).require_followed()
    assert outcome.reports[-1].offloaded_bytes > 0
