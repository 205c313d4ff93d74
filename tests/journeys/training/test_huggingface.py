"""The callback for the Trainer: what it trains is what the Trainer trains without it."""

import copy
import importlib
import random
import re
import shutil
import sys
from fractions import Fraction

import numpy
import pytest
import torch
import transformers

from offcert.certification.ladder import certify
from offcert.core.errors import InputError, PlanError
from offcert.core.units import Units, format_size
from offcert.questions.schedule.plan import Plan
from offcert.runtime.profiling.profile import profile
from offcert.runtime.watch.guard import OffloadWarning
from offcert.training.huggingface import OffloadCallback, largest_batch, trainer_step
from support.networks import huggingface_models as models

LENGTH = 12
BYTES = Units("ns", "B")


class Sentences(torch.utils.data.Dataset):
    """Random tokens; every access is the same."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        tokens = torch.randint(3, 61, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


def trainer_of(model, folder, callbacks=(), kind=transformers.Trainer, **options):
    arguments = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        seed=3,
        learning_rate=0.01,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        **{"per_device_train_batch_size": 2, "max_steps": 3, **options},
    )
    data = Sentences()
    made = kind(model, arguments, train_dataset=data, eval_dataset=data, callbacks=list(callbacks))
    made.remove_callback(transformers.PrinterCallback)
    return made


def certificate_of(trainer, share=Fraction(1, 2)):
    problem = profile(trainer_step(trainer), hardware="v100-pcie", recompute="none")
    return certify(problem.with_memory(problem.memory_at(share)), time_limit=1, workers=1)


def hooks_of(model):
    names = ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"]
    return [len(getattr(m, name)) for m in model.modules() for name in names]


def same_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


SETTINGS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "bf16": {"bf16": True},
    "checkpointing": {"gradient_checkpointing": True},
    "all": {"gradient_accumulation_steps": 2, "bf16": True, "gradient_checkpointing": True},
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "setting"), [*(("gpt2", setting) for setting in SETTINGS), ("llama", "all")]
)
def test_weights_are_those_of_the_trainer_without_it(tmp_path, name, setting):
    model, _ = models.build(name)
    plain = copy.deepcopy(model)
    options = SETTINGS[setting]
    expected = trainer_of(plain, tmp_path, **options).train()

    trainer = trainer_of(model, tmp_path, **options)
    certificate = certificate_of(trainer)
    callback = OffloadCallback(certificate, count=True)
    trainer.add_callback(callback)
    before = hooks_of(model)
    found = trainer.train()

    assert found.training_loss == expected.training_loss
    assert same_weights(model, plain)
    micro_batches = 3 * options.get("gradient_accumulation_steps", 1)
    assert callback.steps == {"planned": micro_batches}
    report = callback.offload.report
    assert report.offloaded_bytes > 0
    assert report.unfreed == report.unforeseen == ()
    # The second gradient of an accumulated step is there besides the first.
    assert "gradient_accumulation_steps" in options or report.follows_prediction
    # Checkpointing has hooks of its own.
    assert "gradient_checkpointing" in options or hooks_of(model) == before


def test_evaluation_between_steps(tmp_path):
    model, _ = models.build("gpt2")
    plain = copy.deepcopy(model)
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 3}
    alone = trainer_of(plain, tmp_path, **options)
    alone.train()
    trainer = trainer_of(model, tmp_path, **options)
    callback = OffloadCallback(certificate_of(trainer))
    trainer.add_callback(callback)
    trainer.train()
    losses = [
        [entry["eval_loss"] for entry in each.state.log_history if "eval_loss" in entry]
        for each in (alone, trainer)
    ]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]
    assert same_weights(model, plain)
    assert callback.steps == {"planned": 3}


def test_a_training_that_raises_leaves_no_hook(tmp_path):
    class Failing(transformers.Trainer):
        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            if self.state.global_step == 1:
                raise RuntimeError("out of luck")
            return loss

    model, _ = models.build("gpt2")
    trainer = trainer_of(model, tmp_path, kind=Failing)
    callback = OffloadCallback(certificate_of(trainer))
    trainer.add_callback(callback)
    before = hooks_of(model)
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer.train()
    assert hooks_of(model) == before
    assert callback.steps["planned"] == 2


def test_training_again_under_another_plan(tmp_path):
    model, _ = models.build("gpt2")
    plain = copy.deepcopy(model)
    alone = trainer_of(plain, tmp_path)
    alone.train()
    alone.train()
    trainer = trainer_of(model, tmp_path)
    first, second = (certificate_of(trainer, share) for share in (Fraction(1, 2), Fraction(1, 4)))
    callback = OffloadCallback(first)
    trainer.add_callback(callback)
    trainer.train()
    moved = callback.offload.report.offloaded_bytes
    trainer.remove_callback(callback)
    callback = OffloadCallback(second)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.offload.report.offloaded_bytes > moved > 0
    assert same_weights(model, plain)


class Lengths(Sentences):
    """Sentences of different lengths."""

    def __getitem__(self, index):
        return {"input_ids": super().__getitem__(index)["input_ids"][: 4 + 5 * index % 9]}


def padded(rows):
    """Make a batch as long as its longest sentence."""
    longest = max(len(row["input_ids"]) for row in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for number, row in enumerate(rows):
        length = len(row["input_ids"])
        tokens[number, :length], mask[number, :length] = row["input_ids"], 1
    labels = tokens.masked_fill(mask == 0, -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def test_a_plan_for_the_longest_samples_is_made_before_the_first_step(tmp_path):
    options = {
        "max_steps": 9,
        "per_device_train_batch_size": 5,
        "eval_strategy": "steps",
        "eval_steps": 2,
    }
    model, _ = models.build("gpt2")
    plain = copy.deepcopy(model)
    asked = {"memory": "50%", "hardware": "v100-pcie", "time_limit": 1, "count": True}
    callback = OffloadCallback("auto", **asked, strict=True)
    for each, callbacks in ((plain, []), (model, [callback])):
        trainer = trainer_of(each, tmp_path, callbacks=callbacks, **options)
        trainer.train_dataset, trainer.data_collator = Lengths(), padded
        trainer.train()
    assert same_weights(model, plain)
    # Of every three batches, the last has two sentences instead of five.
    assert callback.steps == {"planned": 9}
    [certificate] = callback.offload.certificates
    shapes = [each[1] for each in certificate.problem.source["capture"]["calls"][0][0]]
    assert shapes[:3] == [[5, 12]] * 3


def test_the_longest_samples_of_many():
    class Long(Sentences):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            return {"input_ids": torch.ones(index + 1, dtype=torch.long), "id": index}

    model, _ = models.build("gpt2")
    trainer = trainer_of(model, "out", remove_unused_columns=False)
    trainer.train_dataset, trainer.data_collator = Long(), lambda rows: [row["id"] for row in rows]
    assert largest_batch(trainer) == [99, 98]
    # Every tenth is looked at.
    assert largest_batch(trainer, most=10) == [90, 80]


def test_a_plan_made_while_the_training_begins_where_none_can_be_made_before(tmp_path, monkeypatch):
    def failing(*args, **options):
        raise InputError("out of luck")

    monkeypatch.setattr("offcert.training.huggingface.trainer_step", failing)
    model, _ = models.build("gpt2")
    plain = copy.deepcopy(model)
    options = {"max_steps": 8, "bf16": True}
    trainer_of(plain, tmp_path, **options).train()
    callback = OffloadCallback("auto", memory="50%", hardware="v100-pcie", time_limit=1)
    with pytest.warns(OffloadWarning, match="no plan was made before .*: out of luck"):
        trainer_of(model, tmp_path, callbacks=[callback], **options).train()
    assert same_weights(model, plain)
    assert callback.steps["planned"] >= 6
    assert callback.offload.report.offloaded_bytes > 0


def test_a_strict_plan_refuses_another_batch(tmp_path):
    model, _ = models.build("gpt2")
    callback = OffloadCallback(certificate_of(trainer_of(model, tmp_path)), strict=True)
    other = trainer_of(model, tmp_path, callbacks=[callback], per_device_train_batch_size=3)
    with pytest.raises(PlanError, match="3x12 int64"):
        other.train()
    assert not any(hooks_of(model))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_making_a_step_changes_nothing(tmp_path):
    model, _ = models.build("gpt2")
    trainer = trainer_of(model, tmp_path, **SETTINGS["all"])
    before = remembered(trainer)
    step = trainer_step(trainer)
    profile(step, hardware="v100-pcie")
    assert remembered(trainer) == before
    assert not model.is_gradient_checkpointing
    assert "forward" not in vars(model)
    assert step.model is model
    # A real step leaves gradients and draws random numbers, but nothing else.
    step.execute(step.make_batch())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert remembered(trainer)[3:] == before[3:]


def remembered(trainer):
    model, accelerator = trainer.model, trainer.accelerator
    loaders = accelerator.gradient_state.dataloader_references
    return [
        [parameter.grad is None for parameter in model.parameters()],
        (random.getstate(), numpy.random.get_state()[1].tolist()),
        torch.random.get_rng_state().tolist(),
        [tensor.tolist() for tensor in model.state_dict().values()],
        [
            {name: id(value) for name, value in vars(thing).items()}
            for thing in (trainer, accelerator, *model.modules())
        ],
        [list(value) for value in vars(accelerator).values() if isinstance(value, list)],
        (len(loaders), accelerator.gradient_state.active_dataloader),
        hooks_of(model),
    ]


def test_a_step_of_something_else_is_refused():
    with pytest.raises(InputError, match="not Linear"):
        trainer_step(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("offcert.training.huggingface", "transformers"),
        ("offcert.training.lightning_callback", "lightning"),
    ],
)
def test_a_missing_package_is_named(module, package, monkeypatch):
    for name in (package, f"{package}.hooks", f"{package}.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    extra = "lightning" if package == "lightning" else "huggingface"
    said = re.escape(f"needs {package}: pip install '.[{extra}]'")
    with pytest.raises(ImportError, match=said):
        importlib.import_module(module)


def test_the_trainers_loggers_are_told_of_the_plan_and_of_the_steps(tmp_path):
    model, _ = models.build("gpt2")
    trainer = trainer_of(model, tmp_path)
    callback = OffloadCallback(certificate_of(trainer))
    trainer.add_callback(callback)
    trainer.train()
    (plan,) = [entry for entry in trainer.state.log_history if "offload/peak_MiB" in entry]
    (promise,) = callback.offload.promises
    assert plan["offload/peak_MiB"] == promise["peak"] / 2**20
    assert plan["offload/peak_MiB"] < plan["offload/peak_without_plan_MiB"]
    assert plan["offload/step_by_computing_ratio"] >= 1
    assert plan["offload/from_best_possible_percent"] == 100 * promise["proved_within"]
    ends = [entry for entry in trainer.state.log_history if "offload/steps_planned" in entry]
    assert [entry["offload/steps_planned"] for entry in ends] == [3]


def test_people_are_told_why_nothing_happens_and_how_it_went(tmp_path, caplog):
    model, _ = models.build("gpt2")
    callback = OffloadCallback("auto", memory="50%", hardware="v100-pcie", time_limit=1)
    trainer = trainer_of(model, tmp_path, callbacks=[callback])
    with caplog.at_level("INFO", "offcert.training"):
        trainer.train()
    planning, *_ = caplog.messages
    assert planning == (
        "a plan for the longest samples, 2 at a time, is made before the first step: the step is "
        "captured, then a plan is searched for, for 1 s at most"
    )
    (promise,) = callback.offload.promises
    peak, without = (format_size(promise[each], BYTES) for each in ("peak", "peak_without"))
    sizes = f"activations take {peak} of the device instead of {without}"
    (begin,) = [said for said in caplog.messages if said.startswith("training begins: ")]
    assert sizes in begin
    end = caplog.messages[-1]
    assert end.startswith("training ended: 3 of 3 steps followed a plan; in the last one ")
    moved = format_size(callback.offload.report.offloaded_bytes, BYTES)
    assert f"in the last one {moved} left the device and came back; {sizes}" in end


def test_auto_is_refused_where_the_trainer_compiles_before_its_first_step(tmp_path):
    model, _ = models.build("gpt2")
    callback = OffloadCallback("auto", memory="50%")
    trainer = trainer_of(model, tmp_path, [callback], torch_compile=True)
    with pytest.raises(InputError, match="plan must be a certificate where torch_compile"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert callback.offload is None


class Tiny(torch.nn.Module):
    """Two graphs of a few kernels: a compiler takes most of a second for each."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(64, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.head = torch.nn.Linear(16, 64)

    def forward(self, input_ids, labels, attention_mask=None):
        x = self.words(input_ids)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        torch._dynamo.graph_break()
        scores = self.head(x).flatten(0, 1)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels.flatten())}


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trainer_that_compiles_its_model_follows_a_certificate(tmp_path):
    model = Tiny()
    plain = copy.deepcopy(model)
    trainer = trainer_of(model, tmp_path, torch_compile=True)
    plugin = trainer.accelerator.state.dynamo_plugin
    problem = profile(trainer_step(trainer), clock="graphs", hardware="v100-pcie")
    half = problem.with_memory(problem.memory_at(Fraction(1, 2)))
    callback = OffloadCallback(certify(half, time_limit=1, workers=1), strict=True)
    trainer.add_callback(callback)
    trainer.train()
    assert callback.steps == {"planned": 3}
    assert callback.backend.report.carried_bytes > 0
    assert len(callback.backend.reports) == 2
    assert callback.offload is None
    # It is as before: another training compiles as the Trainer's arguments say.
    assert plugin.to_kwargs()["backend"] == "inductor"
    torch._dynamo.reset()
    without = OffloadCallback(Plan(), problem)
    trainer_of(plain, tmp_path, [without], torch_compile=True).train()
    assert same_weights(model, plain)
