"""Models of `transformers`, captured, certified and trained as they are."""

import copy
from fractions import Fraction

import pytest
import torch

from offcert.certification.ladder import certify
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.profiling.profile import profile
from support.networks import huggingface_models as models
from support.runtime.captured import compare, problem_of_step, require_same, seeded, state_of

# The loss of a Wav2Vec2 asks for the lengths of its targets.
LOOKS_AT_VALUES = {"wav2vec2"}
# Its mask has another number of frames at every step.
OTHER_EVERY_STEP = {"wav2vec2"}


def step_of(name):
    model, batch = models.build(name)
    return TrainingStep(model, models.loss_of, batch, here=True)


@pytest.mark.parametrize("name", models.MODELS)
def test_at_half_of_its_memory_a_model_trains_as_without_a_plan(name):
    step = step_of(name)
    plain = copy.deepcopy(step.model)
    before = state_of(plain)
    problem = profile(step, hardware="v100-pcie", recompute="none")
    require_same(before, state_of(step.model))
    assert problem.source["capture"]["tensors"] == ("real" if name in LOOKS_AT_VALUES else "fake")

    problem = problem.with_memory(problem.memory_at(Fraction(1, 2)))
    certificate = certify(problem, target_gap=0.09, workers=1)
    assert certificate.result.gap < Fraction(1, 10)
    expected, _ = train(plain, step)
    with follow(step.model, certificate, options=FollowOptions(count=True)) as attached:
        found, reports = train(step.model, step, attached)
    for states in zip(expected, found, strict=True):
        require_same(*states)
    assert dict(attached.steps) == {"planned": 3}
    for report in reports:
        assert report.offloaded_bytes > 0
        assert report.unfreed == report.unforeseen == ()
        assert report.late_bytes == 0
        assert name in OTHER_EVERY_STEP or report.follows_prediction
        assert name in OTHER_EVERY_STEP or report.within_limit


def train(model, step, attached=None, steps=3):
    states, reports = [], []
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    with seeded(1):
        for _ in range(steps):
            loss = step.run(model, step.make_batch())
            loss.backward()
            states.append({"loss": loss.detach(), **state_of(model)})
            optimiser.step()
            optimiser.zero_grad()
            if attached is not None:
                reports.append(attached.report)
        states.append(state_of(model))
    return states, reports


@pytest.mark.parametrize("name", ["bert", "convnext", "mixtral", "opt"])
def test_under_autocast(name):
    step = step_of(name)

    def run(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return step.run(model, batch)

    mixed = TrainingStep(step.model, run, step.batch)
    outcome = compare(mixed).require_followed()
    assert "bfloat16" in {row[2] for row in outcome.problem.source["capture"]["saved"]}


@pytest.mark.parametrize(
    ("name", "reentrant"),
    [("gpt2", False), ("gpt2", True), ("t5", False), ("mixtral", True)],
)
def test_under_its_own_gradient_checkpointing(name, reentrant):
    step = step_of(name)
    peak = problem_of_step(step).trace.peak_memory
    checkpoint(step.model, reentrant)
    outcome = compare(step, steps=2).require_followed()
    assert outcome.problem.trace.peak_memory < 0.8 * peak


def checkpoint(model, reentrant):
    options = {"use_reentrant": reentrant}
    model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)


def test_outputs_that_the_step_keeps_stay():
    # Keys and values come back with the loss, in a cache.
    model, batch = models.build("gpt2")

    def run(model, batch):
        output = model(**batch)
        output.loss.backward()
        assert output.past_key_values is not None

    compare(TrainingStep(model, run, batch)).require_followed()


def test_outputs_that_only_the_loop_keeps_are_told():
    step = step_of("gpt2")

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        output = model(**batch)
        output.loss.backward()
        optimiser.step()
        return output.loss.detach(), output.logits.detach()

    for report in compare(step, loop).reports:
        assert report.unfreed
        assert not report.follows_prediction


def test_a_model_called_twice_with_hidden_states():
    model, batch = models.build("bert")

    def run(model, batch):
        states = model(**batch, output_hidden_states=True).hidden_states
        return model(**batch).loss + sum(state.square().mean() for state in states)

    outcome = compare(TrainingStep(model, run, batch)).require_followed()
    assert len(outcome.problem.source["capture"]["calls"]) == 2


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
def test_experts_that_get_other_tokens_at_every_step():
    # One matrix product per expert, over as many tokens as chose it.
    step = step_of("mixtral")
    step.model.set_experts_implementation("eager")
    outcome = compare(step)
    assert outcome.problem.source["capture"]["tensors"] == "real"
    assert outcome.offload.steps["deviating"] > 0
    for report in outcome.reports:
        assert report.finished
        assert report.planned or "has not saved" in report.deviation
        assert report.planned or report.unforeseen


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
@pytest.mark.parametrize("name", ["opt", "whisper"])
def test_layers_that_are_dropped_at_random(name):
    step = step_of(name)
    for module in step.model.modules():
        if hasattr(module, "layerdrop"):
            module.layerdrop = 0.5
    # Fewer layers than when it was captured are another step; more layers only save more.
    reports = compare(step, steps=6).reports
    assert any(not report.planned or report.unforeseen for report in reports)
    assert all(report.finished for report in reports)


def test_a_program_that_sees_that_there_are_no_values():
    # With nothing masked no mask is made; but whether something is, fake tensors cannot tell.
    def checkpointed():
        step = step_of("whisper")
        checkpoint(step.model, reentrant=False)
        return step

    with pytest.warns(OffloadWarning, match="has not saved the bool tensor of shape 2x1x6x6"):
        compare(checkpointed(), tensors="fake", steps=1)
    compare(checkpointed(), tensors="real", steps=2).require_followed()
