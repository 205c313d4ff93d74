"""Joint plans on models of `transformers`."""

import pytest

from offcert.runtime.capture.step import TrainingStep
from support.networks import huggingface_models as models
from support.runtime.joint_training import again, compare_joint, problem_of, segment


def step_of(name):
    model, batch = models.build(name)
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return TrainingStep(model, models.loss_of, batch)


def blocks(prefix, *kept):
    return again(segment(f"{prefix}.0", *(f"{prefix}.0.{each}" for each in kept)), f"{prefix}.1")


PROGRAMS = {
    "gpt2": blocks("transformer.h", "attn.c_attn", "mlp.c_fc"),
    "bert": blocks("bert.encoder.layer", "attention.self.query", "intermediate.dense"),
    "llama": blocks("model.layers", "self_attn.q_proj", "mlp.down_proj"),
    "vit": again("vit.layers.0", segment("vit.layers.1", "vit.layers.1.mlp.fc1")),
    "resnet": again("resnet.encoder.stages.0", "resnet.encoder.stages.1"),
}


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_joint_plans(name):
    outcome = compare_joint(
        step_of(name),
        PROGRAMS[name],
    )
    outcome.require_followed()
    assert outcome.reports[-1].offloaded_bytes > 0
    assert outcome.reports[-1].peak < outcome.plain_peak


def test_layers_that_add_to_a_cache_are_not_offered():
    model, batch = models.build("gpt2")
    _, captured = problem_of(TrainingStep(model, models.loss_of, batch))
    paths = {each.path for each in captured.ranges.calls}
    assert "transformer.h.0.mlp" in paths
    assert not paths & {"transformer.h.0", "transformer.h.0.attn"}
