"""A training step of a model of `transformers`, from its configuration, autocast as on a card."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from offcert.core.errors import InputError, require_transformers
from offcert.core.messages import meant, short_repr, show
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.tail_chunks import with_tail_chunks
from offcert.runtime.watch.guard import one_line, quiet
from offcert.runtime.workloads.quantised import quantisation_of, quantise, with_adapters
from offcert.runtime.workloads.shapes import SHAPES
from offcert.runtime.workloads.standard_step import device_of

CONFIG_NAME = "config.json"
DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
}
# What PyTorch's attention may run on: kernels that keep no scores, or products and a softmax.
ATTENTION = {
    "flash": [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH],
    "math": [SDPBackend.MATH],
}

_ENABLED = {
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
}


def training_step(
    config: str | Mapping[str, Any],
    batch: int = 1,
    sequence: int | None = None,
    *,
    dtype: str = "bf16",
    autocast: str | None = None,
    attention: str = "flash",
    lora: int | None = None,
    bits: int | None = None,
    tail_chunks: int | None = None,
) -> TrainingStep:
    """Return one training step of a model with fresh weights.

    Under ``torch.device("meta")`` the model has no data and takes no memory; it is captured on fake
    tensors then. No sequence is padded, caches for generating are off, and the loss is the model's.

    Parameters
    ----------
    config : str or mapping
        A key of `SHAPES`, the path of a configuration file (``config.json``) or of a folder with
        one, a model in the hub's local cache (``"org/model"``), or what the file holds.
    batch : int
        Sequences, images or recordings in a batch.
    sequence : int, optional
        Tokens of a sequence: of the text, and for a speech model of the transcript. Not for
        models that take images only.
    dtype : str
        Data type of parameters and images: ``"bf16"``, ``"fp16"`` or ``"fp32"``.
    autocast : str, optional
        The type of autocast around the forward pass; parameters are then of float32.
    attention : str
        ``"flash"`` or ``"efficient"``, which keep no scores, where the device can, or ``"math"``,
        which does.
    lora : int, optional
        Freeze the model, and train adapters of this rank on its linear layers.
    bits : int, optional
        4 or 8: pack the weights of linear layers, as a ``quantization_config`` of bitsandbytes in
        the configuration does; only adapters are trained then.
    tail_chunks : int, optional
        Compute head and loss of a language model in so many chunks of tokens, as
        `offcert.with_tail_chunks` does: gradients are the same up to rounding.
    """
    _require_positive(batch=batch, sequence=sequence, lora=lora, tail_chunks=tail_chunks)
    if attention not in ATTENTION:
        raise InputError(f"attention must be one of {', '.join(ATTENTION)}, not {show(attention)}")
    given, type_ = read_config(config), "float32" if autocast else _dtype("dtype", dtype)
    require_transformers("a model from its configuration")
    with quiet():
        model = _model(given, type_)
    packed = quantisation_of(given, bits)
    if packed is not None:
        if lora is None:
            raise InputError(
                f"lora is missing: weights of {packed.bits} bits are not trained, adapters are"
            )
        quantise(model, packed)
    if lora is not None:
        with_adapters(model, lora)
    if tail_chunks is not None:
        with_tail_chunks(model, tail_chunks)
    # What layers of 8 bits hold would be there beside what runs again.
    again = packed is None or packed.bits == 4
    contexts = _contexts(model, autocast, attention)

    def run(model: nn.Module, inputs: Any) -> torch.Tensor:
        with contexts():
            loss: torch.Tensor = model(**inputs).loss
        return loss

    draw = _batches(model, batch, sequence)
    return TrainingStep(model, run, draw, again=again)


def read_config(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration, given by name, by file or as a mapping.

    A name is that of a public shape, or of a model in the hub's local cache.
    """
    if isinstance(config, Mapping):
        return dict(config)
    if config in SHAPES:
        return dict(SHAPES[config].config)
    path = Path(config)
    if path.is_dir():
        path /= CONFIG_NAME
    elif path.suffix != ".json":
        path = _in_cache(config)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold an object, not {short_repr(found)}")
    return found


