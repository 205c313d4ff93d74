import pytest

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.trace import Gap, Operation, Tensor, Trace
from support.problems.long_problems import long_problem
from support.problems.random_instances import random_problem
from support.seeds import by_seeds


def trace_of(*tensors: Tensor, operations: int = 6) -> Trace:
    return Trace([Operation(f"o{i}", 1) for i in range(operations)], tensors)


def test_gaps_have_an_operation_inside() -> None:
    trace = trace_of(Tensor("a", 5, (0, 1, 3, 5)), Tensor("b", 7, (-1, 0, 1)))
    assert trace.gaps == (Gap(0, 1, 3), Gap(0, 3, 5))


def test_empty_and_pinned_tensors_have_no_gaps() -> None:
    assert trace_of(Tensor("a", 0, (0, 5)), Tensor("b", 9, (0, 5), evictable=False)).gaps == ()


def test_demand_counts_from_the_writer_to_the_last_use() -> None:
    trace = Trace(
        [Operation("a", 1, 100), Operation("b", 1), Operation("c", 1)],
        [Tensor("x", 1, (-1, 0)), Tensor("y", 2, (0, 2)), Tensor("z", 4, (1,))],
    )
    assert trace.demand == (103, 6, 2)
    assert trace.peak_memory == 103


def test_least_memory_lets_leave_whatever_an_operation_does_not_use() -> None:
    trace = trace_of(Tensor("a", 5, (0, 4)), Tensor("b", 3, (1, 2, 5)), operations=6)
    assert trace.least_memory == 5
    pinned = trace_of(Tensor("a", 5, (0, 4), evictable=False), Tensor("b", 3, (1, 2, 5)))
    assert pinned.least_memory == 8


def test_what_is_resident_at_the_start_must_fit_before_anything_runs() -> None:
    trace = trace_of(Tensor("a", 5, (-1, 3)), Tensor("b", 6, (-1, 4)))
    assert trace.least_memory == 11


def test_a_chain_frees_an_activation_after_the_backward_operation_of_its_writer() -> None:
    trace = Chain([1, 1, 1], [1, 1, 1], [2, 3, 5, 7], [0, 0, 0, 0]).trace()
    x1 = next(tensor for tensor in trace.tensors if tensor.name == "x1")
    # F_0 writes it, F_1 and B_1 read it, B_0 reads it last.
    assert x1.uses == (0, 1, 4, 5)
    assert [operation.name for operation in trace.operations] == [
        *("F0", "F1", "F2"),
        *("B2", "B1", "B0"),
    ]


def test_chain_demand_is_the_papers_table() -> None:
    chain = Chain([1, 1], [1, 1], [10, 20, 40], [1, 2, 4], [100, 200], [1000, 2000])
    # F_0: x0 x1; F_1: x0 x1 x2; B_1: all x, y1, y2; B_0: x0 x1 y0 y1. Plus workspaces.
    assert chain.trace().demand == (130, 270, 76 + 2000, 33 + 1000)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Tensor("a", -1, (0, 2)), r"trace\.tensors\[0\]\.size must be at least 0, not -1"),
        (Tensor("a", 1, ()), r"trace\.tensors\[0\]\.uses must name at least one operation"),
        (Tensor("a", 1, (-1,)), r"not only -1"),
        (Tensor("a", 1, (0, 9)), r"uses\[1\] must be below the number of operations, 6, not 9"),
        (Tensor("a", 1, (2, 2)), r"must increase strictly, but 2 follows 2"),
        (Tensor("a", 1.5, (0, 2)), r"size must be an integer, not 1\.5"),  # type: ignore[arg-type]
        (Tensor("a", True, (0, 2)), r"size must be an integer, not True"),
        (Tensor("a", 2**61, (0, 2)), r"sizes must sum to less than 2\*\*61"),
    ],
)
def test_a_bad_tensor_is_refused_by_place_and_value(tensor: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_of(tensor)


def test_a_chain_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"chain\.activation must have 3 entries for 2 stages"):
        Chain([1, 1], [1, 1], [1, 1], [1, 1, 1])
    with pytest.raises(InputError, match=r"chain\.backward\[1\] must be at least 0, not -4"):
        Chain([1, 1], [1, -4], [1, 1, 1], [1, 1, 1])


@by_seeds(0, 150, 30)
def test_sums_and_sweeps_over_gaps_are_those_of_the_lists(seeds: range) -> None:
    several = 0
    for seed in seeds:
        trace = random_problem(seed, largest=8).trace
        gaps = range(len(trace.gaps))
        absent: set[int] = set()
        for operation, over in enumerate(trace.gaps_over):
            assert over == tuple(gap for gap in gaps if trace.gaps[gap].spans(operation))
            absent.update(trace.gaps_entering[operation])
            absent.difference_update(trace.gaps_leaving[operation])
            assert absent == set(over)
            assert trace.evictable_over[operation] == sum(map(trace.gap_size, over))
            several += len(over) > 2
        kept = zip(trace.demand, trace.evictable_over, strict=True)
        assert trace.least_demand == tuple(demand - evictable for demand, evictable in kept)
        assert [trace.gap_numbers[gap.tensor, gap.before, gap.after] for gap in trace.gaps] == list(
            gaps
        )
    assert several >= 60


def test_long_traces_need_no_list_of_gaps_for_every_operation() -> None:
    trace = long_problem(0).trace
    assert len(trace) == 10_000
    assert len(trace.gaps) > 5_000
    assert trace.least_memory < trace.peak_memory
    assert "gaps_over" not in vars(trace)
