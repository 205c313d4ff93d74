"""Steps from configurations: what they hold, and that those without data are those with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from offcert.cli import main
from offcert.core.errors import InputError
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.pairs.train import train
from offcert.runtime.profiling.profile import profile
from offcert.runtime.workloads.configured import read_config, training_step
from offcert.runtime.workloads.shapes import SHAPES
from offcert.runtime.workloads.workload import CONFIGURED

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 61,
}

TINY_BERT: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 61,
}


def without_data(*args: Any, **kwargs: Any) -> TrainingStep:
    with torch.device("meta"):
        return training_step(*args, **kwargs)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_as_many_parameters_as_the_published_model(name: str) -> None:
    text = "vocab_size" in SHAPES[name].config
    step = without_data(name, sequence=8 if text else None)
    assert sum(each.numel() for each in step.model.parameters()) == SHAPES[name].parameters
    # A loss that is not named is warned of whenever it is computed.
    assert getattr(step.model, "loss_type", "none of transformers") is not None


def test_adapters_are_two_matrices_at_each_of_seven_layers() -> None:
    """Of Llama-3.1-8B: q and o have 4096 + 4096 features, k and v 4096 + 1024, the others 18432."""
    step = without_data("llama-3.1-8b", sequence=8, lora=16)
    trained = [each for each in step.model.parameters() if each.requires_grad]
    assert len(trained) == 32 * 7 * 2
    expected = 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18_432)
    assert sum(each.numel() for each in trained) == expected == 41_943_040
    assert {each.dtype for each in trained} == {torch.bfloat16}


@pytest.mark.parametrize("options", [{"lora": 4}, {"autocast": "bf16"}, {"attention": "math"}, {}])
def test_without_data_the_step_is_the_same(options: dict[str, Any]) -> None:
    fake = capture(without_data(TINY, 2, 16, **options), tensors="fake")
    torch.manual_seed(0)
    real = capture(training_step(TINY, 2, 16, **options), tensors="real")
    assert fake.trace == real.trace
    assert replace(fake, tensors="real", trace=real.trace) == real


def test_scores_are_kept_by_products_and_a_softmax_only() -> None:
    """Of 3 sequences of 160 tokens, 4 heads and 2 layers, float32 scores and their weights."""
    peaks = {
        kernel: capture(
            without_data(TINY, 3, 160, dtype="fp32", attention=kernel)
        ).trace.peak_memory
        for kernel in ("flash", "math")
    }
    scores = 2 * 3 * 4 * 160 * 160 * 4
    assert scores < peaks["math"] - peaks["flash"] < 4 * scores


def test_training_computes_attention_as_the_card_of_its_plan() -> None:
    """A V100 has no kernel where heads share keys; the CPU has one, but the plan keeps scores."""
    given = {"config": TINY | {"num_hidden_layers": 1}, "sequence": 32, "dtype": "fp32"}
    problem = profile(CONFIGURED, hardware="v100-pcie", options=given)
    assert (problem.source or {})["attention"] == "math"
    found = train(problem, Plan(()), steps=1)
    assert found.ok


def test_a_file_becomes_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, output = tmp_path / "config.json", tmp_path / "p.json"
    config.write_text(json.dumps(TINY | {"torch_dtype": "float16", "use_cache": True}))
    arguments = ["--batch", "2", "--sequence", "16", "--autocast", "bf16", "--lora", "4"]
    command = ["profile", "--hf", str(config), *arguments, "--hardware", "l4", "-o", str(output)]
    assert main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["name"] == "config 2x16 lora 4"
    thin = 2 * 4 * (2 * 64 + 2 * 48 + 3 * 80) * 4
    assert summary["uncounted"]["gradients"] == thin
    assert summary["uncounted"]["optimiser"] == 2 * thin + 4 * (2 * 7 * 2)
    problem = read_problem(output)
    step = without_data(TINY, 2, 16, autocast="bf16", lora=4)
    assert problem.trace == profile(step, hardware="l4").trace


def test_a_folder_and_the_cache_of_the_hub_have_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(TINY))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123abc")
    assert read_config(str(snapshot)) == TINY
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in (("HF_HOME", tmp_path), ("HUGGINGFACE_HUB_CACHE", tmp_path / "hub")):
        with monkeypatch.context() as there:
            there.setenv(name, str(folder))
            assert read_config("org/tiny") == TINY
    monkeypatch.setenv("HF_HOME", str(tmp_path / "elsewhere"))
    for missing in ("org/tiny", "org/tiny/too/deep"):
        with pytest.raises(InputError, match=f"a model in the cache at {tmp_path}/elsewhere/hub"):
            read_config(missing)
    with pytest.raises(InputError, match=r"config.json cannot be read"):
        read_config(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("llama-3.1-7b", {}, "did you mean llama-3.1-70b or llama-3.1-8b?"),
        ("missing.json", {}, "missing.json cannot be read"),
        (TINY | {"architectures": None}, {}, "architectures must name one model, not None"),
        (TINY | {"architectures": ["Lama"]}, {}, 'transformers has no model "Lama"'),
        (TINY | {"model_type": "lama"}, {}, "no model LlamaForCausalLM can be made of it"),
        (TINY | {"hidden_size": "big"}, {}, "no model LlamaForCausalLM can be made of it"),
        (TINY, {"sequence": None}, "sequence is missing"),
        (TINY, {"sequence": 0}, "sequence must be a positive integer, not 0"),
        (TINY, {"dtype": "int8"}, "dtype must be one of bf16"),
        (TINY, {"autocast": "fp32"}, "autocast must be to bf16 or fp16"),
        (TINY, {"attention": "flush"}, "attention must be one of flash, efficient, math"),
        ("vit-l-16", {}, "sequence is for models that read text"),
    ],
)
def test_what_is_no_step_gets_one_sentence(config: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        without_data(config, **({"batch": 1, "sequence": 16} | options))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sequence", "8"], "MODEL is missing"),
        (["gpt-tiny", "--input", "2x8", "--lora", "4"], "--lora goes with --hf"),
        (["gpt-tiny", "--input", "2x8", "--attention", "math"], "--attention math goes with --hf"),
        (["gpt-tiny", "--hf", "llama-3.2-1b"], "MODEL and --hf exclude each other"),
        (["--hf", "llama-3.2-1b", "--option", "x=1"], "--option is for MODEL"),
        (["--hf", "gpt2", "--dtype", "bf16", "--autocast", "bf16"], "keeps parameters in float32"),
        (["--hf", "gpt2"], "sequence is missing"),
    ],
)
def test_bad_options_get_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments, "-o", str(tmp_path / "p.json")]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error


def test_dropout_in_attention_keeps_no_scores_where_a_kernel_computes_it() -> None:
    found = {}
    for dropout, attention in ((0.0, "flash"), (0.1, "flash"), (0.1, "math")):
        config = {**TINY_BERT, "attention_probs_dropout_prob": dropout}
        step = without_data(config, 1, 64, attention=attention)
        found[dropout, attention] = capture(step, hardware=HARDWARE["a100-80gb-sxm"]).trace
    assert found[0.1, "flash"] == found[0.0, "flash"]
    # Products and a softmax keep the scores, and what dropout drew.
    scores = 2 * 4 * 64 * 64
    more = found[0.1, "math"].peak_memory - found[0.1, "flash"].peak_memory
    assert more >= 2 * scores


@pytest.mark.parametrize("tokens", [2**11, 2**14, 2**17])
def test_attention_by_a_kernel_takes_bytes_in_proportion_to_the_tokens(tokens: int) -> None:
    """Nothing that a step of Llama-3.2-1B keeps or takes has the square of the tokens in it."""
    step = without_data({**SHAPES["llama-3.2-1b"].config, "num_hidden_layers": 2}, 1, tokens)
    trace = capture(step, hardware=HARDWARE["h100-sxm"]).trace
    logits = 128_256 * tokens
    # In float32: what the loss makes of logits, and their gradient.
    assert 8 * logits <= trace.least_memory <= 13 * logits
    assert 60_000 * tokens < trace.peak_memory - 8 * logits < 1_000_000 * tokens


@pytest.mark.parametrize(
    ("name", "config", "most"),
    [
        ("GPT2LMHeadModel", {"model_type": "gpt2", "n_positions": 7}, 7),
        # Positions begin behind the row for padding, and two rows later than told.
        ("RobertaForMaskedLM", {"model_type": "roberta", "max_position_embeddings": 9}, 7),
        ("OPTForCausalLM", {"model_type": "opt", "max_position_embeddings": 7}, 7),
    ],
)
def test_sequences_are_as_long_as_the_table_of_positions_lets_them(
    name: str, config: dict[str, Any], most: int
) -> None:
    config = config | {"vocab_size": 20, "architectures": [name]}
    for key in ("n_embd", "hidden_size", "word_embed_proj_dim"):
        config[key] = 8
    for key in ("n_layer", "num_hidden_layers", "n_head", "num_attention_heads"):
        config[key] = 1
    config |= {"ffn_dim": 8, "intermediate_size": 8}
    step = training_step(config, sequence=most, dtype="fp32")
    step.run(step.model, step.make_batch()).backward()
    said = f"sequence must be at most {most}, as many positions as {name} has, not {most + 1}"
    with pytest.raises(InputError, match=f"^{said}$"):
        training_step(config, sequence=most + 1)
