"""Plans in compiled graphs: nodes where the plan says, memory as it predicts, waits that matter."""

import copy
from typing import Any

import pytest
import torch
from torch import fx

import offcert
from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.runtime.compiled.operators import OFFLOAD, RELOAD, WAIT, pending_copies
from offcert.runtime.plan.predict import predict
from offcert.runtime.watch.tracker import LiveBytes
from support.runtime.captured import evict_everything
from support.runtime.compiled_cases import (
    Graphs,
    as_it_is,
    everything,
    leaving,
    problem_of,
    reference,
    same,
    step_of,
    train,
)


@pytest.mark.parametrize("name", ["mlp", "residual", "gpt"])
def test_training_is_bitwise_the_same_and_all_of_the_plan_is_carried_out(name: str) -> None:
    graphs = Graphs()
    compiled = everything(name, graphs)
    step = step_of(name)
    assert same(train(step.model, step.batch, compiled), reference(name))
    report = compiled.report
    moved = compiled.planned.moved
    assert report.complete
    assert report.share == 1
    assert [each.tensor for each in report.carried if not each.exact] == []
    assert graphs.count(OFFLOAD) == len(moved) > 0
    returns = sum(len(away) for away in moved.values())
    assert graphs.count(RELOAD) == returns
    assert graphs.count(WAIT) == len(moved) + returns
    assert pending_copies() == 0


def test_nodes_stand_where_the_plan_says() -> None:
    problem = problem_of("mlp").with_memory("100%")
    names = [each.name for each in problem.trace.operations]
    products = [n for n, name in enumerate(names) if ":addmm" in name or ":mm" in name]
    # What the first activation makes leaves before the last product of the forward pass, and comes
    # back right before the backward pass reads it.
    number, gap = max(enumerate(problem.trace.gaps), key=lambda row: row[1].after - row[1].before)
    release = next(n for n in products if n > gap.before + 1)
    moves = [Move(Kind.OFFLOAD, number, release), Move(Kind.PREFETCH, number, gap.after)]
    graphs, step = Graphs(), step_of("mlp")
    compiled = offcert.backend(Plan(moves), problem, strict=True, compiler=graphs)
    assert same(train(step.model, step.batch, compiled), reference("mlp"))
    [moved] = compiled.report.carried
    assert (moved.released, moved.returned) == ((names[release],), (names[gap.after],))
    forward, backward = graphs.names(0), graphs.names(1)
    [source] = [name.removeprefix("gone_held_") for name in forward if name.startswith("gone_")]
    made, begun, gone = (
        forward.index(f"{before}{source}") for before in ("", "leave_", "gone_held_")
    )
    assert made < begun < gone < forward.index(names[release].split(":")[-1])
    tensor = gap.tensor
    back = backward.index(f"back_{tensor}")
    assert backward.index(f"return_{tensor}") < back
    [node] = [n for n in graphs.modules[1].graph.nodes if n.name == f"back_{tensor}"]
    assert min(backward.index(user.name) for user in node.users) > back
    # The storage itself is saved no more.
    saved = graphs.modules[0].graph.find_nodes(op="output")[0].args[0]
    assert source not in [each.name for each in saved]
    assert f"gone_held_{source}" in [each.name for each in saved]


def wait_removed(prefix: str) -> Any:
    def change(module: fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function" and node.name.startswith(prefix):
                node.replace_all_uses_with(node.args[0])
                module.graph.erase_node(node)
                module.recompile()
                return

    return change


@pytest.mark.parametrize("prefix", ["gone_", "back_"])
def test_a_missing_wait_makes_other_numbers(prefix: str) -> None:
    step = step_of("mlp")
    compiled = everything("mlp", Graphs(wait_removed(prefix)))
    found = train(step.model, step.batch, compiled, 1)
    loss, *gradients = found[: 1 + len(list(step.model.parameters()))]
    expected = reference("mlp")
    # The forward pass is complete by then.
    assert torch.equal(loss, expected[0])
    assert any(not torch.equal(*each) for each in zip(gradients, expected[1:], strict=False))


class Metered:
    """A compiler that counts live bytes: without gradients of parameters, and without copies."""

    def __init__(self) -> None:
        self.tracker = LiveBytes()
        self.peak = 0

    def __call__(self, module: fx.GraphModule, inputs: Any) -> Any:
        tracker, results = self.tracker, module.graph.find_nodes(op="output")[0].args[0]
        backward = any("tangents" in n.name for n in module.graph.find_nodes(op="placeholder"))

        class Meter(fx.Interpreter):
            def run_node(meter, node: fx.Node) -> Any:  # noqa: N805
                value = super().run_node(node)
                if node.target is OFFLOAD or (backward and node in results):
                    tracker.exclude([value])
                else:
                    self.peak = max(self.peak, tracker.peak)
                tracker.start_peak()
                return value

        def run(values: list[Any]) -> Any:
            with tracker:
                return Meter(module).boxed_run(values)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def measured_peak(name: str, moving: bool) -> int:
    step, meter = step_of(name), Metered()
    model = copy.deepcopy(step.model)
    torch._dynamo.reset()
    whole = problem_of(name).with_memory("100%")
    made = (
        leaving(whole, compiler=meter) if moving else offcert.backend(Plan(), whole, compiler=meter)
    )
    compiled = torch.compile(model, backend=made, dynamic=False)
    step.run(compiled, step.batch).backward()
    model.zero_grad(set_to_none=True)
    meter.peak = 0
    meter.tracker.start()
    step.run(compiled, step.batch).backward()
    meter.tracker.stop()
    return meter.peak


def test_memory_is_freed_as_the_plan_predicts() -> None:
    trace = problem_of("gpt").trace
    predicted = predict(trace, evict_everything(problem_of("gpt"))).peak
    # An interpreter fuses nothing, so that more is there than kernels take; as much leaves.
    freed = measured_peak("gpt", False) - measured_peak("gpt", True)
    assert freed >= trace.peak_memory - predicted > 0.5 * trace.peak_memory


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(InputError, match="must be a certificate"):
        offcert.backend("auto")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one certificate, not 0"):
        offcert.backend([])


def test_a_plan_by_modules_is_refused_with_the_command_that_makes_one_for_graphs() -> None:
    problem = offcert.profile(step_of("mlp"), hardware="v100-pcie").with_memory("100%")
    with pytest.raises(InputError, match="offcert profile --clock graphs"):
        offcert.backend(Plan(), problem)


def test_a_certificate_is_followed() -> None:
    step = step_of("gpt")
    certificate = offcert.certify(
        problem_of("gpt").with_memory("70%"), time_limit=2, target_gap=0.2
    )
    compiled = offcert.backend(certificate, strict=True, compiler=as_it_is)
    assert same(train(step.model, step.batch, compiled), reference("gpt"))
    report = compiled.report
    assert report.share == 1
    assert compiled.carried_bytes == report.planned_bytes > 0
