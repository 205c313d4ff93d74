"""Files that commands read and write: what is read stays whole, and is looked for first."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import write_problem


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    write_problem(tmp_path / "p.json", cnn_chain(6, 1))
    return tmp_path / "p.json"


@pytest.mark.parametrize("link", ["no", "symbolic", "hard"])
@pytest.mark.parametrize(
    "command",
    [["certify"], ["solve", "--method", "greedy"], ["place"], ["choose"], ["devices"]],
)
def test_a_result_never_replaces_what_it_is_made_from(
    command: list[str], link: str, problem_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, target = problem_file.read_bytes(), problem_file.with_name("other.json")
    if link == "symbolic":
        target.symlink_to(problem_file)
    elif link == "hard":
        os.link(problem_file, target)
    else:
        target = problem_file
    assert main([*command, str(problem_file), "-o", str(target)]) == 2
    assert "cannot be written: it is read as input" in capsys.readouterr().err
    assert problem_file.read_bytes() == before


def test_two_results_never_go_to_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "new.json")
    against = ["generate", "adversarial", "--against", "greedy"]
    assert main([*against, "-o", path, "--certificate", path]) == 2
    assert "another result goes there" in capsys.readouterr().err


WRITING = [
    "certify - -o", "certify - --memory 5%,9% -o", "solve - --method greedy -o",
    "choose - -o", "place - -o", "devices - -o", "devices - --problem-output", "import - - -o",
    "export - --format csv -o", "train - --report", "train - --trace", "plot - -o", "report -o",
    "train - --host-memory 1GiB --host-spill", "profile resnet18 -o", "doctor resnet18 -o",
    "profile resnet18 --measure -o p.json --save-hardware", "compare p.json --methods greedy -o",
    "compare p.json --methods greedy --certificates", "compare p.json --methods greedy --profile",
    "generate cnn -o", "library get cnn-24-0-m5 -o", "generate adversarial --against greedy -o",
    "generate adversarial --against greedy --certificate", "generate core -o",
    "generate modnn vgg16 -o", "generate stages resnet18 -o", "hunt solvers -o",
    "export-proof c.json --format vipr -o", "plot-table - -o",
]  # fmt: skip


@pytest.mark.parametrize("command", WRITING)
def test_no_result_goes_to_a_file_without_a_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), ""]) == 2
    assert capsys.readouterr().err.endswith("is not the name of a file that can be written\n")


def process(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=False)


def test_a_file_that_is_missing_is_said_before_anything_is_loaded() -> None:
    loaded = "; print('offcert.certification.ladder' in sys.modules)"
    code = f"import sys; from offcert.cli import main; main(['certify', 'none.json']){loaded}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr == "offcert: none.json cannot be read: No such file or directory\n"
    assert found.stdout == "False\n"


@pytest.mark.slow
def test_a_dash_is_the_standard_input(problem_file: Path) -> None:
    solve = f"{sys.executable} -m offcert solve - --method greedy"
    found = process(f"{solve} < {problem_file}")
    assert (found.returncode, found.stdout[:9]) == (0, "cnn-6-1 a")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["methods", "certify --help", "--version"])
def test_a_closed_standard_output_is_one_sentence(arguments: str) -> None:
    found = process(f"{sys.executable} -m offcert {arguments} >&-")
    assert found.returncode == 2
    assert found.stderr == "offcert: the output cannot be written: Bad file descriptor\n"


DOCTOR = ["doctor", "gpt-tiny", "--input", "1x8", "--optimiser", "sgd", "--time-limit", "1"]
DOCTOR += ["--hardware", "t4"]


def test_a_folder_into_which_nothing_was_written_is_not_called_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sizes"
    # The parameters alone take more, so there is nothing to certify.
    assert main([*DOCTOR, "--device-memory", "100B", "-o", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "wrote" not in said
    assert f"nothing is in {folder}: there is no certificate to keep" in said
    assert list(folder.iterdir()) == []

    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("offcert.training.doctor.profile", interrupted)
    assert main([*DOCTOR, "--device-memory", "1MiB", "-o", str(folder)]) == 130
    assert capsys.readouterr() == ("", "offcert: interrupted\n")


@pytest.mark.slow
def test_commands_make_the_folders_that_their_files_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each into a folder of its own, as a README's line does it where nobody has made one."""
    monkeypatch.chdir(tmp_path)
    problem, certificate = "a/b/p.json", "c/d/c.json"
    commands = [
        ["generate", "cnn", "--stages", "4", "--memory", "50%", "-o", problem],
        ["certify", problem, "--time-limit", "1", "-o", certificate],
        ["solve", problem, "--method", "greedy", "-o", "e/f/greedy.json"],
        ["plot", certificate, "-o", "g/h/plan.svg"],
        ["plot", certificate, "-o", "i/j/plan.pickle"],
        ["report", certificate, "-o", "k/l/page.html"],
        ["place", certificate, "-o", "m/n/placed.json"],
        ["compare", problem, "--methods", "greedy", "--no-certify", "--jobs", "1",
         "-o", "o/p/table.jsonl", "--profile", "q/r/profile.svg"],
        ["certify", problem, "--memory", "50%,100%", "--time-limit", "1", "-o", "s/t"],
        ["export", problem, "--format", "mps", "-o", "u/v/model.mps"],
    ]  # fmt: skip
    for command in commands:
        assert main(command) == 0, (command, capsys.readouterr().err)
        for name, target in pairwise(command):
            if name in ("-o", "--profile"):
                assert Path(target).exists()


def test_a_command_that_fails_makes_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["certify", "missing.json", "-o", "new/c.json"]) == 2
    assert main(["generate", "cnn", "--stages", "0", "-o", "new/p.json"]) == 2
    assert list(tmp_path.iterdir()) == []
