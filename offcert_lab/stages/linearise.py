"""A module as a chain of stages, cut where exactly one value is live."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch import fx, nn

from offcert.core.errors import InputError
from offcert.runtime.torch_private import tree_leaves
from offcert.runtime.watch.guard import quiet


@dataclass(frozen=True)
class Stage:
    """Consecutive nodes of a traced graph between two places where one value is live.

    It has the name of the module that it is, for example ``"layer1.0"``. Its `output` is live when
    it has ended; all other values are not used any more.
    """

    name: str
    nodes: tuple[fx.Node, ...]
    output: fx.Node

    def run(self, interpreter: fx.Interpreter) -> None:
        """Run the nodes, and give up each value that nobody uses any more."""
        env = interpreter.env
        for node in self.nodes:
            env[node] = interpreter.run_node(node)
            unread = () if node.users else (node,)
            for dead in (*interpreter.user_to_last_uses.get(node, ()), *unread):
                env.pop(dead, None)


@dataclass(frozen=True)
class StageChain:
    """A traced module and its stages; the stage of the loss is not among them.

    `input` is the only placeholder that takes a tensor, `constants` are the defaults of the others.
    The output of one stage is the input of the next.
    """

    root: fx.GraphModule
    input: fx.Node
    constants: dict[fx.Node, Any]
    stages: tuple[Stage, ...]
    output_shape: tuple[int, ...]

    def interpreter(self, example: torch.Tensor) -> fx.Interpreter:
        """Return an interpreter of the stages that is given an input."""
        interpreter = fx.Interpreter(self.root, graph=self.input.graph)
        interpreter.env = {**self.constants, self.input: example}
        return interpreter

    def belongings(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that the model owns: parameters, buffers and constants."""
        return tensors_of(self.root)


