"""Same seed, same bytes; knobs do what they say; sources are enough to make a problem again."""

from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.instances.cnn import CnnChains, UniformChains, cnn_chain
from offcert.instances.kinds import KINDS, from_source, generator
from offcert.instances.layers import (
    DecoderTraces,
    MixedPrecisionTraces,
    TransformerTraces,
    UnetTraces,
)
from offcert.instances.two_partition import two_partition
from offcert.questions.schedule.files import problem_digest

# Of seed 3, all knobs at their defaults.
DIGESTS = {
    "cnn": "c22b5cccb4c8b69e6e85e716a9366b75f9d565a347184f3796afa1130ed6d442",
    "transformer": "57e80917f66baba79a5a3c77db2f788bda6ec91a1d14e930c57e322d66cdfda1",
    "uniform": "9375427e7f0bc4c4187680b744a904d34c0265c6b711e4d4cd5945f4998fb17d",
    "mixed-precision": "8ab9682b52dee55f187ab5a43034db0e77d99e646751a0e4df69e55ae532c1f0",
    "decoder": "322dbfe22a6aa11da5c05fa52cfdf1f82376bf96a1180c7d4970089927a076dc",
    "unet": "a42e37d41074aaa16444d1bd12a595e848d3159baddc6eb8eff7a2f6876a5da7",
    "three-partition": "599c64a825fb5e0a643b7db7b1adcf45efa00b0fd6894103a595269837755392",
    "checkpoint-chain": "213a447911c42b739a9cb9f83dedcaad5fe1d3e460006039c5e0ea8c6fe69abf",
    "recompute-network": "6c23782cd22b624aba1372dc511b9fc9bb4b193a9e3c16790ce9dfbe83226f9e",
    "recompute-partition": "b85cc6d8e94aa19c38bab6a72b116e51cd8f461e2717ba34a730481b698d7740",
    "two-partition": "69e1744c2c8d2b879c250253ad2710bf6e5fd5bfa4657763fdcceaa37337ed97",
}


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes(kind: str) -> None:
    assert problem_digest(KINDS[kind]().problem(3)) == DIGESTS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_iterating_yields_different_problems_that_their_sources_make_again(kind: str) -> None:
    problems = list(islice(KINDS[kind](), 4))
    assert len({problem.network for problem in problems}) == 4
    for seed, problem in enumerate(problems):
        assert problem.source is not None
        assert problem.source["seed"] == seed
        assert problem_digest(from_source(problem.source)) == problem_digest(problem)


def test_numbers_of_the_first_benchmark_are_kept() -> None:
    # Drawn once with floating-point powers; records and published figures rest on them.
    problem = cnn_chain(8, 0)
    chain = problem.chain
    assert chain is not None
    assert chain.activation == (2227, 736, 1117, 504, 362, 598, 123, 197, 63)
    assert chain.forward == (207, 175, 309, 639, 871, 725, 425, 575)
    assert problem.platform.bandwidth == Fraction(5927, 5762)
    assert problem.platform.memory == problem.trace.least_memory


@pytest.mark.parametrize("cls", [CnnChains, UniformChains, TransformerTraces])
@pytest.mark.parametrize("ratio", [Fraction(1, 2), Fraction(1), Fraction(3)])
def test_the_ratio_is_that_of_moving_everything_to_computing(cls: Any, ratio: Fraction) -> None:
    problem = cls(ratio=ratio).problem(1)
    trace = problem.trace
    if problem.chain is not None:
        moved = sum(problem.chain.activation)
    else:
        moved = sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
    assert 2 * moved / problem.platform.bandwidth == ratio * trace.compute_time


def test_knobs_of_chains() -> None:
    smooth = CnnChains(spread=Fraction(1), shrink=Fraction(16), stages=16, spikes=0).problem(0)
    assert smooth.chain is not None
    sizes = smooth.chain.activation
    assert list(sizes) == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (2000, 125)
    assert not any(smooth.chain.forward_workspace)
    spiky = CnnChains(spikes=4, stages=40).problem(0).chain
    assert spiky is not None
    assert sum(size > 0 for size in spiky.forward_workspace) > 35
    alike = UniformChains(spread=Fraction(1)).problem(5).chain
    assert alike is not None
    assert len(set(alike.activation)) == len(set(alike.forward)) == len(set(alike.backward)) == 1


def test_memory_is_a_part_of_the_way_to_the_peak() -> None:
    problem = CnnChains().problem(2, Fraction(1, 4))
    least, peak = problem.trace.least_memory, problem.trace.peak_memory
    assert problem.platform.memory == least + (peak - least) // 4


def test_transformers_save_inputs_and_internals() -> None:
    trace = TransformerTraces(blocks=3).problem(0).trace
    last = len(trace) - 1
    named = {tensor.name: tensor for tensor in trace.tensors}
    assert len(trace) == 12
    assert named["internals2"].uses == (2, last - 2)
    assert named["x2"].uses == (1, 2, last - 2)
    assert named["y2"].uses == (last - 2, last - 1)
    assert named["internals0"].size == 54 * named["x1"].size
    assert named["internals1"].size == 10 * named["x1"].size
    assert not named["y2"].evictable


