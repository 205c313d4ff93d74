"""The table as points: what is taken from where, and what is refused."""

import json
import subprocess
import sys
from fractions import Fraction

import pytest

from offcert.core.errors import InputError
from offcert.formulations.combinatorial.relaxations import prop3_bound
from offcert.instances.cnn import cnn_chain
from offcert_lab.comparisons.points import by_problem, plain_rows, points_of
from support.problems.campaign_tables import rows, table

RATE = Fraction(2)


def test_a_point_joins_what_methods_found_at_one_limit() -> None:
    certified = {"makespan": 75, "lower_bound": 72, "proved_bound": 65}
    frame = table(
        rows("a", 140, certify=certified, greedy=80, autoswap=[79, 74], dynprog="NO_PLAN"),
        rows("a", 120, certify=90),
    )
    low, point = points_of(frame, RATE)
    assert (low.memory, low.optimum) == (120, 90)
    assert (point.best, point.lower, point.proved, point.optimum) == (74, 72, 65, None)
    assert point.makespan("autoswap") == 79
    assert [cell.makespan for cell in point.cells["autoswap"]] == [79, 74]
    assert point.makespan("dynprog") is None
    assert point.makespan("tflms") is None
    assert point.cell("tflms") is None
    assert point.label == "a at 40 %"


def test_proposition_3_is_the_larger_of_its_terms_and_bounds_what_nobody_certified() -> None:
    # 200 - 120 bytes out and back at 2 bytes a tick, or 60 ticks of computing.
    low, high = points_of(table(rows("a", 120, greedy=99), rows("a", 160, greedy=99)), RATE)
    assert (low.prop3, high.prop3) == (80, 60)
    assert low.lower == low.proved == 80
    fraction = points_of(table(rows("a", 120, greedy=99)), Fraction(7, 4))[0]
    assert fraction.prop3 == Fraction(80 * 8, 7)
    assert fraction.proved == 92


@pytest.mark.parametrize("percent", [0, 30, 70])
def test_proposition_3_agrees_with_the_bound_of_the_ladder(percent: int) -> None:
    problem = cnn_chain(8, 3)
    limited = problem.with_memory(problem.memory_at(Fraction(percent, 100)))
    trace = limited.trace
    made = rows(
        "c",
        limited.platform.memory,
        least=trace.least_memory,
        peak=trace.peak_memory,
        compute=trace.compute_time,
        greedy="NO_PLAN",
    )
    point = points_of(table(made), limited.platform.bandwidth)[0]
    assert point.proved == prop3_bound(limited, False).value


def test_the_bandwidth_comes_from_the_table_then_the_option() -> None:
    frame = table(rows("a", 120, greedy=999))
    with pytest.raises(InputError, match=r'bandwidth of the link of "a".*--bandwidth'):
        points_of(frame)
    with_column = frame.assign(bandwidth="5", prefetch_bandwidth="10")
    assert points_of(with_column, RATE)[0].rates == (5, 10)
    assert points_of(frame, RATE)[0].rates == (2, 2)


def test_infeasible_limits_are_known_by_status_or_by_memory() -> None:
    frame = table(
        rows("a", 90, certify="INFEASIBLE", greedy="NO_PLAN"),
        rows("a", 99, greedy="NO_PLAN"),
        rows("a", 100, greedy=200),
        rows("a", 200, greedy=60),
    )
    points = points_of(frame, RATE)
    assert [point.infeasible for point in points] == [True, True, False, False]
    assert [point.binding for point in points] == [False, False, True, False]


def test_problems_are_sorted_as_people_count() -> None:
    frame = table(*(rows(name, 120, greedy=99) for name in ("net101", "net18", "net50-b8")))
    assert list(by_problem(points_of(frame, RATE))) == ["net18", "net50-b8", "net101"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="peak_memory"), 'no column "peak_memory"'),
        (lambda frame: frame.assign(memory=None), 'row 1 .* no value in column "memory"'),
        (
            lambda frame: frame.assign(compute_time=range(len(frame))),
            '"a@120" disagree on compute_time: 0 and 1',
        ),
        (
            lambda frame: frame.assign(makespan=7),
            "a at 20 %: a lower bound of 80 contradicts a makespan of 7",
        ),
        (lambda frame: frame.assign(bandwidth="fast"), "bandwidth must look like"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: object, message: str) -> None:
    frame = table(rows("a", 120, greedy=99, vdnn=99))
    assert callable(change)
    with pytest.raises(InputError, match=message):
        points_of(change(frame), RATE)


def test_two_problems_of_one_name_are_not_mixed() -> None:
    other = [row | {"digest": "other"} for row in rows("a", 120, vdnn=99)]
    with pytest.raises(InputError, match='two problems called "a" with 120 bytes: digests a@120'):
        points_of(table(rows("a", 120, greedy=99), other), RATE)


def test_rows_become_plain_values_that_json_knows() -> None:
    (row,) = plain_rows(table(rows("a", 120, greedy="NO_PLAN", network=None)))
    assert row["makespan"] is None
    assert row["network"] is None
    assert (row["memory"], row["seconds"]) == (120, 0.01)
    json.dumps(row)


def test_curves_load_neither_pandas_nor_a_solver_before_they_need_it() -> None:
    code = (
        "import sys, offcert_lab.comparisons.points, offcert_lab.comparisons.curves\n"
        "sys.exit(', '.join({'pandas', 'matplotlib', 'ortools', 'torch'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