def _in_cache(name: str) -> Path:
    """Return the configuration of a model that the hub's local cache has; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    named = (os.environ.get(each) for each in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"))
    folder = Path(next((each for each in named if each), f"{home}/hub")).expanduser()
    try:
        found = try_to_load_from_cache(name, CONFIG_NAME, cache_dir=folder)
    except HFValidationError:
        found = None
    if not isinstance(found, str):
        raise InputError(
            f"a configuration must be a file that ends in .json, a folder with a {CONFIG_NAME}, a "
            f"model in the cache at {folder}, or one of {', '.join(SHAPES)}, not "
            f"{show(name)}{meant(name, SHAPES)}"
        )
    return Path(found)


def _model(config: Mapping[str, Any], dtype: str) -> nn.Module:
    """Return a model with fresh weights, in training mode."""
    import transformers

    kind, names = config.get("model_type"), config.get("architectures")
    if not isinstance(kind, str):
        raise InputError(f"model_type must be a string, not {short_repr(kind)}")
    if not isinstance(names, list | tuple) or len(names) != 1:
        raise InputError(f"architectures must name one model, not {short_repr(names)}")
    built: Any = getattr(transformers, str(names[0]), None)
    if not _is_model(built):
        raise InputError(f"architectures: transformers has no model {show(str(names[0]))}")
    try:
        given = {name: value for name, value in config.items() if name not in _NOT_OURS}
        made = transformers.AutoConfig.for_model(kind, **given)
        # Caches are for generating; they hold what nothing in a training step reads.
        made.use_cache = False
        model = built._from_config(made, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    except Exception as error:
        raise InputError(f"no model {names[0]} can be made of it: {one_line(error)}") from error
    model.train()
    if getattr(model, "loss_type", "") is None:
        # What it falls back on, with a warning about a setting that nobody made.
        model.loss_type = "ForCausalLM"
    assert isinstance(model, nn.Module)
    return model


def _is_model(built: object) -> bool:
    from transformers import PreTrainedModel

    return isinstance(built, type) and issubclass(built, PreTrainedModel)


# What a file may hold that is about how it was made, or said by the arguments here.
_NOT_OURS = {
    "model_type", "dtype", "torch_dtype", "transformers_version", "_attn_implementation",
    "quantization_config",
}  # fmt: skip


def _batches(model: Any, batch: int, sequence: int | None) -> Callable[[], dict[str, Any]]:
    """Return a function that draws a batch of a model's inputs, with labels for its loss."""
    config, wanted, device = model.config, model.main_input_name, device_of(model)
    dtype = next(model.parameters()).dtype
    name = type(model).__name__
    if wanted == "pixel_values":
        if sequence is not None:
            raise InputError(f"sequence is for models that read text, which {name} does not")
        side = config.image_size
        high, wide = side if isinstance(side, list | tuple) else (side, side)
        shape: tuple[int, ...] = (batch, config.num_channels, high, wide)
    elif wanted == "input_features":
        # Two frames of the spectrum are one position.
        shape = (batch, config.num_mel_bins, 2 * config.max_source_positions)
    elif wanted == "input_ids":
        shape = ()
    else:
        raise InputError(f"{name} takes {wanted}: describe its training step with a TrainingStep")
    if wanted != "pixel_values" and sequence is None:
        raise InputError(f"sequence is missing: how many tokens {name} is trained on")
    text = (batch, sequence or 0)
    if sequence is not None:
        _require_positions(model, sequence)
    classes = getattr(config, "num_labels", 2)
    classifies = "Classification" in name

    def draw() -> dict[str, Any]:
        inputs = {wanted: torch.randn(shape, dtype=dtype, device=device)} if shape else {}
        if wanted == "input_ids":
            words = config.get_text_config().vocab_size
            inputs[wanted] = torch.randint(words, text, device=device)
        if classifies:
            return inputs | {"labels": torch.randint(classes, (batch,), device=device)}
        words = config.get_text_config().vocab_size
        return inputs | {"labels": torch.randint(words, text, device=device)}

    return draw


