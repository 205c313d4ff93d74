"""Put published training throughputs beside what the hardware models say, with their ratio.

    python benchmarks/plausibility.py -o out/plausibility.json

Every row names a model, a card, what a step computes on, and where the throughput of one GPU is
published. The step is captured on fake tensors, so neither weights nor a GPU are needed.
*Predicted* is what a step reaches that lasts as long as its computations; *products alone* is the
same on a card whose memory is so fast that only products, convolutions and attention take time, as
if all else were fused away; *calibrated* is the same on a card of which these reach less in
training than at best (`offcert.runtime.hardware.files`). All predictions leave out the
optimiser, the input pipeline and communication; what else a published run does differently is in
its row. ``--rows FILE`` takes rows from a JSON file instead (a list of objects with the fields of
`Row`), ``--only`` those whose names match patterns. ``--fit`` fits by how much less
(`plausibility_fit`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from offcert import profile
from offcert.core.documents import read_json, write_json
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import Hardware, OperationClass, cost, hardware, roofline_ns
from offcert.runtime.hardware.files import SUSTAINED
from offcert.runtime.workloads.configured import training_step
from offcert.runtime.workloads.shapes import SHAPES

FORMAT = "offcert-plausibility"
# Bytes per second of a memory that never makes an operation wait. Arbitrary.
_UNLIMITED = 10**21


@dataclass(frozen=True)
class Row:
    """A published throughput, and the step that it is about.

    Attributes
    ----------
    name
        For the table and for ``--only``.
    model
        A name of the zoo for a network of images; else a shape or a configuration of
        `offcert.runtime.workloads.configured`.
    card
        A name that `offcert.runtime.hardware.hardware` knows.
    batch
        Images or sequences on one GPU between two backward passes.
    sequence
        Tokens of a sequence; None for images.
    dtype, autocast
        Type of the parameters, and that of autocast if there is one, as for `training_step`.
    attention
        ``"flash"`` or ``"math"``.
    unit
        What is counted: ``"images"``, ``"sequences"`` or ``"tokens"``.
    published
        How many of these one GPU trains on in a second.
    source
        Address of the page that says so.
    bandwidth
        GB/s of the published card's memory, if they are not those of the data sheet.
    channels_last
        Whether images lie in memory with their channels last.
    again
        What the step computes again in its backward pass: ``"layers"``, every second layer;
        ``"operators"``, all but every second product, attention and what the rest of these is made
        of; or nothing.
    differs
        What the published run does that the prediction does not have.
    """

    name: str
    model: str | dict[str, Any]
    card: str
    batch: int
    unit: str
    published: float
    source: str
    sequence: int | None = None
    dtype: str = "fp32"
    autocast: str | None = None
    attention: str = "flash"
    bandwidth: int | None = None
    channels_last: bool = False
    again: str | None = None
    differs: str = ""

    @property
    def items(self) -> int:
        """How many images, sequences or tokens a step trains on."""
        return self.batch * (self.sequence or 1) if self.unit == "tokens" else self.batch


_NVIDIA = "https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/"
_RESNET = _NVIDIA + "Classification/ConvNets/resnet50v1.5/README.md"
_BERT = _NVIDIA + "LanguageModeling/BERT/README.md"
_TITAN = "https://github.com/pytorch/torchtitan/blob/main/"
_A100 = _TITAN + "docs/performance.md"
_H100 = _TITAN + "benchmarks/llama3_h100_202412_torchtitan.md"
_NANO = "https://github.com/karpathy/nanoGPT/issues/110"
_OWN = "measured.md#what-an-h200-took"
_HPC = "https://server-gear.com/blog/post/rtx4090-x4-exhaustive-tf-cnn-benchmarks"


def _image(name: str, card: str, batch: int, published: float, **others: Any) -> Row:
    source = others.pop("source", _RESNET)
    return Row(name, "resnet50", card, batch, "images", published, source, **others)


def _bert(name: str, batch: int, sequence: int, published: float, **others: Any) -> Row:
    given = {"sequence": sequence, "attention": "math", "differs": "fused kernels", **others}
    return Row(name, "bert-large", "v100-sxm2", batch, "sequences", published, _BERT, **given)


def _llama(name: str, card: str, batch: int, published: float, source: str, **others: Any) -> Row:
    more: dict[str, Any] = {"sequence": 8192, "dtype": "bf16", **others}
    return Row(name, "llama-3.1-8b", card, batch, "tokens", published, source, **more)


# Dropout is off in the published run.
_GPT_2 = {**SHAPES["gpt2"].config, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
ROWS = (
    _image("ResNet-50, V100, float32", "v100-sxm2", 112, 367),
    _image("ResNet-50, V100, AMP", "v100-sxm2", 256, 1200, autocast="fp16", channels_last=True),
    _image("ResNet-50, A100, TF32", "a100-80gb-sxm", 256, 938),
    _image("ResNet-50, A100, AMP", "a100-80gb-sxm", 256, 2470, autocast="fp16", channels_last=True),
    *(
        _image(
            f"ResNet-50, RTX {card[4:]}, fp16",
            card,
            256,
            published,
            source=_HPC,
            autocast="fp16",
            channels_last=True,
            differs="TensorFlow, ResNet v1",
        )
        for card, published in (("rtx-3090", 1181.90), ("rtx-4090", 1776.41))
    ),
    _bert("BERT-large, V100, 128 tokens, float32", 8, 128, 33.36),
    _bert("BERT-large, V100, 128 tokens, AMP", 16, 128, 125.44, autocast="fp16"),
    _bert("BERT-large, V100, 512 tokens, float32", 2, 512, 7.56),
    _bert("BERT-large, V100, 512 tokens, AMP", 4, 512, 26.64, autocast="fp16"),
    _llama(
        "Llama-3-8B, 64 A100, every second layer again",
        "a100-80gb-sxm",
        1,
        2904,
        _A100,
        again="layers",
        differs="FSDP over 64 GPUs",
    ),
    _llama(
        "Llama-3-8B, 64 A100, some operators again",
        "a100-80gb-sxm",
        1,
        2973,
        _A100,
        again="operators",
        differs="FSDP over 64 GPUs",
    ),
    _llama(
        "Llama-3.1-8B, 8 H100",
        "h100-sxm",
        2,
        5762,
        _H100,
        again="operators",
        differs="FSDP over 8 GPUs; 500 W",
        bandwidth=2_400,
    ),
    _llama(
        "Llama-3.1-8B, 8 H100, compiled",
        "h100-sxm",
        2,
        6667,
        _H100,
        again="operators",
        differs="FSDP over 8 GPUs; 500 W; compiled",
        bandwidth=2_400,
    ),
    # Five accumulated batches of 12 times 1,024 tokens took 562 ms on each GPU.
    Row(
        "GPT-2 124M, 8 A100, compiled",
        _GPT_2,
        "a100-80gb-sxm",
        12,
        "tokens",
        round(5 * 12 * 1024 / 0.562),
        _NANO,
        sequence=1024,
        autocast="bf16",
        differs="compiled; DDP over 8 GPUs",
    ),
)


# The configuration of GPT-2 medium: Radford and others 2019, table 2.
_MEDIUM = {**SHAPES["gpt2"].config, "n_embd": 1024, "n_layer": 24, "n_head": 16}


def _h200(name: str, model: Any, unit: str, milliseconds: float, **others: Any) -> Row:
    """Return a row of a plain step on the H200 that `benchmarks/gpu` is about."""
    row = Row(f"{name}, H200", model, "h200", others.pop("batch"), unit, 0, _OWN, **others)
    return replace(row, published=round(1000 * row.items / milliseconds))


ROWS += (
    _h200("ResNet-50, TF32", "resnet50", "images", 89.13, batch=192),
    _h200("GPT-2 medium", _MEDIUM, "tokens", 226.135, batch=16, sequence=1024, autocast="bf16"),
    _h200("GPT-2 124M", "gpt2", "tokens", 107.74, batch=16, sequence=1024, autocast="bf16"),
)


def step_of(row: Row) -> TrainingStep:
    """Return the step of a row, built where tensors have no data."""
    with torch.device("meta"):
        if row.unit != "images":
            step = training_step(
                row.model,
                row.batch,
                row.sequence,
                dtype=row.dtype,
                autocast=row.autocast,
                attention=row.attention,
            )
            return step if row.again is None else _again(step, row.again)
        model = zoo.build(str(row.model))
    layout = torch.channels_last if row.channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    half = {None: None, "fp16": torch.float16, "bf16": torch.bfloat16}[row.autocast]

    def run(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        images, labels = batch
        with torch.autocast("cpu", half, enabled=half is not None):
            return functional.cross_entropy(model(images), labels)

    def draw() -> Any:
        images = torch.randn(row.batch, 3, 224, 224)
        return images.to(memory_format=layout), torch.zeros(row.batch, dtype=torch.int64)

    return TrainingStep(model, run, draw, tensors="fake")


def _again(step: TrainingStep, what: str) -> TrainingStep:
    """Return a step of a language model that computes some of it again in its backward pass."""
    layers = list(step.model.get_submodule("model.layers").children())
    if what == "layers":
        for layer in layers[::2]:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore
        return step
    for layer in layers:
        layer.forward = partial(  # type: ignore[assignment]
            checkpoint, layer.forward, use_reentrant=False, context_fn=_selected
        )
    return step


def _selected() -> Any:
    """Return contexts that keep attention and every second product of a layer.

    As the selective checkpointing of operators of torchtitan does.
    """
    products = {True: 0, False: 0}

    def keeps(context: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = func.overloadpacket.__name__
        if name == "mm":
            products[context.is_recompute] += 1
        kept = products[context.is_recompute] % 2 if name == "mm" else "attention" in name
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(keeps)


@dataclass(frozen=True)
class Kernels:
    """The kernels of a row's step, as often as they run.

    Keys of `calls` are the card's kernel of attention, a key of `cards`, and what `roofline_ns` is
    told beside the card.
    """

    row: Row
    cards: Mapping[str, Hardware]
    calls: Mapping[tuple[Any, ...], int]

    def throughput(self, **changed: Any) -> float:
        """Return the items per second of a card of which some attributes are changed."""
        cards = {name: replace(card, **changed) for name, card in self.cards.items()}
        times = (
            count * roofline_ns(cards[name], *work) for (name, *work), count in self.calls.items()
        )
        return self.row.items * 1e9 / sum(times)

    def ratio(self, **changed: Any) -> float:
        """Return the predicted throughput over the published one."""
        return self.throughput(**changed) / self.row.published


def kernels(row: Row) -> Kernels:
    """Return the kernels of a row's step, every layer of it."""
    card = hardware(row.card)
    if row.bandwidth is not None:
        card = replace(card, memory_bandwidth=row.bandwidth * 10**9)
    calls: Counter[tuple[Any, ...]] = Counter()
    cards: dict[str, Hardware] = {}

    def noted(
        card: Hardware,
        flops: int,
        bytes: int,
        dtype: str = "float32",
        work: str = OperationClass.PRODUCT,
    ) -> int:
        cards.setdefault(card.attention, card)
        calls[card.attention, flops, bytes, dtype, work] += 1
        return roofline_ns(card, flops, bytes, dtype, work)

    with patch.object(cost, "roofline_ns", noted):
        profile(step_of(row), hardware=card, name=row.name)
    return Kernels(row, cards, calls)


