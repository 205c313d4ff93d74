"""Attention is counted for all kernels, heads, masks and windows, without PyTorch's formulas."""

import pytest
import torch
from torch.utils import flop_counter

from offcert.runtime.hardware.attention import attention_flops
from offcert.runtime.hardware.cost import operator_cost

aten = torch.ops.aten
BATCH, HEADS, ROWS, COLUMNS, WIDTH, VALUES = 2, 6, 5, 9, 8, 4
# Positions of query, key and value in the calls of kernels that the function for people chooses.
CHOSEN = {
    "flash_attention": ("query", "key", "value"),
    "efficient_attention": ("query", "key", "value", "attn_bias", "compute_log_sumexp"),
    "cudnn_attention": ("query", "key", "value", "attn_bias", "compute_log_sumexp"),
    "flash_attention_for_cpu": ("query", "key", "value"),
    "fused_attention_overrideable": ("query", "key", "value"),
}


def _meta(*shape):
    return torch.empty(shape, device="meta", dtype=torch.bfloat16)


def _call(func, query, key, value, **given):
    """Return positional and named arguments of a call, the rest of which does not matter."""
    known = {"query": query, "key": key, "value": value, **given}
    schema = func._schema.arguments
    args = [known.get(each.name) for each in schema if not each.kwarg_only]
    kwargs = {
        each.name: known[each.name] for each in schema if each.kwarg_only and each.name in known
    }
    assert set(given) <= {each.name for each in schema}
    return args, kwargs


def _masked(rows, columns, sees):
    return sum(sees(row, column) for row in range(rows) for column in range(columns))


@pytest.mark.parametrize("kernel", CHOSEN)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("columns", [ROWS, COLUMNS])
def test_grouped_heads_and_other_tokens_count_as_many_scores_as_there_are(kernel, groups, columns):
    query = _meta(BATCH, HEADS, ROWS, WIDTH)
    key, value = _meta(BATCH, groups, columns, WIDTH), _meta(BATCH, groups, columns, VALUES)
    scores = BATCH * HEADS * ROWS * columns
    forward = getattr(aten, f"_scaled_dot_product_{kernel}").default
    backward = getattr(aten, f"_scaled_dot_product_{kernel}_backward").default
    assert attention_flops(forward, *_call(forward, query, key, value)) == (
        2 * scores * (WIDTH + VALUES)
    )
    assert attention_flops(backward, *_call(backward, query, key, value)) == (
        2 * scores * (3 * WIDTH + 2 * VALUES)
    )
    # With as many heads everywhere PyTorch's formulas say the same.
    shapes = [(BATCH, HEADS, *each.shape[2:]) for each in (query, key, value)]
    both = flop_counter.sdpa_flop_count(*shapes)
    assert both == 2 * scores * (WIDTH + VALUES)
    gradient = (BATCH, HEADS, ROWS, VALUES)
    again = flop_counter.sdpa_backward_flop_count(gradient, *shapes)
    assert again == 2 * scores * (3 * WIDTH + 2 * VALUES)


def test_the_cost_of_a_call_on_a_card_needs_no_formula_of_pytorch(monkeypatch):
    """Its formula of release 2.11 refuses heads that several heads of queries share."""

    def refuse(*args, **kwargs):
        raise AssertionError("query/key/value shapes are incompatible")

    query, key = _meta(1, 32, 16, 64), _meta(1, 8, 16, 64)
    func = aten._scaled_dot_product_flash_attention.default
    monkeypatch.setitem(flop_counter.flop_registry, func.overloadpacket, refuse)
    flops, traffic = operator_cost(func, (query, key, key, 0.0, True), {}, query.clone())
    assert flops == 4 * 32 * 64 * (16 * 17 // 2)
    assert traffic == 2 * (2 * query.numel() + key.numel())


def test_a_mask_of_bytes_is_computed_and_one_of_the_kernel_is_not():
    query, key = _meta(1, 1, 16, 8), _meta(1, 1, 16, 8)
    func = aten._scaled_dot_product_efficient_attention.default
    whole, causal = (
        attention_flops(func, *_call(func, query, key, key, attn_bias=bias, is_causal=seen))
        for bias, seen in ((_meta(1, 1, 16, 16), False), (None, True))
    )
    assert (whole, causal) == (4 * 8 * 256, 4 * 8 * 136)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(None, None), (-1, -1), (2, 0), (1, 2), (0, 0)])
def test_windows_of_flash_attention_end_with_the_last_key(shape, causal, window):
    rows, columns = shape
    query, key = _meta(BATCH, rows, HEADS, WIDTH), _meta(BATCH, columns, 2, WIDTH)
    left, right = (99 if each in (None, -1) else each for each in window)
    right = 0 if causal else right

    def sees(row, column):
        at = row + columns - rows
        return at - left <= column <= at + right

    given = {"is_causal": causal, "window_size_left": window[0], "window_size_right": window[1]}
    scores = BATCH * HEADS * _masked(rows, columns, sees)
    for func, products in (
        (aten._flash_attention_forward.default, 2),
        (aten._flash_attention_backward.default, 5),
    ):
        found = attention_flops(func, *_call(func, query, key, key, **given))
        assert found == 2 * scores * products * WIDTH


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3)])
@pytest.mark.parametrize(("mask", "window"), [(0, None), (1, None), (2, None), (1, 3), (2, 2)])
def test_masks_and_windows_of_the_memory_efficient_kernel(shape, mask, window):
    rows, columns = shape
    query, key = _meta(BATCH, rows, HEADS, WIDTH), _meta(BATCH, columns, HEADS, WIDTH)

    def sees(row, column):
        at = row + (columns - rows if mask == 2 else 0)
        return not mask or at - (window or 99) < column <= at

    func = aten._efficient_attention_forward.default
    given = {"custom_mask_type": mask, "window_size": window}
    found = attention_flops(func, *_call(func, query, key, key, **given))
    assert found == 4 * BATCH * HEADS * WIDTH * _masked(rows, columns, sees)


def test_sequences_one_behind_the_other_count_by_their_mean_length():
    # Three sequences of 12 tokens together, 4 on average.
    query, ends = _meta(12, HEADS, WIDTH), torch.empty(4, device="meta", dtype=torch.int32)
    expected = 4 * 3 * HEADS * WIDTH * 4 * 4
    for func, name in (
        (aten._flash_attention_forward.default, "cum_seq_q"),
        (aten._cudnn_attention_forward.default, "cum_seq_q"),
    ):
        call = _call(func, query, query, query, **{name: ends})
        assert attention_flops(func, *call) == expected
    func = aten._efficient_attention_forward.default
    packed = _meta(1, 12, HEADS, WIDTH)
    call = _call(func, packed, packed, packed, cu_seqlens_q=ends, custom_mask_type=0)
    assert attention_flops(func, *call) == expected
    assert attention_flops(aten.mm.default, (query, query), {}) is None
