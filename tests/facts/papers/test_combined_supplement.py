"""The combined paper's supplement: Lemma 1 against a search, and states by hand."""

from dataclasses import dataclass

from papers.combined.supplement import FixedSequence, allowed, choices, counted, sequences


def test_waiting_by_hand() -> None:
    # At the end 2 bytes are there. The first operation needs 9; 4 come while the second runs.
    own = FixedSequence((1, 2), (9, 2), 2, 2)
    assert own.idle_by_lemma() == own.idle_by_search() == 2
    # What lacks 3 bytes waits two ticks on a grid.
    assert FixedSequence((1,), (5,), 2, 2).idle_by_search() == 2
    assert FixedSequence((3,), (0,), 1, 5).idle_by_search() == 0


def test_the_lemma_is_what_the_search_finds() -> None:
    found = [(each.idle_by_lemma(), each.idle_by_search()) for each in sequences(80)]
    assert [stated for stated, _ in found] == [least for _, least in found]
    assert len({least for _, least in found}) > 5


@dataclass(frozen=True)
class Broken(FixedSequence):
    """Counts the time of an operation itself, in which nothing may have come yet."""

    def idle_by_lemma(self) -> int:
        behind, most = sum(self.durations), 0
        for duration, memory in zip(self.durations, self.memory, strict=True):
            most = max(most, -(-(memory - self.least - self.rate * behind) // self.rate))
            behind -= duration
        return most


def test_a_broken_lemma_is_found() -> None:
    drawn = [Broken(s.durations, s.memory, s.rate, s.least) for s in sequences(80)]
    assert any(each.idle_by_lemma() != each.idle_by_search() for each in drawn)


def test_choices_of_two_stages_by_hand() -> None:
    # Two states, at the first and at the loss: the input leaves, or stays; one size fits once.
    assert choices(2, 1, [1, 1]) == 1 + 2 + 2


def test_choices_stay_below_the_order_that_is_stated() -> None:
    for layers, slots in ((4, 6), (8, 12), (12, 12)):
        assert 0 < counted(layers, slots) <= allowed(layers, slots)
    assert allowed(2, 3) == 4 * 27 + 8 * 9
