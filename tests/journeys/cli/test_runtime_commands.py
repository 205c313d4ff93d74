"""Profiling, device memory and training, called as the console script calls them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from offcert.cli import main
from offcert.proofs.certificate import read_certificate
from offcert.questions.schedule.files import problem_to_json, read_problem

STEP = """
import torch
from torch import nn
from torch.nn import functional
from offcert.runtime.capture.step import TrainingStep


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(8, width)
        self.down = nn.Linear(width, 3)

    def forward(self, left, *, right):
        hidden = torch.sigmoid(self.up(left))
        return {"out": self.down(torch.tanh(hidden) * right), "size": hidden.square().mean()}


def step(width=16):
    def run(model, batch):
        print("a step is run")
        out = model(batch["left"], right=batch["right"])
        return functional.cross_entropy(out["out"], batch["labels"]) + out["size"]

    def batch():
        left, right = torch.randn(32, 8), torch.rand(32, width)
        return {"left": left, "right": right, "labels": torch.randint(3, (32,))}

    return TrainingStep(Net(width), run, batch)


class Branching(nn.Sequential):
    def __init__(self, layers=1):
        super().__init__(nn.Linear(8, 64), nn.Sigmoid(), *(nn.Tanh() for _ in range(layers)))

    def forward(self, x):
        y = super().forward(x)
        return y if y.sum() < 1e9 else -y
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "steps_of_cli_tests.py").write_text(STEP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_a_step_of_ones_own_from_profile_to_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["profile", "steps_of_cli_tests:step", "--option", "width=64", "--name", "mine"]
    summary = run_json(capsys, *arguments, "--optimiser", "adam", "-o", "p.json")
    assert summary["name"] == "mine"
    assert (summary["clock"], summary["tensors"], summary["device"]) == ("modules", "fake", "cpu")
    parameters = 4 * (8 * 64 + 64 + 64 * 3 + 3)
    assert summary["uncounted"] == {
        "parameters": parameters,
        "gradients": parameters,
        "buffers": 0,
        "batch": 4 * 32 * (8 + 64) + 8 * 32,
        "optimiser": 2 * parameters + 4 * 4,
    }
    certify = ["certify", "p.json", "--recompute", "none", "--memory", "0%"]
    certify += ["--time-limit", "10", "-o", "c.json"]
    assert run_json(capsys, *certify)["objective"] is not None
    report = run_json(capsys, "train", "c.json", "--steps", "2")
    assert report["ok"]
    assert report["counted"]
    assert report["peak"] <= report["limit"] < report["unplanned_peak"]
    assert report["steps"][1]["offloaded_bytes"] > 0
    uncounted = run_json(capsys, "train", "c.json", "--steps", "1", "--no-count")
    assert uncounted["ok"]
    assert not uncounted["counted"]
    assert main(["train", "c.json", "--steps", "1", "--no-count"]) == 0
    assert "live bytes were not counted" in capsys.readouterr().out


def test_profile_says_clock_tensors_and_what_is_not_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["profile", "steps_of_cli_tests:Branching", "--input", "16x8", "-o", "p.json"]
    assert main([*arguments, "--clock", "operators", "--option", "layers=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    trace = read_problem("p.json").trace
    evictable = len({gap.tensor for gap in trace.gaps})
    assert lines[0] == (
        f"steps_of_cli_tests:Branching 16x8: {len(trace)} operations, {evictable} tensors that may "
        "leave"
    )
    assert lines[1] == "  clock          operators, one by one"
    start = (
        "  times          roofline of v100-pcie; of its peaks are reached: product-float32 0.856, "
    )
    assert lines[2].startswith(start)
    assert lines[3] == (
        "  captured on    real tensors, because the program looks at values; device: cpu"
    )
    assert lines[4] == (
        "  not counted    5.12 KiB: parameters 2.25 KiB, gradients 2.25 KiB, batch 640 B"
    )
    assert "optimiser's state, which is not known" in lines[5]
    assert any(line.startswith("  least memory ") for line in lines)
    assert any(line.startswith("  peak memory ") for line in lines)
    # A V100 has room for it.
    assert lines[-1].startswith("  moving it all ")


def test_seed_type_and_limits_reach_the_profile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["profile", "gpt-tiny", "--input", "2x8", "-o", "p.json"]
    run_json(capsys, *arguments, "--seed", "5", "--dtype", "float64", "--loss", "mean")
    source = read_problem("p.json").source
    assert source is not None
    assert (source["seed"], source["dtype"], source["loss"]) == (5, "float64", "mean")
    double = source["uncounted"]["parameters"]
    run_json(capsys, *arguments, "--clock", "operators")
    source = read_problem("p.json").source
    assert source is not None
    assert source["clock"] == "operators"
    assert source["uncounted"]["parameters"] * 2 == double
    summary = run_json(capsys, *arguments, "--memory", "50%")
    span = summary["peak_memory"] - summary["least_memory"]
    assert summary["memory"] == summary["least_memory"] + span // 2
    limit = ["--device-memory", "1MiB", "--optimiser", "momentum"]
    summary = run_json(capsys, *arguments, *limit)
    assert summary["memory"] == 2**20 - sum(summary["uncounted"].values())
    certify = ["certify", "p.json", "--device-memory", "900KiB", "--time-limit", "5"]
    run_json(capsys, *certify, "-o", "c.json")
    memory = read_certificate("c.json").problem.platform.memory
    assert memory == 900 * 2**10 - sum(summary["uncounted"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["steps_of_cli_tests:step", "--input", "2x3"],
            "input cannot be given with a TrainingStep",
        ),
        (["steps_of_cli_tests:step", "--loss", "mean"], "loss cannot be given with a TrainingStep"),
        (["steps_of_cli_tests:step", "--option", "width"], "option must look like layers=4"),
        (["steps_of_cli_tests:step", "--option", "width=many"], "step failed: TypeError"),
        (["steps_of_cli_tests:step", "--device-memory", "1GiB"], "whose size is not known"),
        (["steps_of_cli_tests:step", "--device-memory", "lots"], "device memory must be a size"),
        (
            ["steps_of_cli_tests:step", "--optimiser", "sgd", "--device-memory", "2KiB"],
            "device memory must be at least",
        ),
        (["steps_of_cli_tests:Branching"], "input is missing"),
        (["gpt-tiny", "--input", "2x8", "--measure", "--clock", "operators"], "cannot be measured"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments, "-o", "p.json"]) == 2
    # What the step prints goes there too.
    (error,) = set(capsys.readouterr().err.splitlines()) - {"a step is run"}
    assert message in error
    assert not (folder / "p.json").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--clock", "hours"), "must be one of modules, operators, graphs"),
        (("--hardware", "abacus"), "must be one of v100-pcie"),
        (("--hardware", "a100-40bg-pcie"), "did you mean a100-40gb-pcie"),
        (("--optimiser", "adan"), "did you mean adam or adamw?"),
        (("--dtype", "float"), "must be one of float32"),
        (("--loss", "crossentropy"), "did you mean cross-entropy?"),
    ],
)
def test_bad_choices_get_one_line(
    option: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["profile", "resnet18", "--input", "1x3x32x32", "-o", "p.json", *option])
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["profile", "resnet18", "--input", "1x3x32x32", "-o", "p.json"], "offcert profile"),
        (["train", __file__], "offcert train"),
    ],
)
def test_without_torch_the_commands_that_need_it_say_what_to_install(
    command: list[str],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"offcert: {what} needs PyTorch, which is not installed: pip install '.[torch]'\n"
    )


