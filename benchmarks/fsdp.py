"""Training of sharded models under plans, beside plain training of them, on processes of gloo.

    python benchmarks/fsdp.py [--ranks 2,4] [--cases NAME,...] [--steps N]

A case is a way to shard the same small network: `fully_shard` (FSDP2) with its options, or tensor
parallelism. It is trained as it is, then under a certificate for a limit at 30 % of the way from
the least memory to the peak, and under `plan="auto"` for 30 %. Losses and shards of parameters are
compared bit by bit on every process; bytes are counted at every operator. Plans that move pay by a
link of the stated hardware model; "again" has a link that is too slow to be used. The times of the
hardware model, the network, and 30 % are arbitrary.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import offcert
from offcert.core.errors import NoPlanError
from offcert.core.options import require_count
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from offcert.runtime.watch.sharded import local
from offcert.training.planner import opaque_modules, without

SHARE = Fraction(3, 10)
WIDTH, SAMPLES = 32, 256


@dataclass(frozen=True)
class Case:
    """A way to shard the network and to train it."""

    reshard: bool | int | None = None
    half: bool = False
    accumulate: int = 1
    hybrid: bool = False
    parallel: bool = False
    again: bool = False


CASES = {
    "reshard": Case(reshard=True),
    "keep": Case(reshard=False),
    "reshard-to-2": Case(reshard=2),
    "bf16": Case(half=True),
    "accumulate": Case(accumulate=3),
    "bf16-accumulate": Case(half=True, accumulate=3),
    "hybrid": Case(hybrid=True),
    "again": Case(again=True),
    "again-keep": Case(reshard=False, again=True),
    "again-bf16": Case(half=True, again=True),
    "tensor-parallel": Case(parallel=True),
}


class Block(nn.Module):
    """A residual block of some layers, with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.body = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to the input what the layers make of it."""
        return x + self.body(self.norm(x))


def network(case: Case, size: int) -> Any:
    """Return the network, sharded over all processes."""
    torch.manual_seed(0)
    blocks = [Block(WIDTH) for _ in range(3)]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, WIDTH))
    shape, names = ((2, size // 2), ("copy", "shard")) if case.hybrid else ((size,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    if case.parallel:
        for block in blocks:
            parallelize_module(block.body, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
        return model
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": case.reshard}
    if case.half:
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Return a loss of a batch."""
    found: torch.Tensor = model(batch).float().square().mean()
    return found


def train(model: Any, case: Case, steps: int, rank: int, training: Any = None) -> Any:
    """Return losses and shards after some steps, and of what steps under a plan report."""
    torch.manual_seed(0 if case.parallel else 100 + rank)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    found, reports = [], []
    for number in range(steps * case.accumulate):
        last = (number + 1) % case.accumulate == 0
        if case.accumulate > 1:
            model.set_requires_gradient_sync(last)
        loss = loss_of(model, torch.randn(SAMPLES, WIDTH))
        loss.backward()
        found.append(loss.detach().clone())
        if training is not None:
            reports.append(training.report)
        if last:
            optimiser.step()
            optimiser.zero_grad()
    return [*found, *(local(each.detach()).clone() for each in model.parameters())], reports


def certificate_for(model: Any, case: Case, rank: int) -> Certificate:
    """Return a certificate for a step that process 0 has found, to all."""
    step = TrainingStep(model, loss_of, torch.randn(SAMPLES, WIDTH))
    problem: Problem = profile(step, hardware="v100-pcie", recompute="none")
    limited = problem.with_memory(problem.memory_at(SHARE))
    if case.again:
        # A byte takes a tenth of a second: what is not kept is computed again.
        slow = replace(limited.platform, bandwidth=Fraction(1, 10**8))
        limited = replace(limited, recompute=Recompute.ANY, platform=slow)
        limited = without(limited, opaque_modules(model))
    documents: list[Any] = [None]
    if rank == 0:
        documents = [offcert.certify(limited, time_limit=5).to_json()]
    dist.broadcast_object_list(documents, 0)
    return Certificate.from_json(documents[0])


