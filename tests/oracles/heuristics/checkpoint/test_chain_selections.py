"""The algorithms that select checkpoints of chains: against all subsets, and each other."""

import random

import pytest

from offcert.core.errors import InputError, MethodError
from offcert.heuristics.checkpoint import selections as algorithm_3
from offcert.heuristics.checkpoint.arbitrary import limits_tried, queued_reforwarding
from offcert.heuristics.checkpoint.live import budget_search, chen_memory, sqrt_rule
from offcert.heuristics.checkpoint.selections import (
    SELECTIONS,
    dynamic_selection,
    linear_selection,
    static_selection,
)
from papers.checkpoint_chains.memory_models import (
    MEMORY_MODELS,
    dynamic_memory,
    reforwarding_memory,
    static_memory,
)
from support.oracles.checkpoint import (
    algorithm_3_as_printed,
    algorithm_3_with_output_stored,
    algorithm_5_as_printed,
    algorithm_6_as_printed,
    equation_8,
    least,
    least_both,
    random_chains,
    random_sizes,
    smallest_failure,
    static_optimum,
)

CHAINS = random_chains(200, seed=1)


def test_all_subsets_at_once_are_all_subsets() -> None:
    for sizes in random_chains(40, seed=2, most=8):
        assert least_both(sizes) == (least(sizes, static_memory), least(sizes, dynamic_memory))


@pytest.mark.slow
def test_every_selection_is_what_it_says_and_the_optimal_ones_are() -> None:
    for sizes in CHAINS:
        static, dynamic = least_both(sizes)
        optimum = {
            "static": static,
            "dynamic": dynamic,
            "reforwarding": static - sizes[0] - sizes[-1],
        }
        for name, method in SELECTIONS.items():
            found = method.select(sizes)
            said = MEMORY_MODELS[method.model](sizes, found.checkpoints)
            assert found.memory == said, (name, sizes)
            if method.optimal:
                assert found.memory == optimum[method.model], (name, sizes)


def test_gradients_of_another_size_than_the_data() -> None:
    rng = random.Random(4)
    differing = 0
    for sizes in random_chains(200, seed=3, most=11):
        gradients = random_sizes(rng, len(sizes) - 1)
        optimum = least_both(sizes, gradients)[1]
        for select in (dynamic_selection, linear_selection):
            found = select(sizes, gradients)
            assert found.memory == optimum
            assert found.memory == dynamic_memory(sizes, found.checkpoints, gradients)
        differing += optimum != linear_selection(sizes).memory
    assert differing > 100


@pytest.mark.parametrize("layers", [300, 3000])
def test_long_chains_by_the_slow_and_the_fast_algorithm(layers: int) -> None:
    rng = random.Random(layers)
    for kind in range(6):
        sizes = [rng.randint(0, 10 ** (kind + 1)) for _ in range(layers + 1)]
        found = linear_selection(sizes)
        assert found.memory == dynamic_selection(sizes).memory
        assert found.memory == dynamic_memory(sizes, found.checkpoints)
    quick = queued_reforwarding(sizes)
    if layers < 1000:
        assert quick.memory == static_selection(sizes).memory - sizes[0] - sizes[-1]
    assert quick.memory == reforwarding_memory(sizes, quick.checkpoints)
    # Every sum of a segment is a limit of the published solver.
    assert limits_tried(sizes) < layers * layers // 100


def test_chen_stores_every_so_many_and_his_search_is_no_worse_than_its_grid() -> None:
    assert sqrt_rule([1] * 26).checkpoints == (0, 5, 10, 15, 20, 25)
    assert sqrt_rule([1] * 17).checkpoints == (0, 4, 8, 12, 16)
    assert sqrt_rule([3, 4]).checkpoints == (0, 1)
    for sizes in CHAINS[:60]:
        optimum = least(sizes, chen_memory) if len(sizes) < 10 else 0
        every = budget_search(sizes, budgets=None).memory
        assert optimum <= every <= budget_search(sizes).memory


def test_chens_pass_by_hand() -> None:
    """Budget 4: 3, then 3 + 2 = 5 ends a segment; 1, 1 + 4 = 5 ends one; 2 is left."""
    sizes = [9, 3, 2, 1, 4, 2]
    found = budget_search(sizes, budgets=None)
    # Stored 2 + 4, and 5 for the largest of 5, 5, 2; budget 5 stores 1 and has 6 twice: 7.
    assert chen_memory(sizes, (0, 2, 4, 5)) == 11
    assert (found.checkpoints, found.memory) == ((0, 3, 5), 7)


def test_what_is_measured_can_be_chosen() -> None:
    better = 0
    for sizes in CHAINS[:100]:
        found = budget_search(sizes, None, lambda c, sizes=sizes: dynamic_memory(sizes, c))
        assert found.memory == dynamic_memory(sizes, found.checkpoints)
        otherwise = dynamic_memory(sizes, budget_search(sizes, None).checkpoints)
        assert found.memory <= otherwise
        better += found.memory < otherwise
    assert better > 10


@pytest.mark.parametrize(
    ("printed", "right", "chain", "values"),
    [
        # (8) lets d_n lie in the last segment, which the paper excludes in words.
        (algorithm_3_as_printed, static_optimum, (1, 1, 1, 1), (3, 4)),
        # The loop adds i to the queue when M(i) is there: i itself is never the closest checkpoint.
        (algorithm_3_as_printed, equation_8, (1, 1, 2, 1), (5, 4)),
        (algorithm_3_with_output_stored, static_optimum, (1, 1, 2, 1, 1), (6, 5)),
        # M(1) leaves out the input, which is a checkpoint.
        (algorithm_5_as_printed, lambda d: least_both(d)[1], (1, 1), (1, 3)),
        # j + 1 may have left the queue.
        (algorithm_6_as_printed, lambda d: least_both(d)[1], (1, 1, 1, 1, 2), (6, 5)),
    ],
)
def test_smallest_chain_on_which_a_printed_algorithm_errs(printed, right, chain, values) -> None:
    assert (printed(chain), right(chain)) == values
    assert smallest_failure(printed, right, len(chain) - 1) == chain


def test_the_next_in_the_queue_mends_algorithm_6() -> None:
    def mended(sizes):
        return algorithm_6_as_printed(sizes, in_queue=True)

    assert smallest_failure(mended, lambda d: least_both(d)[1], 6) is None


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([5], "sizes must have at least 2 entries, not 1"),
        ([1, -2], r"sizes\[1\] must be at least 0, not -2"),
        ([1, 2.5], r"sizes\[1\] must be an integer, not 2.5"),
        ([2**59, 2**59], r"sizes must sum to less than 2\*\*60 bytes"),
    ],
)
def test_bad_sizes_are_refused(sizes: list, message: str) -> None:
    for method in SELECTIONS.values():
        with pytest.raises(InputError, match=message):
            method.select(sizes)


def test_gradients_must_be_as_many_as_data() -> None:
    with pytest.raises(InputError, match="gradients must have 3 entries, not 2"):
        linear_selection([1, 2, 3], [1, 2])


def test_what_would_take_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm_3, "MAX_LAYERS", 3)
    with pytest.raises(MethodError, match="for 3 layers at most, not 4"):
        static_selection([1] * 5)
