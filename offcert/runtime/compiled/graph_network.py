"""The graphs that a step is compiled to, and their network, whose computations are stretches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx

from offcert.core.computations import Computation, Value
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Integer, Record
from offcert.core.list_forms import Each, InOrder
from offcert.core.network import Network
from offcert.runtime.capture.borrowed import borrowed
from offcert.runtime.capture.run import borrowing
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.divided import DividedGraph, Stretch, results_of
from offcert.runtime.compiled.inductor import Buffers, compiled_by_inductor
from offcert.runtime.compiled.nodes import Key, bytes_of, module_of, tensor_of
from offcert.runtime.compiled.torch_compiler import partitioners
from offcert.runtime.hardware import Hardware, roofline_ns
from offcert.runtime.hardware.cost import operator_cost, operator_ns
from offcert.runtime.torch_private import OpOverload

# Tensors that are a smaller part of all bytes do not leave: a copy would cost more than it frees.
# Arbitrary.
_WORTH = 10_000


class GraphRecord(NamedTuple):
    """A graph of a captured step: by what it is recognised, and the stretches of each side."""

    digest: str
    forward: int
    backward: int


class GraphPlace(NamedTuple):
    """A computation in the graphs."""

    graph: int  # In the order of the forward pass
    side: int  # 0: forward, 1: backward
    stretch: int  # Number in its graph; -1 where the gradients come that a backward graph is given


_SOURCE: Record[Any] = Record(dict, graphs=Each(InOrder(GraphRecord, TEXT, Integer(0), Integer(0))))


def read_graphs(source: Mapping[str, Any]) -> tuple[GraphRecord, ...]:
    """Return the graphs that the ``source`` of a problem names."""
    found: tuple[GraphRecord, ...] = _SOURCE.read(Fields(source["compiled"], "source.compiled"))[
        "graphs"
    ]
    if not found:
        raise InputError("source.compiled.graphs is empty")
    return found


def places_of(records: Sequence[GraphRecord]) -> list[GraphPlace]:
    """Return the place of each computation: all forward graphs, then all backward graphs."""
    numbers = range(len(records))
    found = [GraphPlace(n, 0, each) for n in numbers for each in range(records[n].forward)]
    for n in reversed(numbers):
        found += [GraphPlace(n, 1, each) for each in range(-1, records[n].backward)]
    return found


def network_of(
    graphs: Sequence[DividedGraph], time: Callable[[DividedGraph, Stretch], int]
) -> Network:
    """Return the network of a step's graphs.

    What a graph returns to its caller is there until its backward graph has ended; gradients of
    parameters, and what the step is given, are not counted.
    """
    number: dict[tuple[int, Key], int] = {}
    values: list[Value] = []
    least = sum(graph.size(key) for graph in graphs for key in graph.made) // _WORTH
    for n, graph in enumerate(graphs):
        for key, node in graph.made.items():
            number[n, key] = len(values)
            moves = graph.moves(key) and graph.size(key) >= least
            side = "x" if node.graph is graph.forward.graph else "g"
            values.append(Value(f"{side}:{_label(graphs, n)}{node.name}", graph.size(key), moves))
    computations = []
    for place in places_of([GraphRecord("", *map(len, each.sides)) for each in graphs]):
        n, graph = place.graph, graphs[place.graph]
        held: tuple[int, ...] = ()
        if place.side and place.stretch + 1 == len(graph.sides[1]):
            held = tuple(sorted(number[n, key] for key in graph.held if (n, key) in number))
        if place.stretch < 0:
            made = tuple(sorted(number[n, key] for key in graph.tangents))
            name = f"B:{_label(graphs, n)}gradients"
            computations.append(Computation(name, 0, writes=made, repeatable=False, holds=held))
            continue
        stretch = graph.sides[place.side][place.stretch]
        computations.append(
            Computation(
                f"{'FB'[place.side]}:{_label(graphs, n)}{_name(stretch)}",
                time(graph, stretch),
                _workspace(graph, stretch),
                tuple(sorted(number[n, key] for key in stretch.reads)),
                tuple(sorted(number[n, key] for key in stretch.writes)),
                stretch.again and not place.side,
                held,
            )
        )
    if not values:
        raise InputError("nothing passes between the operators of the compiled graphs")
    return Network(computations, values)


def _label(graphs: Sequence[DividedGraph], number: int) -> str:
    return f"{number + 1}:" if len(graphs) > 1 else ""


def _name(stretch: Stretch) -> str:
    """Return the module of a stretch and its first operator, for people."""
    first = stretch.nodes[0]
    return f"{module_of(first)}:{first.name}"


def _workspace(graph: DividedGraph, stretch: Stretch) -> int:
    """Return the bytes beside what a stretch reads and writes.

    Results of element-wise operators that nobody else reads are in no memory once they are fused;
    others are there until the last node of the stretch that reads them.
    """
    kept = set(stretch.writes)
    live: dict[Key, int] = {}
    last = {key: n for n, node in enumerate(stretch.nodes) for key in _near(graph, node)}
    total = most = 0
    for n, node in enumerate(stretch.nodes):
        key = graph.own_key(node)
        counted = tensor_of(node) is not None and key not in graph.gradients
        if counted and key not in live and (key in kept or not is_fused(node)):
            live[key] = bytes_of(node)
            total += live[key]
            most = max(most, total)
        for gone in [k for k in live if k not in kept and last.get(k, n) <= n]:
            total -= live.pop(gone)
    return max(0, most - sum(graph.size(key) for key in kept))


def _near(graph: DividedGraph, node: fx.Node) -> Iterator[Key]:
    yield graph.own_key(node)
    for each in node.all_input_nodes:
        key = graph.key(each)
        if key is not None:
            yield key


def is_fused(node: fx.Node) -> bool:
    """Whether a kernel makes a node's result where it is read.

    That is, it is element-wise, and not read by a reduction and by others, as are the exponentials
    of a softmax.
    """
    elementwise = [_is_pointwise(user) for user in node.users if user.op == "call_function"]
    return _is_pointwise(node) and (len(elementwise) < 2 or all(elementwise))


def _is_pointwise(node: fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


# Times by a hardware model.


def is_product(node: fx.Node) -> bool:
    """Whether a node multiplies matrices, convolves or attends; or is not one operator."""
    if not isinstance(node.target, OpOverload):
        return True
    args, kwargs = _arguments(node)
    return operator_cost(node.target, args, kwargs, node.meta.get("val"))[0] > 0


def _arguments(node: fx.Node) -> Any:
    return fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))


def modelled_by(card: Hardware) -> Callable[[DividedGraph, Stretch], int]:
    """Return a function that gives the nanoseconds of a stretch on a modelled card.

    A product takes its roofline. Nodes between products are one kernel, which reads what others
    have made, and writes what others read, or what is not element-wise, which is read again.
    """

    def time(graph: DividedGraph, stretch: Stretch) -> int:
        first = stretch.nodes[0]
        if stretch.products and isinstance(first.target, OpOverload):
            args, kwargs = _arguments(first)
            return operator_ns(card, first.target, args, kwargs, first.meta.get("val"))
        inside = set(stretch.nodes)
        outside = {n for node in stretch.nodes for n in node.all_input_nodes if n not in inside}
        rows = [each for node in outside if (each := tensor_of(node)) is not None]
        traffic = sum(min(t.numel() * t.itemsize, t.untyped_storage().nbytes()) for t in rows)
        for node in stretch.nodes:
            if tensor_of(node) is not None:
                kept = graph.own_key(node) in stretch.writes
                traffic += bytes_of(node) * (kept or 2 * (not is_fused(node)))
        return roofline_ns(card, 0, traffic)

    return time


# Bytes up to which results that nobody computes are zero; larger ones are not written. Arbitrary.
_WRITTEN = 2**20

Pair = tuple[fx.GraphModule, fx.GraphModule]


def divided_by_least_cut(
    joint: fx.GraphModule, inputs: Any, options: Mapping[str, Any]
) -> tuple[Pair, DividedGraph]:
    """Divide a joint graph as plain compiling does, and cut both parts into stretches."""
    pair = pair_of_least_cut(joint, inputs, options)
    owned = set(options.get("static_lifetime_input_indices") or ())
    return pair, DividedGraph(*pair, options["num_fwd_outputs"], owned, is_product)


def pair_of_least_cut(joint: fx.GraphModule, inputs: Any, options: Mapping[str, Any]) -> Pair:
    """Divide a joint graph as plain compiling does."""
    pair: Pair = partitioners.min_cut_rematerialization_partition(joint, inputs, **options)
    return pair


def profile_graphs(step: TrainingStep, hardware: Hardware) -> tuple[Network, dict[str, Any]]:
    """Return the network of the graphs that a step is compiled to, and what recognises them."""
    graphs = graphs_of(step)
    rows = [[each.digest, *map(len, each.sides)] for each in graphs]
    return network_of(graphs, modelled_by(hardware)), {"graphs": rows}


def graphs_of(step: TrainingStep) -> list[DividedGraph]:
    """Return the graphs that Inductor would compile of a step, in the order of the forward pass.

    The program runs once, without its backward pass if it returns the loss; in the place of each
    graph runs one that computes nothing, so that results have shapes but no values. The model is as
    before afterwards; code that was compiled before is compiled anew when it runs next.
    """
    found = _Found()
    torch.compiler.reset()
    try:
        with borrowed(*borrowing(step)), _buffers_kept(step.model):
            compiled = torch.compile(step.model, backend=found, dynamic=False)
            with torch.enable_grad():
                step.run(compiled, step.make_batch())
    except Exception:
        if found.error is None:
            raise
        raise found.error from None
    finally:
        torch.compiler.reset()
    if not found.ran:
        raise InputError(
            "torch.compile makes no graph with a backward pass of this step; use the clock modules"
        )
    twice = next((each for each in found.ran if found.ran.count(each) > 1), None)
    if twice is not None:
        raise InputError(
            f"graph {found.graphs.index(twice) + 1} of {len(found.graphs)} that torch.compile "
            f"makes of this step runs {found.ran.count(twice)} times in it, and a plan is for "
            "graphs that run once; use the clock modules"
        )
    return found.ran


class _Found:
    """A backend for `torch.compile` that keeps graphs and runs none of them."""

    def __init__(self) -> None:
        self.__name__ = "offcert"
        self.graphs: list[DividedGraph] = []
        self.ran: list[DividedGraph] = []
        self.error: InputError | None = None

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compiled_by_inductor(module, inputs, self._divide, Buffers(), self._compile)

    def _divide(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> Pair:
        try:
            pair, divided = divided_by_least_cut(joint, inputs, options)
        except InputError as error:
            self.error = error
            raise
        self.graphs.append(divided)
        return pair

    def _compile(self, module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        of = self.graphs[-1] if self.graphs and not options.get("is_inference") else None

        def run(args: list[Any]) -> Any:
            given = list(args)
            args.clear()
            if of is None:
                return module.forward(*given)
            if not options.get("is_backward"):
                self.ran.append(of)
            return _without_values(module.graph, given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def _without_values(graph: fx.Graph, given: Sequence[Any]) -> list[Any]:
    """Return results like those of a graph, which nobody has computed."""
    there = dict(zip(graph.find_nodes(op="placeholder"), given, strict=True))

    def made(node: Any) -> Any:
        value = tensor_of(node) if isinstance(node, fx.Node) else None
        if value is None or node in there:
            return there.get(node)
        # The size of a generator's state is a symbol, whatever shapes may do.
        shape, stride = map(int, value.shape), map(int, value.stride())
        found = torch.empty_strided(
            tuple(shape), tuple(stride), dtype=value.dtype, device=value.device
        )
        return found.zero_() if found.numel() * found.itemsize <= _WRITTEN else found

    return [made(each) for each in results_of(graph)]


@contextmanager
def _buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
