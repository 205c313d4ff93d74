"""Loops of the ecosystem's forms: under a plan they train bitwise what they train without one.

Where a library is installed, its own loop; otherwise a loop of the same form.
"""

import copy
import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

from offcert.core.errors import InputError
from offcert.runtime.follow.offload import Offload
from offcert.training import offload
from support.networks import huggingface_models as models

AUTO: dict[str, Any] = {
    "memory": "50%", "hardware": "v100-pcie", "time_limit": 1, "background": False, "count": True
}  # fmt: skip
Weights = list[torch.Tensor]


def weights(*networks: nn.Module) -> Weights:
    return [each.clone() for network in networks for each in network.state_dict().values()]


def same(train: Callable[[bool], tuple[Weights, list[Offload]]]) -> list[Offload]:
    """Train twice, the second time under plans, and compare all weights."""
    (plain, _), (planned, attached) = train(False), train(True)
    assert len(plain) == len(planned) > 0
    assert all(torch.equal(one, other) for one, other in zip(plain, planned, strict=True))
    for each in attached:
        # The first step of each kind is captured, all others follow a plan, and keep to its limit.
        assert each.steps.keys() <= {"planned", "studied"}
        assert each.steps["planned"] >= 2 >= each.steps["studied"]
        assert each.report.within_limit
        assert each.promises[-1]["peak"] < each.promises[-1]["peak_without"]
    return attached


def network(outputs: int = 10) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(16, 64)]
    for _ in range(4):
        layers += [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(64, outputs))


def batches(count: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(32, 16), torch.randint(10, (32,))) for _ in range(count)]


class LowRank(nn.Module):
    """A frozen layer with an adapter of low rank beside it, as peft makes them."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.dropout = nn.Dropout(0.1)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + 2 * self.lora_B(self.lora_A(self.dropout(x)))


def test_adapters_beside_frozen_weights() -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        model = network()
        for index, layer in enumerate(model):
            if isinstance(layer, nn.Linear):
                model[index] = LowRank(layer)
        parameters = [each for each in model.parameters() if each.requires_grad]
        assert len(parameters) == 12
        return loop(model, torch.optim.AdamW(parameters), planned)

    same(train)


def loop(
    model: nn.Module, optimiser: torch.optim.Optimizer, planned: bool
) -> tuple[Weights, list[Offload]]:
    with ExitStack() as stack:
        attached = [stack.enter_context(offload(model, "auto", **AUTO))] if planned else []
        for inputs, labels in batches():
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            optimiser.zero_grad()
    return weights(model), attached


def test_peft() -> None:
    peft = pytest.importorskip("peft")

    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        model, batch = models.build("llama")
        torch.manual_seed(1)
        model = peft.get_peft_model(
            model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
        )
        optimiser = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
        with ExitStack() as stack:
            attached = [stack.enter_context(offload(model, "auto", **AUTO))] if planned else []
            for _ in range(3):
                model(**batch()).loss.backward()
                optimiser.step()
                optimiser.zero_grad()
        return weights(model), attached

    same(train)


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """A prompt and its completion, of which only the completion counts."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(3, 61, (8 + index % 5,), generator=generator)
        return {
            "input_ids": tokens,
            "labels": torch.where(torch.arange(len(tokens)) < 4, -100, tokens),
        }


def padded(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    def pad(name: str, value: int) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence([row[name] for row in rows], True, value)

    return {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100)}


