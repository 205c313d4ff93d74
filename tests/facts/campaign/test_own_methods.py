"""Functions of a user's own: what they may return, how they end, what is said of them."""

import json
from dataclasses import replace
from math import isclose
from pathlib import Path
from xml.etree import ElementTree

import pytest

import offcert
from offcert.campaign.cells import CellSettings, grid
from offcert.campaign.run import execute
from offcert.campaign.standing import Measured, describe_standings, profile, standings
from offcert.certification import interrupts, registry
from offcert.certification.methods import METHODS, solve
from offcert.cli import main
from offcert.core.errors import InputError
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.checkpoint_instances import CheckpointChains
from offcert.instances.cnn import cnn_chain
from offcert.questions.placement.problem import Placement, PlacementProblem, Residence
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.simulate import simulate
from offcert.report.profile_svg import profile_svg
from support.workers.own_methods import delayed, hangs, planned

OWN = "support.workers.own_methods"
BASE = cnn_chain(8, 0)
PROBLEM = BASE.with_memory("20%")
VALUE = simulate(PROBLEM, sequential(PROBLEM)).makespan


def done(name: str, problem: Problem = PROBLEM) -> tuple[object, object, str]:
    (cell,) = grid([problem], [f"{OWN}:{name}"], None, CellSettings(time_limit=2.0, seed=3))
    facts, _ = execute(cell)
    return facts["status"], facts.get("makespan"), str(facts.get("reason"))


