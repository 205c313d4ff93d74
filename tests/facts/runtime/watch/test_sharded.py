"""Models that `fully_shard` has taken apart: what is read of them, and what is refused by name."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from offcert.core.errors import InputError
from offcert.runtime.capture.run import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.placed import PlacedProgram, PlacedSegment
from offcert.runtime.watch.hooks import unwrap
from offcert.runtime.watch.saved_hooks import Owned
from offcert.runtime.watch.sharded import Parts, mark_of
from offcert.runtime.watch.signature import difference, signature
from offcert.runtime.watch.tracker import LiveBytes
from offcert.training.offload import offload
from offcert.training.planner import opaque_modules
from support.runtime.captured import evict_everything, problem_of_step

# PyTorch takes seconds to load what shards.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    meeting = f"file://{tmp_path_factory.mktemp('group')}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def network(mesh, **options):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh()))
    fully_shard(model[1], mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def step_of(model):
    return TrainingStep(model, lambda model, batch: model(batch).square().mean(), torch.randn(3, 4))


def test_parts_without_the_whole_are_refused(mesh):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    fully_shard(model[1], mesh=mesh)
    with pytest.raises(InputError, match=r"1 is sharded by fully_shard .* the model itself is not"):
        offload(model, [])


def test_a_part_of_a_sharded_model_is_refused(mesh):
    model = network(mesh)
    model(torch.randn(3, 4))
    with pytest.raises(InputError, match="train the whole model"):
        unwrap(model[1])


def test_parameters_that_pytorch_moves_are_refused(mesh):
    model = network(mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    with pytest.raises(InputError, match="with CPUOffloadPolicy"):
        unwrap(model)


def test_what_gathers_does_not_run_again(mesh):
    model = network(mesh)
    segment = PlacedSegment("1", 0)
    with pytest.raises(InputError, match=r"1 is sharded by fully_shard \(FSDP2\)"):
        Segments(model, [PlacedProgram((segment,))])
    assert opaque_modules(model) == {"1": "fully_shard gathers its parameters"}


def test_gathered_parameters_are_owned_before_and_after_they_are_gathered(mesh):
    model = network(mesh)
    owned = Owned(Parts(model))
    out = model(torch.randn(3, 4))
    # Only now there is a storage, which has been freed again.
    group = model[1]._get_fsdp_state()._fsdp_param_groups[0]
    storage = group.fsdp_params[0].all_gather_outputs[0].untyped_storage()
    assert storage.nbytes() == 0
    assert storage in owned
    assert out.untyped_storage() not in owned


def test_gathered_bytes_count_while_they_are_there(mesh):
    model = network(mesh)
    parts, counter = Parts(model), LiveBytes()
    gathered = 4 * (4 * 8 + 8)
    model(torch.randn(3, 4))
    with counter:
        counter.start(parts.sharded)
        counter.look()
        # The model's own 20 numbers stay gathered after its forward pass.
        assert counter.live == 4 * 20
        model[1].unshard()
        counter.look()
        assert counter.live == 4 * 20 + gathered
        model[1].reshard()
        counter.look()
        assert counter.live == 4 * 20
        assert counter.peak >= 4 * 20 + gathered
        counter.stop()


def test_steps_that_reduce_otherwise_are_others(mesh):
    model = network(mesh)
    parts, batch = Parts(model), (torch.randn(3, 4),)
    before = signature(parts, batch, {})
    model(*batch).sum().backward()
    # PyTorch has found out meanwhile which module is the root.
    assert signature(parts, batch, {}) == before
    model.set_requires_gradient_sync(False)
    unreduced = signature(parts, batch, {})
    assert "sharding" in difference(before, unreduced)
    model(*batch).sum().backward()
    # Now gradients are there that the next step adds to.
    assert signature(parts, batch, {}) != unreduced
    with pytest.raises(InputError, match="have not been reduced"):
        capture(step_of(model))


@pytest.mark.parametrize("tensors", ["fake", "real"])
def test_a_capture_leaves_a_sharded_model_as_it_was(mesh, tensors):
    model = network(mesh)
    plain = [each.to_local().clone() for each in model.parameters()]
    kept = list(model.parameters())
    captured = capture(step_of(model), tensors=tensors)
    assert all(one is other for one, other in zip(model.parameters(), kept, strict=True))
    assert all(torch.equal(a, b.to_local()) for a, b in zip(plain, kept, strict=True))
    assert all(each.grad is None for each in kept)
    assert captured.uncounted["parameters"] == 4 * (20 + 40)
    # Its whole life, and once more when the backward pass needs it.
    sizes = [each.size for each in captured.trace.tensors if not each.evictable]
    assert sum(sizes) >= 2 * 160 + 80
    model(torch.randn(3, 4)).sum().backward()
    assert all(each.grad is not None for each in kept)


def test_a_shard_that_changes_shows(mesh):
    model = network(mesh)
    parameter = Parts(model).sharded.parameters[0]
    before = mark_of(parameter)
    assert mark_of(parameter) == before
    with torch.no_grad():
        parameter.sharded_param.add_(1)
    assert mark_of(parameter) != before


def test_distributed_parameters_are_captured_with_data(mesh):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    parallelize_module(model, mesh, {"0": ColwiseParallel()})
    with pytest.raises(InputError, match="tensor parallelism"):
        capture(step_of(model), tensors="fake")
    # A tanh of 3 x 8 numbers, which are those of this process.
    found = capture(step_of(model)).storages
    assert 4 * 24 in [each.place.size for each in found]


def test_the_parts_of_distributed_tensors_leave_and_come_back(mesh):
    layers = [nn.Linear(4, 8), nn.Tanh(), nn.Sigmoid(), nn.Linear(8, 4)]
    planned = nn.Sequential(*layers)
    kept = ColwiseParallel(use_local_output=False)
    parallelize_module(planned, mesh, {"0": kept, "3": RowwiseParallel()})
    plain = copy.deepcopy(planned)
    problem = problem_of_step(step_of(planned))
    plan = evict_everything(problem)
    with offload(planned, plan, problem, count=True) as training:
        batch = torch.randn(3, 4)
        for model in (plain, planned):
            model(batch).square().mean().backward()
    assert training.steps == {"planned": 1}
    assert training.report.follows_prediction
    # Both results between the layers, 3 x 8 numbers each, which only `DTensor`s hold.
    assert training.report.offloaded_bytes >= 2 * 4 * 24
    for one, other in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(one.grad.to_local(), other.grad.to_local())


def test_a_distributed_tensor_that_was_changed_after_it_was_saved_is_refused(mesh):
    planned = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.ReLU(inplace=True))
    parallelize_module(planned, mesh, {"0": ColwiseParallel(use_local_output=False)})
    with offload(planned, "auto", memory="50%", hardware="v100-pcie", time_limit=0.2):
        out = planned(torch.randn(3, 4))
        with pytest.raises(RuntimeError, match="was changed in place"):
            out.sum().backward()