class Supervised(transformers.Trainer):
    """A Trainer with a loss and metrics of its own, as the one of trl for supervised tuning."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **others: Any
    ) -> Any:
        labels = inputs["labels"]
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        with torch.no_grad():
            hits = (logits.argmax(-1) == labels[:, 1:]).float().mean()
        self.accuracy = [*getattr(self, "accuracy", []), hits.item()]
        return (loss, logits) if return_outputs else loss


def supervised(
    kind: Any, folder: Any, planned: bool, **given: Any
) -> tuple[Weights, list[Offload]]:
    from offcert.training.huggingface import OffloadCallback

    torch.manual_seed(1)
    model, _ = models.build("llama")
    arguments = given.pop("arguments", transformers.TrainingArguments)(
        str(folder), use_cpu=True, seed=3, report_to="none", save_strategy="no", max_steps=4,
        per_device_train_batch_size=4, logging_strategy="no", disable_tqdm=True, bf16=False,
    )  # fmt: skip
    trainer = kind(model, arguments, **given)
    callback = OffloadCallback("auto", **AUTO)
    if planned:
        trainer.add_callback(callback)
    trainer.train()
    return weights(model), [callback.offload] if callback.offload is not None else []


def test_supervised_fine_tuning(tmp_path: Any) -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        given = {"train_dataset": Sentences(), "data_collator": padded}
        return supervised(Supervised, tmp_path, planned, **given)

    same(train)


def test_trl(tmp_path: Any) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")

    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        rows = [
            {name: each.tolist() for name, each in row.items()}
            for row in map(Sentences().__getitem__, range(8))
        ]
        given = {"train_dataset": datasets.Dataset.from_list(rows), "arguments": trl.SFTConfig}
        given["processing_class"] = tokenizer(tmp_path)
        return supervised(trl.SFTTrainer, tmp_path, planned, **given)

    same(train)


def tokenizer(folder: Any) -> Any:
    """Return a tokenizer of as many words as the models know."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(58)} | {"<pad>": 58, "<eos>": 59, "<unk>": 60}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def test_tensorboard_by_the_trainer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from offcert.training.huggingface import OffloadCallback

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    model, _ = models.build("gpt2")
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), use_cpu=True, report_to="tensorboard", save_strategy="no",
        max_steps=4, disable_tqdm=True,
    )  # fmt: skip
    callback = OffloadCallback("auto", **AUTO)
    data = Sentences()
    transformers.Trainer(
        model, arguments, train_dataset=data, data_collator=padded, callbacks=[callback]
    ).train()
    events = EventAccumulator(str(tmp_path)).Reload()
    (peak,) = events.Scalars("train/offload/peak_MiB")
    assert callback.offload is not None
    assert peak.value == pytest.approx(callback.offload.promises[0]["peak"] / 2**20)
    assert events.Scalars("train/offload/steps_planned")[0].value == callback.steps["planned"]


def test_a_loop_over_microbatches_with_a_loss_in_chunks_as_torchtitan_has() -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        with torch.device("meta"):
            model = network(64).to(torch.bfloat16)
        model.to_empty(device="cpu")
        for each in model.parameters():
            nn.init.normal_(each, std=0.05)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 3))
        with ExitStack() as stack:
            attached = [stack.enter_context(offload(model, "auto", **AUTO))] if planned else []
            for _ in range(3):
                optimiser.zero_grad()
                for _ in range(2):
                    inputs, labels = torch.randn(32, 16).bfloat16(), torch.randint(64, (32,))
                    rows = zip(model(inputs).float().chunk(4), labels.chunk(4), strict=True)
                    parts = [nn.functional.cross_entropy(*row, reduction="sum") for row in rows]
                    (torch.stack(parts).sum() / 64).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
                optimiser.step()
                schedule.step()
        return weights(model), attached

    same(train)


