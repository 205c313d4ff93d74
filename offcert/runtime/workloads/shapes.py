"""Public shapes of models that people train: the numbers in their configuration files.

`parameters` is how many the published model has; a test builds every one and counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A model's configuration, as its file has it."""

    name: str  # Key in `SHAPES`
    # Settings with which `transformers` builds it.
    config: Mapping[str, Any]
    parameters: int  # How many it has
    source: str  # Where the numbers are published


def _shape(
    name: str, kind: str, architecture: str, parameters: int, source: str, **config: Any
) -> Shape:
    chosen = {"model_type": kind, "architectures": [architecture], **config}
    return Shape(name, MappingProxyType(chosen), parameters, source)


# Columns of the table of a family; parameters come last.
_COLUMNS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)


def _decoders(
    kind: str,
    architecture: str,
    rows: Mapping[str, tuple[Any, ...]],
    source: str,
    **common: Any,
) -> list[Shape]:
    """Return language models of one family; a row has the values of `_COLUMNS` and parameters."""
    found = []
    for name, (*values, parameters) in rows.items():
        config = common | dict(zip(_COLUMNS, values, strict=True))
        found.append(_shape(name, kind, architecture, parameters, source, **config))
    return found


# The sizes of an image model that a configuration does not give. Assumed: those of ImageNet.
_IMAGE = {"image_size": 224, "num_channels": 3, "num_labels": 1000}
_VIT = "Dosovitskiy and others 2021, table 1; parameters: torchvision, vit_l_16 and vit_h_14 at 224"


def _vit(name: str, width: int, layers: int, patch: int, parameters: int) -> Shape:
    return _shape(
        name,
        "vit",
        "ViTForImageClassification",
        parameters,
        _VIT,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=16,
        patch_size=patch,
        **_IMAGE,
    )


def _whisper(
    name: str, width: int, layers: int, heads: int, mels: int, words: int, parameters: int
) -> Shape:
    sides = ("encoder", "decoder")
    return _shape(
        name,
        "whisper",
        "WhisperForConditionalGeneration",
        parameters,
        f"huggingface.co/openai/{name}, config.json; Radford and others 2022, table 1",
        d_model=width,
        vocab_size=words,
        num_mel_bins=mels,
        **{f"{side}_layers": layers for side in sides},
        **{f"{side}_attention_heads": heads for side in sides},
        **{f"{side}_ffn_dim": 4 * width for side in sides},
    )


# Five layers with a window, then one without.
_GEMMA = ("gemma3_text", "Gemma3ForCausalLM")
_GEMMA_SOURCE = "huggingface.co/google/gemma-3-*-pt, config.json (text_config); parameters: counted"

_ALL = (
    *_decoders(
        "llama",
        "LlamaForCausalLM",
        {
            "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128_256, True, 1_235_814_400),
            "llama-3.2-3b": (3072, 8192, 28, 24, 8, 128, 128_256, True, 3_212_749_824),
            "llama-3.1-8b": (4096, 14_336, 32, 32, 8, 128, 128_256, False, 8_030_261_248),
            "llama-3.1-70b": (8192, 28_672, 80, 64, 8, 128, 128_256, False, 70_553_706_496),
        },
        "huggingface.co/meta-llama, config.json; The Llama 3 Herd of Models 2024, table 3",
        rope_theta=500_000.0,
        max_position_embeddings=131_072,
    ),
    *_decoders(
        "llama",
        "LlamaForCausalLM",
        {"llama-2-7b": (4096, 11_008, 32, 32, 32, 128, 32_000, False, 6_738_415_616)},
        "huggingface.co/meta-llama/Llama-2-7b-hf, config.json",
        max_position_embeddings=4096,
    ),
    *_decoders(
        "qwen3",
        "Qwen3ForCausalLM",
        {
            "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128, 151_936, True, 596_049_920),
            "qwen3-1.7b": (2048, 6144, 28, 16, 8, 128, 151_936, True, 1_720_574_976),
            "qwen3-4b": (2560, 9728, 36, 32, 8, 128, 151_936, True, 4_022_468_096),
            "qwen3-8b": (4096, 12_288, 36, 32, 8, 128, 151_936, False, 8_190_735_360),
            "qwen3-14b": (5120, 17_408, 40, 40, 8, 128, 151_936, False, 14_768_307_200),
            "qwen3-32b": (5120, 25_600, 64, 64, 8, 128, 151_936, False, 32_762_123_264),
        },
        "huggingface.co/Qwen, config.json; Qwen3 Technical Report 2025, table 1",
        rope_theta=1_000_000.0,
        max_position_embeddings=40_960,
    ),
    *_decoders(
        *_GEMMA,
        {
            "gemma-3-270m": (640, 2048, 18, 4, 1, 256, 262_144, True, 268_098_176),
            "gemma-3-1b": (1152, 6912, 26, 4, 1, 256, 262_144, True, 999_885_952),
        },
        _GEMMA_SOURCE,
        sliding_window=512,
        max_position_embeddings=131_072,
    ),
    *_decoders(
        *_GEMMA,
        {
            "gemma-3-4b": (2560, 10_240, 34, 8, 4, 256, 262_208, True, 3_880_263_168),
            "gemma-3-12b": (3840, 15_360, 48, 16, 8, 256, 262_208, True, 11_766_034_176),
            "gemma-3-27b": (5376, 21_504, 62, 32, 16, 128, 262_208, True, 27_009_346_304),
        },
        _GEMMA_SOURCE,
        sliding_window=1024,
        max_position_embeddings=131_072,
    ),
    *_decoders(
        "mistral",
        "MistralForCausalLM",
        {"mistral-7b": (4096, 14_336, 32, 32, 8, 128, 32_768, False, 7_248_023_552)},
        "huggingface.co/mistralai/Mistral-7B-v0.3, config.json",
        rope_theta=1_000_000.0,
        sliding_window=None,
        max_position_embeddings=32_768,
    ),
    *_decoders(
        "phi3",
        "Phi3ForCausalLM",
        {"phi-4": (5120, 17_920, 40, 40, 10, 128, 100_352, False, 14_659_507_200)},
        "huggingface.co/microsoft/phi-4, config.json",
        rope_theta=250_000.0,
        pad_token_id=None,
        max_position_embeddings=16_384,
    ),
    _shape(
        "gpt2",
        "gpt2",
        "GPT2LMHeadModel",
        124_439_808,
        "huggingface.co/openai-community/gpt2, config.json",
        n_embd=768,
        n_layer=12,
        n_head=12,
        n_positions=1024,
        vocab_size=50_257,
    ),
    _shape(
        "bert-large",
        "bert",
        "BertForMaskedLM",
        335_174_458,
        "huggingface.co/google-bert/bert-large-uncased, config.json",
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        vocab_size=30_522,
    ),
    _vit("vit-l-16", 1024, 24, 16, 304_326_632),
    _vit("vit-h-14", 1280, 32, 14, 632_045_800),
    _whisper("whisper-small", 768, 12, 12, 80, 51_865, 241_734_912),
    _whisper("whisper-large-v3", 1280, 32, 20, 128, 51_866, 1_543_490_560),
)

SHAPES: Mapping[str, Shape] = MappingProxyType({shape.name: shape for shape in _ALL})
