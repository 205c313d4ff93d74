"""Compiled training under a plan beside PyTorch's activation memory budget, at equal peak.

    python benchmarks/compiled.py --json out/compiled.json

A model is compiled by Inductor: as it is, with the largest `activation_memory_budget` whose peak is
not above that of the plan, and with `offcert.backend(certificate)`. Calls of Python functions are
counted in one step after three others, by ``sys.setprofile``. On a CPU the peak is not measured: of
the plan it is counted on Inductor's buffers, and the budget is 0.5.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
from torch import nn

import offcert
from offcert.core.documents import write_json
from offcert.runtime.capture.step import TrainingStep

BUDGETS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


def rows(step: TrainingStep, certificate: offcert.Certificate, steps: int = 10) -> list[Any]:
    """Return a row for each way in which a step is compiled.

    Parameters
    ----------
    step : TrainingStep
        Model, batch and loss, on the device that is measured.
    certificate : Certificate
        For that step.
    steps : int
        Steps whose time is taken, after three others.
    """
    ours = offcert.backend(certificate)
    plan = _measured(step, ours, steps)
    plan |= {
        "way": "plan",
        "complete": ours.report.complete,
        "buffers": ours.report.peak,
        "said": str(ours.report),
    }
    found = [{"way": "as it is", **_measured(step, "inductor", steps)}]
    for budget in (0.5,) if plan["peak"] is None else BUDGETS:
        with torch._functorch.config.patch(activation_memory_budget=budget):
            row = _measured(step, "inductor", steps)
        if plan["peak"] is None or row["peak"] <= plan["peak"] or budget == BUDGETS[-1]:
            found.append({"way": f"budget {budget}", **row})
            break
    return [*found, plan]


def _measured(step: TrainingStep, backend: Any, steps: int) -> dict[str, Any]:
    """Return milliseconds, bytes at the peak and calls of a step that a backend compiles."""
    torch._dynamo.reset()
    model = copy.deepcopy(step.model)
    runs = torch.compile(model, backend=backend, dynamic=False)
    on_card = next(model.parameters()).is_cuda

    def run() -> None:
        loss = step.run(runs, step.batch)
        loss.backward()
        model.zero_grad()
        if on_card:
            torch.cuda.synchronize()

    for _ in range(3):
        run()
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(steps):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    peak = torch.cuda.max_memory_allocated() if on_card else None
    return {
        "milliseconds": 1000 * statistics.median(seconds),
        "peak": peak,
        "calls": _calls(run),
    }


def _calls(run: Callable[[], None]) -> int:
    """Return how many Python functions are called."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def small_gpt2() -> TrainingStep:
    """Return a step of the GPT-2 of `transformers`, small enough for a CPU."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes: Any = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 16, "vocab_size": 64}
    config = GPT2Config(**sizes, **none, bos_token_id=0, eos_token_id=0, use_cache=False)
    tokens = torch.randint(64, (2, 16))

    def run(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=batch, labels=batch).loss
        return loss

    return TrainingStep(GPT2LMHeadModel(config), run, tokens, tensors="real")


def main(arguments: list[str] | None = None) -> int:
    """Measure the small GPT-2 at half of its memory, print its rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args(arguments)
    step = small_gpt2()
    problem = offcert.profile(step, clock="graphs", hardware="v100-pcie").with_memory("50%")
    found = rows(step, offcert.certify(problem, time_limit=2))
    for row in found:
        print({name: value for name, value in row.items() if name != "said"})
    if options.json:
        write_json(options.json, {"torch": torch.__version__, "rows": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
