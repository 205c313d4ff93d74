from fractions import Fraction
from pathlib import Path

import pytest
from random_instances import mixed_problem, random_problem

from offcert.certify.methods import solve
from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.problem import Problem
from offcert.core.result import Result, SolveStatus
from offcert.core.simulate import simulate
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.sequential import sequential
from offcert.proofs.certificate import Certificate
from offcert.report.gantt import memory_curve, save_gantt, turn


def test_the_memory_curve_of_a_hand_computed_schedule() -> None:
    chain = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
    problem = Problem("p", chain, Platform(12, Fraction(2)))
    times, held = memory_curve(problem, simulate(problem, sequential(problem)))
    # x0 leaves from 0 to 5; F_1 (x1, x2, workspace 8) runs from 5 to 9 and B_1 (x1, x2) from 9 to
    # 11; only then is there room for x0, which is back at 16 for B_0.
    curve = {0: 12, 3: 12, 5: 11, 9: 3, 11: 12, 16: 12, 20: 0}
    assert dict(zip(times, held, strict=True)) == curve


def test_the_curve_never_exceeds_the_limit_and_ends_empty() -> None:
    for seed in range(80):
        problem = mixed_problem(seed, 6)
        problem = problem.with_memory(problem.trace.least_memory)
        if 0 in problem.trace.durations:
            continue
        times, held = memory_curve(problem, simulate(problem, sequential(problem)))
        assert times == sorted(set(times))
        assert max(held) <= problem.platform.memory
        assert held[-1] == 0


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    certificate = solve(random_problem(5), "sequential")
    with pytest.raises(InputError, match=r"must end in \.png or \.svg"):
        save_gantt(certificate, tmp_path / "plan.pdf")
    empty = Certificate(certificate.problem, Result(SolveStatus.UNKNOWN, None), "none")
    with pytest.raises(InputError, match="no schedule to draw"):
        save_gantt(empty, tmp_path / "plan.png")
    assert list(tmp_path.iterdir()) == []
    save_gantt(certificate, tmp_path / "plan.svg")
    assert "</svg>" in (tmp_path / "plan.svg").read_text()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_backward_pass_begins_where_an_operation_is_named_so() -> None:
    def problem(*names: str) -> Problem:
        trace = Trace([Operation(name, 1) for name in names], [Tensor("x", 1, (0, 1))])
        return Problem("p", trace, Platform(5, Fraction(1)))

    assert turn(problem("F:a", "F:loss", "R:a", "B:loss", "B:a")) == 3
    assert turn(problem("a", "b", "c", "d")) == 2
