"""Plans in compiled graphs: the same numbers, and nodes where the plan says."""

import copy
from typing import Any

import pytest
import torch
from torch import fx
from torch._functorch.partitioners import default_partition

import offcert
from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Move, Plan
from offcert.runtime.compiled.operators import OPERATORS, pending_copies
from offcert.runtime.plan.predict import predict
from offcert.runtime.watch.tracker import LiveBytes
from support.runtime.captured import evict_everything
from support.runtime.compiled_cases import (
    Graphs,
    as_it_is,
    everything,
    problem_of,
    reference,
    same,
    step_of,
    train,
    train_quietly,
)


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("mlp", "modules"),
        ("cnn", "modules"),
        ("residual", "modules"),
        ("gpt", "modules"),
        ("gpt", "operators"),
    ],
)
def test_training_is_bitwise_the_same_and_all_of_the_plan_is_carried_out(
    name: str, clock: str
) -> None:
    graphs = Graphs()
    compiled = everything(name, clock, graphs)
    step = step_of(name)
    found = train(step.model, step.batch, compiled)
    assert same(found, reference(name))
    # PyTorch decomposes none of what these networks call: they are bitwise as without a compiler.
    assert same(found, train(step.model, step.batch))
    report = compiled.report
    plan = compiled.planned
    assert report.complete
    assert report.share == 1
    assert [each.tensor for each in report.carried if not each.exact] == []
    assert graphs.count(OPERATORS.offload) == len(plan.moved)
    returns = sum(len(each.evictions) for each in plan.moved)
    assert graphs.count(OPERATORS.reload) == returns
    assert graphs.count(OPERATORS.wait) == len(plan.moved) + returns
    assert pending_copies() == 0


def moves(problem: Any, tensor: int, release: int, claim: int) -> Plan:
    [gap] = [n for n, gap in enumerate(problem.trace.gaps) if gap.tensor == tensor]
    return Plan([Move(Kind.OFFLOAD, gap, release), Move(Kind.PREFETCH, gap, claim)])


def operation(problem: Any, name: str) -> int:
    return [each.name for each in problem.trace.operations].index(name)


def nodes_of(graphs: Graphs, graph: int, path: str) -> list[fx.Node]:
    """Return the nodes of a module's own, in a forward or backward graph."""
    found = []
    for node in graphs.modules[graph].graph.nodes:
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        inside = any(entry[0].endswith(f".{path}") for entry in stack.values())
        if inside and node.op == "call_function":
            found.append(node)
    return found


@pytest.mark.parametrize(
    ("release", "claim"), [("F:2", "B:before 2"), ("F:4", "B:before 3"), ("F:3", "B:model")]
)
def test_nodes_stand_where_the_plan_says(release: str, claim: str) -> None:
    problem = problem_of("mlp")
    names = [tensor.name for tensor in problem.trace.tensors]
    # What module 1 makes: module 2 saves it, too.
    tensor = names.index("x:1")
    assert problem.trace.tensors[tensor].uses[-1] == operation(problem, "B:before 2")
    if release == "F:2":
        with pytest.raises(PlanError, match="cannot leave"):
            offcert.backend(moves(problem, tensor, 2, operation(problem, claim)), problem)
        return
    graphs = Graphs()
    plan = moves(problem, tensor, operation(problem, release), operation(problem, claim))
    step = step_of("mlp")
    compiled = offcert.backend(plan, problem, strict=True, compiler=graphs)
    assert same(train(step.model, step.batch, compiled), reference("mlp"))
    forward, backward = graphs.names(0), graphs.names(1)
    assert (
        forward.index("leave_relu") == forward.index("held_relu") + 1 == forward.index("relu") + 2
    )
    first = nodes_of(graphs, 0, release.removeprefix("F:"))[0].name
    assert forward.index("gone_relu") + 1 == forward.index(first)
    if claim == "B:model":
        begin = next(n for n in graphs.modules[1].graph.nodes if n.op != "placeholder").name
        assert begin == "return_relu"
    else:
        # Right after the last node of module 3.
        last = nodes_of(graphs, 1, "3")[-1].name
        assert backward.index("return_relu") == backward.index(last) + 1
    users = next(n for n in graphs.modules[1].graph.nodes if n.name == "back_relu").users
    uses = sorted(backward.index(user.name) for user in users)
    assert backward.index("back_relu") + 1 == uses[0]
    # The storage itself is saved no more.
    saved = graphs.modules[0].graph.find_nodes(op="output")[0].args[0]
    assert "relu" not in [node.name for node in saved]
    assert "gone_relu" in [node.name for node in saved]


def test_a_plan_that_moves_nothing_changes_no_node() -> None:
    from torch._dynamo.backends.common import aot_autograd

    step = step_of("cnn")
    plain, planned = Graphs(), Graphs()
    compilers: Any = {"fw_compiler": plain, "bw_compiler": plain}
    train(step.model, step.batch, aot_autograd(**compilers, partition_fn=default_partition), 1)
    compiled = offcert.backend(Plan(), problem_of("cnn"), strict=True, compiler=planned)
    train(step.model, step.batch, compiled, 1)
    assert [str(m.graph) for m in plain.modules] == [str(m.graph) for m in planned.modules]
    assert len(planned.modules) == 2
    report = compiled.report
    assert report.complete
    assert report.carried == ()


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
    compiled = everything("mlp", compiler=Graphs(wait_removed(prefix)))
    found = train(step.model, step.batch, compiled, 1)
    loss, *gradients = found[: 1 + len(list(step.model.parameters()))]
    expected = reference("mlp")
    # The forward pass is complete by then.
    assert torch.equal(loss, expected[0])
    assert any(gradient.isnan().any() for gradient in gradients)


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
                if node.target is OPERATORS.offload or (backward and node in results):
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


def measured_peak(name: str, plan: Plan) -> int:
    step, meter = step_of(name), Metered()
    model = copy.deepcopy(step.model)
    torch._dynamo.reset()
    backend = offcert.backend(plan, problem_of(name), compiler=meter)
    compiled = torch.compile(model, backend=backend, dynamic=False)
    step.run(compiled, step.batch).backward()
    model.zero_grad(set_to_none=True)
    meter.peak = 0
    meter.tracker.start()
    step.run(compiled, step.batch).backward()
    meter.tracker.stop()
    return meter.peak


def test_memory_is_freed_as_the_plan_predicts() -> None:
    trace = problem_of("gpt").trace
    plan = evict_everything(problem_of("gpt"))
    predicted = predict(trace, plan).peak
    assert measured_peak("gpt", plan) <= predicted < 0.7 * trace.peak_memory
    assert predicted < measured_peak("gpt", Plan()) <= trace.peak_memory


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(InputError, match="must be a certificate"):
        offcert.backend("auto")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one certificate, not 0"):
        offcert.backend([])


def test_a_certificate_is_followed() -> None:
    step = step_of("gpt")
    problem = offcert.profile(step, hardware="v100-pcie", recompute="none").with_memory("40%")
    certificate = offcert.certify(problem, time_limit=2, target_gap=0.2)
    compiled = offcert.backend(certificate, compiler=as_it_is)
    assert same(train_quietly(step.model, step.batch, compiled), reference("gpt"))
    report = compiled.report
    assert report.planned_bytes > 0
    assert report.share == 1
    assert compiled.carried_bytes == report.planned_bytes
