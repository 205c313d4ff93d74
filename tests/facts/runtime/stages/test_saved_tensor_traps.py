"""Small graphs, each named for the trap that it sets."""

import torch
from torch import fx, nn

from offcert.core.platform import Kind
from offcert.runtime.pairs.train import train
from support.runtime.stage_problems import evict_everything, problem_of


def require_equal_training(model, shape=(4, 8), loss="mean", gaps=None):
    """Evict everything; gradients must be bitwise equal and live bytes as predicted."""
    problem = problem_of(model, shape, loss)
    plan = evict_everything(problem, gaps)
    assert plan.moves
    report = train(problem, plan, model=model, steps=2)
    assert report.bitwise_equal, report.steps
    assert report.follows_prediction, report.steps
    assert report.ok
    assert report.steps[0].offloaded_bytes == sum(
        problem.trace.gap_size(move.gap) for move in plan.moves if move.kind is Kind.OFFLOAD
    )
    return problem, report


class Apply(nn.Module):
    """A linear layer, a function, and two more layers, so that the function's saves have a gap."""

    def __init__(self, function, middle=8):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(middle, 8)
        self.last = nn.Linear(8, 2)
        self.function = function

    def forward(self, x):
        return self.last(torch.sigmoid(self.second(self.function(self.first(x)))))


def test_view_saved():
    # The product saves two transposed, offset views of one storage.
    def product(x):
        return x.t()[2:6].t() * x[:, 4:]

    require_equal_training(Apply(product, middle=4))


def test_expanded_tensor_saved():
    # Stride 0: eight columns of one stored column.
    def product(x):
        return x[:, :1].clone().expand(-1, 8) * torch.tanh(x)

    require_equal_training(Apply(product))


def test_one_storage_saved_by_two_stages():
    # The sigmoid saves its result, the next layer the same tensor as its input.
    problem, _ = require_equal_training(
        nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Linear(8, 2))
    )
    (saved,) = [tensor for tensor in problem.trace.tensors if tensor.name == "x2"]
    assert saved.size == 4 * 8 * 4
    assert saved.uses == (1, 2, 7, 8)


def test_one_storage_saved_twice_by_one_operator():
    def square(x):
        return x * x

    problem, _ = require_equal_training(Apply(square))
    (saved,) = [tensor for tensor in problem.trace.tensors if tensor.name == "x1"]
    assert saved.size == 4 * 8 * 4


def test_transposed_weight_is_no_parameter_but_stays_where_it_is():
    # A linear layer saves weight.t(): a new tensor over the parameter's storage.
    model = nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 8), nn.Linear(8, 2))
    problem, _ = require_equal_training(model)
    evictable = {tensor.name: tensor.size for tensor in problem.trace.tensors if tensor.evictable}
    assert evictable == {"x0": 4 * 8 * 4, "x2": 4 * 33 * 4, "x3": 4 * 8 * 4}


def test_buffer_saved():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.linspace(1, 2, 8))
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x) * self.scale))

    require_equal_training(Scaled())


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(16, 8)
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.body(self.embed(tokens))))

    problem, _ = require_equal_training(Tied(), (2, 5), "cross-entropy")
    # The head's gradient waits for the embedding's: it is alive but cannot leave.
    waiting = [t for t in problem.trace.tensors if t.uses[-1] == 9 and t.uses[0] in (5, 6)]
    assert [(t.size, t.evictable) for t in waiting] == [(16 * 8 * 4, False)]


def test_dropout_mask():
    require_equal_training(
        nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.2))
    )


def test_module_used_twice():
    shared = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
    model = nn.Sequential(shared, nn.Linear(8, 8), shared, nn.Linear(8, 2))
    require_equal_training(model)
    # Each of the two plain and planned steps updates the statistics twice.
    assert int(shared[1].num_batches_tracked) == 4


