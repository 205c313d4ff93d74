"""The UNet of a diffusion model as SDXL has it, from a configuration file of `diffusers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from offcert.core.errors import InputError
from offcert.core.messages import short_repr, show
from offcert.runtime.workloads.standard_step import device_of

KIND = "UNet2DConditionModel"
# Channels in a group of a group normalisation; words of a prompt, given by its text encoders; and
# steps of the noise: all by definition of SDXL.
_GROUPS, _WORDS, _STEPS = 32, 77, 1000
# The longest period of the waves that tell the time: by definition of positional embeddings.
_SLOWEST = 10_000
# The configuration's numbers of SDXL's kind of network; another kind is refused.
_KNOWN = {
    "_class_name": KIND,
    "act_fn": "silu",
    "addition_embed_type": "text_time",
    "use_linear_projection": True,
    "norm_num_groups": _GROUPS,
}
_SIZES = (
    "sample_size",
    "in_channels",
    "out_channels",
    "layers_per_block",
    "cross_attention_dim",
    "projection_class_embeddings_input_dim",
)
_LISTS = ("block_out_channels", "transformer_layers_per_block", "attention_head_dim")
_DOWN, _ATTENDING = "DownBlock2D", "CrossAttnDownBlock2D"


class _Residual(nn.Module):
    """Two convolutions, between which the time enters, beside what skips them."""

    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(_GROUPS, channels), nn.GroupNorm(_GROUPS, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(functional.silu(self.norm1(x)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        inner = self.conv2(functional.silu(self.norm2(inner)))
        out: Tensor = self.shortcut(x) + inner
        return out


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, given: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(given, width, bias=False), nn.Linear(given, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        parts = (self.q(x), self.k(given), self.v(given))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return out


class _Layer(nn.Module):
    """Attention within the image, attention to the prompt, and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.image = _Attention(width, heads, width)
        self.prompt = _Attention(width, heads, words)
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        inner = self.norm1(x)
        x = x + self.image(inner, inner)
        x = x + self.prompt(self.norm2(x), prompt)
        value, gate = self.wide(self.norm3(x)).chunk(2, dim=-1)
        out: Tensor = x + self.narrow(value * functional.gelu(gate))
        return out


