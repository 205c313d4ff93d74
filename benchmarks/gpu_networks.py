"""The training steps of `make gpu`: as they are on a card, and tiny ones of the same kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.workloads.configured import training_step
from offcert.runtime.workloads.shapes import SHAPES
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.workload import Workload

_GPT = {**SHAPES["gpt2"].config, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
# Radford and others 2019, table 2.
_MEDIUM = {**_GPT, "n_embd": 1024, "n_layer": 24, "n_head": 16}
_TINY_GPT = {**_GPT, "n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 128, "vocab_size": 64}
_TINY_GPT |= {"bos_token_id": 0, "eos_token_id": 0}
_LLAMA = SHAPES["llama-3.2-1b"].config
_TINY_LLAMA = {
    **_LLAMA, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64,
}  # fmt: skip
_VIT = SHAPES["vit-l-16"].config
_TINY_VIT = {
    **_VIT, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "image_size": 88, "patch_size": 8, "num_labels": 10,
}  # fmt: skip


def _images(device: torch.device, name: str, *shape: int) -> TrainingStep:
    workload = Workload(name, shape)
    return standard_step(workload.load().to(device), workload)


def _configured(
    device: torch.device, config: Mapping[str, Any], *sizes: int, **options: Any
) -> TrainingStep:
    with device:
        return training_step(config, *sizes, **options)


Build = Callable[[torch.device], TrainingStep]
_AUTOCAST = {"autocast": "bf16"}
# By name: on a card, and on the simulated device.
NETWORKS: dict[str, tuple[Build, Build]] = {
    "resnet50": (
        lambda device: _images(device, "resnet50", 192, 3, 224, 224),
        lambda device: _images(device, "resnet18", 2, 3, 32, 32),
    ),
    "gpt2-medium": (
        lambda device: _configured(device, _MEDIUM, 16, 1024, **_AUTOCAST),
        lambda device: _configured(device, _TINY_GPT, 2, 128, **_AUTOCAST),
    ),
    "llama-3.2-1b": (
        lambda device: _configured(device, _LLAMA, 2, 4096),
        lambda device: _configured(device, _TINY_LLAMA, 2, 128),
    ),
    "vit-l": (
        lambda device: _configured(device, _VIT, 64, **_AUTOCAST),
        lambda device: _configured(device, _TINY_VIT, 2, **_AUTOCAST),
    ),
}


def build(name: str, device: torch.device) -> TrainingStep:
    """Return the step of a name: the tiny one on the CPU."""
    torch.manual_seed(0)
    # Convolutions may use TF32 by default; other products are told that they may.
    torch.backends.cuda.matmul.allow_tf32 = True
    large, tiny = NETWORKS[name]
    return (large if device.type == "cuda" else tiny)(device)
