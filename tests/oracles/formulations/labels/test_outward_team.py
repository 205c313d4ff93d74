"""Looking at regions in several threads."""

import pytest

from offcert.core.errors import MethodError
from offcert.formulations.labels.outward.bound import proof_of
from offcert.formulations.labels.outward.evaluation import Team
from offcert.formulations.labels.outward.model import cut
from offcert.formulations.labels.outward.tree import Tree
from support.problems.outward import cases, no_pause


def test_threads_divide_regions_in_the_same_way() -> None:
    divided = 0
    for problem, optimum, pivot, _, _ in cases(range(3000, 3030), 5):
        try:
            trees = [Tree(problem, pivot, (1,), no_pause, workers) for workers in (1, 3)]
        except MethodError:
            # Nothing has to leave for this operation.
            continue
        for tree in trees:
            while not tree.finished(optimum + 1) and tree.nodes < 200:
                tree.step(optimum + 1, lambda schedule, upper=optimum + 1: upper)
        one, three = (proof_of(tree, tree.bound(optimum + 1)) for tree in trees)
        assert one == three
        assert trees[0].labels == trees[1].labels
        divided += any(one.splits)
    assert divided > 10


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_when_nothing_is_going_on_any_more(workers: int) -> None:
    problem, _, pivot, _, _ = next(iter(cases(range(3000, 3030), 5)))
    team = Team([cut(problem, pivot, 1)], no_pause, workers)
    busy: set[int] = set()

    def work(evaluators: object, item: int) -> int:
        assert id(evaluators) not in busy
        busy.add(id(evaluators))
        try:
            if item == 7:
                raise ValueError(item)
            return item + 1
        finally:
            busy.remove(id(evaluators))

    assert team.each(work, range(7)) == list(range(1, 8))
    with pytest.raises(ValueError, match="7"):
        team.each(work, range(20))
    assert not busy