class Denoiser(nn.Module):
    """Predicts noise from an image, a time step and a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Conv2d(4, 16, 3, padding=1)
        self.time = nn.Embedding(100, 16)
        self.down = nn.Conv2d(16, 16, 3, 2, 1)
        self.middle = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.end = nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        wide = self.begin(image) + self.time(time)[:, :, None, None]
        deep = self.middle(torch.nn.functional.silu(self.down(wide)))
        return self.end(torch.cat([wide, nn.functional.interpolate(deep, scale_factor=2)], 1))


def denoise(model: nn.Module, planned: bool, noised: Any) -> tuple[Weights, list[Offload]]:
    """Train with latents of a frozen encoder, random times, and a moving average beside."""
    encoder = nn.Conv2d(3, 4, 2, 2).requires_grad_(False)
    average, optimiser = copy.deepcopy(model), torch.optim.AdamW(model.parameters())
    with ExitStack() as stack:
        attached = [stack.enter_context(offload(model, "auto", **AUTO))] if planned else []
        for _ in range(4):
            with torch.no_grad():
                latents = encoder(torch.randn(4, 3, 32, 32))
            noise, times = torch.randn_like(latents), torch.randint(100, (4,))
            found = model(noised(latents, noise, times), times)
            found = getattr(found, "sample", found)
            nn.functional.mse_loss(found.float(), noise.float()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            with torch.no_grad():
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(now, 0.1)
    return weights(model, average), attached


def test_a_diffusion_with_a_frozen_encoder_and_a_moving_average() -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        return denoise(
            Denoiser(),
            planned,
            lambda x, noise, times: x + noise * times[:, None, None, None] / 100,
        )

    same(train)


def test_diffusers() -> None:
    diffusers = pytest.importorskip("diffusers")

    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        model = diffusers.UNet2DModel(
            sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, norm_num_groups=4,
            block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        )  # fmt: skip
        noised = diffusers.DDPMScheduler(num_train_timesteps=100).add_noise
        return denoise(model, planned, noised)

    same(train)


def test_two_models_that_train_against_each_other() -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        maker, judge = network(16), network(1)
        optimisers = [torch.optim.Adam(each.parameters()) for each in (maker, judge)]
        loss = nn.functional.binary_cross_entropy_with_logits
        with ExitStack() as stack:
            both = [maker, judge] if planned else []
            attached = [stack.enter_context(offload(each, "auto", **AUTO)) for each in both]
            for real, _ in batches(5):
                made = maker(torch.randn(32, 16))
                said = judge(torch.cat([real, made.detach()]))
                loss(said, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])).backward()
                optimisers[1].step()
                optimisers[1].zero_grad()
                loss(judge(made), torch.ones(32, 1)).backward()
                optimisers[0].step()
                for each in optimisers:
                    each.zero_grad()
        return weights(maker, judge), attached

    same(train)


def test_fabric() -> None:
    lightning = pytest.importorskip("lightning")

    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        fabric = lightning.Fabric(accelerator="cpu", precision="bf16-mixed")
        inner = network()
        model, optimiser = fabric.setup(inner, torch.optim.AdamW(inner.parameters()))
        with ExitStack() as stack:
            attached = [stack.enter_context(offload(model, "auto", **AUTO))] if planned else []
            for inputs, labels in batches():
                fabric.backward(nn.functional.cross_entropy(model(inputs), labels))
                fabric.clip_gradients(model, optimiser, max_norm=1.0)
                optimiser.step()
                optimiser.zero_grad()
        return weights(inner), attached

    same(train)


class Wrapped(nn.Module):
    """A module around another, with its precision, as Fabric sets one up."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._forward_module = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self._forward_module(x).float()


def test_a_module_that_is_wrapped_for_its_precision() -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        model = Wrapped(network())
        return loop(model, torch.optim.AdamW(model.parameters()), planned)

    same(train)


class Logged:
    """A logger of metrics, as Lightning has them."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.metrics |= metrics


class Taught(nn.Module):
    """A network, a loss and a step, as a LightningModule has them."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.loss = network(), nn.CrossEntropyLoss()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        inputs, labels = batch
        return self.loss(self.model(inputs), labels)


