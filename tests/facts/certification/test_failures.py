"""What goes wrong in a search costs that step alone: the best plan and bound so far remain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.ladders import joint as choice
from offcert.certification.ladders.joint import LADDERS
from offcert.certification.method import Method
from offcert.certification.methods import solve
from offcert.certification.rung import Rung
from offcert.certification.running import ALONE, ContradictionError, UnsoundError
from offcert.certification.search import Search
from offcert.core.errors import InputError, MethodError
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.cnn import CnnChains
from offcert.instances.layers import UnetTraces
from offcert.instances.library import default_library
from offcert.proofs.any_certificate import Notes, Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify, verify_file
from support.problems.random_instances import random_problem

# What is imported where a solver or the compiler is needed.
NEEDED = {
    "interval CP-SAT, dives": "offcert.formulations.models.interval_cpsat",
    "interval CP-SAT, neighbourhoods": "offcert.formulations.models.interval_cpsat",
    "atomic heads and tails": "offcert.formulations.labels.ends.heads",
    "pivot program": "offcert.formulations.labels.pivot.bound",
    "stage MILP": "offcert.formulations.models.stage_milp",
    "interval CP-SAT": "offcert.formulations.models.interval_cpsat",
}


@cache
def waiting() -> Problem:
    """A chain that no cheap bound closes."""
    return distinct(24)


def valid(certificate: Certificate) -> Certificate:
    assert verify(certificate.to_json()).faults == []
    return certificate


def distinct(stages: int) -> Problem:
    problem = CnnChains(stages=stages).problem(0)
    return problem.with_memory(problem.memory_at(Fraction(0)))


def plainest(problem: Problem) -> int:
    return simulate(problem, sequential(problem)).makespan


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the search goes on without it")
def test_without_any_solver_the_plainest_plan_and_the_cheap_bounds_remain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in set(NEEDED.values()):
        monkeypatch.setitem(sys.modules, module, None)
    certificate = valid(certify(waiting(), time_limit=60, workers=1))
    result = certificate.result
    assert result.objective is not None
    assert result.objective <= plainest(waiting())
    assert result.lower_bound > waiting().trace.compute_time
    failed = certificate.notes.failed
    assert set(failed) == set(NEEDED)
    for step, module in NEEDED.items():
        assert module in failed[step]


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["ortools", "scipy", "pulp"])
def test_a_library_that_is_not_there_costs_its_steps_only(missing: str, tmp_path: Path) -> None:
    """In a process of its own, since here everything is loaded already."""
    write_problem(tmp_path / "problem.json", waiting())
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from offcert.cli import main\n"
        "sys.exit(main(['certify', 'problem.json', '-o', 'out.json', '--time-limit', '3']))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verification = verify_file(tmp_path / "out.json")
    assert verification.faults == []
    result = verification.certificate.result
    assert result.objective is not None
    assert result.objective < plainest(waiting())
    for step, message in verification.certificate.notes.failed.items():
        assert missing in message
        assert f"{step} failed" in done.stdout


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("no\nlicence"), "RuntimeError: no licence"),
        (MemoryError(), "out of memory"),
        (OSError(28, "full"), "OSError: [Errno 28] full"),
        (InputError("runs[2] (F2) reads v1, which is not there"), "InputError: runs[2] (F2) reads"),
        (UnsoundError("doomed returned an illegal execution"), "UnsoundError: doomed returned"),
    ],
)
def test_a_step_that_fails_is_named_and_the_next_one_runs(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(search: Search, effort: object) -> None:
        search.begin("doomed")
        raise error

    first, *others = LADDERS["repeated sizes"]
    failing = (first, Rung(Method(fail), 1.0, "it fails"), *others)
    monkeypatch.setattr(choice, "ladder_for", lambda problem: "failing")
    monkeypatch.setitem(LADDERS, "failing", failing)
    with pytest.warns(UserWarning, match="doomed failed"):
        certificate = valid(certify(random_problem(7, 5), time_limit=30, workers=1))
    assert certificate.result.status is SolveStatus.OPTIMAL
    assert certificate.notes.failed.keys() == {"doomed"}
    assert certificate.notes.failed["doomed"].startswith(message)


def test_what_is_no_failure_of_a_step_is_not_passed_over() -> None:
    search = Search(random_problem(7, 5), 10)
    for error in (ContradictionError("2 > 1"), MethodError("chains only"), KeyboardInterrupt()):
        with pytest.raises(type(error)), search.surviving():
            raise error
    # Nothing takes the place of a method that was asked for by name.
    for error in (UnsoundError("2 > 1"), InputError("no such solver"), AssertionError()):
        with pytest.raises(type(error)), search.surviving(but=ALONE):
            raise error
    assert search.notes == Notes()


def test_an_interrupt_between_a_bound_and_its_comparison_leaves_no_contradiction() -> None:
    problem = random_problem(7, 5)
    search = Search(problem, 10)
    search.offer(simulate(problem, sequential(problem)))
    assert search.objective is not None
    search.bounds.append(Bound("late", search.objective + 1, Evidence.ATTESTED, {"solver": "x"}))
    with pytest.warns(UserWarning, match="late claimed"):
        certificate = valid(search.certificate("certify", Settings()))
    assert certificate.result.lower_bound == 0


@pytest.mark.slow
def test_a_crash_leaves_the_certificate_that_was_kept_last() -> None:
    """Every one that is kept is valid, none is worse than the one before, and the last is good."""
    kept: list[Certificate] = []
    last = certify(waiting(), time_limit=20, workers=1, keep=kept.append)
    assert len(kept) >= 4
    objectives = [c.result.objective for c in kept if c.result.objective is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert [c.result.lower_bound for c in kept] == sorted(c.result.lower_bound for c in kept)
    assert last.notes.unfinished is None
    steps = [c.notes.unfinished for c in kept]
    assert steps[0] == "sequential"
    assert len(set(steps)) >= 3
    for certificate in kept[-3:]:
        assert valid(certificate).result.objective is not None


FEW = (
    "adversarial-greedy",
    "cnn-8-0-m0",
    "cnn-152-0-m0",
    "inception_v3-224-b32-m0",
    "resnet152-1000-b8-m5",
    "three-partition-6-100-no",
    "transformer-48-0-m0",
    "two-partition-20-no-atomic",
    "two-partition-20-no-interruptible",
    "adversarial-ordered-interruptible",
)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1e-6, 0.1])
def test_a_tenth_of_a_second_gives_a_plan_and_a_bound_on_every_kind(limit: float) -> None:
    library = default_library()
    problems = [library.load(name) for name in FEW]
    problems.append(UnetTraces().problem(0))
    problems.append(replace(library.load("cnn-50-0-m0"), transfers=Transfers.FRACTIONAL))
    for problem in problems:
        result = certify(problem, time_limit=limit, workers=1).result
        assert result.objective is not None, problem.name
        assert result.objective <= plainest(problem)
        assert problem.trace.compute_time <= result.lower_bound <= result.objective


def start(folder: Path, problem: Problem, *arguments: str) -> subprocess.Popen[str]:
    """Start a command on a problem in a process that takes interrupts."""
    write_problem(folder / "problem.json", problem)
    command, *others = arguments
    return subprocess.Popen(
        [sys.executable, "-m", "offcert", command, "problem.json", "-o", "out.json", "--json",
         "--time-limit", "100", *others],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def wait_for(step: str, folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the certificate that is kept says that a step is running, and a moment more."""
    path = folder / "out.json"
    while True:
        if path.exists() and json.loads(path.read_text())["settings"].get("unfinished") == step:
            break
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    time.sleep(0.2)
    assert process.poll() is None, "it ended too early to be interrupted"


