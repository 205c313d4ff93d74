"""`doctor` on real networks: sizes of inputs, of callables, of steps."""

import json
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
        optimiser="adamw",
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
    arguments += ["--optimiser", "sgd", "--time-limit", "1", "--json"]
    kept = tmp_path / "sizes"
    assert main(["doctor", "gpt-tiny", *arguments, "-o", str(kept)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["asked"] for each in document["sizes"]] == [{"batch": 1}, {"batch": 2}]
    peaks = [each["peak"] for each in document["sizes"]]
    assert peaks[0] < peaks[1]
    assert sorted(path.name for path in kept.iterdir()) == ["batch-1.json", "batch-2.json"]
    assert main(["report", str(kept), "-o", str(tmp_path / "sizes.html")]) == 0


def test_a_step_has_one_size() -> None:
    (found,) = offcert.doctor(make_step(3), device_memory=10**6, optimiser="sgd", time_limit=1)
    assert (dict(found.asked), found.samples, found.fits) == ({"batch": 3}, 3, True)


@pytest.mark.parametrize("model", ["gpt-tiny", nn.Linear(8, 2), make_step(), make_step])
def test_an_unknown_optimiser_is_told_before_anything_is_captured(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offcert.runtime.profiling.profile.capture", None)
    shape = "2x8" if isinstance(model, str | nn.Module) else None
    with pytest.raises(InputError, match="name the optimiser"):
        offcert.doctor(model, shape, device_memory="1MiB")
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
    ],
)
def test_bad_input_is_told(model: Any, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        offcert.doctor(model, **{"device_memory": "1MiB", "optimiser": "sgd"} | options)
