"""`offcert methods`, and what `solve` says of options that a method does not use."""

import json
from pathlib import Path

import pytest

from offcert.certification.methods import METHODS
from offcert.cli import main
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import write_problem


@pytest.fixture
def problem_file(tmp_path: Path) -> str:
    problem = cnn_chain(8, 2)
    write_problem(tmp_path / "p.json", problem.with_memory(problem.trace.least_memory))
    return str(tmp_path / "p.json")


def test_the_list_says_what_each_is_for_and_what_supports_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert main(["methods", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert list(rows) == list(METHODS)
    assert rows["greedy"]["evidence"] == "a schedule, no bound"
    assert rows["greedy"]["options"] == []
    assert rows["pivot"]["evidence"] == "proved"
    assert (rows["pivot"]["transfers"], rows["pivot"]["links"]) == (
        ["atomic"],
        ["simplex", "duplex"],
    )
    assert "CP-SAT" in rows["interval-cpsat"]["evidence"]
    assert {"--grid", "--solver"} <= set(rows["time-indexed-milp"]["options"])
    assert [each["name"] for each in rows["dynprog"]["takes"]] == ["slots", "max_states"]
    assert "  takes     slots=500: into how many slots" in text
    for name, row in rows.items():
        block = text.partition(f"{name}: ")[2].partition("\n\n")[0].splitlines()
        assert block[0] == row["summary"]
        assert block[1].startswith(f"  for       {row['network']}, ")
        assert block[2] == f"  evidence  {row['evidence']}"
    assert main(["methods", "--transfers", "fractional", "--json"]) == 0
    some = {row["name"] for row in json.loads(capsys.readouterr().out)["methods"]}
    assert "fluid-ordered" in some
    assert "pivot" not in some


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["greedy", "--time-limit", "5"], "method greedy does not use --time-limit"),
        (["pivot", "--workers", "2"], "method pivot does not use --workers"),
        (["interval-cpsat", "--grid", "9"], "method interval-cpsat does not use --grid"),
        (["fluid-milp", "--solver", "scipy"], "method fluid-milp does not use --solver"),
        (["autoswap", "--target-gap", "0"], "method autoswap does not use --target-gap"),
        (["dynprog:slot=5"], 'method dynprog has no option "slot", but slots, max_states'),
        (["dynprog:slots=0"], 'must be an integer of at least 1 or none, not "0"'),
        (["dynprog:slots=5", "--seed", "1"], "method dynprog does not use --seed"),
        (["gredy"], "did you mean greedy?"),
        # Some tests bring methods of their own, so this is put together when the test runs.
        (["?"], "method must be one of {methods}, not "),
    ],
)
def test_an_option_that_a_method_does_not_use_is_an_error(
    arguments: list[str], message: str, problem_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", problem_file, "--method", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message.format(methods=", ".join(METHODS)) in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", METHODS)
def test_every_option_that_a_method_uses_is_accepted(
    name: str, problem_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search itself is not run."""
    given: dict[str, object] = {}

    def note(*_: object, **options: object) -> None:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("offcert.certification.methods.solve", note)
    values = {"time_limit": 3.5, "workers": 1, "target_gap": 0.5, "seed": 7, "grid": 9}
    values["solver"] = "scipy"
    read = METHODS[name].reads
    options = [f"--{key.replace('_', '-')}={values[key]}" for key in read]
    assert main(["solve", problem_file, "--method", name, *options]) == 130
    assert {key: given[key] for key in read} == {key: values[key] for key in read}
