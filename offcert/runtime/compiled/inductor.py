"""TorchInductor as the compiler of graphs that follow a plan, and the bytes of its own buffers.

It works from what depends on what. So the numbers are right if everything that somebody must wait
for, or must keep, is there as a dependency. Two things were not, and made wrong numbers of right
graphs:

1. Whatever is cheap, it computes anew for each operator that takes it. The operator that begins a
   copy and the one that waits for it then have two tensors; the copied one is given up at once, and
   overwritten during the copy. So a storage that leaves passes through `HOLD` first, an operator
   that does nothing: its one result is what both take.
2. It writes over what is saved for the backward pass ("donated buffers") after the last use of that
   tensor. Several tensors over one storage may be saved, and Inductor takes them for strangers: one
   is overwritten while another is still needed. So nothing is donated.

It must also leave the order of the graphs alone: a copy that begins as late as it may overlaps with
nothing. It must fuse nothing that a product stands between: what both read would live from one to
the other. Its numbers differ from those of the program, with a plan and without one: its kernels
round otherwise.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from offcert.runtime.compiled.operators import DIRECT, OFFLOAD
from offcert.runtime.compiled.torch_compiler import CustomPartitionerFn, aot_config

LOG = logging.getLogger(__name__)
NAME = "inductor"

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


@dataclass(eq=False)
class Buffers:
    """Bytes of a graph's buffers, counted once Inductor has put its kernels in order.

    Parameters, what the graph is given, gradients of parameters and copies on the host are not
    among them, nor what a kernel needs inside.
    """

    # Inputs of the backward graph that are on the host.
    hosts: set[str] = field(default_factory=set)
    # A key for each input of the backward graph, the same for those that share memory.
    storages: dict[str, Any] = field(default_factory=dict)
    # Keys of what the step is given: parameters, buffers, and the batch.
    given: set[Any] = field(default_factory=set)
    # Which results of the backward graph are gradients of parameters.
    owned: set[int] = field(default_factory=set)
    # The most bytes while a graph runs; None if Inductor has not made it, or does not say.
    forward: int | None = None
    backward: int | None = None
    kept: int = 0  # Bytes that are there when the forward graph has ended

    def count(self, nodes: list[Any]) -> list[Any]:
        """Count the buffers of kernels that are in order; return these, calling ours directly."""
        from torch._inductor.virtualized import V

        _call_directly(nodes, V.graph)
        try:
            peak, kept = _counted(nodes, V.graph, self)
        except Exception as error:  # Whatever another version of Inductor may call otherwise.
            LOG.warning("the peak of a compiled graph is not known: %s", error)
            return nodes
        if V.graph.is_backward:
            self.backward = peak
        else:
            self.forward, self.kept = peak, kept
        return nodes


def _call_directly(nodes: list[Any], graph: Any) -> None:
    """Let the code that calls kernels call our functions, not the operators that lead to them."""
    code: Any = getattr(graph, "wrapper_code", None)
    if graph.cpp_wrapper or not hasattr(code, "add_import_once"):
        return
    for node in nodes:
        kernel: Any = getattr(node, "node", None)
        name = DIRECT.get(getattr(kernel, "op_overload", None))
        if name is not None and hasattr(kernel, "python_kernel_name"):
            code.add_import_once("import offcert.runtime.compiled.operators")
            kernel.python_kernel_name = name


def most_bytes(graphs: Sequence[Buffers]) -> int | None:
    """Return the most bytes of the buffers of a step's graphs, in the order of the forward pass.

    None if that is not known of one of them.
    """
    most = held = 0
    for each in graphs:
        if each.forward is None:
            return None
        most = max(most, held + each.forward)
        held += each.kept
    for each in reversed(graphs):
        if each.backward is None:
            return None
        held -= each.kept
        most = max(most, held + each.backward)
    return most


def compiled_by_inductor(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    partition: Partition,
    buffers: Buffers,
    compiler: Callable[..., Any] | None = None,
) -> Any:
    """Return Inductor's kernels for a graph that Dynamo has traced and our partitioner divides.

    A `compiler` makes a function of each of the two graphs in the place of these kernels; without
    one, `buffers` are counted.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    patches = {
        "custom_partitioner_fn": _Partitioner(partition),
        "_post_fusion_custom_pass": buffers.count,
        # Copies inside of CUDA graphs would go to the same addresses again, whoever has them then.
        "triton.cudagraphs": False,
        # Weights in another layout are copies, which are saved beside them.
        "layout_optimization": False,
        # What is prefetched would be fetched when it is needed.
        "reorder_for_locality": False,
        "reorder_for_peak_memory": False,
        # Reports are made while graphs are.
        "fx_graph_cache": False,
    }
    patches = {name: value for name, value in patches.items() if _has(config, name)}
    with aot_config.patch(donated_buffer=False, enable_autograd_cache=False):
        made = _compiled_in_order if compiler is None else compiler
        return compile_fx(module, inputs, config_patches=patches, inner_compile=made)


