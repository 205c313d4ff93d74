"""The checker in one file: it needs nothing, says what `verify` says, and finds what is wrong."""

import ast
import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import offcert
from benchmarks.fuzz_checker import CHECKER, MODULE, certificate, compared, forged, signed
from support.problems.random_instances import mixed_problem, slowing
from support.problems.running_example import EXAMPLE

ROOT = Path(__file__).parents[3]
EXHIBITS = sorted(
    path for path in (ROOT / "docs" / "certificates").glob("*.json") if path.stem != "index"
)


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return MODULE


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The example of the theory: five operations, three tensors, optimum 13."""
    return offcert.certify(EXAMPLE, time_limit=20, workers=1).to_json()


def test_it_is_one_short_file_that_needs_the_standard_library_only() -> None:
    text = CHECKER.read_text()
    assert len(text.splitlines()) < 1500
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported <= sys.stdlib_module_names


def test_it_runs_alone(example: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "example.json"
    path.write_text(json.dumps(example))
    command = [sys.executable, "-I", "-S", str(CHECKER), str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "holds: schedule" in ran.stdout
    assert ran.returncode in (0, 3)
    path.write_text(json.dumps({**example, "objective": 12}))
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "WRONG: document: digest" in ran.stdout) == (1, True)
    path.write_text('{"format": 1, "format": 2}')
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "a key is given twice" in ran.stdout) == (2, True)


@pytest.mark.parametrize("path", EXHIBITS, ids=lambda path: path.stem)
def test_the_exhibits_hold(module: ModuleType, path: Path) -> None:
    found = module.check(module.read_document(path))
    assert found.wrong == []
    assert "document" in found.holds


@pytest.mark.parametrize(
    ("method", "details", "value"),
    [
        # All from the pages of the theory.
        ("prop3", {}, 6),
        ("fractional", {}, 10),
        ("prop3-subset-sum", {}, 8),
        ("fractional-subset-sum", {}, 12),
        ("fractional-large-tensors", {"smallest": 3}, 12),
        ("fractional-large-tensors", {"smallest": 5}, 10),
    ],
)
def test_bounds_of_the_example(
    module: ModuleType, example: dict[str, Any], method: str, details: dict[str, Any], value: int
) -> None:
    problem = module.Problem(example["problem"])
    assert module.proved(problem, method, details) == value


def test_pieces_of_the_page(module: ModuleType) -> None:
    # Two passes of three operations; the page of the theory adds 11 ticks and 11 ticks.
    trace = module.Trace(
        [(1, 0), (1, 4), (1, 0)] * 2, [(4, [0, 2], True), (4, [3, 5], True), (0, [0, 5], False)]
    )
    problem = type("P", (), {"memory": 4, "back": Fraction(1), "out": Fraction(1)})()
    needs = module.required(problem, trace)
    assert module.fractional(problem, trace, needs) == 18
    assert module.in_pieces(problem, trace, needs) == 22
    # A gap across the middle leaves one piece.
    across = module.Trace(trace.operations, [*trace.tensors, (1, [1, 4], True)])
    assert module.in_pieces(problem, across, needs) == module.fractional(problem, across, needs)


def test_memory_that_is_minimised_is_given_and_may_be_more_than_is_taken(
    module: ModuleType, example: dict[str, Any]
) -> None:
    problem = {**example["problem"], "minimise": "memory"}
    peak = module.check_schedule(
        module.Problem(problem), module.Problem(problem).trace, example["schedule"]
    )[1]
    for given, wrong in ((peak - 1, True), (peak, False), (peak + 1, False)):
        document = {**example, "problem": problem, "bounds": [], "lower_bound": 0}
        document.update(objective=given, gap="1/1", status="FEASIBLE")
        assert bool(module.check(signed(document)).wrong) is wrong


def test_forced_returns_of_the_example(module: ModuleType) -> None:
    trace = module.Trace(
        [(2, workspace) for workspace in (0, 0, 4, 3, 0)],
        [(4, [0, 3], True), (2, [-1, 1, 4], True), (2, [-1, 2, 4], True)],
    )
    problem = type("P", (), {"memory": 8, "back": Fraction(1), "out": Fraction(1)})()
    problem.ticks = lambda size, out: size
    rest, taken = module.with_returns_apart(problem, trace)
    assert (taken, rest.demands()[2:4]) == (4, [10, 7])


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an operation too early": lambda d: d["schedule"]["operations"][1].update(start=0, end=1),
    "a transfer too short": lambda d: d["schedule"]["transfers"][0].update(
        end=d["schedule"]["transfers"][0]["end"] - 1
    ),
    "no transfer": lambda d: d["schedule"].update(transfers=[]),
    "less memory": lambda d: d["problem"].update(memory=d["problem"]["memory"] - 1),
    "a slower link": lambda d: d["problem"].update(bandwidth="1/2"),
    "a larger bound": lambda d: d["bounds"][0].update(value=d["bounds"][0]["value"] + 1),
    "another objective": lambda d: d.update(objective=d["objective"] - 1),
    "a status": lambda d: d.update(status="FEASIBLE"),
    "a gap": lambda d: d.update(gap="1/2"),
    "a field more": lambda d: d.update(more=1),
    "a version": lambda d: d.update(version=2),
    "a version that is no integer": lambda d: d.update(version=1.0),
    "a problem's version that is no integer": lambda d: d["problem"].update(version=True),
    "an operation's name": lambda d: d["schedule"]["operations"][0].update(name="other"),
    "a moved tensor's name": lambda d: d["schedule"]["transfers"][0].update(name="other"),
    "a name that is no text": lambda d: d["problem"]["trace"]["tensors"][0].update(name=5),
    "a method that is no text": lambda d: d.update(method=5),
    "settings in a list": lambda d: d.update(settings=[]),
    "a rational that is not reduced": lambda d: d["problem"].update(bandwidth="2/2"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_changed_is_wrong(
    module: ModuleType, example: dict[str, Any], change: Callable[[dict[str, Any]], Any]
) -> None:
    assert module.check(example).wrong == []
    changed = copy.deepcopy(example)
    change(changed)
    assert module.check(signed(changed)).wrong != []


def test_it_says_what_verify_says() -> None:
    outcomes: dict[str, list[str]] = {}
    for seed in range(30):
        document, rng = certificate(seed), random.Random(seed)
        assert document is not None
        for each in (document, *(forged(document, rng) for _ in range(4))):
            outcome, said = compared(each)
            outcomes.setdefault(outcome, []).append(said)
    assert "DISAGREEMENT" not in outcomes, outcomes["DISAGREEMENT"]
    assert len(outcomes["both: valid"]) > 20
    assert len(outcomes["both: not valid"]) > 60


def test_links_that_slow_down(module: ModuleType) -> None:
    """Both say the same of schedules whose transfers end a tick too early or too late."""
    seen = {True: 0, False: 0}
    for seed in range(0, 40, 4):
        problem = slowing(mixed_problem(seed, largest=8, smallest=4))
        document = offcert.solve(problem, "sequential", time_limit=2, workers=1).to_json()
        document = json.loads(json.dumps(document))
        assert compared(document)[0] in ("both: valid", "not known here, valid")
        rng = random.Random(seed)
        for _ in range(8):
            changed = copy.deepcopy(document)
            transfers = changed["schedule"]["transfers"]
            moved, by = rng.choice([*transfers, None]), rng.choice((-1, 1))
            if moved is None:
                changed["problem"][rng.choice(RATES)] = "2/9"
            else:
                moved["end"] += by
            found, said = compared(signed(changed))
            assert found != "DISAGREEMENT", said
            seen["not valid" in found] += 1
    assert seen[True] > 50


RATES = ("bandwidth", "prefetch_bandwidth", "busy_bandwidth", "busy_prefetch_bandwidth")
