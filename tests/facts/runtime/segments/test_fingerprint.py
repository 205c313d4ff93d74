"""Fingerprints of tensors: every bit counts, and its place."""

import pytest
import torch

from offcert.runtime.segments.fingerprint import fingerprint

SHAPES = [(), (3,), (5, 7), (64, 128), (4096, 128), (8, 16, 32, 32), (2**15,), (2**17 + 3,)]


def noise(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(one, other):
    return torch.equal(fingerprint(one), fingerprint(other))


@pytest.mark.parametrize("shape", SHAPES)
def test_any_single_element_counts(shape):
    tensor = noise(shape)
    assert same(tensor, tensor.clone())
    flat = tensor.reshape(-1)
    for place in {0, len(flat) // 3, len(flat) // 2, len(flat) - 1}:
        changed = flat.clone()
        changed[place] += 1
        assert not same(tensor, changed.reshape(shape))


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((4096, 128), (slice(None), slice(64, None))),
        ((4096, 128), (slice(None), slice(0, 1))),
        ((32, 64, 128), (slice(None), slice(0, 8))),
        ((8, 16, 32, 32), (slice(None), slice(0, 8))),
        ((2**18,), (slice(None, None, 32),)),
        ((2**18,), (slice(5, None, 2**13),)),
    ],
)
def test_columns_and_strides_are_never_missed(shape, part):
    """Samples at a fixed stride missed half of these in half of all steps."""
    tensor = noise(shape)
    for seed in range(20):
        changed = tensor.clone()
        changed[part] += noise(tensor[part].shape, seed + 1)
        assert not same(tensor, changed)


def test_places_count():
    tensor = noise((4, 2**15))
    swapped = tensor.clone()
    swapped[0, 0], swapped[3, 7] = tensor[3, 7], tensor[0, 0]
    assert not same(tensor, swapped)
    # Whole rows of the table in which words are summed.
    assert not same(tensor, tensor[[1, 0, 2, 3]])
    assert not same(tensor, tensor.flip(1))


def test_signs_count_in_pairs():
    """Differences in the highest bits of words alone are the worst case of the chance."""
    tensor = noise((64, 64))
    for seed in range(200):
        places = torch.randperm(4096, generator=torch.Generator().manual_seed(seed))[:2]
        flipped = tensor.clone()
        flipped.view(-1)[places] *= -1
        assert not same(tensor, flipped)


def test_payloads_of_nan_and_signs_of_zero_count():
    bits = torch.full((100,), 0x7FC00000, dtype=torch.int32)
    one = bits.view(torch.float32)
    bits = bits.clone()
    bits[50] = 0x7FC00001
    assert not same(one, bits.view(torch.float32))
    assert not same(torch.zeros(3), -torch.zeros(3))


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int16, torch.float16, torch.bfloat16, torch.int32,
     torch.float64, torch.int64, torch.complex64, torch.complex128],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 2, 3, 4, 33])
def test_data_types_and_odd_sizes(dtype, count):
    tensor = torch.zeros(count + 1, dtype=dtype)[1:]
    changed = tensor.clone()
    changed[-1] = 1
    assert same(tensor, tensor.clone())
    assert not same(tensor, changed)


def test_layouts():
    tensor = noise((8, 4, 6, 6)).contiguous(memory_format=torch.channels_last)
    assert same(tensor, tensor.clone(memory_format=torch.preserve_format))
    changed = tensor.clone(memory_format=torch.preserve_format)
    changed[3, 2, 1, 5] += 1
    assert not same(tensor, changed)
    part = noise((10, 10))[2:5, ::3]
    changed = part.clone()
    changed[2, 3] += 1
    assert same(part, part.clone())
    assert not same(part, changed)
    # All of these elements lie in one place: they take no memory to look at.
    assert same(noise((3, 1)).expand(3, 10**9), noise((3, 1)).expand(3, 10**9))


def test_nothing_is_said_of_tensors_without_bytes():
    assert fingerprint(torch.empty(3, device="meta")) is None
    assert fingerprint(torch.eye(3).to_sparse()) is None