def test_layers_of_decoders_are_all_alike() -> None:
    """Seed 3 draws 3328 tokens and the widths of Llama 3.2 1B: 2048, 512 and 8192."""
    one, many = (DecoderTraces(layers=layers).problem(3).trace for layers in (1, 128))
    saved = [tensor.size for tensor in one.tensors if tensor.evictable]
    assert sum(saved) == 2 * 3328 * (6 * 2048 + 2 * 512 + 3 * 8192)
    into = next(each for each in one.operations if each.name == "F:0.feed-forward-in")
    # 2 · 3328 · 2048 · 16384 operations at 400,000 a nanosecond: 558,345.75.
    assert into.duration == 558_346
    assert many.compute_time == 128 * one.compute_time
    assert sum(each.size for each in many.tensors if each.evictable) == 128 * sum(saved)
    # All that is saved is there at once, and what is computed with last beside it.
    assert many.peak_memory - one.peak_memory == 127 * sum(saved)


def test_products_in_16_bits_have_half_the_bytes_and_a_part_of_the_time() -> None:
    """Seed 1 draws 37 times 2^20 numbers, and a first product that doubles them."""
    stream = 37 * 2**20
    wide, half = (MixedPrecisionTraces(layers=2, half=part).problem(1).trace for part in (0, 100))
    sizes = [{each.name: each.size for each in trace.tensors} for trace in (wide, half)]
    assert [each["0.input"] for each in sizes] == [4 * stream, 4 * stream]
    assert [each["0.normed"] for each in sizes] == [4 * stream, 2 * stream]
    assert [each["0.output"] for each in sizes] == [8 * stream, 4 * stream]
    # 8192 · 2 · 38,797,312 operations at 60,000 a nanosecond, and at four times that.
    assert [trace.durations[1] for trace in (wide, half)] == [10_594_253, 2_648_564]
    assert wide.durations[0] == half.durations[0]
    # The input of a layer is read by its norm, forward and backward: the first and the last.
    assert wide.tensors[0].uses == (-1, 0, 12)


def test_unets_hold_what_skips_or_let_it_leave() -> None:
    held = UnetTraces(depth=3).problem(0).trace
    free = UnetTraces(depth=3, hold=False).problem(0).trace
    stages, last = 7, 13
    for level in range(2):
        number = level + 1
        reader = stages - 1 - level
        ours = next(t for t in held.tensors if t.name == f"x{number}")
        theirs = next(t for t in free.tensors if t.name == f"x{number}")
        readers = {level, number, reader, last - reader, last - number}
        assert theirs.uses == tuple(sorted(readers))
        gaps = [gap for gap in held.gaps if held.tensors[gap.tensor] is ours]
        between = [(gap.before, gap.after) for gap in gaps]
        assert between == ([(reader, last - reader)] if last - reader > reader + 1 else [])
        assert ours.size == theirs.size
    assert len(free.gaps) > len(held.gaps)
    spans = sorted((gap.before, gap.after) for gap in held.gaps)
    assert all(a[1] >= b[1] for a, b in pairwise(spans))


@pytest.mark.parametrize(
    ("kind", "knobs", "message"),
    [
        ("rnn", {}, "generator must be one of cnn"),
        ("cnn", {"layers": 3}, 'generator cnn has no knob "layers"'),
        ("cnn", {"stages": 0}, "stages must be at least 1, not 0"),
        ("cnn", {"stages": "8"}, "stages must be an integer, not '8'"),
        ("cnn", {"ratio": "0"}, "ratio must be more than 0, not 0"),
        ("cnn", {"shrink": "1/2"}, "shrink must be at least 1, not 1/2"),
        ("cnn", {"ratio": "1.5"}, "ratio must look like"),
        ("uniform", {"spread": True}, "spread must be a rational, not True"),
        ("unet", {"hold": 1}, "hold must be true or false, not 1"),
    ],
)
def test_bad_knobs_get_one_sentence(kind: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generator(kind, knobs)


def test_sources_of_given_values_and_of_others() -> None:
    problem = two_partition([3, 5, 4, 6], "interruptible")
    assert problem.source is not None
    assert problem_digest(from_source(problem.source)) == problem_digest(problem)
    with pytest.raises(InputError, match=r"source\.generator must be one of"):
        from_source({"model": "resnet18"})
    with pytest.raises(InputError, match="seed must be at least 0"):
        CnnChains().problem(-1)


@pytest.mark.parametrize(
    ("kind", "knob"),
    [
        ("cnn", "stages"),
        ("decoder", "layers"),
        ("three-partition", "m"),
        ("two-partition", "count"),
        ("unet", "depth"),
    ],
)
def test_a_problem_has_only_so_many_parts(kind: str, knob: str) -> None:
    with pytest.raises(InputError, match=f"{knob} must be at most [0-9]+, not 1000000000"):
        generator(kind, {knob: 10**9})