@pytest.mark.parametrize(
    ("name", "status", "value", "reason"),
    [
        ("planned", "OPTIMAL", VALUE, "None"),
        ("scheduled", "OPTIMAL", VALUE, "None"),
        ("delayed", "FEASIBLE", VALUE + 1, "None"),
        ("told", "OPTIMAL", VALUE, "None"),
        ("nothing", "NO_PLAN", None, f"{OWN}:nothing found nothing"),
        ("raises", "FAILED", None, "RuntimeError: no luck at all"),
    ],
)
def test_what_comes_of_a_function(name: str, status: str, value: object, reason: str) -> None:
    assert done(name) == (status, value, reason)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("illegal", rf"{OWN}:illegal returned an invalid schedule: memory at .* over the"),
        ("whatever", rf"{OWN}:whatever must return a Plan, .*, not \['cnn-8-0'\]"),
        ("everything_once", "says what runs again, but nothing may in this problem"),
    ],
)
def test_what_is_no_answer_is_said(name: str, message: str) -> None:
    with pytest.raises(offcert.PlanError, match=message):
        solve(PROBLEM, f"{OWN}:{name}", time_limit=2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OWN}:missing", f"method {OWN}:missing cannot be imported: AttributeError"),
        ("nowhere:f", "method nowhere:f cannot be imported: ModuleNotFoundError"),
        (f"{OWN}:json", "cannot be imported"),
        (f"{OWN}:os", f"method {OWN}:os must name something that can be called"),
    ],
)
def test_what_is_no_function_is_refused_before_anything_runs(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid([PROBLEM], [text])


def test_a_method_with_an_option_is_no_function() -> None:
    with pytest.raises(InputError, match="option slots of method dynprog needs a value"):
        grid([PROBLEM], ["dynprog:slots"])


def test_a_strategy_is_measured_where_something_may_run_again() -> None:
    problem = next(iter(CheckpointChains(stages=4)))
    problem = replace(problem, recompute=Recompute.ANY, minimise=Minimise.TIME, offload=False)
    roomy = problem.with_memory("100%")
    status, value, _ = done("everything_once", roomy)
    assert (status, value) == ("OPTIMAL", problem.trace.compute_time)
    tight = roomy.with_memory(roomy.peak_memory - 1)
    with pytest.raises(offcert.PlanError, match="bytes and nothing more will be released"):
        solve(tight, f"{OWN}:everything_once", time_limit=2.0)


def test_another_text_of_a_function_is_another_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    keys = set()
    for text in ("return None", "return  None"):
        (tmp_path / "changing_method.py").write_text(f"def f(problem):\n    {text}\n")
        registry.code_digest.cache_clear()
        keys |= {cell.key for cell in grid([PROBLEM], ["changing_method:f"])}
    assert len(keys) == 2


def test_functions_that_die_or_hang_cost_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this program made, a function in a function, runs in a copy of this program."""
    monkeypatch.setattr(interrupts, "GRACE", 0.0)

    def sometimes(problem: Problem) -> object:
        if problem.name == "cnn-8-0":
            return hangs(problem)
        return planned(problem)

    problems = [PROBLEM, cnn_chain(8, 1).with_memory("20%")]
    found = offcert.benchmark([sometimes, f"{OWN}:dies", "sequential"], problems, 0.3, jobs=1)
    assert [(each.status, each.reason) for each in found.measured] == [
        ("FAILED", "it had not ended 0 s after its time limit, 0.3 s"),
        ("FAILED", "the process ended with exit code 9"),
        ("OPTIMAL", None),
        ("OPTIMAL", None),
        ("FAILED", "the process ended with exit code 9"),
        ("OPTIMAL", None),
    ]
    assert [(s.method.rpartition(".")[2], s.answered, s.failed) for s in found.standings] == [
        ("sometimes", 1, 1),
        ("own_methods:dies", 0, 2),
        ("sequential", 2, 0),
    ]
    assert "sometimes on cnn-8-0 at 20 %: it had not ended" in str(found)


def test_ratios_are_to_the_records_of_the_library() -> None:
    """A schedule a tick longer than another one is that much further from record and bound."""
    found = offcert.benchmark(["greedy", delayed], "library:cnn-8-0", 2.0, jobs=1)
    for each in found.measured:
        record = offcert.Library().record(f"cnn-8-0-m{each.problem.partition(' at ')[2][:-2]}")
        assert (each.group, each.best, each.proved) == ("cnn-8", record.value, record.proved_bound)
    first, second = found.measured[:2]
    assert first.value is not None
    assert second.value == first.value + 1
    assert first.best is not None
    assert second.to_best == (first.value + 1) / first.best
    assert json.loads(json.dumps(found.to_json()))["measured"][1]["value"] == second.value


def measured(problem: str, method: str, value: int | None, best: int = 10) -> Measured:
    status = "FAILED" if value is None else "FEASIBLE"
    return Measured(problem, problem, problem[0], method, status, value, best, 8, 1.0)


ROWS = [
    measured("a1", "x", 10),
    measured("a1", "y", 20),
    measured("a2", "x", 40),
    measured("a2", "y", None),
    measured("b1", "x", 10),
    measured("b1", "y", 10),
]


def test_standings_by_hand() -> None:
    """Geometric means: 1 and 4 make 2; over the proved bound 8, 1.25 and 5 make 2.5."""
    found = {(each.group, each.method): each for each in standings(ROWS)}
    assert list(found) == [(g, m) for g in ("a", "b", "all") for m in ("x", "y")]
    x = found["a", "x"]
    assert (x.problems, x.answered, x.failed, x.attained) == (2, 2, 0, 1)
    assert x.mean_to_best is not None
    assert isclose(x.mean_to_best, 2.0)
    assert x.mean_to_proved is not None
    assert isclose(x.mean_to_proved, 2.5)
    assert (x.worst_to_best, x.worst_to_proved) == (4.0, 5.0)
    y = found["all", "y"]
    assert (y.problems, y.answered, y.failed, y.attained, y.worst_to_best) == (3, 2, 1, 1, 2.0)
    assert describe_standings(found.values()).count("\n") == 6


def test_a_profile_by_hand() -> None:
    drawn = profile([*ROWS, measured("c", "x", 10)])
    assert drawn == {"x": [1.0, 4.0, 1.0], "y": [2.0, None, 1.0]}
    root = profile_svg(drawn)
    paths = [group.findall("path")[0].get("d") or "" for group in root.findall("g")]
    # A step for every answer, up to 3 of 3 and 2 of 3.
    assert [path.count("V") for path in paths] == [3, 2]
    assert ElementTree.tostring(root)


def test_addresses_of_a_function() -> None:
    problem = PlacementProblem("p", [Residence("a", 4, 0, 2), Residence("b", 2, 1, 3)])

    def stacked(problem: PlacementProblem) -> Placement:
        return Placement([0, 4])

    def overlapping(problem: PlacementProblem) -> Placement:
        return Placement([0, 3])

    def few(problem: PlacementProblem) -> Placement:
        return Placement([0])

    found = offcert.benchmark([stacked, overlapping, few], [problem], 2.0, jobs=1)
    assert [(each.value, each.proved) for each in found.measured] == [(6, 6), (None, 6), (None, 6)]
    assert "invalid addresses" in str(found.measured[1].reason)
    assert "returned 1 addresses for 2 residences" in str(found.measured[2].reason)
    with pytest.raises(InputError, match="must all be placement problems"):
        offcert.benchmark(stacked, [problem, PROBLEM], 2.0)


def test_compare_draws_and_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "profile.svg"
    arguments = ["compare", "library:cnn-8-0", "--methods", f"{OWN}:planned,greedy"]
    arguments += ["--no-certify", "--time-limit", "2", "--jobs", "1", "--json"]
    assert main([*arguments, "--profile", str(picture)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["method"] for each in document["standings"]] == [f"{OWN}:planned", "greedy"]
    assert all(each["group"] == "cnn-8" for each in document["standings"])
    assert ElementTree.parse(picture).getroot().get("role") == "img"
    assert main([*arguments, "--profile", "picture.gif"]) == 2
    assert "must end in" in capsys.readouterr().err


def test_families_that_minimise_memory_are_left_out_of_patterns() -> None:
    from offcert.campaign.selection import find_subjects

    with pytest.warns(UserWarning, match="families that minimise memory are left out"):
        subjects = find_subjects(["library:[at]*"])
    assert len(subjects) > 4
    assert all(each.problem.minimise is Minimise.TIME for each in subjects)


def test_no_method_of_ours_looks_like_a_function() -> None:
    assert not any(registry.names_own(name) for name in METHODS)
