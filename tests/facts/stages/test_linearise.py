import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import prepare


def stages(model, shape, loss="mean"):
    return [stage.name for stage in prepare(model, Workload(None, shape, loss=loss)).fake.stages]


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("resnet50", (1, 3, 64, 64), 22),
        ("inception_v3", (2, 3, 96, 96), 27),
        ("densenet201", (1, 3, 64, 64), 20),
        # Embeddings, dropout, two residual branches in each of two blocks, normalisation, head.
        ("gpt-tiny", (1, 16), 10),
    ],
)
def test_stages_of_published_networks(name, shape, count):
    workload = Workload(name, shape)
    chain = prepare(workload.build(shapes_only=True), workload).fake
    # And the loss.
    assert len(chain.stages) + 1 == count


def test_every_dense_layer_is_a_stage_where_it_hands_on_all_features():
    workload = Workload("densenet121", (2, 3, 32, 32), {"stages": "layers"})
    chain = prepare(workload.build(shapes_only=True), workload).fake
    names = [stage.name for stage in chain.stages]
    layers = [name for name in names if ".denselayer" in name]
    assert layers[:2] == [f"features.denseblock1.denselayer{i}" for i in (1, 2)]
    assert len(layers) == 6 + 12 + 24 + 16
    # And the loss.
    assert len(names) + 1 == 74


def test_names_say_which_module_a_stage_is():
    workload = Workload("resnet18", (1, 3, 64, 64))
    names = [s.name for s in prepare(workload.build(shapes_only=True), workload).fake.stages]
    assert names == [
        *("conv1", "bn1", "maxpool"),
        *(f"layer{i}.{j}" for i in range(1, 5) for j in range(2)),
        *("avgpool", "fc"),
    ]


def test_in_place_operations_and_views_belong_to_the_stage_that_made_the_storage():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(18, 2))
    assert stages(model, (2, 3, 6)) == ["0", "3"]


def test_out_of_place_operations_are_stages_of_their_own():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    assert stages(model, (2, 6)) == ["0", "1", "2"]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.second(self.first(x))


def test_a_residual_block_is_one_stage():
    assert stages(nn.Sequential(nn.Linear(4, 4), Residual()), (2, 4)) == ["0", "1"]


def test_a_skip_connection_from_the_input_leaves_nothing_to_cut():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x):
            return self.body(x) + x

    assert stages(Skip(), (2, 4)) == ["body"]


def test_sizes_are_no_values_that_are_live():
    class Reshape(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            batch = x.size(0)
            return self.second(self.first(x)).view(batch, 2, 2).sum(1)

    assert stages(Reshape(), (3, 4)) == ["first", "second", "sum_1"]


def test_two_values_of_one_storage_are_one_stage():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(2, 2)

        def forward(self, x):
            left, right = self.first(x).chunk(2, dim=1)
            return self.second(left) * right

    # After `first` one value is live; after `chunk` two views of it.
    assert stages(Halves(), (3, 4)) == ["first", "second"]


def test_arguments_with_defaults_keep_them():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, targets=None, scale=2.0):
            out = self.layer(x) * scale
            return out if targets is None else out + targets

    assert stages(Optional(), (3, 4)) == ["layer", "mul"]


def test_tensors_made_in_forward_do_not_stay_in_the_model():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])

    model = Constant()
    assert stages(model, (3, 4)) == ["layer", "mul"]
    assert not [name for name in vars(model) if "constant" in name]


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Pair(nn.Module):
    def forward(self, x):
        return x + 1, x + 2


class Two(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branching(), "Branching cannot be traced"),
        (Pair(), "Pair must return one tensor, not a tuple of 2"),
        (Two(), "Two must take one tensor, but also needs y"),
        (nn.Linear(3, 3).eval(), "Linear must be in training mode"),
        (nn.Sequential(nn.Linear(7, 3)), "Sequential cannot run on an input of 2x4"),
    ],
    ids=["branching", "pair", "two", "evaluating", "shape"],
)
def test_a_network_that_does_not_fit_is_refused_in_one_sentence(model, message):
    with pytest.raises(InputError, match=message) as caught:
        stages(model, (2, 4))
    assert "\n" not in str(caught.value)