def as_foreseen(report: Any) -> bool:
    """Whether no operation took more bytes than was predicted for it."""
    pairs = zip(report.peaks, report.prediction.peaks, strict=True)
    return all(peak <= most for peak, most in pairs)


def measured(case: Case, way: str, size: int, rank: int, steps: int, plain: Any) -> dict[str, Any]:
    """Return the outcome of training under a plan, beside parameters of plain training."""
    model = network(case, size)
    if way == "given":
        certificate = certificate_for(model, case, rank)
        training = offcert.offload(model, certificate, count=True)
    else:
        training = offcert.offload(
            model, "auto", memory="30%", hardware="v100-pcie", time_limit=2, count=True,
            background=False,
        )  # fmt: skip
    with warnings.catch_warnings(record=True) as told, training:
        warnings.simplefilter("always")
        found, reports = train(model, case, steps, rank, training)
    planned = [each for each in reports if each.planned]
    plans = training.step_plans
    made = [certificate] if way == "given" else training.certificates
    return {
        "equal": all(torch.equal(a, b) for a, b in zip(plain, found, strict=True)),
        "steps": dict(training.steps),
        "predicted": all(map(as_foreseen, planned)),
        "within": all(max(each.peaks) <= each.limit for each in planned),
        "peak": max((max(each.peaks) for each in planned), default=0),
        "limit": max((each.limit for each in plans), default=0),
        "unlimited": max((each.problem.plain().trace.peak_memory for each in made), default=0),
        "moved": max((each.offloaded_bytes for each in planned), default=0),
        "again": max((len(each.segments.segments) for each in plans), default=0),
        "plans": [each.digest for each in plans],
        "told": [str(each.message) for each in told],
    }


def work(rank: int, size: int, folder: str, names: list[str], steps: int) -> None:
    """Train all cases on one process, and leave what was found in a file."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    rows = []
    for name in names:
        case = CASES[name]
        plain, _ = train(network(case, size), case, steps, rank)
        for way in ("given", "auto"):
            if (way == "auto" and case.again) or (way == "given" and case.accumulate > 1):
                continue
            try:
                row = measured(case, way, size, rank, steps, plain)
            except NoPlanError as error:
                row = {"error": str(error)}
            rows.append({"case": name, "way": way, **row})
    Path(folder, f"{rank}.json").write_text(json.dumps(rows))
    dist.barrier()
    sys.stdout.flush()
    # PyTorch may hang while it takes a group down.
    os._exit(0)


def table(size: int, names: list[str], steps: int) -> bool:
    """Print a row a case and way; return whether all is as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (size, folder, names, steps), nprocs=size)  # type: ignore[no-untyped-call]
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]
    good = True
    for rows in zip(*ranks, strict=True):
        first = rows[0]
        equal = all(row["equal"] for row in rows)
        agreed = all(row["plans"] == first["plans"] for row in rows)
        within = all(row["within"] for row in rows)
        predicted = all(row["predicted"] for row in rows)
        good &= equal and agreed and within
        planned = min(row["steps"].get("planned", 0) for row in rows)
        print(
            f"{size} | {first['case']} | {first['way']} | {'yes' if equal else 'NO'} | "
            f"{'yes' if agreed else 'NO'} | {planned} of {sum(first['steps'].values())} | "
            f"{max(row['peak'] for row in rows)} | {first['limit']} | {first['unlimited']} | "
            f"{'yes' if within else 'NO'} | {'yes' if predicted else 'no'} | {first['moved']} | "
            f"{first['again']}",
            flush=True,
        )
        for said in sorted({each for row in rows for each in row["told"]}):
            print(f"    {said[:200]}")
    return good


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    steps = require_count(options.steps, "--steps")
    names = options.cases.split(",")
    print(
        "ranks | case | plan | bitwise | same plan on all | planned steps | peak | limit | "
        "peak without a limit | within | as foreseen | moved | segments"
    )
    good = True
    for size in map(int, options.ranks.split(",")):
        known = [n for n in names if size >= 4 or (not CASES[n].hybrid and CASES[n].reshard != 2)]
        good &= table(size, known, steps)
    sys.exit(not good)


if __name__ == "__main__":
    main()
