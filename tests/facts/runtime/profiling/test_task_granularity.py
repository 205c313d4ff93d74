"""What the moDNN paper calls tasks, in captured networks; and the accelerator that both know."""

from torch import nn

from offcert import certify_split, verify
from offcert.core.result import SolveStatus
from offcert.questions.split.problem import Round, Split, SplitProblem
from offcert.runtime.hardware import hardware
from offcert.runtime.profiling.profile import profile
from offcert_lab.modnn.algorithms import K40


def test_the_k40_is_the_same_everywhere() -> None:
    ours = hardware("k40")
    assert (ours.flops, ours.memory_bandwidth) == (K40.flops, K40.memory_bandwidth)
    assert (ours.link_bandwidth, ours.overhead_ns) == (K40.link_bandwidth, K40.overhead)


def test_gradients_have_ticks_of_their_own_where_autograd_computes_them_apart() -> None:
    # The input needs no gradient, so the first layer has none to compute.
    layers = (nn.Linear(6, 5), nn.Linear(5, 4))
    dense = profile(nn.Sequential(*layers), (3, 6), clock="operators", hardware="k40")
    names = [operation.name for operation in dense.trace.operations]
    # One product for the gradient of a layer's input, one for that of its weights.
    assert sum(name.startswith("B:") and name.endswith(":mm") for name in names) == 3
    filters = (nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 3), nn.Flatten())
    dense = profile(nn.Sequential(*filters), (2, 2, 8, 8), clock="operators", hardware="k40")
    names = [operation.name for operation in dense.trace.operations]
    # One operator for both gradients of a convolution.
    assert sum(name.endswith(":convolution_backward") for name in names) == 2


def test_sub_batches_of_a_captured_network_can_be_chosen() -> None:
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(4 * 36, 5))
    found = {size: profile(model, (size, 3, 8, 8), hardware="k40") for size in (4, 2, 1)}
    splits = tuple(Split([Round(size, 4 // size, each.trace)]) for size, each in found.items())
    step = SplitProblem("own", splits, found[4].platform, units=found[4].units)
    whole = certify_split(step, time_limit=5)
    # The fewer images at a time, the more often every kernel has to be started.
    assert (whole.status, step.sizes[whole.split or 0]) == (SolveStatus.OPTIMAL, 4)
    least = certify_split(step.with_memory(found[1].trace.peak_memory), time_limit=5)
    assert step.sizes[least.split or 0] == 1
    assert (least.objective or 0) > (whole.objective or 0)
    assert verify(least).valid
