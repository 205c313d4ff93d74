"""The graphs that a step is compiled to, found without making kernels of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.runtime.capture.borrowed import borrowed, random_state_kept
from offcert.runtime.capture.run import borrowing
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.divided import DividedGraph, results_of
from offcert.runtime.compiled.graph_network import (
    is_product,
    modelled_by,
    network_of,
    source_of,
)
from offcert.runtime.compiled.graph_pair import tensor_of
from offcert.runtime.compiled.inductor import Buffers, compiled_by_inductor, require_inductor
from offcert.runtime.hardware import Hardware
from offcert.runtime.torch_private import partitioners

# Bytes up to which results that nobody computes are zero; larger ones are not written. Arbitrary.
_WRITTEN = 2**20

Pair = tuple[fx.GraphModule, fx.GraphModule]


def divided_by_least_cut(
    joint: fx.GraphModule, inputs: Any, options: Mapping[str, Any]
) -> tuple[Pair, DividedGraph]:
    """Divide a joint graph as plain compiling does, and cut both parts into stretches."""
    options = {name: value for name, value in options.items() if name != "compiler"}
    pair = partitioners.min_cut_rematerialization_partition(joint, inputs, **options)
    owned = set(options.get("static_lifetime_input_indices") or ())
    return pair, DividedGraph(*pair, options["num_fwd_outputs"], owned, is_product)


def profile_graphs(step: TrainingStep, hardware: Hardware) -> tuple[Network, dict[str, Any]]:
    """Return the network of the graphs that a step is compiled to, and what recognises them."""
    graphs = graphs_of(step)
    return network_of(graphs, modelled_by(hardware)), source_of(graphs)


def graphs_of(step: TrainingStep) -> list[DividedGraph]:
    """Return the graphs that Inductor would compile of a step, in the order of the forward pass.

    The program runs once, without its backward pass if it returns the loss; in the place of each
    graph runs one that computes nothing, so that results have shapes but no values.

    Parameters
    ----------
    step : TrainingStep
        Model, batch and loss. The model is as before afterwards; code that was compiled before is
        compiled anew when it runs next.
    """
    require_inductor()
    found = _Found()
    torch.compiler.reset()
    try:
        with random_state_kept(), borrowed(*borrowing(step)), _buffers_kept(step.model):
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
        shape, stride = tuple(value.shape), tuple(value.stride())
        found = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
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