@pytest.fixture
def lightning_callback(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the callback, on a stand-in for its base where Lightning is missing."""
    try:
        importlib.import_module("lightning.pytorch")
    except ImportError:
        base = ModuleType("lightning.pytorch")
        base.Callback = object  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
        monkeypatch.setitem(sys.modules, "lightning.pytorch", base)
    monkeypatch.delitem(sys.modules, "offcert.training.lightning_callback", raising=False)
    return importlib.import_module("offcert.training.lightning_callback")


def fit(module: Taught, callbacks: list[Any], fails: bool = False) -> Logged:
    """Train as Lightning's loop does: the backward pass is inside of the optimiser's step."""
    optimiser, logger = torch.optim.AdamW(module.parameters()), Logged()
    trainer = SimpleNamespace(optimizers=[optimiser], loggers=[logger], global_step=0)
    for callback in callbacks:
        callback.on_train_start(trainer, module)
    try:
        for number, batch in enumerate(batches()):

            def closure(batch: Any = batch, number: int = number) -> torch.Tensor:
                loss = module.training_step(batch, number)
                optimiser.zero_grad()
                loss.backward()
                return loss

            optimiser.step(closure)
            trainer.global_step += 1
            with torch.no_grad():
                module.training_step(batch, number)
            if fails and number == 2:
                raise RuntimeError("out of luck")
            for callback in callbacks:
                callback.on_train_batch_end(trainer, module, None, batch, number)
    except RuntimeError as error:
        for callback in callbacks:
            callback.on_exception(trainer, module, error)
        raise
    for callback in callbacks:
        callback.on_train_end(trainer, module)
    return logger


def hooks(model: nn.Module) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


def test_a_callback_in_the_loop_of_lightning(
    lightning_callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        torch.manual_seed(1)
        module, callback = Taught(), lightning_callback.OffloadCallback("auto", **AUTO)
        logger = fit(module, [callback] if planned else [])
        if not planned:
            return weights(module), []
        assert hooks(module) == 0
        assert callback.steps == {"studied": 1, "planned": 3}
        assert logger.metrics["offload/steps_planned"] == 3
        (promise,) = callback.offload.promises
        assert logger.metrics["offload/peak_MiB"] == promise["peak"] / 2**20
        return weights(module), [callback.offload]

    with caplog.at_level("INFO", "offcert.training"):
        same(train)
    first, *_, last = caplog.messages
    assert first == "training begins; a plan is made in its first steps"
    assert last.startswith("training ended: 3 of 4 steps followed a plan (the others: 1 studied); ")
    assert "KiB of the device instead of" in last


def test_an_error_in_lightnings_loop_leaves_no_hook(lightning_callback: Any) -> None:
    module, callback = Taught(), lightning_callback.OffloadCallback("auto", **AUTO)
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(module, [callback], fails=True)
    assert hooks(module) == 0
    assert callback.steps["planned"] == 2


def test_the_network_in_a_lightning_module_is_the_only_one_or_is_named(
    lightning_callback: Any,
) -> None:
    network_of, module = lightning_callback.network_of, Taught()
    assert network_of(module) is module.model
    assert network_of(module, "loss") is module.loss
    module.head = nn.Linear(2, 2)
    assert network_of(module) is module
    with pytest.raises(InputError, match="network must be one of model, loss, head, not 'nets'"):
        network_of(module, "nets")


def test_lightning(lightning_callback: Any, tmp_path: Any) -> None:
    lightning = pytest.importorskip("lightning")
    loggers = pytest.importorskip("lightning.pytorch.loggers")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = network(), nn.CrossEntropyLoss()

        training_step = Taught.training_step

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    def train(planned: bool) -> tuple[Weights, list[Offload]]:
        lightning.seed_everything(1, verbose=False)
        module, callback = Module(), lightning_callback.OffloadCallback("auto", **AUTO)
        logger = loggers.CSVLogger(tmp_path, version=int(planned))
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=1, callbacks=[callback] if planned else [], logger=logger,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            precision="bf16-mixed", log_every_n_steps=1, default_root_dir=tmp_path,
        )  # fmt: skip
        data = [(inputs[0], labels[0]) for inputs, labels in batches(128)]
        trainer.fit(module, DataLoader(data, 32))
        if planned:
            written = (tmp_path / "lightning_logs" / "version_1" / "metrics.csv").read_text()
            assert "offload/peak_MiB" in written
        return weights(module), [callback.offload] if planned else []

    same(train)
