"""From the first step on no more memory than the limit, whatever the lengths; no example."""

from __future__ import annotations

import copy
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.training import offload
from offcert.training.search import Order, SearchProcess, find


class Words(nn.Module):
    """Called with tokens and a whole number, as a diffusion is with its time step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True) for _ in range(1)
        )
        self.out = nn.Linear(16, 40)

    def forward(self, tokens: torch.Tensor, timestep: int) -> torch.Tensor:
        hidden = self.embedding(tokens) + timestep / 1000
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, int]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(*batch).flatten(0, 1), batch[0].flatten())


@dataclass
class Loop:
    """Trains two copies of a model side by side, the second under plans."""

    def __post_init__(self) -> None:
        torch.manual_seed(2)
        self.plain = Words()
        self.planned = copy.deepcopy(self.plain)
        self.count = 0

    def step(self, rows: int, length: int) -> None:
        # A step that is studied is counted until the next one begins; the batch is no part of it.
        with torch._C._DisableTorchDispatch():
            batch = torch.randint(40, (rows, length)), 7 * self.count % 1000
        self.count += 1
        state = torch.get_rng_state()
        for model in (self.planned, self.plain):
            torch.set_rng_state(state)
            model.zero_grad()
            with torch._C._DisableTorchDispatch() if model is self.plain else nullcontext():
                loss_of(model, batch).backward()
        pairs = zip(self.plain.parameters(), self.planned.parameters(), strict=True)
        assert all(torch.equal(one.grad, other.grad) for one, other in pairs)

    def evaluate(self) -> None:
        with torch.no_grad():
            self.planned.eval()(torch.randint(40, (9, 50)), 3)
        self.planned.train()


def device_of(limit: int) -> SimulatedDevice:
    """Return a device on which an operator whose output does not fit raises an error."""
    platform = Platform(0, Fraction(12), Link.DUPLEX)
    return SimulatedDevice(platform, memory=limit, strict=True)


@pytest.mark.parametrize(("hardware", "steps"), [("v100-pcie", 20), (None, 40)])
def test_random_lengths_within_the_limit_from_the_first_step_on(
    hardware: str | None, steps: int
) -> None:
    loop, limit = Loop(), 215_000
    device = device_of(limit)
    asked = {"memory": limit, "hardware": hardware, "time_limit": 0.5, "background": False}
    with offload(loop.planned, "auto", device=device, count=True, **asked) as training:
        for number in range(steps):
            # The last batch of an epoch is smaller.
            rows = 1 if number % 20 == 19 else 3
            loop.step(rows, int(torch.randint(8, 39, ())))
            if number % 25 == 0:
                loop.evaluate()
    # Each step that is larger than all before it is studied.
    assert training.steps["studied"] <= max(6, steps // 10)
    assert training.steps["planned"] == steps - training.steps["studied"]
    assert 190_000 < device.memory().peak_allocated <= limit
    assert device.races == []
    [certificate] = training.certificates[-1:]
    assert certificate.problem.source is not None
    assert certificate.problem.source["measured"] is (hardware is None)


def test_the_device_has_no_room_for_the_first_step_without_the_rule() -> None:
    loop = Loop()
    asked = {"memory": 2**30, "hardware": "v100-pcie", "time_limit": 0.5, "background": False}
    with (
        offload(loop.planned, "auto", device=device_of(215_000), **asked),
        pytest.raises(torch.OutOfMemoryError),
    ):
        loop.step(3, 48)


def test_a_search_in_a_process_of_its_own_while_the_training_goes_on() -> None:
    loop = Loop()
    asked = {"memory": "30%", "hardware": "v100-pcie", "time_limit": 1.0}
    with offload(loop.planned, "auto", count=True, **asked) as training:
        loop.step(3, 40)
        loop.step(3, 40)
        # A makeshift is followed meanwhile.
        assert training.certificates == []
        assert training.report.planned
        assert training.report.within_limit
        end = time.monotonic() + 60
        while not training.certificates and time.monotonic() < end:
            time.sleep(0.2)
            loop.step(1, 5)
        loop.step(3, 40)
    assert training.certificates
    assert training.report.planned
    assert training.steps["studied"] == 1
    assert set(training.steps) == {"studied", "planned"}


def test_a_search_that_is_left_ends() -> None:
    loop = Loop()
    asked = {"memory": "30%", "hardware": "v100-pcie", "time_limit": 300.0}
    with offload(loop.planned, "auto", **asked) as training:
        loop.step(3, 40)
        loop.step(3, 40)
        [made] = training.follower.relay.listener().maker.places.made
        process = made.search._process
        assert process.poll() is None
    assert process.poll() is not None


def test_a_search_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    step = TrainingStep(loop.planned, loss_of, (torch.ones(2, 9, dtype=torch.long), 3))
    problem = profile(step, hardware="v100-pcie").with_memory("50%")
    assert problem.source is not None
    # Nobody knows how to follow it.
    broken = problem.__class__(
        problem.name, problem.trace, Platform(problem.platform.memory, Fraction(1))
    )
    order = Order(broken, None, 0.2)
    with pytest.raises(InputError, match="training cannot follow"):
        find(order)
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho first >&2\necho out of luck >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    search = SearchProcess()
    search.give(order)
    search._process.wait()
    with pytest.raises(InputError, match=r"^out of luck$"):
        search.poll()
