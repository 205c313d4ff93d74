"""A decoder-only transformer with the architecture of GPT-2."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from offcert.core.errors import InputError


class Attention(nn.Module):
    """Causal self-attention with several heads.

    Written out as products and a softmax: the fused kernel that PyTorch picks for
    `scaled_dot_product_attention` depends on the device and on dropout, and with it what is
    saved for the backward pass; these operators save the same tensors everywhere.
    """

    future: Tensor

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        future = torch.ones(context, context, dtype=torch.bool).triu(1)
        # One mask a layer, so that no value is live across all layers and each is a stage.
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of `x` (batch, tokens, width), each with those before it."""
        # `unflatten` and `flatten` need no sizes and `narrow` takes traced ones, where a
        # slice would not.
        heads = self.c_attn(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        tokens = x.shape[1]
        future = self.future.narrow(0, 0, tokens).narrow(1, 0, tokens)
        scores = torch.matmul(query * self.scale, key.transpose(2, 3))
        weights = functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        mixed = torch.matmul(self.attn_dropout(weights), value)
        return self.resid_dropout(self.c_proj(mixed.transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them, on every token."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (batch, tokens, width) to the same shape."""
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class TransformerBlock(nn.Module):
    """Attention and feed-forward part, normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, context, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (batch, tokens, width) to the same shape."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A decoder-only transformer; the defaults are GPT-2 small with its tied embeddings.

    References
    ----------
    Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask
    Learners. 2019, section 2.3.
    """

    positions: Tensor

    def __init__(
        self,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        vocabulary: int = 50257,
        context: int = 1024,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width must be a multiple of heads, but {width} is not of {heads}.")
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        blocks = (TransformerBlock(width, heads, context, dropout) for _ in range(layers))
        self.h = nn.Sequential(*blocks)
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("positions", torch.arange(context), persistent=False)
        self._initialise(layers)

    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("c_proj.weight"):
                # Two of these feed the residual stream per block; it keeps its variance.
                nn.init.normal_(parameter, std=0.02 * (2 * layers) ** -0.5)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token numbers (batch, tokens) to logits (batch, tokens, vocabulary)."""
        positions = self.positions.narrow(0, 0, tokens.shape[1])
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        return self.lm_head(self.ln_f(self.h(x)))
