"""What is said and drawn of certificates in which computations run again."""

import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.demonstration import _plan_lines
from offcert.core.strategy import Strategy
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.report.bars import LOOKS, bars_of, looks_of, turn
from offcert.report.execution import Reruns, choices_summary, reruns_of
from offcert.report.gantt import gantt_svg, save_gantt
from offcert.report.memory_curve import memory_curve
from offcert.report.text import (
    SCHEDULE,
    certificate_summary,
    describe_certificate,
    describe_problem,
    offloaded_names,
    problem_summary,
)
from offcert.verification.document import verify
from support.problems.joint_certificates import (
    chain_problem,
    checkpointed,
    least_memory_certificate,
    network_problem,
    random_certificate,
)
from support.problems.random_networks import random_strategy

SVG = "{http://www.w3.org/2000/svg}"


def drawn(certificate: Certificate) -> ElementTree.Element:
    return ElementTree.fromstring(ElementTree.tostring(gantt_svg(certificate)))


def titles(certificate: Certificate) -> list[str]:
    root = drawn(certificate)
    found = (rect.findtext(f"{SVG}title") for rect in root.iter(f"{SVG}rect"))
    return [title for title in found if title is not None]


@pytest.mark.parametrize("seed", range(6))
def test_operations_that_run_again_are_counted_as_the_trace_has_them(seed: int) -> None:
    certificate = random_certificate(seed)
    reruns = reruns_of(certificate)
    assert reruns is not None
    trace = certificate.executed.trace
    plain = certificate.problem.trace
    assert len(reruns.operations) == len(trace) - len(plain) == reruns.execution.repeated
    assert reruns.ticks == trace.compute_time - plain.compute_time
    named = [index for index, each in enumerate(trace.operations) if "(run " in each.name]
    assert list(reruns.operations) == named
    most = max(reruns.execution.runs.count(run) for run in reruns.execution.runs)
    assert reruns.most_runs == most


def test_how_often_the_most_often_one_runs_is_said_from_three_runs_on() -> None:
    problem = chain_problem()
    network = problem.computed
    assert network is not None
    for strategy, said in (
        (Strategy([*range(4), 1, *range(4, 8)]), "1 operation again: 2 ns, 10 %"),
        (Strategy([*range(4), 1, 1, *range(4, 8)]), "2 operations again, up to 3 times: 4 ns"),
        (Strategy.plain(network), "nothing"),
    ):
        reruns = Reruns(strategy.expand(network), problem.trace.compute_time)
        assert reruns.said(Units("ns", "B")).startswith(said)


def test_text_says_what_is_open_what_runs_again_and_what_leaves() -> None:
    certificate = checkpointed()
    text = describe_certificate(certificate).splitlines()
    assert text[0] == "four at 23: FEASIBLE"
    assert "  step time    41 (2.050 times the compute time)" in text
    assert "  recomputed   3 operations again: 7, 35 % of the compute time" in text
    assert offloaded_names(certificate) == ["a0", "a1", "e0"]
    assert certificate_summary(certificate)["execution"] == {
        "operations": 11,
        "again": 3,
        "computations_again": 3,
        "most_runs": 2,
        "recomputed_ticks": 7,
    }
    about = describe_problem(certificate.problem)
    assert "  may be done    offloading and recomputation of anything\n" in about
    assert "  may run again  4 of 8 computations\n" in about
    assert "  least memory   23\n" in about
    assert "- recomputed: 3 operations again: 7, 35 % of the compute time" in _plan_lines(
        certificate
    )


def test_problems_without_such_choices_are_described_as_before() -> None:
    plain = replace(chain_problem(), recompute=Recompute.NONE)
    assert choices_summary(plain) == {}
    assert "may be done" not in describe_problem(plain)
    assert problem_summary(plain)["least_memory"] == plain.trace.least_memory
    assert "may be done    neither offloading nor recomputation" in describe_problem(
        replace(plain, offload=False)
    )


def test_least_memory_is_in_bytes_and_times_stay_times() -> None:
    certificate = least_memory_certificate(deadline=50)
    in_bytes = replace(certificate.problem, units=Units("ns", "B"))
    certificate = replace(certificate, problem=in_bytes)
    text = describe_certificate(certificate)
    assert text.startswith("four, least memory within 50 ns: FEASIBLE\n  memory       23 B\n")
    assert "  step time    41 ns (" in text
    assert "  lower bound  0 B\n" in text
    summary = certificate_summary(certificate)
    assert (summary["objective"], summary["makespan"]) == (23, 41)
    about = problem_summary(in_bytes)
    assert (about["minimise"], about["deadline"]) == ("memory", 50)
    assert "memory limit" not in describe_problem(in_bytes)


