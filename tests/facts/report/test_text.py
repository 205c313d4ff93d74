"""What is said of a problem."""

from fractions import Fraction

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.proofs.settings import Notes
from offcert.questions.schedule.problem import Problem
from offcert.report.findings import notes_lines
from offcert.report.text import describe_problem, problem_summary


def problem(back: Fraction | None = None) -> Problem:
    chain = Chain([3, 4, 1], [1, 4, 2], [10, 2, 3, 0], [0] * 4)
    return Problem("p", chain, Platform(20, Fraction(2), prefetch_bandwidth=back))


def test_the_time_to_move_everything_counts_each_way_at_its_rate() -> None:
    # x_0 and x_1 may leave: 12 bytes.
    assert "  moving it all  12 both ways" in describe_problem(problem()).splitlines()
    two = describe_problem(problem(Fraction(5))).splitlines()
    assert "  moving it all  9 both ways: 6 out, 3 back" in two


def test_programs_get_both_rates() -> None:
    one, two = problem_summary(problem()), problem_summary(problem(Fraction(7, 3)))
    assert (one["bandwidth"], one["prefetch_bandwidth"]) == ("2", "2")
    assert (two["bandwidth"], two["prefetch_bandwidth"]) == ("2", "7/3")


def test_an_interrupted_search_says_so() -> None:
    assert notes_lines(Notes()) == []
    assert notes_lines(Notes(interrupted=True)) == [
        "  interrupted: this is the best that was known then"
    ]
