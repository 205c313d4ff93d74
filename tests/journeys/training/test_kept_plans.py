"""Plans that are kept in a folder: found by the next run, never believed, damaged ones said."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import offcert
from offcert.certification.kept_plans import KeptPlans
from offcert.core.documents import canonical_digest, read_json, write_json
from offcert.runtime.follow.offload import Offload
from offcert.runtime.watch.guard import OffloadWarning

BATCH = torch.ones(16, 64)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Sigmoid())]
    return nn.Sequential(*layers)


def train(folder: Path, memory: str = "25%", **options: Any) -> tuple[Offload, list[torch.Tensor]]:
    """Train a network for a step; return the training and its gradients."""
    model = network()
    example = offcert.TrainingStep(model, lambda m, x: m(x).mean(), BATCH)
    training = offcert.offload(
        model,
        "auto",
        memory=memory,
        hardware="v100-pcie",
        example=example,
        plans=folder,
        background=False,
        **{"time_limit": 1, **options},
    )
    with training:
        model(BATCH).mean().backward()
    assert training.steps == {"planned": 1}
    return training, [p.grad for p in model.parameters() if p.grad is not None]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan."""
    folder = tmp_path_factory.mktemp("plans") / "new"
    train(folder)
    return folder


def test_the_next_run_finds_the_plan_and_searches_for_nothing(
    kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offcert.training")
    (path,) = kept.iterdir()
    before = path.read_bytes()
    # There would be no time to find one.
    training, gradients = train(kept, time_limit=1e-9)
    assert f"found in {kept}" in caplog.text
    assert training.certificates[0].to_json() == read_json(path)
    assert path.read_bytes() == before
    plain = network()
    plain(BATCH).mean().backward()
    assert all(map(torch.equal, gradients, [p.grad for p in plain.parameters()]))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_loop_that_is_timed_finds_its_plan_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offcert.training")
    for _ in range(2):
        model = network()
        options = {"memory": "25%", "plans": tmp_path, "background": False, "time_limit": 1}
        with offcert.offload(model, "auto", **options) as training:  # type: ignore[arg-type]
            for _ in range(8):
                model(BATCH).mean().backward()
        assert training.steps["planned"] == 7
    assert len(re.findall(r"found in [0-9.]+ s", caplog.text)) == 1
    assert f"found in {tmp_path}" in caplog.text


def test_another_limit_is_another_plan(kept: Path) -> None:
    before = set(kept.iterdir())
    train(kept, memory="50%")
    (new,) = set(kept.iterdir()) - before
    new.unlink()


def _cut_short(path: Path) -> None:
    path.write_text(path.read_text()[:-100])


def _signed(path: Path, document: dict[str, Any]) -> None:
    """Write a document with the digest that it should have."""
    document["digest"] = canonical_digest({k: v for k, v in document.items() if k != "digest"})
    write_json(path, document)


def _claim_more(path: Path) -> None:
    document = read_json(path)
    for bound in document["bounds"]:
        bound["value"] += 10**6
    _signed(path, document)


def _move_earlier(path: Path) -> None:
    document = read_json(path)
    last = document["schedule"]["operations"][-1]
    last["start"], last["end"] = last["start"] - 1, last["end"] - 1
    _signed(path, document)


@pytest.mark.parametrize("damage", [_cut_short, _claim_more, _move_earlier])
def test_a_damaged_plan_is_said_and_searched_for_anew(
    kept: Path, tmp_path: Path, damage: Any
) -> None:
    (source,) = kept.iterdir()
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    damage(path)
    with pytest.warns(OffloadWarning, match=r"the plan in .* is not used: "):
        train(tmp_path)
    assert offcert.verify(path).valid


def test_a_plan_for_another_step_under_the_name_of_this_one_is_refused(
    kept: Path, tmp_path: Path
) -> None:
    (source,) = kept.iterdir()
    train(tmp_path, memory="50%")
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / source.name)
    with pytest.warns(OffloadWarning, match="it is for another step"):
        train(tmp_path)


def test_measured_times_do_not_count_but_the_machine_does(tmp_path: Path) -> None:
    model = network()
    slow, fast = (
        offcert.profile(model, "16x64", hardware=name, loss="mean")
        for name in ("v100-pcie", "h100-pcie")
    )
    slow, fast = slow.with_memory(10**6), fast.with_memory(10**6)
    here, there = (KeptPlans(tmp_path, machine) for machine in ("one GPU", "another"))
    named = KeptPlans(tmp_path, "")
    assert here.digest(slow, None) == here.digest(fast, None)
    assert here.digest(slow, None) != there.digest(slow, None)
    assert named.digest(slow, None) != named.digest(fast, None)
    assert here.digest(slow, None) != here.digest(slow, 10**6)


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(offcert.InputError, match="plans cannot be kept in"):
        offcert.offload(network(), "auto", memory="25%", plans=tmp_path / "file" / "folder")
    with pytest.raises(offcert.InputError, match="plans can only be given"):
        offcert.offload(network(), offcert.Plan(), plans=tmp_path)