def test_the_zoo_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from offcert.runtime import zoo

    with pytest.raises(SystemExit) as caught:
        main(["profile", "--zoo"])
    assert caught.value.code == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(zoo.names())
    assert ["resnet18", "--input", "32x3x224x224"] in rows


def test_one_limit_at_a_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--memory", "1GiB", "--device-memory", "2GiB"]
    for arguments in (["profile", "gpt-tiny", "--input", "2x8", "-o", "p"], ["certify", "p.json"]):
        with pytest.raises(SystemExit) as caught:
            main([*arguments, *both])
        assert caught.value.code == 2
        assert "not allowed with argument --memory" in capsys.readouterr().err


def test_device_memory_needs_a_problem_that_says_what_it_does_not_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["profile", "gpt-tiny", "--input", "2x8", "-o", "p.json"])
    assert main(["certify", "p.json", "--device-memory", "1GiB"]) == 2
    assert "optimiser's state, whose size is not known" in capsys.readouterr().err
    document = problem_to_json(read_problem("p.json"))
    del document["source"]["uncounted"]
    Path("p.json").write_text(json.dumps(document))
    assert main(["certify", "p.json", "--device-memory", "1GiB"]) == 2
    errors = capsys.readouterr().err
    assert "does not say how many bytes its trace does not count" in errors
    assert errors.count("\n") == 1


def test_the_size_of_a_device_suggests_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["profile", "gpt-tiny", "--input", "1x8", "--optimizer", "AdamW"]
    command += ["-o", str(tmp_path / "p.json")]
    for more, card in ((["--device-memory", "24GiB"], "rtx-4090"), ([], "v100-pcie")):
        assert main([*command, *more]) == 0
        assert f"roofline of {card}" in capsys.readouterr().out
