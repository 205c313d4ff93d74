"""A part of `make gpu`: training under a plan on two cards, by DDP and by FSDP2.

Without cards the same runs on two processes of gloo, where tensors move synchronously.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu_meter import HARDWARE, Bench, same
from gpu_part import Part
from runtime_ways import blocks
from torch import distributed as dist
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import offcert
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.follow.offload import follow
from offcert.runtime.profiling.profile import profile
from offcert.training.planner import opaque_modules, without

RANKS = 2
DDP, FSDP = "DDP", "FSDP2"
_PLANNED = ", planned"
WAYS = (DDP, DDP + _PLANNED, FSDP, FSDP + _PLANNED)
# Of the way from the least memory to the peak; the model of a card whose times a plan is made for.
# Arbitrary.
_SHARE, _CARD = "30%", "h200"


def distributed(part: Part) -> None:
    """Train one network on two processes, plainly and under a plan that all of them follow."""
    cards = torch.cuda.device_count()
    # One network shows what there is to see.
    network = "gpt2-medium" if "gpt2-medium" in part.networks else part.networks[0]
    for wrapped in (DDP, FSDP):
        ways = (wrapped, wrapped + _PLANNED)
        if not part.missing(network, ways):
            continue
        with tempfile.TemporaryDirectory() as folder:
            with part.row(network, wrapped) as plain:
                if 0 < cards < RANKS:
                    raise RuntimeError("one card: two are needed")
                arguments = (folder, network, wrapped, part.search_seconds)
                multiprocessing.spawn(_work, arguments, nprocs=RANKS)  # type: ignore[no-untyped-call]
                names = [Path(folder, f"{rank}.json") for rank in range(RANKS)]
                ranks = [json.loads(name.read_text()) for name in names]
                plain |= _worst([rank["plain"] for rank in ranks])
            if not plain.get("failed"):
                with part.row(network, wrapped + _PLANNED) as planned:
                    planned |= _worst([rank["planned"] for rank in ranks])


def _worst(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of one row: the slowest rank's, and what holds on all of them."""
    found = dict(max(rows, key=lambda row: row["measured_ms"]))
    if "bitwise" in found:
        found["bitwise"] = all(row["bitwise"] for row in rows)
        found["planned"] = min(row["planned"] for row in rows)
    return found


def _work(rank: int, folder: str, network: str, wrapped: str, seconds: float) -> None:
    """Train on one process, and leave the columns of its rows in a file."""
    cards = torch.cuda.is_available()
    if cards:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    kind = "nccl" if cards else "gloo"
    dist.init_process_group(kind, init_method=meeting, rank=rank, world_size=RANKS)
    bench = Bench(network)
    torch.manual_seed(rank)
    _wrap(bench, wrapped)
    device = bench.device() if cards else None
    bench.step.execute(bench.step.make_batch())
    gradients = bench.gradients(bench.step.execute)
    name = bench.name if cards else "cpu"
    plain = {"device": name, **bench.repeat(bench.step.execute, device)}
    certificate = _certificate(bench, rank, seconds)
    # On the CPU the engine moves tensors by itself: a simulated device has no processes.
    with follow(bench.step.model, certificate) as training:
        planned = {"device": name, **bench.repeat(bench.step.execute, device)}
        steps = dict(training.steps)
        planned["bitwise"] = same(gradients, bench.gradients(bench.step.execute))
    planned |= {
        "limit": certificate.problem.platform.memory,
        "planned": steps.get("planned", 0),
        "steps": sum(steps.values()),
        "note": training.report.deviation or "",
    }
    Path(folder, f"{rank}.json").write_text(json.dumps({"plain": plain, "planned": planned}))
    dist.barrier()
    sys.stdout.flush()
    # PyTorch may hang while it takes a group down.
    os._exit(0)


def _wrap(bench: Bench, wrapped: str) -> None:
    if wrapped == DDP:
        model: Any = DistributedDataParallel(bench.model)
        bench.step = replace(bench.step, model=model)
        return
    for parameter in bench.model.parameters():
        parameter.grad = None
    mesh = init_device_mesh(bench.where.type, (RANKS,))
    for block in blocks(bench.model):
        fully_shard(block, mesh=mesh)
    fully_shard(bench.model, mesh=mesh)


def _certificate(bench: Bench, rank: int, seconds: float) -> Certificate:
    """Return a certificate for the step that process 0 has found, to all."""
    # DDP is no part of what a certificate is about; what shards a model is.
    step = replace(bench.step, model=bench.model, tensors="real")
    card = HARDWARE if bench.simulated else _CARD
    problem = profile(step, hardware=card, recompute="none")
    limited = replace(problem, recompute=Recompute.NONE).with_memory(_SHARE)
    limited = without(limited, opaque_modules(bench.model))
    documents: list[Any] = [None]
    if rank == 0:
        documents = [offcert.certify(limited, time_limit=seconds).to_json()]
    dist.broadcast_object_list(documents, 0)
    return Certificate.from_json(documents[0])
