"""What is said of a problem."""

from dataclasses import replace
from fractions import Fraction

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.proofs.any_certificate import Notes
from offcert.questions.schedule.problem import Problem
from offcert.report.execution import times_lines
from offcert.report.findings import describe_elsewhere, notes_lines
from offcert.report.page import PageDocument, page
from offcert.report.text import SCHEDULE, describe_certificate, describe_problem, problem_summary
from offcert.verification.document import verify
from offcert.verification.elsewhere import verify_on


def problem(back: Fraction | None = None) -> Problem:
    chain = Chain([3, 4, 1], [1, 4, 2], [10, 2, 3, 0], [0] * 4)
    return Problem("p", chain, Platform(20, Fraction(2), prefetch_bandwidth=back))


def test_the_time_to_move_everything_counts_each_way_at_its_rate() -> None:
    # x_0 and x_1 may leave: 12 bytes.
    assert "  moving it all  12 both ways" in describe_problem(problem()).splitlines()
    two = describe_problem(problem(Fraction(5))).splitlines()
    assert "  moving it all  9 both ways: 6 out, 3 back" in two


def test_whose_times_these_are_is_said_beside_every_time() -> None:
    said = "roofline of h100-sxm; of its peaks are reached: product 0.803; attention by flash-2"
    source = {"hardware": "h100-sxm", "efficiency": {"product": "0.803"}, "attention": "flash-2"}
    modelled = replace(problem(), source=source)
    certificate = solve(modelled, "greedy")
    texts = [
        describe_problem(modelled),
        describe_certificate(certificate),
        describe_elsewhere(verify_on(certificate, modelled)),
        SCHEDULE.describe_valid(verify(certificate)),
    ]
    for text in texts:
        (line,) = (each for each in text.splitlines() if each.startswith("  times "))
        assert line.endswith(said)
    assert said in page([PageDocument("c", certificate)])
    assert times_lines(problem()) == []
    calibrated = replace(problem(), source=source | {"sustained": "0.74"})
    [line] = times_lines(calibrated)
    assert "product 0.803; in training 0.74 of that, but for traffic; attention" in line
    measured = replace(problem(), source={"hardware": "NVIDIA L4", "measured": True})
    assert times_lines(measured) == ["  times        measured on NVIDIA L4"]


def test_programs_get_both_rates() -> None:
    one, two = problem_summary(problem()), problem_summary(problem(Fraction(7, 3)))
    assert (one["bandwidth"], one["prefetch_bandwidth"]) == ("2", "2")
    assert (two["bandwidth"], two["prefetch_bandwidth"]) == ("2", "7/3")


def test_an_interrupted_search_says_so() -> None:
    assert notes_lines(Notes()) == []
    assert notes_lines(Notes(interrupted=True)) == [
        "  interrupted: this is the best that was known then"
    ]