def test_verification_says_what_it_found_of_the_execution() -> None:
    certificate = checkpointed()
    verification = verify(certificate)
    values, said = SCHEDULE.verified(verification)
    text = said.splitlines()
    assert "  execution 11 operations, each with its inputs" in text
    assert "  recomputed 3 operations again: 7, 35 % of the compute time" in text
    assert values["execution"]["again"] == 3
    stored = replace(certificate.problem, recompute=Recompute.CHAIN)
    _, text_of_chain = SCHEDULE.verified(verify(replace(certificate, problem=stored)))
    assert "inputs; what is stored stays until its backward operation" in text_of_chain
    _, least = SCHEDULE.verified(verify(least_memory_certificate()))
    assert "execution 11 operations" in least


def test_the_schedule_that_is_drawn_is_that_of_the_execution(tmp_path: Path) -> None:
    certificate = checkpointed()
    schedule = certificate.result.schedule
    assert isinstance(schedule, Schedule)
    looks = looks_of(certificate)
    bars = list(bars_of(certificate.executed, schedule, looks))
    again = [bar for bar in bars if bar.look == "again"]
    assert [bar.label for bar in again] == ["F0", "F1", "F2"]
    assert again[0].title.startswith("F0 (run 2): ")
    assert [look for look in looks if look != "again"] == ["forward"] * 4 + ["backward"] * 4
    text = "".join(drawn(certificate).itertext())
    assert LOOKS["again"].name in text
    assert sum("(run 2)" in title for title in titles(certificate)) == 3
    for name, magic in (("plan.svg", b"<?xml"), ("plan.png", b"\x89PNG")):
        save_gantt(certificate, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert max(memory_curve(certificate.executed, schedule)[1]) == 23


def test_the_legend_names_reruns_only_where_there_are_some() -> None:
    problem = replace(chain_problem(), recompute=Recompute.NONE)
    from offcert.certification.methods import solve

    certificate = solve(problem, "sequential")
    assert LOOKS["again"].name not in "".join(drawn(certificate).itertext())


def test_the_bound_of_least_memory_is_a_line_of_bytes() -> None:
    from offcert.core.result import Bound, Evidence

    certificate = least_memory_certificate()
    bound = Bound("some-bytes", 20, Evidence.ATTESTED)
    result = replace(certificate.result, bounds=(bound,))
    root = drawn(replace(certificate, result=result))
    (line,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "bound")
    assert line.findtext(f"{SVG}title") == "lower bound 20 (attested)"
    (limit,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == "limit")
    heights = [float(each.get("d", "").split(",")[1].split()[0]) for each in (line, limit)]
    # 20 of 23 bytes: below the limit, on the same scale.
    assert heights[0] > heights[1]
    assert " H" in line.get("d", "")


def test_notebooks_show_executions_and_objectives() -> None:
    for certificate in (checkpointed(), least_memory_certificate(), random_certificate(3)):
        text = certificate._repr_html_()
        ElementTree.fromstring(text)
        assert "recomputed" in text
        assert "may be done" in certificate.problem._repr_html_()
    assert ">memory</th>" in least_memory_certificate()._repr_html_()


def test_the_turn_of_a_network_is_where_gradients_begin() -> None:
    for seed in range(5):
        problem = network_problem(seed)
        network = problem.computed
        assert network is not None
        first = next(i for i, each in enumerate(network.computations) if not each.repeatable)
        assert turn(problem) == first


def test_unchecked_executions_are_described_and_drawn_all_the_same() -> None:
    """Whoever looks for a fault must see what a certificate claims."""
    certificate = checkpointed()
    execution = certificate.result.execution
    assert execution is not None
    wrong = replace(execution, runs=(99, *execution.runs[1:]))
    forged = replace(certificate, result=replace(certificate.result, execution=wrong))
    assert looks_of(forged)[0] == "again"
    assert titles(forged)
    assert "again" in describe_certificate(forged)


def test_random_strategies_of_random_problems_are_all_shown() -> None:
    rng = random.Random(7)
    for seed in range(4):
        problem: Problem = network_problem(seed)
        network = problem.computed
        assert network is not None
        reruns = Reruns(random_strategy(rng, network).expand(network), 1)
        assert reruns.to_json()["operations"] == len(reruns.execution.trace)


def test_a_problem_that_minimises_memory_says_so_in_a_line() -> None:
    problem = replace(chain_problem(), minimise=Minimise.MEMORY)
    assert "least memory, in any time" in repr(problem)
    assert "% between" not in repr(problem)
