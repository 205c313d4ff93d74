"""Benchmarks that give proofs to other people's checkers; those of the tests in their place."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import counting, vipr
from support.problems.joint import joint_proofs
from support.problems.running_example import EXAMPLE

ROOT = Path(__file__).parents[3]
# What `viprchk` prints of a certificate that it accepts, said by the exact checker of the tests.
CHECKER = f"""#!{sys.executable}
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}]
from support.oracles.vipr import proved_by
text = open(sys.argv[1]).read()
print(f"Successfully verified optimal value range [{{proved_by(text)}}, inf).")
"""


def test_bounds_as_vipr_are_accepted_and_no_other_value_is(tmp_path: Path) -> None:
    program = tmp_path / "viprchk"
    program.write_text(CHECKER)
    program.chmod(0o755)
    for problem, bound, _ in joint_proofs("joint-lp")[:2]:
        line, valid = vipr.verdict(str(program), problem, bound, every=False)
        assert valid, line
        assert line.endswith("valid")
        larger = replace(bound, value=bound.value + 1)
        line, valid = vipr.verdict(str(program), problem, larger, every=False)
        assert not valid


def test_without_the_program_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vipr.py", "--viprchk", "no-such-program"])
    assert vipr.main() == 2
    assert "no-such-program is not installed: nothing is checked" in capsys.readouterr().err


def test_counting_beside_optima_and_in_the_older_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["counting.py"])
    monkeypatch.setattr(counting, "problems", lambda: [EXAMPLE])
    assert counting.main() == 0
    name, _computing, optimum, counted, longer = capsys.readouterr().out.splitlines()[1].split()
    assert (name, optimum) == (EXAMPLE.name, "13")
    assert int(longer) <= int(counted) <= 13
    made = counting.export_counted(EXAMPLE)
    version, _, _, claim = counting.old_proof(made, larger=1).splitlines()
    assert version == "pseudo-Boolean proof version 1.2"
    value = (made.least - EXAMPLE.trace.durations[-1]) // made.made.cells.grid
    assert claim.endswith(f">= {value + 1} ;")
