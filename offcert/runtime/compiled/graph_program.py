"""Compiled graphs rewritten so that they follow a plan."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from typing import Any

from torch import fx

from offcert.runtime.compiled.divided import DividedGraph, Stretch, results_of
from offcert.runtime.compiled.graph_plan import GraphPlan
from offcert.runtime.compiled.nodes import Key, tensor_of
from offcert.runtime.compiled.operators import (
    HOLD,
    HOST,
    OFFLOAD,
    RELOAD,
    WAIT,
    call,
    value_like,
)
from offcert.runtime.compiled.torch_compiler import SavedForBackwardsAOTOutput


def carry_out(plan: GraphPlan, number: int, graph: DividedGraph) -> list[str] | None:
    """Rewrite a forward and a backward graph so that they follow a plan.

    Each operation of the plan becomes the nodes of its stretch, in the plan's order, and copies
    begin and end between them. What the plan does while other graphs run is done at the end of the
    forward graph, or at the beginning of the backward graph: no copy is under way between them.

    Returns the inputs of the backward graph that are on the host; None, and the graphs are as
    before, if something is read where the plan has it away.
    """
    try:
        return _Carried(plan, number, graph).run()
    except KeyError:
        return None


# Behind the last operation of a side. By definition.
_END = -1

_Moments = dict[int, list[int]]


class _Carried:
    """A forward and a backward graph as a plan wants them, made node by node."""

    def __init__(self, plan: GraphPlan, number: int, graph: DividedGraph) -> None:
        self.plan, self.graph = plan, graph
        self.trace = plan.problem.trace
        own = [n for n, place in enumerate(plan.places) if place.graph == number]
        again = set(plan.again)
        end = max((n for n in own if not plan.places[n].side and n not in again), default=-1)
        self.sides = [n for n in own if n <= end], [n for n in own if n > end]
        self.key = dict(zip(plan.values_of(number), graph.made, strict=True))
        self.written: _Moments = defaultdict(list)
        for tensor, value in enumerate(plan.values):
            if value in self.key:
                self.written[self.trace.tensors[tensor].uses[0]].append(tensor)
        # Before which operations tensors begin to leave, have left, begin to return, and are back.
        self.leaves: list[_Moments] = [defaultdict(list), defaultdict(list)]
        self.gone: list[_Moments] = [defaultdict(list), defaultdict(list)]
        self.claims: list[_Moments] = [defaultdict(list), defaultdict(list)]
        self.back: list[_Moments] = [defaultdict(list), defaultdict(list)]
        self._schedule([n for n in plan.moved if plan.graph_of(n) == number])
        # The copy of a storage that is read, and the nodes that are copies, on device and host.
        self.tensor: dict[Key, int] = {}
        self.node: dict[int, fx.Node] = {}
        self.kept: dict[int, fx.Node] = {}
        self.host: dict[int, fx.Node] = {}
        self.begun: dict[int, fx.Node] = {}
        # What makes results: these are there, whether the plan keeps them or not.
        results = [*graph.results, *results_of(graph.backward.graph)]
        self.results = {graph.root(each) for each in results if isinstance(each, fx.Node)}
        self.side = 0
        self.new = fx.Graph()
        self.made: dict[Any, fx.Node] = {}
        self.local: dict[fx.Node, fx.Node] = {}
        self.saved: dict[fx.Node, fx.Node] = {}

    # When copies begin and end.

    def _side(self, operation: int) -> tuple[int, int]:
        """Return on which side an operation begins, and before which of that side's own ones."""
        forward, backward = self.sides
        if forward and operation <= forward[-1]:
            return 0, forward[bisect_left(forward, operation)]
        if not backward or operation <= backward[0]:
            return 0, _END
        place = bisect_left(backward, operation)
        return 1, backward[place] if place < len(backward) else _END

    def _schedule(self, moved: Sequence[int]) -> None:
        cursor = [0, 0]
        for tensor in moved:
            uses = self.trace.tensors[tensor].uses
            for turn, away in enumerate(self.plan.moved[tensor]):
                claim = away.claim
                side, before = self._side(away.release)
                self.gone[side][before].append(tensor)
                if not turn:
                    self._leave(tensor, side, before, cursor)
                use = next(each for each in uses if each >= claim)
                to = int(use > (self.sides[0] or [-1])[-1])
                own = self.sides[to]
                first = own[bisect_left(own, claim)]
                self.claims[to][first].append(tensor)
                self.back[to][use].append(tensor)

    def _leave(self, tensor: int, side: int, before: int, cursor: list[int]) -> None:
        """Begin a copy once the tensor is made, but after earlier copies."""
        own = self.sides[side]
        made = bisect_right(own, self.trace.tensors[tensor].uses[0])
        last = len(own) if before == _END else own.index(before)
        start = min(max(cursor[side], made), last)
        cursor[side] = max(cursor[side], made)
        self.leaves[side][_END if start == len(own) else own[start]].append(tensor)

    # Making the graphs.

    def run(self) -> list[str]:
        graph = self.graph
        output = graph.forward.graph.find_nodes(op="output")[0]
        for each in graph.forward.graph.find_nodes(op="placeholder"):
            self.made[each] = self._copied(each)
        self._emit(0)
        self.inputs = self.made
        forward, results = self.new, [self._result(each) for each in graph.results]
        self.side, self.new, self.made = 1, fx.Graph(), {}
        for each in graph.backward.graph.find_nodes(op="placeholder"):
            if graph.real(each) is each:
                self.made[each] = self._copied(each)
        # What is saved comes before the gradients.
        self.anchor = next(iter(self.new.nodes))
        self._emit(1)
        ends = [self._result(each) for each in results_of(graph.backward.graph)]
        hosts = [
            new.name
            for new in self.saved.values()
            if any(each.target is RELOAD for each in new.users)
        ]
        _end(forward, [*results, *self.saved], output, graph.outputs)
        _end(self.new, ends, graph.backward.graph.find_nodes(op="output")[0], len(ends))
        for module, made in ((graph.forward, forward), (graph.backward, self.new)):
            made.eliminate_dead_code()
            made.lint()
            module.graph = made
        return hosts

    def _emit(self, side: int) -> None:
        for operation in (*self.sides[side], _END):
            for tensor in self.gone[side][operation]:
                if tensor in self.host:
                    self._gone(tensor)
            for tensor in self.leaves[side][operation]:
                self._leaves(tensor)
                if tensor in self.gone[side][operation]:
                    self._gone(tensor)
            for tensor in self.claims[side][operation]:
                self._return(tensor)
            for tensor in self.back[side][operation]:
                self.node[tensor] = self._wait(self.begun.pop(tensor), None, f"back_{tensor}")
            if operation != _END:
                self._run(operation)

    def _run(self, operation: int) -> None:
        place, written = self.plan.places[operation], self.written[operation]
        if place.stretch < 0:
            for tensor in written:
                key = self.key[self.plan.values[tensor]]
                self.tensor[key], self.node[tensor] = tensor, self.made[self.graph.made[key]]
            return
        stretch: Stretch = self.graph.sides[place.side][place.stretch]
        nodes = stretch.nodes
        if operation in self.plan.again:
            read = [each for each in written if len(self.trace.tensors[each].uses) > 1]
            nodes = self.graph.needed(stretch, [self.key[self.plan.values[n]] for n in read])
        self.local = {}
        for node in nodes:
            self.local[node] = self._copied(node)
            if node in self.results:
                self.made.setdefault(node, self.local[node])
        for tensor in written:
            key = self.key[self.plan.values[tensor]]
            made = self.local.get(self.graph.made[key])
            if made is not None:
                self.tensor[key], self.node[tensor] = tensor, made
        self.local = {}

    def _copied(self, node: fx.Node) -> fx.Node:
        found = self.new.node_copy(node, self._at)
        if self.side and node.op == "call_function":
            found.meta["autograd_backward"] = True
        return found

    def _at(self, node: fx.Node) -> fx.Node:
        """Return the node of the new graph that has what a node of the old graphs computes."""
        node = self.graph.real(node)
        if node in self.local:
            return self.local[node]
        if self.graph.is_free(node):
            key = node, tuple(self._at(each) for each in node.all_input_nodes)
            if key not in self.made:
                self.made[key] = self._copied(node)
            return self.made[key]
        if node in self.made:
            return self.made[node]
        if node.op == "placeholder":
            return self._here(self.inputs[node])
        tensor = self.tensor[self.graph.own_key(node)]
        return self._here(self.node[tensor])

    def _here(self, node: fx.Node) -> fx.Node:
        """Return a node of the new forward graph, or an input, as the graph at hand has it."""
        if not self.side or node.graph is self.new:
            return node
        if node not in self.saved:
            with self.new.inserting_before(self.anchor):
                self.saved[node] = self.new.placeholder(node.name)
            self.saved[node].meta = copy(node.meta)
        return self.saved[node]

    def _result(self, each: Any) -> Any:
        return self._at(each) if isinstance(each, fx.Node) else each

    # Copies.

    def _leaves(self, tensor: int) -> None:
        node = self._here(self.node[tensor])
        self.kept[tensor] = self._call(HOLD, (node,), f"held_{node.name}", node.meta["val"])
        value = value_like(node.meta["val"], HOST)
        name = f"leave_{node.name}"
        self.host[tensor] = self._call(OFFLOAD, (self.kept[tensor],), name, value)

    def _gone(self, tensor: int) -> None:
        self.node.pop(tensor, None)
        source = self.kept.pop(tensor, None)
        if source is not None:
            self.host[tensor] = self._wait(self.host[tensor], source, f"gone_{source.name}")

    def _return(self, tensor: int) -> None:
        host, made = self._here(self.host[tensor]), self.graph.made
        like = tensor_of(made[self.key[self.plan.values[tensor]]])
        assert like is not None
        size, stride = list(like.shape), list(like.stride())
        value = value_like(like, like.device, stride)
        arguments = (host, like.device, size, stride)
        self.begun[tensor] = self._call(RELOAD, arguments, f"return_{tensor}", value)

    def _wait(self, node: fx.Node, source: fx.Node | None, name: str) -> fx.Node:
        arguments = (node,) if source is None else (node, None, source)
        return self._call(WAIT, arguments, name, node.meta["val"])

    def _call(self, target: Any, arguments: Any, name: str, value: Any) -> fx.Node:
        node = call(self.new, target, arguments, name)
        node.meta["val"] = value
        return node


def _end(graph: fx.Graph, results: list[Any], like: fx.Node, callers: int) -> None:
    """Give a graph its results, which are described as those of another one."""
    output = graph.output(tuple(results))
    output.meta = copy(like.meta)
    known = like.meta.get("desc")
    if known is not None:
        extra = range(len(results) - callers)
        output.meta["desc"] = [*known[:callers], *map(SavedForBackwardsAOTOutput, extra)]
    if "output_stack_traces" in output.meta:
        rows = [*output.meta["output_stack_traces"][:callers]]
        output.meta["output_stack_traces"] = rows + [None] * (len(results) - len(rows))
