"""`offcert verify`: its three outcomes, and what a person and a program read."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.core.result import Bound, SolveStatus
from offcert.core.units import Units
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.instances.cnn import UniformChains
from offcert.instances.library import load
from offcert.proofs.certificate import Certificate
from offcert.proofs.kinds.labels import Pivot
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.registry import proved
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.result import Result


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate whose best bound takes a search to verify."""
    made = replace(load("cnn-12-1-m10"), units=Units("ns", "B"))
    folder = tmp_path_factory.mktemp("verify")
    write_problem(folder / "p.json", made)
    path = str(folder / "c.json")
    assert main(["solve", str(folder / "p.json"), "--method", "pivot", "-o", path]) == 0
    return path


def test_times_are_read_with_their_units(
    certificate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", certificate, "-v"]) == 0
    told = capsys.readouterr()
    assert told.err == f"offcert: verifying {certificate}\n"
    text = told.out
    value = json.loads(Path(certificate).read_text())["objective"]
    assert text.splitlines()[:2] == [
        "VALID: OPTIMAL",
        f"  makespan {value / 1000:.3f} µs, lower bound {value / 1000:.3f} µs (proved)",
    ]
    assert f"  bound {value / 1000:>11.3f} µs  pivot: proved, " in text


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (["--max-size", "100B"], "but only 100 may be read"),
        (["--time-limit", "0.000000001"], "seconds are over"),
        (["--memory-limit", "1kB"], "1000 bytes are too few for a search"),
    ],
)
def test_what_takes_more_than_the_limits_allow_is_neither_valid_nor_invalid(
    certificate: str, limits: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", certificate, *limits]) == 3
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "NOT VERIFIED within the limits"
    assert reason in others[0]
    assert main(["verify", certificate, *limits, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "not verified within the limits"
    assert (document["valid"], document["faults"]) == (False, [])
    assert reason in document["unverified"][0]


def test_too_little_memory_is_no_traceback(
    certificate: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("offcert.verification.document.verify_file", fail)
    assert main(["verify", certificate]) == 3
    assert capsys.readouterr().out.splitlines()[1] == "  it takes more memory than there is"


def test_a_fault_outweighs_what_the_limits_leave_open(
    certificate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path(certificate).read_text())
    document["objective"] += 1
    path = tmp_path / "c.json"
    path.write_text(json.dumps(document))
    assert main(["verify", str(path), "--memory-limit", "1kB"]) == 1
    assert capsys.readouterr().out.startswith("INVALID\n")


def forged(folder: Path, bound: Bound, problem: Problem) -> str:
    """A document that is intact, but for what one bound claims."""
    path = folder / "forged.json"
    result = Result(SolveStatus.UNKNOWN, None, (bound,))
    Certificate(problem, result, method="forged").write(path)
    return str(path)


def uniform(stages: int) -> Problem:
    problem = UniformChains(stages=stages).draw(1)
    return problem.with_memory(problem.memory_at(Fraction(1, 10)))


def in_a_process(path: str, *limits: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offcert", "verify", path, *limits]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_search_without_end_is_ended(tmp_path: Path) -> None:
    """It never looks at the clock: three numbers ask for all that 60 stages can do."""
    problem = uniform(60)
    value = 3 * fractional_bound(problem).value // 2
    proof = Pivot(pivot=60, front_limit=value, back_limit=value, once=())
    done = in_a_process(
        forged(tmp_path, proved("pivot", value, proof), problem), "--time-limit", "1"
    )
    assert done.returncode == 3, done.stderr
    assert "1 s and 8.00 GiB of memory are not enough" in done.stdout
    assert not done.stderr


@pytest.mark.slow
def test_what_unpacks_without_end_is_not_unpacked(tmp_path: Path) -> None:
    text = "[" + "{}," * 20_000_000 + "{}]"
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    problem = replace(uniform(3), recompute=Recompute.ANY)
    value = problem.trace.compute_time
    bound = proved("joint-lp", value, JointProof(moments=(), spans=(), whole=False, proof=packed))
    done = in_a_process(forged(tmp_path, bound, problem))
    assert done.returncode == 3, done.stderr
    assert "proof unpacks to more than" in done.stdout


@pytest.mark.slow
def test_memory_that_is_used_up_is_no_traceback(tmp_path: Path) -> None:
    text = "[" + "{}," * 8_000_000 + "{}]"
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    problem = replace(uniform(3), recompute=Recompute.ANY)
    value = problem.trace.compute_time
    bound = proved("joint-lp", value, JointProof(moments=(), spans=(), whole=False, proof=packed))
    done = in_a_process(forged(tmp_path, bound, problem), "--memory-limit", "100MiB")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("NOT VERIFIED within the limits")
    assert not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.5])
def test_ctrl_c_reaches_both_processes_and_one_of_them_says_so(
    moment: float, tmp_path: Path
) -> None:
    problem = uniform(60)
    value = 3 * fractional_bound(problem).value // 2
    proof = Pivot(pivot=60, front_limit=value, back_limit=value, once=())
    path = forged(tmp_path, proved("pivot", value, proof), problem)
    verifying = subprocess.Popen(
        [sys.executable, "-m", "offcert", "verify", path, "-v"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert verifying.stderr is not None
    assert verifying.stderr.readline() == f"offcert: verifying {path}\n"
    time.sleep(moment)
    os.killpg(verifying.pid, signal.SIGINT)
    out, err = verifying.communicate(timeout=60)
    assert (verifying.returncode, out, err) == (130, "", "offcert: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(verifying.pid, 0)