class _Transformer(nn.Module):
    def __init__(self, width: int, head: int, layers: int, words: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(_GROUPS, width, eps=1e-6)
        self.inwards, self.outwards = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(_Layer(width, head, words) for _ in range(layers))

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        inner = self.inwards(self.norm(x).flatten(2).transpose(1, 2))
        for layer in self.layers:
            inner = layer(inner, prompt)
        return x + self.outwards(inner).transpose(1, 2).unflatten(2, x.shape[2:])


class _Level(nn.Module):
    """Residual parts of one resolution, each with a transformer after it if `layers` is not 0."""

    def __init__(
        self, channels: Sequence[int], out: int, head: int, layers: int, config: Mapping[str, Any]
    ) -> None:
        super().__init__()
        time, words = 4 * config["block_out_channels"][0], config["cross_attention_dim"]
        self.residuals = nn.ModuleList(_Residual(each, out, time) for each in channels)
        self.transformers = nn.ModuleList(
            _Transformer(out, head, layers, words) if layers else nn.Identity() for _ in channels
        )

    def step(self, index: int, x: Tensor, time: Tensor, prompt: Tensor) -> Tensor:
        x = self.residuals[index](x, time)
        attends = self.transformers[index]
        return attends(x, prompt) if isinstance(attends, _Transformer) else x


class UNet(nn.Module):
    """A network that tells the noise in a latent image, under a prompt.

    Parameters
    ----------
    config : mapping
        The checked content of a `UNet2DConditionModel`'s configuration file (`read_unet`).

    References
    ----------
    Podell and others: SDXL: Improving Latent Diffusion Models for High-Resolution Image Synthesis.
    2023, section 2.1.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.described = config
        widths, heads = config["block_out_channels"], config["attention_head_dim"]
        attends = [kind == _ATTENDING for kind in config["down_block_types"]]
        layers = [
            each if attending else 0
            for each, attending in zip(config["transformer_layers_per_block"], attends, strict=True)
        ]
        time, count = 4 * widths[0], config["layers_per_block"]
        self.time = _embedding(widths[0], time)
        self.more = _embedding(config["projection_class_embeddings_input_dim"], time)
        self.conv_in = nn.Conv2d(config["in_channels"], widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.smaller, self.larger = nn.ModuleList(), nn.ModuleList()
        skips, before = [widths[0]], widths[0]
        for index, width in enumerate(widths):
            inputs = [before, *[width] * (count - 1)]
            self.down.append(_Level(inputs, width, heads[index], layers[index], config))
            last = index + 1 == len(widths)
            self.smaller.append(
                nn.Identity() if last else nn.Conv2d(width, width, 3, stride=2, padding=1)
            )
            skips += [width] * (count if last else count + 1)
            before = width
        self.middle = _Level([before, before], before, heads[-1], layers[-1], config)
        self.middle.transformers[1] = nn.Identity()
        for index in reversed(range(len(widths))):
            width, inputs = widths[index], []
            for _ in range(count + 1):
                inputs.append(before + skips.pop())
                before = width
            self.up.append(_Level(inputs, width, heads[index], layers[index], config))
            self.larger.append(nn.Conv2d(width, width, 3, padding=1) if index else nn.Identity())
        self.norm_out = nn.GroupNorm(_GROUPS, widths[0])
        self.conv_out = nn.Conv2d(widths[0], config["out_channels"], 3, padding=1)

    def forward(self, noisy: Tensor, steps: Tensor, prompt: Tensor, more: Tensor) -> Tensor:
        """Return the noise (batch, channels, side, side).

        Parameters
        ----------
        noisy : Tensor
            Of the same shape.
        steps : Tensor
            How much noise there is, (batch,).
        prompt, more : Tensor
            Embeddings of the prompt, (batch, words, width), and what else is known, (batch, width).
        """
        half = self.described["block_out_channels"][0] // 2
        rates = torch.exp(-torch.arange(half, device=noisy.device) / half * log(_SLOWEST))
        angles = steps[:, None].float() * rates
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(noisy.dtype))
        time = time + self.more(more)
        x = self.conv_in(noisy)
        kept = [x]
        levels: Any = self.down
        for level, smaller in zip(levels, self.smaller, strict=True):
            for index in range(len(level.residuals)):
                x = level.step(index, x, time, prompt)
                kept.append(x)
            if isinstance(smaller, nn.Conv2d):
                x = smaller(x)
                kept.append(x)
        for index in range(2):
            x = self.middle.step(index, x, time, prompt)
        levels = self.up
        for level, larger in zip(levels, self.larger, strict=True):
            for index in range(len(level.residuals)):
                x = level.step(index, torch.cat([x, kept.pop()], 1), time, prompt)
            if isinstance(larger, nn.Conv2d):
                x = larger(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        out: Tensor = self.conv_out(functional.silu(self.norm_out(x)))
        return out


def _embedding(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, out), nn.SiLU(), nn.Linear(out, out))


def read_unet(config: Mapping[str, Any]) -> UNet:
    """Return the network that a configuration describes, with fresh weights of float32."""
    for name, wanted in _KNOWN.items():
        if config.get(name) != wanted:
            raise InputError(
                f"{name} must be {show(str(wanted))}, as of SDXL, not "
                f"{short_repr(config.get(name))}"
            )
    for name in _SIZES:
        if type(config.get(name)) is not int or config[name] < 1:
            raise InputError(
                f"{name} must be a positive integer, not {short_repr(config.get(name))}"
            )
    kinds = config.get("down_block_types")
    if not isinstance(kinds, list | tuple) or not set(kinds) <= {_DOWN, _ATTENDING} or not kinds:
        raise InputError(
            f"down_block_types must list {_DOWN} or {_ATTENDING}, not {short_repr(kinds)}"
        )
    for name in _LISTS:
        found = config.get(name)
        if not isinstance(found, list | tuple) or len(found) != len(kinds):
            raise InputError(f"{name} must list {len(kinds)} numbers, not {short_repr(found)}")
        if not all(type(number) is int and number >= 1 for number in found):
            raise InputError(f"{name} must list positive integers, not {short_repr(found)}")
    for width, heads in zip(
        config["block_out_channels"], config["attention_head_dim"], strict=True
    ):
        if width % _GROUPS or width % heads:
            raise InputError(
                f"block_out_channels must be multiples of {_GROUPS} and of their heads, not {width}"
            )
    return UNet(config)


def unet_batches(model: UNet, batch: int, dtype: torch.dtype) -> Callable[[], dict[str, Any]]:
    """Return a function that draws a batch: noisy images, noise, noise levels and prompts."""
    config, device = model.described, device_of(model)
    side, channels = config["sample_size"], config["in_channels"]
    widths = config["cross_attention_dim"], config["projection_class_embeddings_input_dim"]

    def draw() -> dict[str, Any]:
        def drawn(*shape: int) -> Tensor:
            return torch.randn(batch, *shape, dtype=dtype, device=device)

        return {
            "noisy": drawn(channels, side, side),
            "noise": drawn(config["out_channels"], side, side),
            "steps": torch.randint(_STEPS, (batch,), device=device),
            "prompt": drawn(_WORDS, widths[0]),
            "more": drawn(widths[1]),
        }

    return draw


def unet_loss(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the mean squared error of the noise that a network tells."""
    given = {name: each for name, each in inputs.items() if name != "noise"}
    return functional.mse_loss(model(**given).float(), inputs["noise"].float())