def tensors_of(root: nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters, buffers and tensors that are plain attributes of a module."""
    for module in root.modules():
        yield from (p for p in module._parameters.values() if p is not None)
        yield from (b for b in module._buffers.values() if b is not None)
        yield from (v for v in vars(module).values() if isinstance(v, torch.Tensor))


def trace_module(model: nn.Module) -> fx.GraphModule:
    """Trace a module in training mode; arguments after the first keep their defaults.

    The result shares parameters, buffers and submodules with `model`. A module in evaluation mode,
    or that `torch.fx` cannot trace, is an `InputError`.
    """
    name = type(model).__name__
    if not model.training:
        raise InputError(f"{name} must be in training mode: call model.train() first")
    others = list(inspect.signature(model.forward).parameters.values())[1:]
    defaults = {
        parameter.name: parameter.default
        for parameter in others
        if parameter.default is not inspect.Parameter.empty
    }
    own = set(vars(model))
    try:
        return fx.symbolic_trace(model, concrete_args=defaults or None)
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise InputError(f"{name} cannot be traced: {reason}") from error
    finally:
        # Tensors made in forward become attributes of the traced module and, as a side effect, of
        # the original; the latter is not ours to change.
        for attribute in set(vars(model)) - own:
            delattr(model, attribute)


def fake_copy(traced: fx.GraphModule) -> fx.GraphModule:
    """Return a copy whose tensors are fake ones on the CPU; call it under `FakeTensorMode`.

    No data is copied; tensors that are tied stay tied.
    """
    memo: dict[int, Any] = {}
    for tensor in tensors_of(traced):
        if id(tensor) not in memo:
            empty = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
            memo[id(tensor)] = (
                nn.Parameter(empty, requires_grad=tensor.requires_grad)
                if isinstance(tensor, nn.Parameter)
                else empty
            )
    return copy.deepcopy(traced, memo)


def vocabulary(traced: fx.GraphModule) -> int | None:
    """Return the number of tokens if the input goes into an embedding, else None.

    This rule decides what a network is fed with: token numbers, or normally distributed floats.
    """
    for user in _placeholders(traced)[0].users:
        if user.op == "call_module":
            module = traced.get_submodule(str(user.target))
            if isinstance(module, nn.Embedding):
                return module.num_embeddings
    return None


def linearise(traced: fx.GraphModule, example: torch.Tensor, name: str) -> StageChain:
    """Cut a traced module into stages.

    A cut lies where exactly one value that the model does not own is live. Values that share a
    storage are one value: in-place operations and views belong to the stage that made the storage.
    Numbers and sizes are no values. Call it under `FakeTensorMode` with fake arguments: the module
    is run once to learn which values share a storage.
    """
    placeholders = _placeholders(traced, name)
    constants = _defaults(name, placeholders[1:])
    nodes = [node for node in traced.graph.nodes if node.op not in ("placeholder", "output")]
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    values = _run(traced, example, name, {placeholders[0]: example, **constants}, nodes)
    if not isinstance(result, fx.Node) or not isinstance(values[result], torch.Tensor):
        raise InputError(f"{name} must return one tensor, not {_describe(result)}")
    owned = {tensor.untyped_storage()._cdata for tensor in tensors_of(traced)}
    storages = {
        node: {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves(value)
            if isinstance(leaf, torch.Tensor)
        }
        - owned
        for node, value in values.items()
    }
    cuts = _cuts([placeholders[0], *nodes], result, values, storages)
    stages = _stages([placeholders[0], *nodes], result, cuts, storages)
    return StageChain(traced, placeholders[0], constants, stages, tuple(values[result].shape))


def _describe(result: object) -> str:
    if isinstance(result, tuple | list | dict):
        return f"a {type(result).__name__} of {len(result)}"
    return f"{result}" if not isinstance(result, fx.Node) else f"the value of {result.name}"


def _placeholders(traced: fx.GraphModule, name: str = "the module") -> list[fx.Node]:
    found = [node for node in traced.graph.nodes if node.op == "placeholder"]
    if not found:
        raise InputError(f"{name} must take one tensor, but takes nothing")
    return found


def _run(
    traced: fx.GraphModule,
    example: torch.Tensor,
    name: str,
    env: dict[fx.Node, Any],
    nodes: list[fx.Node],
) -> dict[fx.Node, Any]:
    # Every value is kept, so that no storage's address is used twice.
    interpreter = fx.Interpreter(traced)
    interpreter.env = env
    with torch.no_grad(), quiet():
        for node in nodes:
            try:
                env[node] = interpreter.run_node(node)
            except Exception as error:
                lines = str(error).strip().splitlines()
                shape = "x".join(map(str, example.shape))
                raise InputError(
                    f"{name} cannot run on an input of {shape}: {node.name}: "
                    f"{lines[0] if lines else type(error).__name__}"
                ) from error
    return env


def _cuts(
    order: list[fx.Node],
    result: fx.Node,
    values: dict[fx.Node, Any],
    storages: dict[fx.Node, set[int]],
) -> list[tuple[int, fx.Node]]:
    """Return (position, value) of every cut: the only live value once `order[position]` has run."""
    last = _last_uses(order, result)
    live: set[fx.Node] = set()
    cuts: list[tuple[int, fx.Node]] = []
    for position, node in enumerate(order):
        if storages[node]:
            live.add(node)
        live = {value for value in live if last[value] > position}
        if len(live) != 1:
            continue
        (value,) = live
        if not isinstance(values[value], torch.Tensor):
            continue
        if cuts and storages[cuts[-1][1]] == storages[value]:
            cuts.pop()
        cuts.append((position, value))
    return cuts


def _last_uses(order: list[fx.Node], result: fx.Node) -> dict[fx.Node, int]:
    place = {node: position for position, node in enumerate(order)}
    last = {
        node: max((place.get(user, len(order)) for user in node.users), default=place[node])
        for node in order
    }
    last[result] = len(order)
    return last


def _stages(
    order: list[fx.Node],
    result: fx.Node,
    cuts: list[tuple[int, fx.Node]],
    storages: dict[fx.Node, set[int]],
) -> tuple[Stage, ...]:
    if not cuts or cuts[-1][0] != len(order) - 1:
        cuts = [*cuts, (len(order) - 1, result)]
    # Views of the input open the first stage: there is nothing in front that they could belong to.
    if storages[cuts[0][1]] == storages[order[0]]:
        cuts = cuts[1:]
    ends = [0, *(position for position, _ in cuts)]
    pieces = [tuple(order[before + 1 : end + 1]) for before, end in pairwise(ends)]
    outputs = [value for _, value in cuts]
    return tuple(map(Stage, _names(pieces), pieces, outputs))


def _defaults(name: str, placeholders: list[fx.Node]) -> dict[fx.Node, Any]:
    for node in placeholders:
        if not node.args:
            raise InputError(f"{name} must take one tensor, but also needs {node.target}")
    return {node: node.args[0] for node in placeholders}


def _names(pieces: list[tuple[fx.Node, ...]]) -> list[str]:
    """Name each stage after the innermost module that contains it and no other stage."""
    modules = [[str(node.target) for node in piece if node.op == "call_module"] for piece in pieces]
    names = []
    for index, (piece, targets) in enumerate(zip(pieces, modules, strict=True)):
        levels = zip(*(target.split(".") for target in targets), strict=False)
        prefix = ".".join(each[0] for each in takewhile(lambda level: len({*level}) == 1, levels))
        elsewhere = (t for other, found in enumerate(modules) if other != index for t in found)
        if prefix and not any(t == prefix or t.startswith(f"{prefix}.") for t in elsewhere):
            names.append(prefix)
        else:
            calls = [node.name for node in piece if node.op != "get_attr"]
            names.append(targets[0] if targets else calls[0])
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name}#{seen[name]}"
    return names
