"""Models of `transformers` from small configurations, each with what makes a batch for it.

Nothing is loaded from anywhere. Dropout is on wherever the architecture has it.
"""

import os
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf

Batch = dict[str, torch.Tensor]
# A model, and what makes a batch for it.
Made = tuple[Any, Callable[..., Batch]]

VOCABULARY = 61
_TEXT: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
_LLAMA: dict[str, Any] = {
    **_TEXT,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "attention_dropout": 0.1,
    "max_position_embeddings": 32,
}


def _tokens(*size: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, size)


def _text(batch: int = 2, length: int = 12) -> Batch:
    tokens = _tokens(batch, length)
    mask = torch.ones_like(tokens)
    mask[0, length - 3 :] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": _tokens(batch, length)}


def _text_class(batch: int = 2, length: int = 12) -> Batch:
    return _text(batch, length) | {"labels": torch.randint(2, (batch,))}


def _pixels(batch: int = 2, side: int = 32) -> Batch:
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.arange(batch) % 2}


def _segments(batch: int = 2, side: int = 32) -> Batch:
    labels = torch.randint(2, (batch, side, side))
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": labels}


def _speech(batch: int = 2, samples: int = 1600) -> Batch:
    return {"input_values": torch.randn(batch, samples), "labels": _tokens(batch, 3)}


def _spectrum(batch: int = 2, length: int = 6) -> Batch:
    return {"input_features": torch.randn(batch, 8, 32), "labels": _tokens(batch, length)}


def gpt2() -> Made:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    return hf.GPT2LMHeadModel(config), _text


def bert() -> Made:
    config = hf.BertConfig(**_TEXT, num_attention_heads=2, intermediate_size=48)
    return hf.BertForMaskedLM(config), _text


def llama() -> Made:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_LLAMA)), _text


def qwen2() -> Made:
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(**_LLAMA, tie_word_embeddings=True)), _text


def mixtral() -> Made:
    config = hf.MixtralConfig(**_LLAMA, num_local_experts=4, output_router_logits=True)
    return hf.MixtralForCausalLM(config), _text


def t5() -> Made:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return hf.T5ForConditionalGeneration(config), _text


def vit() -> Made:
    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        image_size=32, patch_size=8, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return hf.ViTForImageClassification(config), _pixels


def distilbert() -> Made:
    config = hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=2
    )
    return hf.DistilBertForSequenceClassification(config), _text_class


def wav2vec2() -> Made:
    config = hf.Wav2Vec2Config(
        **_TEXT, num_attention_heads=2, intermediate_size=48, conv_dim=(16, 16),
        conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_length=2,
        mask_time_prob=0.2, ctc_zero_infinity=True, layerdrop=0.0,
    )  # fmt: skip
    return hf.Wav2Vec2ForCTC(config), _speech


def segformer() -> Made:
    config = hf.SegformerConfig(
        depths=[1, 1], hidden_sizes=[16, 32], num_encoder_blocks=2, num_attention_heads=[1, 2],
        sr_ratios=[4, 1], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=16, drop_path_rate=0.1,
    )  # fmt: skip
    return hf.SegformerForSemanticSegmentation(config), _segments


def whisper() -> Made:
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_source_positions=16, max_target_positions=16, dropout=0.1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return hf.WhisperForConditionalGeneration(config), _spectrum


def convnext() -> Made:
    config = hf.ConvNextConfig(
        depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 24, 32], drop_path_rate=0.1, image_size=32
    )
    return hf.ConvNextForImageClassification(config), _pixels


def opt() -> Made:
    config = hf.OPTConfig(
        **_TEXT, ffn_dim=48, num_attention_heads=2, word_embed_proj_dim=32,
        max_position_embeddings=32,
    )  # fmt: skip
    return hf.OPTForCausalLM(config), _text


def mamba() -> Made:
    config = hf.MambaConfig(**_TEXT, state_size=4)
    return hf.MambaForCausalLM(config), lambda: {
        "input_ids": _tokens(2, 8),
        "labels": _tokens(2, 8),
    }


MODELS = {
    "gpt2": gpt2, "bert": bert, "llama": llama, "qwen2": qwen2, "mixtral": mixtral, "t5": t5,
    "vit": vit, "distilbert": distilbert, "wav2vec2": wav2vec2, "segformer": segformer,
    "whisper": whisper, "convnext": convnext, "opt": opt, "mamba": mamba,
}  # fmt: skip


def build(name: str) -> Made:
    """Return the model in training mode and what makes a batch for it."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    return model.train(), batch


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """Run one forward pass of any of the models."""
    return model(**batch).loss
