"""What people type wrongly: each is one sentence and exit code 2, and leaves files as they are."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import write_problem

# What each is to name: the field or the place, and the value.
WRONG = {
    "certify": "PROBLEM",
    "certify none.json": "none.json cannot be read",
    "certify folder": "folder",
    "certify empty.json": "empty.json is not valid JSON",
    "certify list.json": "list.json",
    "certify other.json": "offcert-nothing",
    "certify newer.json": "version",
    "certify cut.json": "cut.json is not valid JSON",
    "certify p.json --memory -5%": '"-5%"',
    "certify p.json --memory 5.5": "whole number of bytes",
    "certify p.json --memory 120%": "at most 100%",
    "certify p.json --memory lots": '"lots"',
    "certify p.json --memory 25MiB": (
        'memory "25MiB" is in bytes, and the sizes of this problem are numbers without a unit: '
        '"25", or "25%"'
    ),
    "doctor resnet18 --input 4x3x64x64 --device-memory 1GiB": "name the optimiser (sgd, momentum,",
    "doctor --hf gpt2 --sequence 5000 --device-memory 24GiB": (
        "sequence must be at most 1,024, as many positions as GPT2LMHeadModel has, not 5,000"
    ),
    "report p.json -o r.txt": "r.txt must end in .html: a report is a page for a browser",
    "certify p.json --memory 5GiB --device-memory 6GiB": "--device-memory",
    "certify p.json --device-memory 6GiB": "source.uncounted",
    "certify p.json --optimiser adam": "--device-memory",
    "certify p.json --optimiser lion": "lion",
    "certify p.json --bandwidth fast": '"fast"',
    "certify p.json --bandwidth 0": "more than 0",
    "certify p.json --sharing 0": "at least 1",
    "certify p.json --time-limit -1": "positive number of seconds",
    "certify p.json --time-limit soon": "soon",
    "certify p.json --workers 0": "at least 1",
    "certify p.json --target-gap 200%": "below 1",
    "certify p.json --seed 1.5": "1.5",
    "certify p.json --deadline 80ms": "--minimise memory",
    "certify p.json --uncertainty much": "much",
    "certify p.json --output /dev/null/c.json": "/dev/null is no folder",
    "certify p.json -o p.json": "read as input",
    "certify p.json --memory 5%:10%:5% -o -": "folder",
    "certify p.json --memory 5%:10%:5% -o other.json": "is a file",
    "certify folder/curve.json --memory 5%,10% -o folder": "read as input",
    "solve p.json --method greed": "did you mean greedy?",
    "solve p.json --methods greedy": "--method",
    "verify p.json": "offcert-problem",
    "plot p.json -o p.gif": "offcert-problem",
    "plot p.json -o -": "-o -",
    "plot folder -o curve.gif": "curve.gif must end in",
    "generate cnn --stages -3": "-3",
    "generate cnn --stages 10000000000": "stages",
    "generate unet --no_hold": "did you mean --no-hold",
    "generate nothing": "nothing",
    "library show nothing-at-all": "nothing-at-all",
    "place p.json": "offcert-problem",
    "devices p.json --cores 0": "at least 1",
    "profile": "-o",
    "profile resnet18 --input 99999999999x3x64x64 -o q.json": (
        "input '99999999999x3x64x64' has more numbers than any device holds: at most "
        "1,099,511,627,776 in a batch"
    ),
    "profile resnet18 --input 1x3x32x32 --memory 5 -o q.json": '"5" needs a unit',
    "profile resnet18 --input 1x3x32x32 --device-memory ten -o q.json": '"ten"',
    "profile resnet18 --input 1x3x32x32 --hardware rtx-4091 -o q.json": "did you mean rtx-4090",
    "generate stages resnet18 -o q.json": "--input is missing",
    "certif p.json": "did you mean certify",
    "--hlep": "offcert has no option --hlep; did you mean --help?",
    "hunt solvers --count 3": "no option --count; it has --problems, --time-limit, --seed, -o",
    "import p.json program.mps": "import takes the .sol file that the solver writes",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_problem("p.json", cnn_chain(4, 1))
    document = json.loads(Path("p.json").read_text())
    Path("folder").mkdir()
    texts = {
        "empty": "",
        "list": "[]",
        "cut": Path("p.json").read_text()[:-9],
        "other": json.dumps(document | {"format": "offcert-nothing"}),
        "newer": json.dumps(document | {"version": 999}),
        "folder/curve": json.dumps(document),
    }
    for name, text in texts.items():
        Path(f"{name}.json").write_text(text)
    Path("program.mps").touch()
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that is said of a command that is refused."""
    try:
        code = main(words)
    except SystemExit as ending:
        code = int(ending.code or 0)
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    (line,) = told.err.splitlines()
    assert line.startswith("offcert: ")
    return line


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_one_sentence(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    assert WRONG[command] in refused(command.split(), capsys)
    assert files() == before


def test_nothing_that_is_named_rules_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An escape sequence, a return to the line's beginning, and a change of direction."""
    evil = "a\x1b[31mb\rc\u202ed"
    words: list[list[str]] = [
        ["certify", evil],
        ["certify", "p.json", "--seed", evil],
        ["certify", "p.json", evil],
        ["library", "show", evil],
    ]
    for each in words:
        assert refused(each, capsys).isprintable()
    document = json.loads(Path("p.json").read_text())
    Path("evil.json").write_text(json.dumps(document | {"name": evil}))
    assert main(["solve", "evil.json", "--method", "greedy"]) == 0
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    assert "a\\x1b[31mb\\rc\\u202ed" in said


def test_a_document_goes_through_a_pipe(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["solve", "p.json", "--method", "greedy", "-o", "-"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["format"] == "offcert-certificate"
    assert told.err.startswith("cnn-4-1 at ")
    Path("c.json").write_text(told.out)
    assert main(["verify", "c.json"]) == 0


@pytest.mark.parametrize("call", ["profile", "doctor", "offload"])
def test_python_takes_sizes_as_text_and_refuses_before_it_captures(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import nn

    import offcert
    from offcert.core.errors import InputError

    model = nn.Linear(2, 2)
    calls: dict[str, Callable[[str], object]] = {
        "profile": lambda size: offcert.profile(
            model, "1x2", hardware="v100-pcie", optimiser="sgd", device_memory=size
        ),
        "doctor": lambda size: offcert.doctor(model, "1x2", optimiser="sgd", device_memory=size),
        "offload": lambda size: offcert.offload(
            model, "auto", hardware="v100-pcie", device_memory=size
        ),
    }
    monkeypatch.setattr(model, "forward", lambda *given: pytest.fail("captured"))
    for size in ("16", "a lot", 2.5, -3):
        with pytest.raises(InputError, match=r"device.memory"):
            calls[call](size)  # type: ignore[arg-type]
    said = r'device.memory 6 needs a unit: "6GiB", "6MB" or bytes, "6B"$'
    with pytest.raises(InputError, match=said):
        calls[call](6)  # type: ignore[arg-type]


def test_a_limit_as_text_is_that_limit() -> None:
    from torch import nn

    import offcert

    def profiled(**limit: object) -> offcert.Problem:
        options = {"hardware": "v100-pcie", "optimiser": "adamw", "loss": "mean"}
        return offcert.profile(nn.Linear(4, 4), "8x4", **options | limit)  # type: ignore[arg-type]

    whole = profiled(memory="100%")
    assert whole.platform.memory == whole.peak_memory
    assert profiled(memory="1KiB").platform.memory == 1024
    state = 2 * (4 * 4 + 4) * 4
    source = whole.source
    assert source is not None
    beside = sum(source["uncounted"].values())
    limited = whole.with_device_memory("64KiB")
    assert (
        limited.platform.memory
        == (64 << 10) - beside
        == profiled(device_memory="64KiB").platform.memory
    )
    # Adam's counters of steps, a number for each of two parameters, stay on the host.
    assert whole.with_device_memory("64KiB", "adam") == whole.with_memory((64 << 10) - (beside - 8))
    assert source["uncounted"]["optimiser"] == state + 8
