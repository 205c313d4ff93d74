"""Steps in rounds: what is offered, and why rounds can be scheduled one by one."""

from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import Round, Split, SplitProblem
from support.oracles.schedules import brute_force
from support.problems.random_instances import seeded


def random_round(seed: int, operations: int) -> Trace:
    """Return a small trace on which nothing but weights is there at the start."""
    rng = seeded(seed)
    steps = [
        Operation(f"o{i}", rng.choice((0, 1, 4, 9)), rng.choice((0, 2))) for i in range(operations)
    ]
    tensors = [Tensor("weights", 2, (-1, operations - 1), evictable=False)]
    for number in range(2):
        uses = sorted(rng.sample(range(operations), rng.randint(2, min(3, operations))))
        tensors.append(Tensor(f"t{number}", rng.randint(1, 6), tuple(uses)))
    return Trace(steps, tensors)


def joined(rounds: list[Trace]) -> Trace:
    """Return rounds one after the other; the weights are one tensor."""
    operations: list[Operation] = []
    tensors: list[Tensor] = []
    for trace in rounds:
        begin = len(operations)
        operations += trace.operations
        tensors += [
            Tensor(t.name, t.size, tuple(use + begin for use in t.uses))
            for t in trace.tensors
            if t.evictable
        ]
    weights = rounds[0].tensors[0]
    held = Tensor("weights", weights.size, (-1, len(operations) - 1), evictable=False)
    return Trace(operations, [held, *tensors])


@pytest.mark.parametrize("seed", range(24))
def test_a_step_takes_as_long_as_its_rounds_together(seed: int) -> None:
    rounds = [random_round(2 * seed + number, 4 - number) for number in range(2)]
    least = max(trace.least_memory for trace in rounds)
    peak = max(trace.peak_memory for trace in rounds)
    link = Link.DUPLEX if seed % 3 == 0 else Link.SIMPLEX
    platform = Platform((least + peak) // 2, Fraction(2, 3), link)
    apart = [brute_force(Problem("round", trace, platform)) for trace in rounds]
    whole = brute_force(Problem("step", joined(rounds), platform))
    assert None not in apart
    assert whole == sum(value for value in apart if value is not None)


def test_what_must_be_true_of_rounds_and_splits() -> None:
    trace = random_round(0, 4)
    with pytest.raises(InputError, match="there at the start of the round"):
        Round(1, 1, Trace(trace.operations, [Tensor("x", 1, (-1, 3))]))
    with pytest.raises(InputError, match="there at the start of the round"):
        Round(1, 1, Trace(trace.operations, [Tensor("x", 1, (-1, 2), evictable=False)]))
    with pytest.raises(InputError, match="names operation 9"):
        Round(1, 1, trace, Menu({9: (Alternative("x", 1),)}))
    with pytest.raises(InputError, match=r"round\.images must be at least 1"):
        Round(0, 1, trace)
    with pytest.raises(InputError, match="at least one round"):
        Split(())
    splits = (Split([Round(4, 1, trace)]), Split([Round(3, 2, trace)]))
    with pytest.raises(InputError, match="same batch, not of 4 and 6"):
        SplitProblem("s", splits, Platform(9, Fraction(1)))
    with pytest.raises(InputError, match="at least one Split"):
        SplitProblem("s", (), Platform(9, Fraction(1)))


def test_a_round_is_a_problem_of_its_own() -> None:
    trace = random_round(0, 4)
    menu = Menu({1: (Alternative("slow", 9), Alternative("fast", 3, 6))})
    rest = Round(1, 1, trace)
    step = SplitProblem("s", (Split([Round(3, 2, trace, menu), rest]),), Platform(30, Fraction(1)))
    assert (step.batch, step.sizes) == (7, (3,))
    first = step.splits[0].rounds[0]
    assert first.chosen((1,)).operations[1] == Operation("o1 [fast]", 3, 6)
    assert first.relaxed(step.platform.memory).operations[1] == Operation("o1", 3, 0)
    assert step.scheduling(rest.chosen(())).trace == trace
    assert step.with_memory(5).scheduling(trace).platform.memory == 5
