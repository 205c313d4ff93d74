"""Steps that are not all alike, and are planned all the same."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import offcert
from offcert.core.errors import InputError
from offcert.runtime.watch.guard import OffloadWarning


def trained(model, step, steps, **options):
    """Return the losses and the parameters after so many steps, planned if there are options."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = copy.deepcopy(model)
    planned = (
        offcert.offload(model, "auto", hardware="v100-pcie", background=False, **options)
        if options
        else nullcontext()
    )
    losses = []
    with planned as training:
        for number in range(steps):
            losses.append(step(model, number).detach())
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
            model.zero_grad()
    return training, [*losses, *model.parameters()]


def require_same(model, step, steps, **options):
    """Train planned and plainly, compare bit by bit, and return what says how that went."""
    _, plain = trained(model, step, steps)
    training, found = trained(model, step, steps, **options)
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one, other)
    return training


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.cells = nn.LSTM(32, 64, 2, batch_first=True)
        self.out = nn.Linear(64, 50)

    def forward(self, words, state=None):
        found, state = self.cells(self.embedding(words), state)
        return self.out(found), state


def test_first_call_without_a_state():
    torch.manual_seed(0)
    state = None

    def step(model, number):
        nonlocal state
        words = torch.randint(50, (16, 24))
        out, state = model(words, state if number else None)
        state = tuple(each.detach() for each in state)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), words.flatten())
        loss.backward()
        return loss

    with warnings.catch_warnings(action="error"):
        training = require_same(Recurrent(), step, 8, memory="25%", time_limit=1)
    assert training.steps == {"studied": 2, "planned": 6}


class Dropping(nn.Module):
    """Leaves layers out, as it is told to."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
            for _ in range(4)
        )
        self.first, self.out = nn.Linear(32, 32), nn.Linear(32, 8)
        self.without = set()

    def forward(self, x):
        x = self.first(x)
        for number, layer in enumerate(self.layers):
            if number not in self.without:
                x = x + layer(x)
        return self.out(x)


def test_layers_that_are_dropped():
    turns = [{1}, {0, 2}, set(), {3}, {0}, {1, 2, 3}, set(), {2}]

    def step(model, number):
        model.without = turns[number]
        loss = model(torch.randn(32, 32)).square().mean()
        loss.backward()
        return loss

    with warnings.catch_warnings(action="error"):
        training = require_same(Dropping(), step, len(turns), memory="50%", time_limit=1)
    # A plan is made for the first step in which all layers run.
    assert training.steps == {"studied": 3, "planned": 5}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, 0.1, batch_first=True) for _ in range(3)
        )
        self.out = nn.Linear(32, 50)

    def forward(self, words):
        hidden = self.embedding(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


def test_lengths_that_grow_in_each_step_are_studied_twice():
    def step(model, number):
        words = torch.randint(50, (4, 48 + 8 * number))
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        return loss

    with warnings.catch_warnings(action="error"):
        training = require_same(Attention(), step, 8, memory="50%", time_limit=1, count=True)
    assert training.steps == {"studied": 2, "planned": 6}
    assert training.report.peak <= training.report.limit
    # The third is for up to twice the second length, and for all between.
    assert len(training.certificates) == 3


class Looking(nn.Module):
    """Makes and drops a result, as a loss that looks for the best match does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            # Autograd has saved `x` for that, and lets go of it at once.
            x.sin()
            x = x.cos()
        return x


def test_what_autograd_drops_and_saves_again():
    def step(model, number):
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        return loss

    with warnings.catch_warnings(action="error"):
        training = require_same(
            Looking(), step, 4, memory="20%", time_limit=1, count=True, recompute="none"
        )
    assert training.steps == {"studied": 1, "planned": 3}
    assert training.report.offloaded_bytes > 0
    assert training.report.peak <= training.report.limit