def test_inputs_that_are_no_tensors():
    class Reshaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(4, 2)

        def forward(self, x, groups=2):
            y = torch.sigmoid(self.first(x))
            return self.last(y.view(x.shape[0] * groups, y.size(1) // 2)) * groups

    require_equal_training(Reshaped())


def test_stage_output_both_returned_and_saved():
    # The sigmoid's result is the network's output, so the loss holds it too.
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Sigmoid())
    problem, _ = require_equal_training(model)
    (output,) = [tensor for tensor in problem.trace.tensors if tensor.name == "x3"]
    # Written by operation 2, read by the loss, saved for operation 5: gone for the one between.
    assert output.uses == (2, 3, 5)


def test_scalar_and_non_contiguous_saves():
    def normalise(x):
        return (x / x.std()).t().contiguous().t() ** 2

    require_equal_training(Apply(normalise))


def test_complex_conjugate_views_are_left_alone():
    def transform(x):
        spectrum = torch.fft.fft(x)
        return torch.real(spectrum * spectrum.conj())

    require_equal_training(Apply(transform))


def test_storage_of_mixed_types():
    def reinterpret(x):
        # The sign bits seen as integers index the very storage that they lie in.
        return torch.tanh(x) * (x.view(torch.int32) >> 31).to(torch.float32)

    require_equal_training(Apply(reinterpret))


def test_custom_function_that_saves_its_output():
    require_equal_training(Apply(lambda x: _double_tanh(x)))


def test_tensor_that_a_custom_function_keeps_in_its_own_way_cannot_leave():
    problem, _ = require_equal_training(Apply(lambda x: _hoarded_tanh(x)))
    (kept,) = [tensor for tensor in problem.trace.tensors if tensor.name == "x2"]
    # Saved by the next layer too, but held by the function's context until its backward.
    assert not kept.evictable
    assert kept.uses == (1, 10)


class _HoardedTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = torch.tanh(x)
        return ctx.kept.view_as(ctx.kept)

    @staticmethod
    def backward(ctx, gradient):
        kept, ctx.kept = ctx.kept, None
        return gradient * (1 - kept * kept)


@fx.wrap
def _hoarded_tanh(x):
    return _HoardedTanh.apply(x)


def test_saved_tensor_of_which_only_the_shape_is_read():
    # No operator of the fourth stage's backward touches what it asks autograd for.
    problem, _ = require_equal_training(Apply(lambda x: _broadcast_mean(torch.sigmoid(x))))
    (saved,) = [tensor for tensor in problem.trace.tensors if tensor.name == "x2"]
    assert saved.uses == (1, 2, 11, 12)


class _BroadcastMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mean().expand_as(x).clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return (gradient.sum() / x.numel()).expand(x.shape)


@fx.wrap
def _broadcast_mean(x):
    return _BroadcastMean.apply(x)


class _DoubleTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x) * 2
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * (2 - y * y / 2) + 0 * x


@fx.wrap
def _double_tanh(x):
    return _DoubleTanh.apply(x)


_hidden: list[torch.Tensor] = []


@fx.wrap
def _stash(x):
    y = torch.tanh(x)
    _hidden.append(y)
    return y


@fx.wrap
def _unstash(x):
    return x * _hidden.pop()


class Hidden(nn.Module):
    """A skip connection that the traced graph does not show."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x):
        x = _stash(self.layers[1](torch.sigmoid(self.layers[0](x))))
        x = self.layers[3](torch.sigmoid(self.layers[2](x)))
        return self.layers[5](torch.sigmoid(self.layers[4](_unstash(x))))


def test_hidden_skip_connection_is_held_until_its_last_reader_and_has_two_gaps():
    problem, report = require_equal_training(Hidden())
    number = next(n for n, tensor in enumerate(problem.trace.tensors) if len(tensor.uses) > 6)
    assert len([gap for gap in problem.trace.gaps if gap.tensor == number]) == 2
    step = report.steps[0]
    # It leaves twice, but is copied to the host once.
    assert (
        step.prefetched_bytes - step.offloaded_bytes
        == problem.trace.tensors[number].size
        == 4 * 8 * 4
    )


def test_frozen_first_layers_have_empty_backward_operations():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)), nn.Sigmoid(), nn.Linear(8, 2))
    for parameter in model[:2].parameters():
        parameter.requires_grad_(False)
    problem, _ = require_equal_training(model)
    assert all(tensor.uses[-1] < 10 for tensor in problem.trace.tensors)


def test_part_of_the_plan():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Linear(8, 2))
    require_equal_training(model, gaps={1})
