"""Recomputation alone as a file: two solvers of others agree with ours and with brute force."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from offcert.certification.exchange import export_retention, import_schedule
from offcert.cli import main
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.formulations.rematerialisation import checkmate_milp
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from support.files_and_solvers import cbc, cpsat, highs
from support.networks.changing_networks import changing_network
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import random_network

SOLVERS = {"HiGHS": highs, "CBC": cbc, "CP-SAT": cpsat}
# Four stages, of which the middle two have large outputs.
CHAIN = CheckpointChain([2, 3, 1, 2], [3, 4, 2, 2], [1, 5, 4, 4, 2])


def problem_of(network: Network | CheckpointChain, memory: int) -> Problem:
    return Problem("remat", network, Platform(memory, 1), recompute=Recompute.ANY, offload=False)


def solved(problem: Problem, solver: str, form: str, folder: Path) -> int:
    """Return the least objective that a solver finds in a file, after its solution came back."""
    (model,) = export_retention(problem, form).write(folder / f"model.{form}")
    value = round(
        {"HiGHS": highs, "CBC": cbc, "CP-SAT": cpsat}[solver](model, folder / "model.sol")
    )
    found = import_schedule(problem, folder / "model.sol")
    assert found.faults == ()
    assert found.certificate is not None
    assert found.certificate.result.objective == value
    return value


@pytest.fixture(scope="module")
def optima() -> dict[int, int]:
    """By memory, from the least to the peak, the ticks that brute force finds."""
    network = CHAIN.network()
    oracle = RematerialisationOracle(network)
    least, peak = oracle.least_memory(), network.trace().peak_memory
    assert least is not None
    found = {memory: oracle.least_time(memory) for memory in (least, (least + peak) // 2, peak)}
    assert len(found) == 3
    return {memory: best[0] for memory, best in found.items() if best is not None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "form"), [("HiGHS", "mps"), ("HiGHS", "lp"), ("CBC", "mps"), ("CP-SAT", "mps")]
)
def test_a_chain_as_brute_force_has_it(
    solver: str, form: str, tmp_path: Path, optima: dict[int, int]
) -> None:
    network = CHAIN.network()
    for memory, best in optima.items():
        assert solved(problem_of(network, memory), solver, form, tmp_path) == best
    problem = replace(problem_of(network, 0), minimise=Minimise.MEMORY)
    assert solved(problem, solver, form, tmp_path) == min(optima)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_as_our_own_program_has_it(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    network = changing_network(rng, 3) if seed % 2 else random_network(rng, 3)
    oracle = RematerialisationOracle(network)
    least, peak = oracle.least_memory(), network.trace().peak_memory
    assert least is not None
    problem = problem_of(network, (least + peak) // 2)
    if seed % 4 > 1:
        deadline = network.compute_time + 2
        problem = replace(problem, minimise=Minimise.MEMORY, deadline=deadline)
    staged = checkmate_milp.solve(problem)
    if staged.objective is None:
        return
    assert staged.objective == staged.within
    for solver in ("HiGHS", "CBC") if seed < 4 else ("HiGHS",):
        assert solved(problem, solver, "mps", tmp_path) == staged.objective


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["HiGHS", "CP-SAT"])
def test_sizes_of_real_networks_are_no_larger_than_solvers_take(
    solver: str, tmp_path: Path, optima: dict[int, int]
) -> None:
    """CP-SAT takes no variable to be more than 10^7: least bytes are rounded up so that none is."""
    unit = 10**9 + 7
    parts = (CHAIN.output, CHAIN.saved, CHAIN.gradient)
    output, saved, gradient = (tuple(unit * size for size in part) for part in parts)
    large = replace(CHAIN, output=output, saved=saved, gradient=gradient)
    for memory, best in optima.items():
        assert solved(problem_of(large, unit * memory), solver, "mps", tmp_path) == best
    problem = replace(problem_of(large, 0), minimise=Minimise.MEMORY)
    (model,) = export_retention(problem, "mps").write(tmp_path / "bytes.mps")
    said = re.search(r"bytes, rounded up to a multiple of (\d+)", model.read_text())
    assert said is not None
    coarse, least = int(said[1]), unit * min(optima)
    value = SOLVERS[solver](model, tmp_path / "bytes.sol")
    assert least <= value < least + coarse


def test_what_is_refused_and_what_the_command_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = problem_of(CHAIN, 20)
    with pytest.raises(InputError, match="format must be mps or lp for the model retention"):
        export_retention(problem, "opb")
    with pytest.raises(InputError, match="in which nothing may leave"):
        export_retention(replace(problem, offload=True), "lp")
    source, target = tmp_path / "problem.json", tmp_path / "model.lp"
    write_problem(source, problem)
    run = ["export", str(source), "--format", "lp", "--model", "retention", "-o", str(target)]
    assert main([*run, "--grid", "3"]) == 2
    assert "--grid is not for the model retention" in capsys.readouterr().err
    assert main(run) == 0
    assert "executions in stages" in capsys.readouterr().out
    (tmp_path / "model.sol").write_text("op_0_by_1 1\n")
    with pytest.raises(InputError, match="no solution of an exported program"):
        import_schedule(problem, tmp_path / "model.sol")
    # A solution of nothing but zeros reads what no computation has kept.
    (tmp_path / "model.sol").write_text("retention 1\nlean_0 0\n")
    with pytest.raises(InputError, match="reads what is not there"):
        import_schedule(problem, tmp_path / "model.sol")
