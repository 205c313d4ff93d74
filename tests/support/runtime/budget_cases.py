"""Small networks divided by PyTorch's partitioner under a budget, and what they take."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from offcert.runtime.compiled.nodes import launches, storage_of
from offcert.runtime.watch.tracker import LiveBytes
from support.runtime.compiled_cases import step_of, train


class Divided:
    """A backend that divides graphs as Inductor does, runs them node by node, and counts bytes.

    Attributes
    ----------
    saved : int
        Bytes of the storages that the forward graph saves, without inputs.
    again : list of str
        Operators of the backward graph that the forward graph runs, too.
    peak : int
        The most bytes of results of nodes that were there at once, as counted while they ran.
    """

    def __init__(self) -> None:
        self.saved, self.peak = 0, 0
        self.again: list[str] = []
        self.graphs: list[tuple[fx.Graph, fx.Graph, int]] = []
        self._tracker = LiveBytes()
        self._tracker.start()

    def __call__(self, module: fx.GraphModule, inputs: Any) -> Any:
        compilers: dict[str, Any] = {"fw_compiler": self._metered, "bw_compiler": self._metered}
        table = select_decomp_table()
        return aot_autograd(**compilers, partition_fn=self._divide, decompositions=table)(
            module, inputs
        )

    def _divide(self, joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
        pair = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **options
        )
        forward, backward = (each.graph for each in pair)
        beside = {storage_of(node) for node in forward.find_nodes(op="placeholder")}
        results = next(iter(forward.find_nodes(op="output"))).args[0]
        sizes = {
            storage_of(node): node.meta["val"].untyped_storage().nbytes()
            for node in results[num_fwd_outputs:]
            if storage_of(node) not in beside
        }
        first = {node.name for node in forward.nodes if launches(node)}
        self.saved = sum(sizes.values())
        self.again = [n.name for n in backward.nodes if launches(n) and n.name in first]
        self.graphs.append((forward, backward, num_fwd_outputs))
        return pair

    def _metered(self, module: fx.GraphModule, inputs: Any) -> Any:
        def run(values: list[Any]) -> Any:
            with self._tracker:
                found = fx.Interpreter(module).boxed_run(values)
            self.peak = max(self.peak, self._tracker.peak)
            return found

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def divided(name: str, budget: float, solver: Any) -> tuple[Divided, list[torch.Tensor]]:
    """Train a network for a step under a budget; return the backend, and all there is to see."""
    step, found = step_of(name), Divided()
    options = {"activation_memory_budget": budget, "activation_memory_budget_solver": solver}
    with config.patch(**options):
        return found, train(step.model, step.batch, found, steps=1)
