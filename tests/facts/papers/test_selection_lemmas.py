"""The selection paper's lemmas: the search finds what is broken, and follows the definitions."""

import pytest

from papers.checkpoint_chains.lemmas import (
    FOUR_LEMMAS,
    Lemma,
    Sizes,
    all_chains,
    failures,
    needed,
    random_chains,
    steps_linear,
    steps_static,
)


def test_what_a_segment_needs_by_hand() -> None:
    # Behind 0: 3, 1 and 2 up to 3; of 5, 3, 1 before it the largest is 5.
    assert needed([5, 3, 1, 2, 9], 0, 3) == 3 + 1 + 2 + 5


@pytest.mark.parametrize("lemma", FOUR_LEMMAS)
def test_no_small_chain_is_a_counterexample(lemma: Lemma) -> None:
    assert failures(lemma, all_chains(4, 3)) == (9 + 27 + 81 + 243, 0, "")
    assert failures(lemma, random_chains(50))[:2] == (50, 0)


def falls(sizes: Sizes) -> str:
    """``U(i, j)`` grows as `i` does: the second observation, turned round."""
    for j in range(2, len(sizes)):
        values = [needed(sizes, i, j) for i in range(j)]
        if values != sorted(values):
            return f"U(·, {j}) is {values}"
    return ""


def twice(sizes: Sizes) -> str:
    """The largest datum is less than twice the smallest."""
    return "" if max(sizes) < 2 * min(sizes) else "far apart"


def test_a_broken_lemma_is_found_with_its_first_counterexample() -> None:
    count, failed, first = failures(falls, all_chains(3, 2))
    assert count == 4 + 8 + 16
    assert failed == 8 + 16
    assert first == "sizes 1 1 1: U(·, 2) is [3, 2]"
    assert failures(twice, [(1, 1), (2, 1), (1, 3)]) == (3, 2, "sizes 2 1: far apart")


def test_steps_grow_as_the_algorithms_do() -> None:
    static, linear = (
        [steps([1] * (layers + 1)) for layers in (10, 20, 40)]
        for steps in (steps_static, steps_linear)
    )
    # Equal sizes have as many segment sums as layers.
    assert static[1] > 3 * static[0]
    assert static[2] > 3 * static[1]
    assert linear[2] < 2.5 * linear[1] < 2.5**2 * linear[0]
