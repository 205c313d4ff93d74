"""The processes of a test: the Trainer and Accelerate with FSDP2, plain and under plans.

Accelerate shards on accelerators only. On the CPU it is told so here, and does the same.
"""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import transformers
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

from offcert.core.errors import InputError
from offcert.runtime.watch.sharded import local
from offcert.training import offload
from offcert.training.huggingface import OffloadCallback
from support.networks import huggingface_models as models
from support.runtime.ranks import leave

ASKED: dict[str, Any] = {
    "memory": "40%",
    "hardware": "v100-pcie",
    "time_limit": 0.5,
    "background": False,
    "count": True,
}


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens; every access is the same."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(3, 61, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


def shard(accelerator: Any, version: int = 2) -> None:
    """Let an accelerator shard models that it prepares."""
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=version,
        reshard_after_forward=True if version == 2 else "FULL_SHARD",
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["GPT2Block"],
        cpu_ram_efficient_loading=False,
    )


def made() -> Any:
    torch.manual_seed(0)
    return models.gpt2()[0]


def shards_of(model: Any) -> list[torch.Tensor]:
    return [local(each.detach()).clone() for each in model.parameters()]


def trainer_of(folder: str, callbacks: list[Any], version: int = 2) -> Any:
    arguments = transformers.TrainingArguments(
        folder,
        use_cpu=True,
        seed=3,
        learning_rate=0.01,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        per_device_train_batch_size=2,
        max_steps=3,
    )
    trainer = transformers.Trainer(
        made(), arguments, train_dataset=Sentences(), callbacks=callbacks
    )
    trainer.remove_callback(transformers.PrinterCallback)
    shard(trainer.accelerator, version)
    trainer.is_fsdp_enabled = True
    return trainer


def by_trainer(folder: str) -> dict[str, Any]:
    plain = trainer_of(folder, [])
    plain.train()
    callback = OffloadCallback("auto", **ASKED)
    planned = trainer_of(folder, [callback])
    planned.train()
    assert callback.offload is not None
    found = outcome(plain.model, planned.model, callback.offload)
    try:
        trainer_of(folder, [OffloadCallback("auto", **ASKED)], version=1).train()
    except InputError as error:
        found["refused"] = str(error)
    return found


def by_accelerate() -> dict[str, Any]:
    found = []
    for way in ("plain", "planned"):
        accelerator = Accelerator(cpu=True)
        shard(accelerator)
        model: Any = made()
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimiser = accelerator.prepare(model, optimiser)
        torch.manual_seed(5 + accelerator.process_index)
        training = offload(model, "auto", **ASKED)
        with training if way == "planned" else nullcontext():
            for _ in range(3):
                accelerator.backward(model(**models._text()).loss)
                optimiser.step()
                optimiser.zero_grad()
        found.append(model)
    return outcome(found[0], found[1], training)


def outcome(plain: Any, planned: Any, training: Any) -> dict[str, Any]:
    pairs = zip(shards_of(plain), shards_of(planned), strict=True)
    report = training.report
    return {
        "equal": all(torch.equal(one, other) for one, other in pairs),
        "sharded": type(planned).__name__,
        "steps": dict(training.steps),
        "within": max(report.peaks) <= report.limit,
        "moved": report.offloaded_bytes,
    }


def main(rank: int, size: int, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    here = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in here.items()} | {"OMP_NUM_THREADS": "1"}
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    folder = str(Path(results).parent)
    torch.save({"trainer": by_trainer(folder), "accelerate": by_accelerate()}, results)
    leave()
