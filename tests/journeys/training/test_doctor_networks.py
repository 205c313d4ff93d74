"""`doctor` on real networks: sizes of inputs, of callables, of steps."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import offcert
from offcert.cli import main
from offcert.core.errors import InputError


def make_step(batch: int = 4, sequence: int = 8) -> offcert.TrainingStep:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    tokens = torch.zeros(batch, sequence, dtype=torch.int64)
    return offcert.TrainingStep(model, lambda model, tokens: model(tokens).sum(), tokens)


def test_all_pairs_of_sizes_of_a_callable() -> None:
    found = offcert.doctor(
        make_step,
        device_memory="64KiB",
        batch=[2, 8],
        sequence=[4, 16],
        optimizer="AdamW",
        hardware="v100-pcie",
        time_limit=2,
    )
    asked = [tuple(each.asked.values()) for each in found]
    assert asked == [(2, 4), (2, 16), (8, 4), (8, 16)]
    # What waits for the backward pass grows with both.
    saved = [each.problem.plain().trace.peak_memory for each in found]
    assert saved[0] < saved[1] == saved[2] < saved[3]
    weights = 4 * (10 * 4 + 4 * 16 + 16 + 16 * 2 + 2)
    assert found[0].beside["parameters"] == weights
    assert found[0].beside["optimiser"] >= 2 * weights


def test_the_first_size_of_an_input_is_the_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input", "1x8", "--batch", "1,2", "--device-memory", "1MiB"]
    arguments += ["--optimiser", "sgd", "--time-limit", "1", "--json", "--hardware", "t4"]
    kept = tmp_path / "sizes"
    assert main(["doctor", "gpt-tiny", *arguments, "-o", str(kept)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["asked"] for each in document["sizes"]] == [{"batch": 1}, {"batch": 2}]
    peaks = [each["peak"] for each in document["sizes"]]
    assert peaks[0] < peaks[1]
    names = sorted(path.name for path in kept.iterdir())
    assert names == ["batch-1.json", "batch-2.json", "doctor.json"]
    answer = json.loads((kept / "doctor.json").read_text())
    assert answer == {name: value for name, value in document.items() if name != "written"}
    assert (answer["format"], answer["title"]) == ("offcert-doctor", "gpt-tiny")
    names.remove("doctor.json")
    assert main(["report", str(kept), "-o", str(tmp_path / "sizes.html")]) == 0


def test_a_step_has_one_size() -> None:
    step = make_step(3)
    optimiser = torch.optim.AdamW(step.model.parameters())
    (found,) = offcert.doctor(step, device_memory="24GiB", optimiser=optimiser, time_limit=1)
    assert found.problem.source is not None
    assert found.problem.source["hardware"] == "rtx-4090"
    # Two moments, and a count of steps a parameter.
    weights = sum(each.nbytes for each in step.model.parameters())
    assert found.beside["optimiser"] == 2 * weights + 4 * len(list(step.model.parameters()))
    assert not optimiser.state
    assert (dict(found.asked), found.samples, found.fits) == ({"batch": 3}, 3, True)


@pytest.mark.parametrize("model", ["gpt-tiny", nn.Linear(8, 2), make_step(), make_step])
def test_an_unknown_optimiser_is_told_before_anything_is_captured(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcert.runtime.profiling.profile.capture", None)
    shape = "2x8" if isinstance(model, str | nn.Module) else None
    with pytest.raises(InputError, match="name the optimiser"):
        offcert.doctor(model, shape, device_memory="1MiB", hardware="t4")
    if not callable(model) or isinstance(model, nn.Module):
        with pytest.raises(InputError, match="name the optimiser"):
            offcert.profile(model, shape, hardware="v100-pcie", device_memory="1MiB")


@pytest.mark.parametrize(
    ("model", "options", "fault"),
    [
        (make_step(), {"batch": [2]}, "batch cannot be changed"),
        (make_step, {"batch": [0]}, r"batch\[0\] must be at least 1"),
        ("gpt-tiny", {"input_shape": "4", "sequence": [2]}, "has no sequence"),
        (make_step, {"device_memory": "much"}, "device_memory"),
        (make_step, {"workers": 0}, "workers must be at least 1"),
        (make_step, {"batch": "all"}, 'batch must be a sequence of numbers or "auto", not'),
        (make_step, {"batch": 4}, "batch must be a sequence of numbers, not 4"),
        (make_step, {"sequence": None}, "sequence must be a sequence of numbers, not None"),
        (make_step, {"hardware": 4}, "hardware must be a name or a Hardware, not 4"),
        (make_step(), {"batch": "auto"}, "batch cannot be changed"),
        (make_step, {"hardware": None}, "1.00 MiB suggest none; name one of v100-pcie"),
        (make_step, {"optimizer": "sgd"}, "optimiser and optimizer are the same"),
        (make_step, {"optimiser": "newton"}, "optimiser must be one of sgd"),
    ],
)
def test_bad_input_is_told(model: Any, options: dict[str, Any], fault: str) -> None:
    given = {"device_memory": "1MiB", "optimiser": "sgd", "hardware": "t4"}
    with pytest.raises(InputError, match=fault):
        offcert.doctor(model, **given | options)


def test_the_largest_batch_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"device_memory": "16KiB", "optimiser": "sgd", "hardware": "t4", "time_limit": 4}
    found = offcert.doctor(make_step, batch="auto", sequence=[4], **options)
    sizes = [each.samples for each in found]
    assert sizes == sorted(sizes)
    assert found.largest is not None
    most = found.largest.samples
    # One sample more does not fit, whatever is done.
    (more,) = offcert.doctor(make_step, batch=[most + 1], sequence=[4], **options)
    assert (more.step, more.why_not is not None) == (None, True)
    assert str(found).startswith("make_step on t4 in 16.00 KiB\n")
    words = ["--device-memory", "16KiB", "--optimiser", "sgd", "--hardware", "T4"]
    words += ["--batch", "auto", "--sequence", "4", "--time-limit", "4", "--json"]
    assert main(["doctor", f"{__name__}:make_step", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["largest"] == {"batch": most, "sequence": 4}
    assert (document["hardware"], document["notes"]) == ("t4", [])


HF = ["doctor", "--hf", "CONFIG", "--batch", "1", "--sequence", "16", "--time-limit", "1"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 61,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def lines_of(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([str(folder) if word == "CONFIG" else word for word in words]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_first_line_says_the_card_and_the_kernel_of_attention(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = lines_of([*HF, "--device-memory", "24GiB"], folder, capsys)
    assert first == f"{folder} on rtx-4090 in 24.00 GiB, attention by flash-2"
    assert rest[0] == "rtx-4090 is suggested by 24.00 GiB: hardware names another"
    assert rest[1].startswith("parameters, gradients and the optimiser's state are bfloat16; ")
    assert rest[1].endswith("--autocast bf16")
    named = [*HF, "--hardware", "Tesla V100-PCIE-16GB", "--autocast", "bf16"]
    first, *rest = lines_of(named, folder, capsys)
    # 15.75 GiB, less a half and a 32nd.
    assert first == (
        f"{folder} on v100-pcie in 14.76 GiB, attention by math, which keeps all scores"
    )
    assert rest[0].startswith("of its 15.75 GiB, 512.00 MiB are for the context of CUDA")
    assert not any("bfloat16" in line for line in rest[:2])


def test_packed_weights_and_their_optimiser_from_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*HF, "--hardware", "l4", "--json", "--lora", "2"]
    whole, packed = (
        json.loads(lines_of([*words, *more], folder, capsys)[-1])["sizes"][0]["at_peak"]
        for more in ([], ["--bits", "4", "--optimizer", "paged_adamw_8bit"])
    )
    assert packed["parameters"] < whole["parameters"]
    # Parameters of less than 4096 numbers have states of float32: of bfloat16 before.
    assert packed["optimiser"] == 2 * (whole["optimiser"] - 4 * 14)


def test_a_terminal_is_asked_which_card_is_meant(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(folder) if word == "CONFIG" else word for word in HF]
    words += ["--device-memory", "1GiB"]
    assert main(words) == 2
    assert "1.00 GiB suggest none; name one of v100-pcie" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    for answer, code in (("RTX 4090\n", 0), ("abacus\n", 2), ("", 2)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert main(words) == code
    assert "on rtx-4090 in 1.00 GiB" in capsys.readouterr().out