def _require_positions(model: nn.Module, sequence: int) -> None:
    """Refuse a sequence that is longer than a model's table of positions, which ends the step.

    Tensors without data would not notice. Positions that are computed (rotary ones) have no end.
    """
    found = []
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(module, nn.Embedding) and ("pos" in name or name == "wpe"):
            # Some models begin to count behind the row for padding, or with an offset.
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1
            found.append(module.num_embeddings - skipped - int(getattr(module, "offset", 0)))
    most = min(found, default=sequence)
    if sequence > most:
        raise InputError(
            f"sequence must be at most {most:,}, as many positions as {type(model).__name__} has, "
            f"not {sequence:,}"
        )


def _contexts(model: nn.Module, autocast: str | None, attention: str) -> Callable[[], Any]:
    """Return a function that makes the contexts of a forward pass."""
    kind = device_of(model).type
    # The one kernel of the CPU stands for either.
    chosen = "flash" if attention == "efficient" and kind != "cuda" else attention
    dtype = None if autocast is None else getattr(torch, _dtype("autocast", autocast))
    if dtype is torch.float32:
        raise InputError("autocast must be to bf16 or fp16, not to fp32")

    @contextmanager
    def contexts() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(_nothing_packed())
            # What is switched off around it stays off.
            off = {kernel for kernel, enabled in _ENABLED.items() if not enabled()}
            stack.enter_context(sdpa_kernel([k for k in ATTENTION[chosen] if k not in off]))
            if dtype is not None:
                stack.enter_context(torch.autocast(kind, dtype))
                if kind == "cpu":
                    stack.enter_context(CardAutocast())
            yield

    return contexts


def _nothing_packed() -> Any:
    """Let models know that a batch has one sequence a row, as they else read off its positions.

    Tensors without data have none to read, and models then make masks that steps do without.
    """
    from transformers import masking_utils

    return patch.object(masking_utils, "find_packed_sequence_indices", lambda positions: None)


def _dtype(field: str, name: str) -> str:
    if name not in DTYPES:
        raise InputError(f"{field} must be one of {', '.join(DTYPES)}, not {show(name)}")
    return DTYPES[name]


def _require_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and (type(number) is not int or number < 1):
            raise InputError(f"{name} must be a positive integer, not {short_repr(number)}")


# Given by PyTorch: "CUDA Ops that can autocast to float32" of its page about torch.amp. Losses that
# are made of others here are left out.
_NAMES = (
    "__pow__", "__rpow__", "__rdiv__", "__rtruediv__", "acos", "asin", "cosh", "cdist",
    "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "cumprod", "cumsum",
    "dist", "erfinv", "exp", "expm1", "group_norm", "kl_div", "l1_loss", "layer_norm", "log",
    "log10", "log_softmax", "log1p", "log2", "mse_loss", "nll_loss", "norm", "normalize", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "rsqrt", "sinh", "smooth_l1_loss", "softmax",
    "soft_margin_loss", "softmin", "softplus", "sum", "renorm", "tan", "triplet_margin_loss",
)  # fmt: skip
_HALF = (torch.float16, torch.bfloat16)


def _functions() -> Iterable[Callable[..., Any]]:
    for owner in (torch, torch.Tensor, functional):
        yield from (getattr(owner, name) for name in _NAMES if hasattr(owner, name))


_IN_FLOAT32 = frozenset(_functions())


class CardAutocast(TorchFunctionMode):
    """Computes in float32 as a card's autocast does, where autocast of the CPU is on."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function, with its tensors in float32 if a card's autocast sees to that."""
        given = dict(kwargs or {})
        # Whoever names a type, or where the result goes, gets that.
        named = given.get("dtype") is not None or given.get("out") is not None
        if func in _IN_FLOAT32 and not named and torch.is_autocast_enabled("cpu"):
            args = tuple(map(_cast, args))
            given = {name: _cast(value) for name, value in given.items()}
        return func(*args, **given)


def _cast(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value