def _compiled_in_order(*args: Any, **options: Any) -> Any:
    """Make kernels of a graph, each of nodes that no product stands between.

    Others would be fused that are far from each other, and what they read be kept for so long.
    """
    from torch._inductor.choices import InductorChoices
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    # Where calls stand that are neither kernels of Inductor's own nor copies of ours.
    products: list[int] = []

    class Choices(InductorChoices):
        """Choices of Inductor, but for what it may fuse."""

        @staticmethod
        def can_fuse(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
            """Whether a kernel may compute both."""
            if not products:
                products.extend(n.min_order for n in scheduler.nodes if _is_product(n))
            first, second = sorted((node1, node2), key=lambda node: int(node.min_order))
            behind = bisect_right(products, first.max_order)
            if behind < len(products) and products[behind] < second.min_order:
                return False
            return InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score)

        def uuid(self) -> None:
            """Return None: graphs of a plan are for no cache."""

    with V.set_choices_handler(Choices()):
        return compile_fx_inner(*args, **options)


def _is_product(node: Any) -> bool:
    if not node.is_extern() or type(node.node).__name__ == "MultiOutput":
        return False
    return getattr(node.node, "op_overload", None) not in DIRECT


def _has(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


class _Partitioner(CustomPartitionerFn):
    """Divides a joint graph as a plan wants it."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **options: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        options.pop("compiler", None)
        return self._partition(gm, joint_inputs, **options)

    def uuid(self) -> None:
        """Return None: graphs of a plan are for no cache, as reports are made with them."""


# Counting.


@dataclass(eq=False)
class _Life:
    """Bytes of memory, and from which kernel to which it is there."""

    begin: int
    end: float
    size: int = 0


def _counted(nodes: list[Any], graph: Any, buffers: Buffers) -> tuple[int, int]:
    """Return the most bytes that are there at once, and those there at the end."""
    from torch._inductor.memory import compute_memory_timeline, prepare_planning_info
    from torch.utils._ordered_set import OrderedSet

    scheduler = graph.scheduler
    outputs = OrderedSet(graph.get_output_names())
    _, inputs = prepare_planning_info(
        nodes,
        scheduler.name_to_buf,
        scheduler.name_to_fused_node,
        OrderedSet(graph.graph_inputs.keys()),
        outputs,
    )
    rows, _, _ = compute_memory_timeline(nodes, inputs, outputs)
    memory = _Memory(nodes, buffers)
    lives: dict[Any, _Life] = {}
    for row in rows:
        name = row.buffer.get_name()
        begin = memory.begin.get(name, row.start_step)
        end = float("inf") if row.end_step == -1 else row.end_step
        life = lives.setdefault(memory.of(name), _Life(begin, end))
        if name not in memory.parts:
            life.size = max(life.size, row.size_free)
        life.begin, life.end = min(life.begin, begin), max(life.end, end)
    gone = memory.hosts | buffers.given
    if graph.is_backward:
        results = [each for n, each in enumerate(graph.graph_outputs) if n in buffers.owned]
        gone |= {memory.of(each.get_name()) for each in results if hasattr(each, "data")}
    rest = [life for root, life in lives.items() if root not in gone]
    return _most(rest), sum(life.size for life in rest if life.end == float("inf"))


class _Memory:
    """The memory that buffers lie in; several that share it have one key."""

    def __init__(self, nodes: Sequence[Any], buffers: Buffers) -> None:
        self._of: dict[str, Any] = dict(buffers.storages)
        # Buffers that stand for several others, and have no memory of their own.
        self.parts: set[str] = set()
        self.begin: dict[str, int] = {}  # For each part of such a buffer, which kernel makes it
        made: dict[str, int] = {}
        copies = set(buffers.hosts)
        for step, node in enumerate(nodes):
            target = getattr(node.node, "op_overload", None)
            for each in node.get_outputs():
                name, aliases = each.get_name(), list(each.get_aliases())
                made[name] = step
                if type(each.node.layout).__name__ == "MultiOutputLayout":
                    self.parts.add(name)
                if aliases:
                    self._of[name] = aliases[0]
                elif type(each.node).__name__ == "MultiOutput":
                    whole = each.node.inputs[0].get_name()
                    self.begin[name] = made.get(whole, step)
                    if whole in copies:
                        copies.add(name)
                if target is OFFLOAD:
                    copies.add(name)
        self.hosts = {self.of(name) for name in copies}  # Keys of what lies on the host

    def of(self, name: Any) -> Any:
        """Return the key of a buffer's memory."""
        while name in self._of and self._of[name] != name:
            name = self._of[name]
        return name


def _most(lives: Collection[_Life]) -> int:
    change: dict[float, int] = {}
    for life in lives:
        change[life.begin] = change.get(life.begin, 0) + life.size
        change[life.end + 1] = change.get(life.end + 1, 0) - life.size
    most = now = 0
    for moment in sorted(change):
        now += change[moment]
        most = max(most, now)
    return most