def measure(found: Kernels) -> dict[str, Any]:
    """Return the published and the predicted throughput, and their ratio."""
    predicted = found.throughput()
    quick = found.throughput(sustained=SUSTAINED)
    return asdict(found.row) | {
        "predicted": predicted,
        "products_alone": found.throughput(memory_bandwidth=_UNLIMITED, overhead_ns=0),
        "ratio": predicted / found.row.published,
        "calibrated": quick,
        "calibrated_ratio": quick / found.row.published,
    }


def table(found: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| step | batch | unit | predicted | products alone | calibrated | published "
        "| predicted / published | calibrated / published |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in found:
        size = str(each["batch"]) + (f" × {each['sequence']:,}" if each["sequence"] else "")
        names = ("predicted", "products_alone", "calibrated", "published")
        numbers = [each[name] for name in names]
        shown = " | ".join(f"{number:,.{0 if number >= 100 else 1}f}" for number in numbers)
        cells = f"[{each['name']}]({each['source']}) | {size} | {each['unit']}/s"
        ratios = f"{each['ratio']:.2f} | {each['calibrated_ratio']:.2f}"
        lines.append(f"| {cells} | {shown} | {ratios} |")
    return lines


def main() -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="patterns of names, with semicolons between")
    parser.add_argument("--rows", type=Path, help="a JSON file of rows instead of the published")
    parser.add_argument("--fit", action="store_true", help="fit the part that training reaches")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = ROWS if options.rows is None else [Row(**each) for each in read_json(options.rows)]
    patterns = options.only.split(";")
    chosen = [row for row in rows if any(fnmatchcase(row.name, p) for p in patterns)]
    captured = [kernels(row) for row in chosen]
    found = [measure(each) for each in captured]
    print("\n".join(table(found)))
    if options.fit:
        from plausibility_fit import held_out

        print("\n".join(held_out(captured)))
    if options.output is not None:
        write_json(options.output, {"format": FORMAT, "rows": found})


if __name__ == "__main__":
    main()