PHASES = {
    "local search": (36, ("solve", "--method", "local-search")),
    "pivot program": (36, ("solve", "--method", "pivot")),
    "interval CP-SAT": (36, ("solve", "--method", "interval-cpsat", "--workers", "1")),
    "stage MILP": (50, ("solve", "--method", "stage-milp", "--workers", "1")),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", PHASES)
def test_ctrl_c_in_each_phase_ends_with_the_best_so_far(step: str, tmp_path: Path) -> None:
    stages, arguments = PHASES[step]
    problem = distinct(stages)
    process = start(tmp_path, problem, *arguments)
    wait_for(step, tmp_path, process)
    interrupted(process, tmp_path, signal.SIGINT, plainest(problem))


def interrupted(
    process: subprocess.Popen[str], folder: Path, number: signal.Signals, most: int
) -> None:
    """Interrupt a command; assert that it ends soon, with a good certificate that says so."""
    kept = json.loads((folder / "out.json").read_text())
    process.send_signal(number)
    output, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    verification = verify_file(folder / "out.json")
    assert verification.faults == []
    result, notes = verification.certificate.result, verification.certificate.notes
    assert notes.interrupted, (notes, output, errors)
    assert notes.unfinished is None
    assert (result.objective is None) == (kept["objective"] is None)
    assert (result.objective or 0) <= most
    assert result.lower_bound >= kept["lower_bound"]
    summary: dict[str, Any] = json.loads(output)
    assert summary["interrupted"] is True
    assert summary["objective"] == result.objective


@pytest.mark.slow
def test_a_request_to_end_in_an_exact_fluid_program(tmp_path: Path) -> None:
    """It comes first where transfers may pause; SIGTERM does there what Ctrl-C does elsewhere."""
    problem = replace(distinct(36), transfers=Transfers.INTERRUPTIBLE)
    process = start(tmp_path, problem, "certify", "--workers", "1")
    wait_for("exact fluid MILP", tmp_path, process)
    interrupted(process, tmp_path, signal.SIGTERM, plainest(problem))


@pytest.mark.slow
def test_a_crash_of_the_whole_process_leaves_a_valid_certificate(tmp_path: Path) -> None:
    """As nothing can mind this signal, nothing depends on where it comes."""
    problem, step = distinct(36), "local search"
    process = start(tmp_path, problem, *PHASES[step][1])
    wait_for(step, tmp_path, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=40)
    assert process.returncode == -signal.SIGKILL
    verification = verify_file(tmp_path / "out.json")
    assert verification.faults == []
    assert verification.certificate.notes.unfinished
    assert verification.certificate.result.objective is not None
    assert not list(tmp_path.glob("*.tmp*"))


def test_a_missing_solver_is_bad_input() -> None:
    with pytest.raises(ValueError, match="'GUROBI_CMD' is not installed; available are scipy"):
        solve(random_problem(7, 5), "stage-milp", solver="GUROBI_CMD")
