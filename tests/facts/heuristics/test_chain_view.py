"""The chain view demands at least the trace's memory and frees at most what the trace can."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.dynprog import chain_view
from offcert.heuristics.orders.ordered import ordered_makespan
from offcert.questions.schedule.problem import Problem
from support.problems.random_instances import (
    cnn_chain,
    spiky_chain,
    trace_with_internals,
    trace_with_skips,
)


def problem_of(network: Trace | Chain) -> Problem:
    return Problem("p", network, Platform(10**6, Fraction(1)))


def trace_with_lazy_readers(rng: random.Random, stages: int) -> Trace:
    """A chain in which some backward operations do not need their stage's input."""
    trace = cnn_chain(rng, stages).trace()
    tensors = [
        replace(tensor, uses=(*tensor.uses[:2], tensor.uses[-1]))
        if len(tensor.uses) == 4 and rng.random() < 0.5
        else tensor
        for tensor in trace.tensors
    ]
    return Trace(trace.operations, tensors)


def network_traces(count: int) -> list[Trace]:
    return [
        family(random.Random(seed), 1 + seed % 6)
        for seed in range(count)
        for family in (trace_with_internals, trace_with_skips, trace_with_lazy_readers)
    ]


@pytest.mark.parametrize("family", [cnn_chain, spiky_chain])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_chain_is_its_own_view_and_its_trace_gives_it_back(family, stages):
    chain = family(random.Random(stages), stages)
    given = chain_view(problem_of(chain))
    assert given.chain is chain
    seen = chain_view(problem_of(chain.trace()))
    assert seen.gap_groups == given.gap_groups
    assert seen.chain.trace().demand == chain.trace().demand
    for field in ("forward", "backward"):
        assert getattr(seen.chain, field) == getattr(chain, field)
    if stages > 1:
        assert seen.chain.activation == chain.activation
        assert seen.chain.gradient == chain.gradient
        assert seen.chain.backward_workspace == chain.backward_workspace


def test_each_activation_of_a_chain_stands_for_its_own_gap():
    chain = Chain([1] * 4, [1] * 4, [3, 0, 5, 7, 9], [0] * 5)
    # x_1 is empty, x_3 is read by adjacent operations and x_4 lives across the turn only.
    assert chain_view(problem_of(chain)).gap_groups == ((0,), (), (1,), (), ())


def _ends(trace: Trace, gap: int) -> tuple[int, int]:
    return trace.gaps[gap].before, trace.gaps[gap].after


def test_the_view_is_conservative():
    traces = network_traces(80)
    groups = mirrored = 0
    for trace in traces:
        view = chain_view(problem_of(trace))
        seen = view.chain.trace()
        assert all(a >= b for a, b in zip(seen.demand, trace.demand, strict=True))
        assert seen.durations == trace.durations
        for activation, group in enumerate(view.gap_groups):
            freed = sum(trace.gap_size(gap) for gap in group)
            groups += len(group)
            mirrored += sum(sum(_ends(trace, gap)) == len(trace) - 1 for gap in group)
            for o in range(len(trace)):
                if group and activation < o < len(trace) - 1 - activation:
                    assert freed == view.chain.activation[activation]
                    assert all(trace.gaps[gap].spans(o) for gap in group)
    assert 0 < mirrored < groups  # both kinds of gap were met


def test_a_set_that_runs_on_the_view_runs_on_the_trace_and_no_slower():
    compared = 0
    for seed, trace in enumerate(network_traces(60)):
        rng = random.Random(seed)
        view = chain_view(problem_of(trace))
        seen = view.chain.trace()
        memory = rng.randint(seen.least_memory, max(seen.least_memory, seen.peak_memory - 1))
        platform = Platform(memory, Fraction(1, 2))
        chosen = tuple(i for i, group in enumerate(view.gap_groups) if group and rng.random() < 0.8)
        own = [
            gap
            for gap, there in enumerate(seen.gaps)
            if int(seen.tensors[there.tensor].name[1:]) in chosen
        ]
        on_view = ordered_makespan(Problem("view", seen, platform), own)
        if on_view is not None:
            on_trace = ordered_makespan(Problem("trace", trace, platform), view.gaps_of(chosen))
            assert on_trace is not None
            compared += 1
    assert compared > 20


def test_internals_are_merged_into_the_output():
    operations = [Operation(f"o{i}", 1) for i in range(6)]
    tensors = [
        Tensor("x0", 2, (-1, 0, 5)),
        Tensor("z0", 10, (0, 5)),
        Tensor("x1", 3, (0, 1, 4, 5)),
        Tensor("z1", 20, (1, 4)),
        Tensor("weights", 100, (-1, 5), evictable=False),
    ]
    view = chain_view(problem_of(Trace(operations, tensors)))
    assert view.chain.activation == (2, 13, 20, 0)
    # z1 belongs to x_2, which the chain cannot evict.
    assert view.gap_groups == ((0,), (1, 2), (), ())
    assert view.chain.forward_workspace == (100, 100, 100)


def test_an_odd_number_of_operations_has_no_view():
    trace = Trace([Operation("a", 1)] * 3, [Tensor("t", 1, (0, 2))])
    with pytest.raises(MethodError, match="odd number of operations, 3"):
        chain_view(problem_of(trace))


def test_a_gap_that_is_not_mirrored_counts_as_the_widest_stage_inside_it():
    names = ("F0", "F1", "F2", "B2", "B1", "B0")
    operations = [Operation(name, 1) for name in names]
    skip = Tensor("skip", 7, (-1, 1, 5))  # idle from F1 to B0, so certainly from F1 to B1
    view = chain_view(problem_of(Trace(operations, [skip])))
    assert view.chain.activation == (0, 7, 0, 0)
    assert view.gap_groups == ((), (1,), (), ())
    assert view.chain.trace().demand == (7, 7, 7, 7, 7, 7)