@pytest.mark.parametrize("kind", ["Mixtral", "Qwen2Moe"])
def test_mixtures_of_experts(kind):
    transformers = pytest.importorskip("transformers")
    options = {
        "Mixtral": {"num_local_experts": 4},
        "Qwen2Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    }
    settings = getattr(transformers, f"{kind}Config")(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        **options[kind],
    )

    def step(model, number):
        words = torch.randint(50, (4, 32))
        loss = model(input_ids=words, labels=words).loss
        loss.backward()
        return loss

    torch.manual_seed(1)
    network = getattr(transformers, f"{kind}ForCausalLM")(settings)
    with warnings.catch_warnings(action="error", category=OffloadWarning):
        training = require_same(network, step, 6, memory="50%", time_limit=1)
    assert training.steps == {"studied": 1, "planned": 5}


class OnNested(nn.Module):
    """Works on sequences that are not padded."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, sequences):
        found = self.layers(sequences)
        return found.values() if found.layout is torch.jagged else found.to_padded_tensor(0.0)


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_stay_and_are_told_of_once(layout):
    torch.manual_seed(0)
    lengths = torch.randint(2, 12, (6, 3)).tolist()
    batches = [[torch.randn(each, 16) for each in row] for row in lengths]

    def step(model, number):
        batch = torch.nested.nested_tensor(batches[number % 6], layout=layout)
        loss = model(batch).pow(2).mean()
        loss.backward()
        return loss

    with pytest.warns(OffloadWarning) as told:
        training = require_same(OnNested(), step, 6, memory="50%", time_limit=1)
    said = [str(each.message) for each in told if each.category is OffloadWarning]
    assert len(said) == 1
    assert "computes with nested tensors, which stay where they are" in said[0]
    assert training.steps == {"studied": 1, "unplanned": 5}


def overlapping(batches):
    """Return a step that makes the forward passes of batches before their backward passes."""

    def step(model, number):
        generator = torch.Generator().manual_seed(number)
        losses = [
            model(torch.randn(64, 64, generator=generator)).pow(2).mean()
            for _ in range(batches(number))
        ]
        for loss in losses:
            loss.backward()
        return sum(losses)

    return step


def tower():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1)) for _ in range(6)]
    return nn.Sequential(*layers)


def test_forward_passes_of_two_batches_before_their_backward_passes():
    with warnings.catch_warnings(action="error"):
        training = require_same(tower(), overlapping(lambda n: 2), 6, memory="40%", time_limit=20)
    assert training.steps == {"studied": 1, "planned": 5}
    assert training.report.offloaded_bytes > 0


def test_two_batches_at_once_become_one_step_if_each_had_been_one():
    with pytest.warns(OffloadWarning, match="a plan has to be made for calls as one step"):
        training = require_same(
            tower(), overlapping(lambda n: 1 if n < 3 else 2), 12, memory="40%", time_limit=20
        )
    (plan,) = training.step_plans
    assert len(plan.capture.calls) == 2
    # Three steps in which the second forward pass comes first, and then all are planned.
    assert training.steps == {"studied": 2, "deviating": 6, "planned": 7}


def test_what_an_earlier_step_still_needs_is_told_of_since_no_plan_counts_it():
    kept = []

    def step(model, number):
        loss = model(torch.randn(64, 64)).pow(2).mean()
        # Its backward pass may come later.
        kept[:] = [model(torch.randn(64, 64)).pow(2).mean()]
        loss.backward()
        return loss

    with pytest.warns(OffloadWarning, match="run the backward pass of a call of the model before"):
        training = require_same(tower(), step, 6, memory="40%", time_limit=1)
    # What was still there as the first planned step began had been saved by a step without a plan.
    assert training.steps == {"studied": 2, "planned": 1, "deviating": 3}


class Experts(nn.Module):
    """Gives each token to one of its experts."""

    def __init__(self, width, number):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, number)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(number)
        )

    def forward(self, x):
        x = self.norm(x)
        shares = self.gate(x).softmax(-1)
        chosen, out = shares.argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            own = chosen == number
            out[own] = expert(x[own]) * shares[own][:, number : number + 1]
        return x + out


def test_tokens_that_are_gathered_for_experts():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 32), nn.Tanh(), Experts(32, 4), nn.Linear(32, 32), nn.Tanh(), Experts(32, 4)
    )

    def step(model, number):
        tokens = torch.randn(512, 32, generator=torch.Generator().manual_seed(number))
        loss = model(tokens).pow(2).mean()
        loss.backward()
        return loss

    with pytest.warns(OffloadWarning) as told:
        training = require_same(model, step, 16, memory="50%", time_limit=1, count=True)
    (plan,) = training.step_plans
    assert plan.capture.interpolated
    # The first plan is for the sizes of one step; the second one for what varies, and more.
    assert training.steps["studied"] == 2
    assert training.steps["planned"] >= 8
    assert training.report.offloaded_bytes > 0
    assert sum("did not follow its plan" in str(each.message) for each in told) == 1


@pytest.mark.slow
def test_a_plan_is_read_from_its_file(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    step = offcert.TrainingStep(model, lambda model, x: model(x).sum(), torch.randn(8, 16))
    problem = offcert.profile(step, hardware="t4").with_memory("60%")
    path = tmp_path / "certificate.json"
    offcert.certify(problem, time_limit=2).write(path)
    for each in (path, str(path)):
        with offcert.offload(model, each) as training:
            step.execute(step.make_batch())
        assert training.steps == {"planned": 1}
    for missing in (tmp_path / "none.json", "automatic"):
        with pytest.raises(InputError, match="or the path of a certificate's file, not '"):
            offcert.offload(model, missing)
